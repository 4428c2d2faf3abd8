"""Simulations in sentences and tables: runs of one or more procedures, scans and calibrations over a box."""

from __future__ import annotations

from collections.abc import Mapping

from evenhand.model.phrases import quantity
from evenhand.procedure.spec import Budget
from evenhand.reports.page_parts import Field, Strong, Table, Words, table
from evenhand.simulation.box import Box
from evenhand.simulation.box_calibration import BoxCalibration
from evenhand.simulation.runs import Runs, rate, standard_error
from evenhand.simulation.scan import Scan, ScanPoint


def lead(many: Mapping[str, Runs]) -> Words:
    """Return the result in words: how often right, after how many samples; others against the first."""
    first, others = next(iter(many.values())), dict(list(many.items())[1:])
    right = rate(first.correct)
    interval = f" of them (95% interval {right.low:.1%} to {right.high:.1%})"
    if is_budget(first):
        return (
            "In ", Strong(f"{first.replications:,}"), f" simulated runs of {int(first.samples.max()):,} ",
            "samples each, the best estimate was right in ", Strong(f"{right.rate:.1%}"), f"{interval}.",
            *(f" By {name} it was right in {rate(runs.correct).rate:.1%}." for name, runs in others.items()),
        )  # fmt: skip
    words: Words = (
        "In ", Strong(f"{first.replications:,}"), f" simulated runs {_right(first)} in ",
        Strong(f"{right.rate:.1%}"), f"{interval}, after ",
        Strong(f"{first.samples.mean():,.0f}"), " samples on average; ", Strong("80%"),
        f" of the runs were done by {first.quantile(0.8):,}.",
    )  # fmt: skip
    times = {name: runs.samples.mean() / first.samples.mean() for name, runs in others.items()}
    return (*words, *(f" {name} took {ratio:.2f} times as many." for name, ratio in times.items()))


def _right(runs: Runs) -> str:
    """Return what is counted as right, completing "in N runs ..."."""
    if runs.study.problem.goal == "screen":
        return "every policy was classified correctly"
    return f"the answer was {_what_is_right(runs)}"


def results(runs: Runs) -> list[str]:
    """Return the main results of the runs of one procedure: rates, samples, cost and undecided runs."""
    correct, decided = rate(runs.correct), float(runs.stopped.mean())
    answer = "The answer" if decided == 1.0 else "The answer (or the leader of an undecided run)"
    right = f"{answer} was {_what_is_right(runs)} in {correct.rate:.1%}"
    if runs.study.problem.goal == "screen":
        right = f"Every policy was classified correctly in {correct.rate:.1%}"
    found = [f"{right} of {runs.replications:,} runs (95% interval {correct.low:.1%} to {correct.high:.1%})."]
    if _has_several(runs):
        found.append(f"It was exactly the best in {float(runs.exactly_best.mean()):.1%}.")
    if not is_budget(runs):
        found.append(_decided_wrongly(runs))
        half, most = runs.decided_by(0.5), runs.decided_by(0.9)
        if half is not None:
            rest = "" if most is None else f", 90% by {most:,}"
            found.append(f"Half of the runs had decided by {half:,} samples{rest}.")
    if runs.cost is not None:
        found.append(f"A run cost {runs.cost.mean():,.6g} on average.")
    return [*found, *intervals(runs), *items(runs), *_undecided(runs)]


def wrong_answers(runs: Runs) -> list[str]:
    """Return how many runs were undecided, and how many were wrong; nothing for a fixed number of samples."""
    return [] if is_budget(runs) else [*_undecided(runs), _decided_wrongly(runs)]


def _has_several(runs: Runs) -> bool:
    """Return whether more than one answer may be acceptable."""
    return runs.study.procedure.indifference > 0 or bool(runs.study.procedure.tolerance)


def _what_is_right(runs: Runs) -> str:
    return "acceptable" if _has_several(runs) else "right"


def _decided_wrongly(runs: Runs) -> str:
    wrong, risk = rate(runs.wrong), runs.study.procedure.delta
    return (
        f"{wrong.rate:.2%} decided wrongly (95% interval {wrong.low:.2%} to {wrong.high:.2%}); "
        f"the allowed risk is {risk:.2%}."
    )


def _undecided(runs: Runs) -> list[str]:
    """Return how many runs ended without a decision, and with how many samples they count."""
    share = 1.0 - float(runs.stopped.mean())
    if share == 0.0:
        return []
    cap, futility = runs.study.procedure.max_samples, runs.study.procedure.futility
    if futility is None:
        return [f"{share:.1%} were undecided at {cap:,} samples and count with that number."]
    ended = f"{share:.1%} ended without a verdict, at {cap:,} samples or when the estimated chance"
    return [f"{ended} of a decision fell below {futility:.0%}; they count with the samples they took."]


def intervals(runs: Runs) -> list[str]:
    """Return how many intervals the runs took and how many units were assigned; nothing without intervals."""
    if runs.intervals is None:
        return []
    number, units = runs.intervals.mean(), runs.assigned.mean()
    return [
        f"A run took {number:,.1f} intervals on average, and {units:,.0f} units were assigned by its end."
    ]


