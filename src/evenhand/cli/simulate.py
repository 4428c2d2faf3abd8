"""`evenhand simulate` and `calibrate`: run a procedure many times, or once step by step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.options import (
    checkpoints_of,
    checkpoints_option,
    executor_options,
    json_option,
    new_file,
    open_executor_with_progress,
    print_json,
    replications_option,
    seed_option,
    study_argument,
)
from evenhand.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from evenhand.simulation.box_calibration import BoxCalibration
    from evenhand.simulation.buffers import Rows, Trace
    from evenhand.simulation.calibrate import Calibration
    from evenhand.simulation.runs import Runs
    from evenhand.simulation.simulate import IntervalCost
    from evenhand.study import Study


MAX_PARTS = 10  # parts of a box in the table
PICTURES = ("duration", "success", "allocation")


@click.command("simulate")
@study_argument
@replications_option(1000)
@seed_option
@checkpoints_option
@click.option(
    "--trace", type=click.IntRange(min=0), metavar="N", help="Print only replication N, step by step."
)
@click.option("--save", type=click.Path(), help="Save the runs and the study to FILE.npz.")
@click.option("--figure", type=click.Path(), help="Draw a figure to FILE.svg or FILE.png.")
@click.option(
    "--picture",
    type=click.Choice(PICTURES),
    default="duration",
    show_default=True,
    help="Which figure to draw.",
)
@click.option(
    "--intervals-only",
    is_flag=True,
    help="Of a study in intervals: do not run it one by one too, which shows what intervals cost.",
)
@executor_options
@json_option
def simulate_command(
    study: str, replications: int, seed: int, checkpoints: str, trace: int | None, save: str | None,
    figure: str | None, picture: str, intervals_only: bool, workers: int | None, processes: bool,
    dask: str | None, device: str, as_json: bool,
) -> None:  # fmt: skip
    """Simulate the procedure on the study's [truth] many times.

    Prints how often the answer was right, with an exact 95% interval, the number of samples and the
    allocation. A run that reaches max_samples without a decision counts with max_samples. The same seed gives
    the same numbers with any number of workers.
    """
    from evenhand.study import load

    loaded = load(study)
    at = checkpoints_of(checkpoints)
    target = (
        None if figure is None else _figure_target(figure, "evidence" if trace is not None else picture, at)
    )
    if save is not None:
        new_file(save, b"PK", "a file of runs")
    if trace is not None:
        show_trace(loaded, seed, trace, target, as_json)
        return
    runs = _simulate(loaded, replications, seed, at, workers, processes, dask, device, as_json)
    cost = None
    if loaded.procedure.interval is not None and not intervals_only:
        cost = _cost_of_intervals(loaded, runs, workers, processes, dask, as_json)
    if save is not None:
        runs.save(save)
    if target is not None:
        from evenhand.cli.figure_output import draw_runs

        draw_runs(runs, picture, target)
    if as_json:
        table = runs.to_dict()
        if cost is not None:
            table["intervals"]["one_by_one"] = cost.to_dict()
        print_json(table)
        return
    _print_runs(runs, study, [str(path) for path in (save, target) if path is not None], cost)


def _simulate(
    study: Study, replications: int, seed: int, checkpoints: tuple[int, ...], workers: int | None,
    processes: bool, dask: str | None, device: str, quiet: bool,
) -> Runs:  # fmt: skip
    from evenhand.simulation.simulate import simulate_study

    with open_executor_with_progress(
        "simulate", replications, workers, processes, dask, device, quiet
    ) as work:
        return simulate_study(
            study, replications, seed, checkpoints, work.executor, work.progress, device=device
        )


def _cost_of_intervals(
    study: Study, runs: Runs, workers: int | None, processes: bool, dask: str | None, quiet: bool
) -> IntervalCost:
    from evenhand.simulation.simulate import MOST_ONE_BY_ONE, run_one_by_one

    count = min(runs.replications, MOST_ONE_BY_ONE)
    with open_executor_with_progress("one by one", count, workers, processes, dask, "cpu", quiet) as work:
        return run_one_by_one(study, runs, work.executor, work.progress)


def _figure_target(name: str, picture: str, checkpoints: tuple[int, ...]) -> Path:
    from evenhand.cli.figure_output import figure_path

    if picture == "success" and len(checkpoints) < 2:
        raise BadInput("the success curve needs at least two checkpoints; give --checkpoints 1000,2000,... .")
    return figure_path(name)


def _print_runs(runs: Runs, study: str, written: list[str], cost: IntervalCost | None = None) -> None:
    from evenhand.cli.terminal import console, heat_map, print_sentence, section
    from evenhand.reports.simulation_sentences import results

    out, problem = console(), runs.study.problem
    for sentence in (*results(runs), *([] if cost is None else [cost.sentence()])):
        print_sentence(out, sentence)
    _print_samples(out, runs)
    _print_answers(out, runs)
    if runs.checkpoints:
        _print_checkpoints(out, runs)
    most = max(runs.answers(), key=runs.answers().__getitem__)
    section(out, "Where samples go", heat_map(problem.policies, problem.group_names, runs.allocation, most))
    out.print()
    for name in written:
        print_sentence(out, f"Written: {name}")
    rate = runs.replications / max(runs.seconds, 1e-9)
    print_sentence(out, f"{runs.replications:,} runs in {runs.seconds:.1f} s, {rate:,.0f} per second.")
    following = f"simulate {study} --seed {runs.seed} --trace 0"
    if runs.intervals is not None or runs.items is not None:
        following = f"new JOURNAL {study}"
    print_sentence(out, f"Next: evenhand {following}")


def _print_samples(out: Console, runs: Runs) -> None:
    from evenhand.cli.terminal import count, section, table

    numbers = runs.to_dict()["samples"]
    chances = list(numbers["quantiles"])
    columns = ["mean", "standard error", "standard deviation", *(f"{float(c):.0%} by" for c in chances)]
    cells = [count(numbers["mean"]), count(numbers["se"]), count(numbers["sd"])]
    row = [*cells, *(f"{numbers['quantiles'][c]:,}" for c in chances)]
    section(out, "Samples", table(columns, [row], numbers_from=0))


def _print_answers(out: Console, runs: Runs) -> None:
    from evenhand.cli.terminal import percent, section, table

    shares = sorted(runs.answers().items(), key=lambda pair: -pair[1])
    rows = [[name, percent(share)] for name, share in shares if share > 0]
    section(out, "Answers", table(["", "share of runs"], rows))


def _print_checkpoints(out: Console, runs: Runs) -> None:
    from evenhand.cli.terminal import section, table

    rows = []
    for number, samples in enumerate(runs.checkpoints):
        found = runs.at_checkpoint(number)
        rows.append([f"{samples:,}", f"{found.rate:.1%}", f"{found.low:.1%} to {found.high:.1%}"])
    section(
        out,
        "Share right at each checkpoint",
        table(["samples", "share of runs", "95% interval"], rows, numbers_from=0),
    )


@click.command("calibrate")
@study_argument
@click.option("--scenarios", type=click.Path(), help="TOML file with [[scenario]] tables.")
@click.option(
    "--box",
    multiple=True,
    metavar="CELL=LOW:HIGH",
    help="A mean that is not known: POLICY/GROUP=LOW:HIGH. May be repeated, for up to three means.",
)
@click.option("--tiles", type=click.IntRange(min=1), help="With --box: tiles per mean; default: as needed.")
@replications_option(2000)
@seed_option
@click.option(
    "--horizon",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Maximum number of samples of a run.",
)
@executor_options
@json_option
def calibrate_command(
    study: str, scenarios: str | None, box: tuple[str, ...], tiles: int | None, replications: int, seed: int,
    horizon: int, workers: int | None, processes: bool, dask: str | None, device: str, as_json: bool,
) -> None:  # fmt: skip
    """Find a stopping threshold by simulation, for given scenarios or for a whole box of means.

    Runs the study's sampling rule on every scenario up to the horizon. Finds the smallest threshold for which
    the error in every scenario is at most delta, with 95% confidence and without assumptions on the
    distribution. The guarantee holds for these scenarios and this horizon only.

    With --box the error is at most delta at every point of the box, with 95% confidence in the simulation:
    proved on this box, for this sampling rule and runs of up to the horizon. The box is cut into tiles whose
    number grows with the horizon and, by its power, with the number of means.

    \b
        evenhand calibrate study.toml --box "A/young=0.5:0.7" --box "B/young=0.5:0.6" --horizon 300

    \b
    A scenario is a truth with a name:
        [[scenario]]
        name  = "the best policy narrowly misses its floor"
        means = [[0.9, 0.833], [0.88, 0.86]]
    """
    from evenhand.simulation.calibrate import calibrate, load_scenarios
    from evenhand.study import load

    loaded = load(study)
    if (scenarios is None) == (not box):
        raise BadInput("calibrate takes --scenarios FILE or --box CELL=LOW:HIGH, and exactly one of them.")
    if tiles is not None and not box:
        raise BadInput("--tiles belongs to --box; the calibration is on scenarios.")
    if scenarios is None:
        _calibrate_box(
            loaded, box, tiles, replications, seed, horizon, workers, processes, dask, device, as_json
        )
        return
    truths = load_scenarios(scenarios, loaded.problem)
    with open_executor_with_progress(
        "calibrate", replications * len(truths), workers, processes, dask, device, as_json
    ) as work:
        found = calibrate(
            loaded, truths, replications, seed, horizon, None, work.progress, work.executor, device
        )
    if as_json:
        print_json(found.to_dict())
        return
    _print_calibration(found)


def _calibrate_box(
    study: Study, box: tuple[str, ...], tiles: int | None, replications: int, seed: int, horizon: int,
    workers: int | None, processes: bool, dask: str | None, device: str, as_json: bool,
) -> None:  # fmt: skip
    from evenhand.simulation.box import parse_box
    from evenhand.simulation.box_calibration import calibrate_box, parts_of_box

    ranges = parse_box(study.problem, box)
    total = replications * len(parts_of_box(study, ranges, horizon, tiles)[1])
    with open_executor_with_progress("calibrate", total, workers, processes, dask, device, as_json) as work:
        found = calibrate_box(
            study, ranges, replications, seed, horizon, tiles, None, work.progress, work.executor, device
        )
    if as_json:
        print_json(found.to_dict())
        return
    _print_box_calibration(found)


def _print_box_calibration(found: BoxCalibration) -> None:
    from evenhand.cli.terminal import console, print_sentence, section, table
    from evenhand.reports.simulation_sentences import box_calibration

    out = console()
    for sentence in box_calibration(found)[:-1]:
        print_sentence(out, sentence)
    hardest = sorted(found.tiles, key=lambda tile: -tile.needs)[:MAX_PARTS]
    rows = [
        [
            *(f"{a:.4g} to {b:.4g}" for a, b in zip(tile.low, tile.high, strict=True)),
            tile.answer or "none",
            f"{tile.allowed:.2%}",
            f"{tile.error.rate:.2%}",
            f"{tile.needs:g}",
        ]
        for tile in hardest
    ]
    names = [one.label for one in found.box]
    columns = [
        *names,
        "right answer",
        "error allowed at its point",
        "error there, at most",
        "threshold alone",
    ]
    section(out, f"The parts of the box that need most, of {len(found.tiles):,}", table(columns, rows))
    out.print()
    print_sentence(
        out,
        f"Next: write stopping = {{ calibrated = {found.threshold:g} }} and max_samples = {found.horizon} "
        "into [procedure], and simulate.",
    )


def _print_calibration(found: Calibration) -> None:
    from evenhand.cli.terminal import console, print_sentence, section, table

    out, worst = console(), found.worst
    print_sentence(
        out,
        f"With threshold {found.threshold:g} the error in every scenario is at most {found.delta:g} "
        f"(95% confidence, runs of up to {found.horizon:,} samples).",
    )
    print_sentence(
        out,
        f"The worst is {worst.name}: at most {worst.error.rate:.2%} of {found.replications:,} runs wrong "
        f"(95% interval {worst.error.low:.2%} to {worst.error.high:.2%}).",
    )
    rows = [
        [one.name, f"{one.error.rate:.2%}", f"{one.error.low:.2%} to {one.error.high:.2%}", f"{one.needs:g}"]
        for one in found.scenarios
    ]
    section(out, "Scenarios", table(["", "wrong, at most", "95% interval", "threshold alone"], rows))
    out.print()
    print_sentence(
        out, f"Next: write stopping = {{ calibrated = {found.threshold:g} }} into [procedure], and simulate."
    )


# the figure is about this many pixels wide, so more steps would not be visible
MAX_DRAWN_STEPS = 2000


def show_trace(study: Study, seed: int, replication: int, target: Path | None, as_json: bool) -> None:
    """Print every step of one replication; draw its evidence if `target` is given."""
    from evenhand.simulation.simulate import follow

    rows, trace = follow(study, seed, replication)
    if target is not None:
        from evenhand.cli.figure_output import draw_evidence

        draw_evidence(study, follow(study, seed, replication, MAX_DRAWN_STEPS)[1], target)
    steps = steps_of(study, trace)
    if as_json:
        print_json(_result(study, seed, replication, rows) | {"steps": steps})
        return
    for step in steps:
        click.echo(_line(step, study.problem.goal == "screen"))
    click.echo(_ending(study, replication, rows))
    if target is not None:
        click.echo(f"Written: {target}")


def steps_of(study: Study, trace: Trace) -> list[dict[str, Any]]:
    """Return every sample with evidence, threshold and leader; None before the first check."""
    policies, groups = study.problem.policies, study.problem.group_names
    steps = []
    for number in range(len(trace.policy)):
        evidence, needed = float(trace.evidence[number]), float(trace.needed[number])
        checked = needed != 0.0
        answer = int(trace.answer[number])
        steps.append(
            {
                "samples": (number + 1) * trace.every,
                "policy": policies[trace.policy[number]],
                "group": groups[trace.group[number]],
                "outcome": float(trace.outcome[number]),
                "evidence": evidence if checked and math.isfinite(evidence) else None,
                "needed": needed if checked and math.isfinite(needed) else None,
                "leader": policies[answer] if checked and answer >= 0 else None,
            }
        )
    return steps


def _result(study: Study, seed: int, replication: int, rows: Rows) -> dict[str, Any]:
    answer = int(rows.answer[0])
    screened: dict[str, Any] = {}
    if study.problem.goal == "screen":
        called = zip(study.problem.policies, rows.allowed, strict=True)
        screened = {"allowed": [name for name, allowed in called if allowed]}
    return {
        "replication": replication,
        "seed": seed,
        "answer": study.problem.policies[answer] if answer >= 0 else None,
        "correct": bool(rows.right[0]),
        "stopped": bool(rows.stopped[0]),
        "samples": int(rows.samples[0]),
    } | screened


def _line(step: dict[str, Any], screens: bool) -> str:
    line = f"{step['samples']:>8,}  {step['policy']} | {step['group']}  {step['outcome']:.6g}"
    if step["evidence"] is None:
        return line
    needed = "" if step["needed"] is None else f" of {step['needed']:.3f}"
    leads = "" if screens else f"  leads: {step['leader'] or 'none'}"
    return f"{line}  evidence {step['evidence']:.3f}{needed}{leads}"


def _ending(study: Study, replication: int, rows: Rows) -> str:
    result = _result(study, 0, replication, rows)
    how = "decided" if result["stopped"] else "reached the cap undecided"
    right = "right" if result["correct"] else "wrong"
    answer = result["answer"] or "none of the policies meets the requirement"
    if result.get("allowed"):
        answer = f"the requirement is met by {', '.join(result['allowed'])} only"
    return f"Replication {replication} {how} after {result['samples']:,} samples: {answer} ({right})."
