"""`evenhand report`: one page about plans, simulations, experiments and verdicts; or a design dossier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.options import json_option, option_advice, seed_option
from evenhand.errors import BadInput

if TYPE_CHECKING:
    from evenhand.reports.document import Report
    from evenhand.study import Study

DATA = (".csv", ".gz", ".parquet", ".pq")


@click.command("report")
@click.argument("sources", nargs=-1, required=True)
@click.option("-o", "--out", type=click.Path(), help="Write the page to FILE.html, FILE.md or FILE.json.")
@click.option("--title", help="The page's title; the study's unless given.")
@click.option(
    "--experiment", "name", metavar="NAME", help="Journal: which experiment, where it holds several."
)
@click.option(
    "--figures", type=click.Path(file_okay=False), help="Also save every picture to DIR as SVG, PNG and CSV."
)
@click.option("--dossier", is_flag=True, help="The design dossier of a STUDY, or of a dossier made before.")
@click.option(
    "--scenarios", type=click.Path(), help="Dossier: [[scenario]] tables instead of the usual grid."
)
@click.option(
    "--replications",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Dossier: runs of each scenario.",
)
@click.option("--max-samples", type=click.IntRange(min=1), help="Dossier: where a run is cut.")
@seed_option
@click.option(
    "--missing", type=click.Choice(["fail", "drop"]), default="fail", help="Data: rows that miss a value."
)
@json_option
def report_command(
    sources: tuple[str, ...], out: str | None, title: str | None, name: str | None, figures: str | None,
    dossier: bool,
    scenarios: str | None, replications: int, max_samples: int | None, seed: int, missing: str, as_json: bool,
) -> None:  # fmt: skip
    """One page, self-contained, about SOURCES in the order given.

    A source is a study (its plan), runs that `simulate --save` wrote, a journal (its experiment), or a data
    file, judged by the study named before it. The page needs no network, prints well, and holds a table
    behind every picture; --json prints the same numbers.
    """
    if out is None and figures is None and not as_json:
        raise BadInput("say where the report goes: -o FILE.html, --figures DIR or --json.")
    check_page(out)
    if dossier:
        page = _dossier(sources, scenarios, replications, max_samples, seed)
    else:
        with ExitStack() as stack:
            page = _report(list(_opened(sources, name, missing, stack)), title)
    _deliver(page, out, figures, as_json)


def check_page(out: str | None) -> None:
    """Refuse before the work what would be refused after it."""
    for needed in ("matplotlib", "jinja2", "narwhals"):
        if find_spec(needed) is None:
            raise BadInput(f"a report needs {needed}; install evenhand[report].")
    if out is not None:
        from evenhand.reports.document import page_path

        page_path(out)


def _report(found: Sequence[Any], title: str | None) -> Report:
    from evenhand.reports.document import report

    return report(*found, title=title)


def _opened(sources: Sequence[str], name: str | None, missing: str, stack: ExitStack) -> Iterator[Any]:
    """Each source as the noun it holds. A study without a truth serves only to judge the data after it."""
    from evenhand.study import load

    study: Study | None = None
    for source in sources:
        path = Path(source)
        if path.suffix.lower() == ".toml":
            study = load(path)
            if study.truth is not None:
                yield study
            elif len(sources) == 1:
                raise BadInput(
                    f"{source} has no [truth], so there is no plan to report; add one, or name data after it."
                )
        elif path.suffix.lower() == ".npz":
            from evenhand.simulation.runs import Runs

            yield Runs.load(path)
        elif path.suffix.lower() in DATA:
            yield _judged(study, source, missing)
        else:
            from evenhand.cli.journal_options import opened

            yield stack.enter_context(opened(source, name, write=False))


def _judged(study: Study | None, source: str, missing: str) -> Any:
    from evenhand.verdicts.judge import judge

    if study is None:
        raise BadInput(f"data are judged by a study; name a STUDY.toml before {source}.")
    with option_advice():
        return judge(study.problem, source, procedure=study.procedure, missing=missing)


def _dossier(
    sources: Sequence[str], scenarios: str | None, replications: int, max_samples: int | None, seed: int
) -> Report:
    from evenhand.cli.terminal import progress
    from evenhand.reports.dossier import dossier, new_recipe, read_recipe
    from evenhand.simulation.scenario_files import load_scenarios
    from evenhand.study import load

    if len(sources) != 1:
        raise BadInput(f"a dossier is made of one study; got {len(sources)} sources.")
    if Path(sources[0]).suffix.lower() in (".html", ".htm"):
        recipe = read_recipe(sources[0])
    else:
        study = load(sources[0])
        given = None if scenarios is None else load_scenarios(scenarios, study.problem)
        recipe = new_recipe(study, given, replications, seed, max_samples)
    with progress("scenarios", len(recipe.scenarios)) as tick:
        return dossier(recipe, tell=lambda done, total: tick(done))


def _deliver(page: Report, out: str | None, figures: str | None, as_json: bool) -> None:
    from evenhand.cli.terminal import console, say

    saved = None if out is None else page.save(out)
    drawn = [] if figures is None else page.save_figures(figures)
    if as_json:
        click.echo(page.json(), nl=False)
        return
    show = console()
    if saved is not None:
        say(show, f"Open {saved}.")
    if drawn:
        say(show, f"{len(drawn)} files in {figures}.")