def items(runs: Runs) -> list[str]:
    """Return how many items the runs took; nothing where policies do not share items."""
    if runs.items is None:
        return []
    answered = f"{runs.policies_per_item:.2f} of {len(runs.study.problem.policies)} policies answered an item"
    number, outcomes = runs.items.mean(), runs.samples.mean()
    return [f"A run took {number:,.0f} items on average, with {outcomes:,.0f} outcomes: {answered}."]


def summary(many: Mapping[str, Runs]) -> Table:
    """Return a row per procedure: mean samples, rates and their exact intervals."""
    rows: list[list[Field]] = []
    for name, runs in many.items():
        right, wrong = rate(runs.correct), rate(runs.wrong)
        mean, interval = float(runs.samples.mean()), f"{right.low:.1%} to {right.high:.1%}"
        rows.append([name, mean, standard_error(runs.samples), right.rate, interval, wrong.rate, wrong.high])
    columns = [
        "procedure", "mean samples", "standard error", "right", "95% interval", "error", "error, at most",
    ]  # fmt: skip
    return table("Every rate with its exact interval", columns, rows)


def is_budget(runs: Runs) -> bool:
    """Return whether the runs stop at a fixed number of samples."""
    return isinstance(runs.study.procedure.stopping, Budget)


def label(runs: Runs) -> str:
    """Return the name of the procedure: its sampling and its stopping rule."""
    return f"{runs.study.procedure.sampling_name}, {runs.study.procedure.stopping_name}"


def scan(found: Scan) -> list[str]:
    """Return the largest error, the smallest power and the most samples of a scan as sentences."""
    error, power, samples = (found.worst(of) for of in ("error", "power", "samples"))
    said = [_opening(found)]
    if any(point.error.rate > 0 for point in found.points):
        where = place(found.box, error)
        said.append(
            f"The largest share of wrong answers is {error.error.rate:.2%} (95% interval "
            f"{error.error.low:.2%} to {error.error.high:.2%}), where {where}; "
            f"the allowed risk is {found.study.procedure.delta:.2%}."
        )
    else:
        said.append(
            f"No run gave a wrong answer; at each point the chance of one is at most {error.error.high:.2%} "
            f"(95% interval). The allowed risk is {found.study.procedure.delta:.2%}."
        )
    said.append(
        f"A right answer is least likely where {place(found.box, power)}: {power.power.rate:.1%} "
        f"({power.power.low:.1%} to {power.power.high:.1%}); "
        f"{power.undecided.rate:.1%} of the runs there are undecided."
    )
    said.append(
        f"Most samples are needed where {place(found.box, samples)}: {samples.samples.mean:,.0f} on average."
    )
    return said + _searched(found)


def box_calibration(found: BoxCalibration) -> list[str]:
    """Return what is proved about a threshold on a box, as sentences."""
    worst, cells = found.worst, " and ".join(one.label for one in found.box)
    proved = (
        f"With the threshold {found.threshold:g} the probability of a wrong answer is at most "
        f"{found.delta:g} everywhere in the box of {cells} (95% confidence in the simulation)."
    )
    scope = (
        "This is proved for this design: its family, its sampling rule, the other means as given, and runs "
        f"of up to {found.horizon:,} samples."
    )
    hardest = (
        f"The part of the box that needs most has {_ends(found.box, worst.low, worst.high)}; "
        f"the right answer there is {worst.answer or 'none'}."
    )
    use = (
        f"Use it as Procedure(stopping=Calibrated({found.threshold:g}), delta={found.delta:g}, "
        f"max_samples={found.horizon})."
    )
    return [proved, scope, hardest, use]


def place(box: Box, point: ScanPoint) -> str:
    """Return the means of a point as part of a sentence."""
    return " and ".join(f"{one.label} is {value:.4g}" for one, value in zip(box, point.means, strict=True))


def _opening(found: Scan) -> str:
    ranges = " and ".join(
        f"{one.label} from {one.low:g} to {one.high:g}"
        if one.low < one.high
        else f"{one.label} at {one.low:g}"
        for one in found.box
    )
    points = quantity(len(found.points), "point")
    return (
        f"{ranges}: {points}, {found.replications:,} runs each, of up to "
        f"{found.study.procedure.max_samples:,} samples."
    )


def _searched(found: Scan) -> list[str]:
    if found.found is None:
        return []
    point = found.found
    values = {
        "error": f"{point.error.rate:.2%} wrong answers (95% interval {point.error.low:.2%} to "
        f"{point.error.high:.2%})",
        "power": f"{point.power.rate:.1%} right answers (95% interval {point.power.low:.1%} to "
        f"{point.power.high:.1%})",
        "samples": f"{point.samples.mean:,.0f} samples on average",
    }
    where, value = place(found.box, point), values[str(found.searched)]
    return [f"The search for the worst {found.searched} ended where {where}: {value}, in new runs."]


def _ends(box: Box, low: tuple[float, ...], high: tuple[float, ...]) -> str:
    return " and ".join(
        f"{one.label} from {a:.4g} to {b:.4g}" if a < b else f"{one.label} at {a:.4g}"
        for one, a, b in zip(box, low, high, strict=True)
    )
