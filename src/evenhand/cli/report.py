"""`evenhand report`: write a page about plans, runs, experiments, verdicts or a dossier."""

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
@click.option("--title", help="Title of the page; default: the study's title.")
@click.option(
    "--experiment",
    "name",
    metavar="NAME",
    help="Journal: name of the experiment; needed only if the journal holds several.",
)
@click.option(
    "--figures", type=click.Path(file_okay=False), help="Also save every figure to DIR as SVG, PNG and CSV."
)
@click.option(
    "--summary",
    is_flag=True,
    help="Write a summary on one printed page, with lines to sign, instead of the whole report.",
)
@click.option(
    "--dossier", is_flag=True, help="Write the design dossier of a STUDY, or repeat an earlier dossier."
)
@click.option(
    "--scenarios",
    type=click.Path(),
    help="Dossier: TOML file with [[scenario]] tables instead of the default grid.",
)
@click.option(
    "--replications",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Dossier: number of runs per scenario.",
)
@click.option(
    "--max-samples", type=click.IntRange(min=1), help="Dossier: maximum number of samples of a run."
)
@seed_option
@click.option(
    "--missing",
    type=click.Choice(["fail", "drop"]),
    default="fail",
    help="Data: refuse or drop rows with a missing value.",
)
@json_option
def report_command(
    sources: tuple[str, ...], out: str | None, title: str | None, name: str | None, figures: str | None,
    summary: bool, dossier: bool,
    scenarios: str | None, replications: int, max_samples: int | None, seed: int, missing: str, as_json: bool,
) -> None:  # fmt: skip
    """Write one self-contained page about SOURCES, in the given order.

    A source is a study (its plan), runs saved by `simulate --save`, a journal (its experiment), or a data
    file (judged by the study before it in the list). The page needs no network, can be printed, and has a
    table for every figure. --json prints the same numbers.
    """
    if out is None and figures is None and not as_json:
        raise BadInput("a report needs an output: give -o FILE.html, --figures DIR or --json.")
    if summary and out is None:
        raise BadInput("a summary needs an output: give -o FILE.html.")
    check_page(out, summary)
    if dossier:
        page = _dossier(sources, scenarios, replications, max_samples, seed)
    else:
        with ExitStack() as stack:
            page = _report(list(_opened(sources, name, missing, stack)), title)
    _write(page, out, figures, as_json, summary)


def check_page(out: str | None, summary: bool = False) -> None:
    """Check that a report can be written, before the slow part."""
    for needed in ("matplotlib", "jinja2", "narwhals"):
        if find_spec(needed) is None:
            raise BadInput(f"a report needs {needed}; install evenhand[report].")
    if out is not None:
        from evenhand.reports.document import page_path

        page_path(out, summary)


def _report(found: Sequence[Any], title: str | None) -> Report:
    from evenhand.reports.document import report

    return report(*found, title=title)


def _opened(sources: Sequence[str], name: str | None, missing: str, stack: ExitStack) -> Iterator[Any]:
    """Yield the object in each source; a study without [truth] only judges the data after it."""
    from evenhand.study import load
    from evenhand.verdicts.readers import is_log

    study: Study | None = None
    for source in sources:
        path = Path(source)
        if path.suffix.lower() == ".toml":
            study = load(path)
            if study.truth is not None:
                yield study
            elif len(sources) == 1:
                raise BadInput(
                    f"{source} has no [truth], so there is no plan to report; add one, or give data after it."
                )
        elif path.suffix.lower() == ".npz":
            from evenhand.simulation.runs import Runs

            yield Runs.load(path)
        elif path.suffix.lower() in DATA or is_log(path):
            yield _judged(study, source, missing)
        else:
            from evenhand.cli.options import open_experiment

            yield stack.enter_context(open_experiment(source, name, write=False))


def _judged(study: Study | None, source: str, missing: str) -> Any:
    from evenhand.verdicts.judge import judge

    if study is None:
        raise BadInput(f"data need a study to be judged by; give a STUDY.toml before {source}.")
    with option_advice():
        return judge(study, source, missing=missing)


def _dossier(
    sources: Sequence[str], scenarios: str | None, replications: int, max_samples: int | None, seed: int
) -> Report:
    from evenhand.cli.terminal import progress
    from evenhand.reports.dossier import dossier, new_recipe, read_recipe
    from evenhand.simulation.calibrate import load_scenarios
    from evenhand.study import load

    if len(sources) != 1:
        raise BadInput(f"a dossier needs exactly one study; got {len(sources)} sources.")
    if Path(sources[0]).suffix.lower() in (".html", ".htm"):
        recipe = read_recipe(sources[0])
    else:
        study = load(sources[0])
        given = None if scenarios is None else load_scenarios(scenarios, study.problem)
        recipe = new_recipe(study, given, replications, seed, max_samples)
    with progress("scenarios", len(recipe.scenarios)) as update:
        return dossier(recipe, progress=lambda done, total: update(done))


def _write(page: Report, out: str | None, figures: str | None, as_json: bool, summary: bool) -> None:
    from evenhand.cli.terminal import console, print_sentence

    saved = None if out is None else page.save(out, summary)
    drawn = [] if figures is None else page.save_figures(figures)
    if as_json:
        click.echo(page.json(), nl=False)
        return
    show = console()
    if saved is not None:
        print_sentence(show, f"Open {saved}.")
    if drawn:
        print_sentence(show, f"{len(drawn)} files written to {figures}.")
