"""`evenhand paper`: reproduce every table and figure of the paper."""

from __future__ import annotations

import importlib.util
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import click

from evenhand.cli.options import device_option, json_option, print_json, seed_option
from evenhand.errors import BadInput


@click.command("paper")
@click.option("--only", help="Experiments to run: example, a, a', b, c, ist; separate several with commas.")
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
    help="Runs of Algorithm 1 with constant step and of (b)'s Bernoulli model; default: a tenth.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False),
    default="out/paper",
    show_default=True,
    help="Folder to write to.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="Number of threads; default: the number of cores."
)
@click.option(
    "--trial",
    type=click.Path(exists=True, dir_okay=False),
    help="The public IST csv: recompute the cells, and show how the answer depends on the definition.",
)
@device_option
@seed_option
@json_option
def paper_command(
    only: str | None,
    replications: int,
    literal: int | None,
    out: str,
    workers: int | None,
    trial: str | None,
    device: str,
    seed: int,
    as_json: bool,
) -> None:
    """Reproduce every table and figure of the paper next to evenhand's results, with intervals.

    Algorithm 1 with the constant step of the paper often does not stop: its runs end at 20,000 samples, and
    it gets fewer replications. Writes results.json, figures and index.html.
    """
    from evenhand.cli.terminal import console, print_sentence, progress
    from evenhand.simulation.shards import check_device

    check_device(device)
    paper = paper_module()
    names = paper.chosen(only)
    rebuilt = None if trial is None else paper.trial_data.load(trial)
    fewer = literal or max(replications // 10, 2)
    setting = paper.Setting(replications, fewer, seed, workers, rebuilt, device=device)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    done = 0
    with progress("paper", paper.steps(names), quiet=as_json) as update:

        def on_done(_: str) -> None:
            nonlocal done
            done += 1
            update(done)

        sections = paper.run(names, setting, folder, on_done)
    if as_json:
        print_json({"results": str(folder / "results.json"), "page": str(folder / "index.html")})
        return
    show = console()
    for section in sections:
        print_sentence(show, "".join(part if isinstance(part, str) else part.text for part in section.lead))
    ours, theirs = (str(timedelta(seconds=round(part))) for part in paper.run_times(setting))
    print_sentence(
        show, f"evenhand and the baselines took {ours}, Algorithm 1 took {theirs} (hours:minutes:seconds)."
    )
    print_sentence(show, f"Open {folder / 'index.html'}.")


def paper_module() -> ModuleType:
    """Import `evenhand.paper`: installed with the package, or the folder `paper` of a checkout."""
    name = "evenhand.paper"
    if name in sys.modules:
        return sys.modules[name]
    if importlib.util.find_spec(name) is not None:
        return importlib.import_module(name)
    folder = Path(__file__).parents[3] / "paper"
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
