"""Simulations as a section: how often right, how long, where the samples went; several side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.errors import Undecidable
from evenhand.procedure.spec import Budget
from evenhand.reports.captioned_figures import allocation_picture, duration_picture, success_picture
from evenhand.reports.figures.style import number
from evenhand.reports.page_parts import Field, Picture, Section, Strong, Table, Words, table
from evenhand.reports.rows import Duration, Success, plain
from evenhand.reports.sections.common import CHANCES, bars, shares, true_standings
from evenhand.simulation.runs import Runs, rate, standard_error
from evenhand.study import Study
from evenhand.study.planned import plan_of
from evenhand.theory.plan import Plan


def runs_section(source: Any) -> tuple[Section, Study]:
    """Runs, or a comparison of several."""
    many: Mapping[str, Runs] = source.runs if hasattr(source, "runs") else {_name(source): source}
    first = next(iter(many.values()))
    ideal = _plan(first)
    durations = [duration_row(name, runs, ideal) for name, runs in many.items()]
    # runs to a budget all end there: how long they take is no question
    timed = [] if _is_budget(first) else [duration_picture(durations)]
    pictures = [*timed, *_where(first, ideal)]
    successes = [row for name, runs in many.items() for row in _successes(name, runs)]
    if successes:
        pictures.append(success_picture(successes))
    numbers = {
        "durations": plain(durations),
        "successes": plain(successes),
        "runs": [{"name": name} | _steady(runs) for name, runs in many.items()],
    }
    if len(many) > 1:
        numbers["differences"] = [entry["difference"] for entry in source.to_list()]
    section = Section(
        kind="runs",
        title="Simulated runs" if len(many) == 1 else "Procedures side by side",
        lead=_lead(many),
        notes=_notes(first, ideal),
        pictures=tuple(pictures),
        tables=(_summary(many), _answers(many)),
        numbers=numbers,
        highlights=_highlights(first),
        facts=(("seed of the simulation", str(first.seed)), ("replications", f"{first.replications:,}")),
        code=_code(first, len(many)),
    )
    return section, first.study


def _lead(many: Mapping[str, Runs]) -> Words:
    first, others = next(iter(many.values())), dict(list(many.items())[1:])
    right = rate(first.correct)
    interval = f" of them (95% interval {right.low:.1%} to {right.high:.1%})"
    if _is_budget(first):
        return (
            "In ", Strong(f"{first.replications:,}"), f" simulated runs of {int(first.samples.max()):,} ",
            "samples each, the best estimate was right in ", Strong(f"{right.rate:.1%}"), f"{interval}.",
            *(f" By {name} it was right in {rate(runs.correct).rate:.1%}." for name, runs in others.items()),
        )  # fmt: skip
    words: Words = (
        "In ", Strong(f"{first.replications:,}"), " simulated runs the answer was right in ",
        Strong(f"{right.rate:.1%}"), f"{interval}, after ",
        Strong(f"{first.samples.mean():,.0f}"), " samples on average; ", Strong("80%"),
        f" of the runs were done by {first.quantile(0.8):,}.",
    )  # fmt: skip
    times = {name: runs.samples.mean() / first.samples.mean() for name, runs in others.items()}
    return (*words, *(f" {name} took {ratio:.2f} times as many." for name, ratio in times.items()))


def _notes(runs: Runs, ideal: Plan | None) -> tuple[Words, ...]:
    if _is_budget(runs):
        return ()
    notes: list[Words] = []
    unstopped = 1.0 - float(runs.stopped.mean())
    if unstopped > 0:
        notes.append((f"{unstopped:.1%} of the runs reached the cap undecided; they count at the cap.",))
    wrong, delta = rate(runs.wrong), runs.study.procedure.delta
    often = f"A wrong answer was given in {wrong.rate:.2%} of the runs (95% interval up to {wrong.high:.2%})"
    notes.append((f"{often}; the risk asked for was {100 * delta:g}%.",))
    if ideal is not None:
        least = ideal.samples_at_least(delta)
        notes.append(
            (f"No procedure with this risk can do with fewer than {number(least)} samples on average.",)
        )
    return tuple(notes)


def _plan(runs: Runs) -> Plan | None:
    """What the truth would ideally take, where it can be decided at all."""
    if runs.study.truth is None:
        return None
    try:
        return plan_of(runs.study, gap=1e-3)
    except Undecidable:
        return None


def duration_row(name: str, runs: Runs, ideal: Plan | None) -> Duration:
    """How long these runs took; `ideal` says what nobody can beat."""
    return Duration(
        name=name,
        bars=bars(runs.samples),
        quantiles=tuple((chance, float(runs.quantile(chance))) for chance in CHANCES),
        unfinished=1.0 - float(runs.stopped.mean()),
        bound=None if ideal is None else ideal.samples_at_least(runs.study.procedure.delta),
    )


def _where(runs: Runs, ideal: Plan | None) -> list[Picture]:
    problem = runs.study.problem
    standings = [] if ideal is None else true_standings(problem, ideal.means, ideal.answer)
    aim = None if ideal is None else ideal.allocation
    rows = shares(problem, runs.allocation, aim)
    return [allocation_picture(rows, standings, "Where the samples went", "the best allocation")]


def _successes(name: str, runs: Runs) -> list[Success]:
    return [
        Success(name, samples, *runs.at_checkpoint(place)) for place, samples in enumerate(runs.checkpoints)
    ]


def _summary(many: Mapping[str, Runs]) -> Table:
    rows: list[list[Field]] = []
    for name, runs in many.items():
        right, wrong = rate(runs.correct), rate(runs.wrong)
        mean, interval = float(runs.samples.mean()), f"{right.low:.1%} to {right.high:.1%}"
        rows.append([name, mean, standard_error(runs.samples), right.rate, interval, wrong.rate, wrong.high])
    columns = [
        "procedure", "mean samples", "standard error", "right", "95% interval", "error", "error, at most",
    ]  # fmt: skip
    return table("Every rate with its exact interval", columns, rows)


def _answers(many: Mapping[str, Runs]) -> Table:
    found = {name: runs.answers() for name, runs in many.items()}
    policies = list(next(iter(found.values())))
    rows: list[list[Field]] = [
        [policy, *(answers[policy] for answers in found.values())] for policy in policies
    ]
    return table("How often each answer was given", ["answer", *(f"share, {name}" for name in found)], rows)


def _highlights(runs: Runs) -> tuple[tuple[str, str], ...]:
    return (
        ("right", f"{float(runs.correct.mean()):.1%}"),
        ("mean samples", f"{runs.samples.mean():,.0f}"),
        ("80% done by", f"{runs.quantile(0.8):,}"),
        ("runs", f"{runs.replications:,}"),
    )


def _is_budget(runs: Runs) -> bool:
    return isinstance(runs.study.procedure.stopping, Budget)


def _steady(runs: Runs) -> dict[str, Any]:
    """The numbers that are the same every time: all but the time it took."""
    return {key: value for key, value in runs.to_dict().items() if key != "seconds"}


def _name(runs: Runs) -> str:
    return f"{runs.study.procedure.sampling_name}, {runs.study.procedure.stopping_name}"


def _code(runs: Runs, many: int) -> str:
    verb = "simulate study.toml" if many == 1 else "compare study.toml ..."
    at = f" --checkpoints {','.join(map(str, runs.checkpoints))}" if runs.checkpoints else ""
    return f"evenhand {verb} --replications {runs.replications} --seed {runs.seed}{at}"
