"""The sections about simulations: runs of one procedure or several, and scans over a box of means."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from evenhand.errors import Undecidable
from evenhand.reports import simulation_sentences as said
from evenhand.reports.captioned_figures import (
    allocation_picture,
    duration_picture,
    scan_picture,
    success_picture,
)
from evenhand.reports.figure_rows import Duration, Success, bars, plain, shares, true_standings
from evenhand.reports.figures.canvas import number
from evenhand.reports.page_parts import Field, Picture, Section, Table, Words, table
from evenhand.simulation.runs import Runs
from evenhand.simulation.scan import Scan
from evenhand.study import Study
from evenhand.theory.plan import Plan, plan
from evenhand.verdicts.forecast_statement import CHANCES


def runs_section(source: Any) -> tuple[Section, Study]:
    """Return the section about runs or a comparison, and its study."""
    many: Mapping[str, Runs] = source.runs if hasattr(source, "runs") else {said.label(source): source}
    first = next(iter(many.values()))
    ideal = _plan(first)
    durations = [duration_row(name, runs, ideal) for name, runs in many.items()]
    successes = [row for name, runs in many.items() for row in _successes(name, runs)]
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
        lead=said.lead(many),
        notes=_notes(first, ideal),
        pictures=tuple(_pictures(first, ideal, durations, successes)),
        tables=(said.summary(many), _answers(many)),
        numbers=numbers,
        highlights=_highlights(first),
        facts=(("seed of the simulation", str(first.seed)), ("replications", f"{first.replications:,}")),
        code=_code(first, len(many)),
    )
    return section, first.study


def pictures(many: Mapping[str, Runs]) -> list[Picture]:
    """Return the figures of one or several simulations, the main one first."""
    first = next(iter(many.values()))
    ideal = _plan(first)
    durations = [duration_row(name, runs, ideal) for name, runs in many.items()]
    return _pictures(
        first, ideal, durations, [row for name, runs in many.items() for row in _successes(name, runs)]
    )


def _pictures(
    first: Runs, ideal: Plan | None, durations: list[Duration], successes: list[Success]
) -> list[Picture]:
    # runs with a budget all have the same duration
    timed = [] if said.is_budget(first) else [duration_picture(durations)]
    return [*timed, *_where(first, ideal), *([success_picture(successes)] if successes else [])]


def _notes(runs: Runs, ideal: Plan | None) -> tuple[Words, ...]:
    notes = [*said.wrong_answers(runs), *said.intervals(runs), *said.items(runs)]
    if ideal is not None and not said.is_budget(runs):
        least = number(ideal.samples_at_least(runs.study.procedure.delta))
        notes.append(f"Any procedure with this risk needs at least {least} samples on average.")
    return tuple((note,) for note in notes)


def _plan(runs: Runs) -> Plan | None:
    """Return the plan at the truth; None where it cannot be decided, or is about samples one by one."""
    if runs.study.truth is None or runs.items is not None:
        return None
    try:
        return plan(runs.study, gap=1e-3)
    except Undecidable:
        return None


def duration_row(name: str, runs: Runs, ideal: Plan | None) -> Duration:
    """Return the duration of these runs; `ideal` gives the lower bound."""
    return Duration(
        name=name,
        bars=bars(runs.samples),
        quantiles=tuple((chance, float(runs.quantile(chance))) for chance in CHANCES),
        unfinished=1.0 - float(runs.stopped.mean()),
        bound=None if ideal is None else ideal.samples_at_least(runs.study.procedure.delta),
    )


def _where(runs: Runs, ideal: Plan | None) -> list[Picture]:
    problem = runs.study.problem
    standings = [] if ideal is None else true_standings(problem, ideal.means, ideal.answer, ideal.guardrails)
    aim = None if ideal is None else ideal.allocation
    rows = shares(problem, runs.allocation, aim)
    return [allocation_picture(rows, standings, "Where the samples went", "the best allocation")]


def _successes(name: str, runs: Runs) -> list[Success]:
    return [
        Success(name, samples, *runs.at_checkpoint(place)) for place, samples in enumerate(runs.checkpoints)
    ]


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


def _steady(runs: Runs) -> dict[str, Any]:
    """Return the numbers that do not change between repetitions: all but the seconds."""
    return {key: value for key, value in runs.to_dict().items() if key != "seconds"}


def _code(runs: Runs, many: int) -> str:
    study = shlex.quote(runs.study.file or "study.toml")
    verb = f"simulate {study}" if many == 1 else f"compare {study} ..."
    at = f" --checkpoints {','.join(map(str, runs.checkpoints))}" if runs.checkpoints else ""
    return f"evenhand {verb} --replications {runs.replications} --seed {runs.seed}{at}"


def scan_section(found: Scan) -> tuple[Section, Study]:
    """Return the section about a scan, and its study."""
    first, *rest = said.scan(found)
    picture = scan_picture(found)
    worst = found.worst()
    box = " ".join(
        f'--box "{one.policy}/{one.group}={one.low:g}:{one.high:g}:{one.points}"' for one in found.box
    )
    search = "" if found.searched is None else f" --worst {found.searched}"
    numbers = {key: value for key, value in found.to_dict().items() if key != "seconds"}
    section = Section(
        kind="scan",
        title="Operating characteristics over a box of means",
        lead=(first,),
        notes=tuple((sentence,) for sentence in rest),
        pictures=(picture,),
        tables=(picture.table,),
        numbers=numbers,
        highlights=(
            ("points", f"{len(found.points):,}"),
            ("largest error", f"{worst.error.rate:.2%}"),
            ("smallest power", f"{found.worst('power').power.rate:.1%}"),
            ("most samples", f"{found.worst('samples').samples.mean:,.0f}"),
        ),
        facts=(("seed of the scan", str(found.seed)), ("replications at a point", f"{found.replications:,}")),
        code=(
            f"evenhand scan study.toml {box} --replications {found.replications} --seed {found.seed} "
            f"--max-samples {found.study.procedure.max_samples}{search}"
        ),
    )
    return section, found.study
