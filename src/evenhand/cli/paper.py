"""`evenhand paper`: every table and figure of the paper beside ours."""

from __future__ import annotations

import importlib.util
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import click

from evenhand.cli.options import json_option, print_json, seed_option
from evenhand.errors import BadInput


@click.command("paper")
@click.option("--only", help="Which experiments: example, a, a', b, c, ist; several with commas.")
@click.option(
    "--replications",
    type=click.IntRange(min=2),
    default=3000,
    show_default=True,
    help="Runs of each procedure in each experiment.",
)
@click.option(
    "--literal",
    type=click.IntRange(min=2),
    help="Replications of Algorithm 1's constant step and (b)'s Bernoulli model; a tenth unless given.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False),
    default="out/paper",
    show_default=True,
    help="Folder to write to.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Threads; all cores unless given.")
@click.option(
    "--trial",
    type=click.Path(exists=True, dir_okay=False),
    help="The public IST csv: rebuild its cells, and see how the answer depends on the definition.",
)
@seed_option
@json_option
def paper_command(
    only: str | None,
    replications: int,
    literal: int | None,
    out: str,
    workers: int | None,
    trial: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Every table and figure of the paper, beside evenhand's, with intervals.

    Algorithm 1 to the letter (constant step) often does not stop: its runs end at 20,000 samples, and it gets
    fewer replications. Writes results.json, figures and index.html.
    """
    from evenhand.cli.terminal import console, progress, say

    room = paper_room()
    names = room.chosen(only)
    rebuilt = None if trial is None else room.trial_data.load(trial)
    setting = room.Setting(replications, literal or max(replications // 10, 2), seed, workers, rebuilt)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    done = 0
    with progress("paper", room.steps(names), quiet=as_json) as ticks:

        def tick(_: str) -> None:
            nonlocal done
            done += 1
            ticks(done)

        sections = room.run(names, setting, folder, tick)
    if as_json:
        print_json({"results": str(folder / "results.json"), "page": str(folder / "index.html")})
        return
    show = console()
    for section in sections:
        say(show, "".join(part if isinstance(part, str) else part.text for part in section.lead))
    ours, theirs = (str(timedelta(seconds=round(part))) for part in room.took(setting))
    say(show, f"evenhand's rows and the baselines took {ours}, Algorithm 1 {theirs} (hours:minutes:seconds).")
    say(show, f"Open {folder / 'index.html'}.")


def paper_room() -> ModuleType:
    """`evenhand.paper`: installed with the package, or the folder `paper` beside `src` in a checkout."""
    name = "evenhand.paper"
    if name in sys.modules:
        return sys.modules[name]
    if importlib.util.find_spec(name) is not None:
        return importlib.import_module(name)
    folder = Path(__file__).parents[4] / "paper"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None or not (folder / "__init__.py").is_file():
        raise BadInput(
            "the paper's experiments are not installed here; install evenhand from its wheel or a checkout."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
