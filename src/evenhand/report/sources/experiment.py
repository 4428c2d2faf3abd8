"""A live experiment as a section: where it stands, how it got there, and the hash that seals it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.judge.verdict import Verdict, judge_state
from evenhand.judge.words import piece_in_words
from evenhand.live import events as ev
from evenhand.live.experiment import Experiment
from evenhand.live.fold import View
from evenhand.procedure.decide import check
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import (
    ANSWER,
    EMPTY,
    EVIDENCE,
    NEEDED,
    RUNNING,
    STOPPED,
    WEAKEST,
    State,
    Work,
    new_state,
    new_work,
    record,
)
from evenhand.report.pictures import allocation_picture, evidence_picture, floors_picture
from evenhand.report.rows import Evidence, plain
from evenhand.report.sections import Section, Table, Words, table
from evenhand.report.sources.common import shares
from evenhand.report.sources.verdict import emphasised, notes, tables, verdict_rows
from evenhand.study import Study

POINTS = 240  # looks on the curve of evidence

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def experiment_section(trial: Experiment) -> tuple[Section, Study]:
    """The experiment as it is now."""
    view = trial.present()
    protocol, status = view.protocol, trial.status()
    verdict = judge_state(protocol.problem, protocol.procedure, view.state)
    estimates, standings = verdict_rows(verdict)
    history = evidence_over_time(view, (ev.decode(row.record) for row in trial.events()))
    pictures = [floors_picture(estimates, standings), *_where(view, verdict, standings)]
    if history:
        pictures.insert(1, evidence_picture(history))
    section = Section(
        kind="experiment",
        title="The experiment",
        lead=emphasised(_sentence(status, verdict), verdict),
        notes=(*_health(status["health"]), *notes(verdict)),
        pictures=tuple(pictures),
        tables=(*tables(verdict), _counts(status)),
        numbers=status
        | {"verdict": verdict.to_dict(), "estimates": plain(estimates), "history": plain(history)},
        highlights=_highlights(status, verdict),
        progress=None if status["decided"] else verdict.progress,
        facts=_facts(view),
        code="evenhand audit JOURNAL --head " + str(view.head),
    )
    return section, protocol.study


class Told(NamedTuple):
    """Outcomes in the order they counted, in unit scale."""

    policy: Ints
    group: Ints
    outcome: Array


def evidence_over_time(view: View, log: Iterable[ev.AnyEvent]) -> list[Evidence]:
    """The stopping rule's evidence after each of many points of the log, derived again from its outcomes."""
    problem, spec = view.protocol.problem, view.protocol.spec
    told = _outcomes(view, log)
    n = len(told.policy)
    if n == 0:
        return []
    every = max(1, n // POINTS)
    looks = n // every
    levels, answers = np.full((looks, 3), np.nan), np.zeros(looks, dtype=np.int64)
    retrace(
        spec, new_state(spec), new_work(spec), told.policy, told.group, told.outcome, every, levels, answers
    )
    found = []
    for i, (value, needed, piece) in enumerate(levels.tolist()):
        if np.isfinite(value) and np.isfinite(needed):
            weakest = piece_in_words(problem, int(answers[i]), int(piece))
            found.append(Evidence((i + 1) * every, value, needed, weakest))
    return found


def _outcomes(view: View, log: Iterable[ev.AnyEvent]) -> Told:
    """What was told or imported, each with its latest correction."""
    problem = view.protocol.problem
    asked: dict[int, tuple[str, str | None]] = {}
    told: dict[int, tuple[str, str, float]] = {}
    for event in log:
        if isinstance(event, ev.Asked):
            asked[event.ticket] = event.policy, event.group
        elif isinstance(event, ev.Told):
            policy, group = asked[event.ticket]
            told[event.ticket] = policy, event.group or group or "", event.outcome
        elif isinstance(event, ev.Imported):
            told[event.ticket] = event.policy, event.group, event.outcome
        elif isinstance(event, ev.Amended) and event.ticket in told:
            told[event.ticket] = (*told[event.ticket][:2], event.outcome)
    policies, groups = view.protocol.policies, view.protocol.groups
    rows = list(told.values())
    return Told(
        np.array([policies[policy] for policy, _, _ in rows], dtype=np.int64),
        np.array([groups[group] for _, group, _ in rows], dtype=np.int64),
        np.ascontiguousarray(problem.family.to_unit([x for _, _, x in rows])),
    )


@kernel
def retrace(
    spec: Spec, state: State, work: Work, policy: Ints, group: Ints, outcome: Array, every: int,
    levels: Array, answers: Ints,
) -> None:  # fmt: skip
    for i in range(policy.shape[0]):
        record(spec, state, work, policy[i], group[i], outcome[i], False)
        look = (i + 1) // every - 1
        if (i + 1) % every == 0 and state.clock[EMPTY] == 0:
            check(spec, state, work)
            state.clock[STOPPED] = RUNNING
            levels[look, 0], levels[look, 1] = state.level[EVIDENCE], state.level[NEEDED]
            levels[look, 2] = state.level[WEAKEST]
            answers[look] = state.clock[ANSWER]


def _sentence(status: dict[str, Any], verdict: Verdict) -> str:
    """The status line; while it runs, with the forecast."""
    if status["state"] != "running" or verdict.decided:
        return str(status["sentence"])
    return " ".join([str(status["sentence"]), *verdict.words()[-1:]])


def _where(view: View, verdict: Verdict, standings: Any) -> list[Any]:
    problem, n = view.protocol.problem, view.state.n.T
    meant = view.tally.expected
    if problem.mode == "agnostic":  # only the policy was chosen; groups come as they come
        meant = problem.arrival_shares[:, None] * meant[:1]
    aim = meant.T / meant.sum() if meant.sum() > 0 else None
    rows = shares(problem, n / max(float(n.sum()), 1.0), aim, n.astype(int))
    return [allocation_picture(rows, standings, "Where samples went, and where they were meant to go")]


def _health(health: dict[str, Any]) -> tuple[Words, ...]:
    if health["well"]:
        return ((f"Allocation as intended (sample-ratio p = {health['sample_ratio_p']:.2g}).",),)
    return (("Something needs attention: see the health of the experiment in the numbers of this page.",),)


def _counts(status: dict[str, Any]) -> Table:
    rows = [[name.replace("_", " "), count] for name, count in status["counts"].items()]
    return table("What the log holds", ["event", "how often"], rows)


def _highlights(status: dict[str, Any], verdict: Verdict) -> tuple[tuple[str, str], ...]:
    answer = (status["answer"] or "none") if status["decided"] else status["state"]
    return (
        ("answer" if status["decided"] else "state", answer),
        ("evidence", f"{verdict.evidence:.2f} of {verdict.needed:.2f}"),
        ("samples", f"{status['samples']:,}"),
        ("risk", f"{100 * verdict.procedure.delta:g}%"),
    )


def _facts(view: View) -> tuple[tuple[str, str], ...]:
    protocol = view.protocol
    versions = [
        (f"{name}, when the experiment began", version) for name, version in protocol.versions.items()
    ]
    return (
        ("experiment", protocol.experiment),
        ("head of the log", str(view.head)),
        ("protocol", protocol.hash.hex()),
        ("seed of the experiment", str(protocol.seed)),
        *versions,
    )
