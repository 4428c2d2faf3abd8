"""`evenhand compare` and `sweep`: simulate several studies, sampling rules or scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.options import (
    checkpoints_of,
    checkpoints_option,
    executor_options,
    json_option,
    open_executor_with_progress,
    print_json,
    replications_option,
    seed_option,
)
from evenhand.errors import BadInput

if TYPE_CHECKING:
    from rich.table import Table

    from evenhand.simulation.simulate import Comparison
    from evenhand.simulation.sweep import Name, Sweep
    from evenhand.study import Study


@click.command("compare")
@click.argument("studies", nargs=-1, required=True, type=click.Path(), metavar="STUDY..")
@click.option("--sampling", multiple=True, help="With one study: also this sampling rule. May be repeated.")
@replications_option(1000)
@seed_option
@checkpoints_option
@click.option(
    "--figure", type=click.Path(), help="Draw the number of samples to a decision to FILE.svg or FILE.png."
)
@executor_options
@json_option
def compare_command(
    studies: tuple[str, ...], sampling: tuple[str, ...], replications: int, seed: int, checkpoints: str,
    figure: str | None, workers: int | None, processes: bool, dask: str | None, device: str, as_json: bool,
) -> None:  # fmt: skip
    """Compare procedures on common random numbers.

    The d-th sample of a cell is the same outcome in every study, so paired differences from the first study
    are estimated with fewer runs. Give several study files, or one study file and --sampling for each further
    rule.
    """
    from evenhand.cli.figure_output import draw_runs, figure_path
    from evenhand.simulation.simulate import compare

    named = named_studies(studies, sampling)
    target = None if figure is None else figure_path(figure)
    total = replications * len(named)
    with open_executor_with_progress("compare", total, workers, processes, dask, device, as_json) as work:
        found = compare(
            named, replications, seed, checkpoints_of(checkpoints), None, work.progress, work.executor, device
        )
    if target is not None:
        draw_runs(found, "duration", target)
    if as_json:
        print_json(found.to_list())
        return
    _print_comparison(found, target)


def named_studies(paths: tuple[str, ...], sampling: tuple[str, ...] = ()) -> dict[str, Study]:
    """Load the studies; name them by title, or by file name if titles are missing or repeated."""
    from dataclasses import replace

    from evenhand.study import load

    loaded = [load(path) for path in paths]
    if sampling:
        if len(loaded) > 1:
            raise BadInput(f"--sampling needs exactly one study; got {len(loaded)}.")
        base = loaded[0]
        rules = [base.procedure.sampling_name, *sampling]
        varied = [
            base,
            *(replace(base, procedure=replace(base.procedure, sampling=rule)) for rule in sampling),
        ]
        return _with_names(rules, varied)
    titles = [study.title for study in loaded]
    by_title = all(titles) and len(set(titles)) == len(titles)
    return _with_names(titles if by_title else [Path(path).stem for path in paths], loaded)


def _with_names(names: list[str], studies: list[Study]) -> dict[str, Study]:
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise BadInput(f"studies must differ in title, file name or sampling rule; {repeated!r} comes twice.")
    return dict(zip(names, studies, strict=True))


def _print_comparison(found: Comparison, target: Path | None) -> None:
    from evenhand.cli.terminal import console, print_sentence, section

    out = console()
    print_sentence(out, _sentence(found))
    section(out, "Common random numbers", _rows(found))
    out.print()
    runs = next(iter(found.runs.values()))
    print_sentence(out, f"{runs.replications:,} runs each, seed {runs.seed}; intervals of 95%.")
    if target is None:
        print_sentence(out, "Next: draw it with --figure duration.svg")
    else:
        print_sentence(out, f"Written: {target}")


def _sentence(found: Comparison) -> str:
    """Name the study with the fewest samples, and say if the difference could be chance."""
    by_mean = sorted(found.runs, key=lambda name: float(found.runs[name].samples.mean()))
    fewest, first = by_mean[0], next(iter(found.runs))
    other = by_mean[1] if fewest == first else first
    gap = found.samples(other if fewest == first else fewest)
    note = "" if gap.low > 0 or gap.high < 0 else "; the difference could be chance"
    mean = found.runs[fewest].samples.mean()
    sentence = (
        f"{fewest} needs the fewest samples, {mean:,.0f} on average, "
        f"{abs(gap.mean):,.0f} fewer than {other}{note}."
    )
    return f"{sentence} Undecided runs count with all their samples." if _undecided(found) else sentence


def _undecided(found: Comparison) -> bool:
    return not all(runs.stopped.all() for runs in found.runs.values())


def _rows(found: Comparison) -> Table:
    from evenhand.cli.terminal import count, count_or_never, table
    from evenhand.simulation.runs import rate

    rows = []
    first, undecided = next(iter(found.runs)), ["undecided"] if _undecided(found) else []
    for name, runs in found.runs.items():
        right, decided = rate(runs.correct), float(runs.stopped.mean())
        row = [
            name,
            count(runs.samples.mean()),
            count_or_never(runs.decided_by(0.9)),
            *(f"{1 - decided:.1%}" for _ in undecided),
        ]
        row += [f"{right.rate:.1%}", f"{right.low:.1%} to {right.high:.1%}"]
        if name == first:
            row += ["", ""]
        else:
            more, better = found.samples(name), found.correct(name)
            row.append(f"{more.mean:+,.1f} ± {more.high - more.mean:,.1f}")
            row.append(f"{better.mean:+.2%} ± {better.high - better.mean:.2%}")
        rows.append(row)
    columns = [
        "",
        "mean samples",
        "90% by",
        *undecided,
        "right",
        "interval",
        "samples, vs first",
        "right, vs first",
    ]
    return table(columns, rows)


@click.command("sweep")
@click.argument("studies", nargs=-1, required=True, type=click.Path(), metavar="STUDY..")
@click.option(
    "--scenarios", type=click.Path(), help="TOML file with [[scenario]] tables; default: each study's truth."
)
@click.option("--sampling", multiple=True, help="With one study: also this sampling rule. May be repeated.")
@replications_option(1000)
@seed_option
@checkpoints_option
@click.option(
    "--store",
    type=click.Path(file_okay=False),
    default="sweep",
    show_default=True,
    help="Folder that keeps the finished shards.",
)
@executor_options
@json_option
def sweep_command(
    studies: tuple[str, ...], scenarios: str | None, sampling: tuple[str, ...], replications: int, seed: int,
    checkpoints: str, store: str, workers: int | None, processes: bool, dask: str | None, device: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Run studies x scenarios x replications; a sweep can be resumed.

    The work is split into shards. The store keeps the result of each shard under a hash of its inputs. If you
    run the sweep again after a crash, or with more replications or scenarios, only missing shards are
    computed. Threads, processes and a Dask cluster give identical numbers.
    """
    from evenhand.simulation.sweep import shard_size, sweep

    grid = _grid(named_studies(studies, sampling), scenarios)
    shards = len(grid) * -(-replications // shard_size(device))
    with open_executor_with_progress("sweep", shards, workers, processes, dask, device, as_json) as work:
        found = sweep(
            grid,
            replications,
            seed,
            store,
            work.executor,
            checkpoints_of(checkpoints),
            work.progress,
            device=device,
        )
    if as_json:
        print_json(_result(found))
        return
    _print_sweep(found, store)


def _grid(studies: dict[str, Study], scenarios: str | None) -> dict[Name, Study]:
    from evenhand.simulation.calibrate import load_scenarios
    from evenhand.simulation.sweep import grid

    if scenarios is None:
        return {(name, "its own truth"): study for name, study in studies.items()}
    found: dict[Name, Study] = {}
    for name, study in studies.items():
        found |= grid({name: study}, load_scenarios(scenarios, study.problem))
    return found


def _result(found: Sweep) -> dict[str, Any]:
    return {
        "shards": {"computed": found.computed, "reused": found.reused},
        "runs": [
            {"study": study, "scenario": scenario} | runs.to_dict()
            for (study, scenario), runs in found.runs.items()
        ],
    }


def _print_sweep(found: Sweep, store: str) -> None:
    from evenhand.cli.terminal import console, count, count_or_never, print_sentence, section, table
    from evenhand.simulation.runs import rate

    out = console()
    rows = []
    for (study, scenario), runs in found.runs.items():
        right, wrong = rate(runs.correct), rate(runs.wrong)
        row = [study, scenario, count(runs.samples.mean()), count_or_never(runs.decided_by(0.9))]
        row += [f"{right.rate:.1%}", f"{right.low:.1%} to {right.high:.1%}", f"{wrong.rate:.2%}"]
        rows.append(row)
    print_sentence(out, f"{found.computed:,} shards computed, {found.reused:,} read from {store}.")
    columns = ["study", "scenario", "mean samples", "90% by", "right", "95% interval", "decided wrongly"]
    section(out, "Runs", table(columns, rows, numbers_from=2))
    out.print()
    print_sentence(out, "Next: run it again with more --replications; only new shards are computed.")
