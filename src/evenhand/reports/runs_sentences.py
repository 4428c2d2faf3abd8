"""Simulations in sentences and summary tables, one procedure or several side by side."""

from __future__ import annotations

from collections.abc import Mapping

from evenhand.procedure.spec import Budget
from evenhand.reports.page_parts import Field, Strong, Table, Words, table
from evenhand.simulation.runs import Runs, rate, standard_error


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
    """Return what is counted as right, completing "in so many runs ..."."""
    if runs.study.problem.goal == "screen":
        return "every policy was classified correctly"
    procedure = runs.study.procedure
    return f"the answer was {'acceptable' if procedure.indifference or procedure.tolerance else 'right'}"


def wrong_answers(runs: Runs) -> list[Words]:
    """Return how many runs reached the cap, and how many were wrong against the risk asked for."""
    if is_budget(runs):
        return []
    found: list[Words] = []
    unstopped = 1.0 - float(runs.stopped.mean())
    if unstopped > 0:
        found.append((f"{unstopped:.1%} of the runs reached the cap undecided; they count at the cap.",))
    wrong, delta = rate(runs.wrong), runs.study.procedure.delta
    often = f"A wrong answer was given in {wrong.rate:.2%} of the runs (95% interval up to {wrong.high:.2%})"
    return [*found, (f"{often}; the risk asked for was {100 * delta:g}%.",)]


def intervals(runs: Runs) -> list[Words]:
    """Return how many intervals the runs took and how many units were assigned; nothing without intervals."""
    if runs.intervals is None:
        return []
    number, units = runs.intervals.mean(), runs.assigned.mean()
    return [(f"A run took {number:,.1f} intervals on average; {units:,.0f} units were assigned by its end.",)]


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
