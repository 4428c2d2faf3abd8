"""The section about a live experiment: its status, its evidence over time, and the head of its log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from evenhand.live.events import LogEntry
from evenhand.live.experiment import Experiment
from evenhand.live.projection import View
from evenhand.live.status import Status
from evenhand.live.status_sentences import health_sentence
from evenhand.live.ticket_history import counted_outcomes
from evenhand.model.result_rows import PolicyRow
from evenhand.reports.captioned_figures import allocation_picture, evidence_picture, floors_picture
from evenhand.reports.figure_rows import Evidence, plain
from evenhand.reports.page_parts import Picture, Section, Table, table
from evenhand.reports.sections.section_rows import shares
from evenhand.reports.sections.verdict import (
    allowed_words,
    emphasised,
    evidence_words,
    guardrail_pictures,
    notes,
    spent_highlight,
    tables,
)
from evenhand.study import Study
from evenhand.verdicts.evidence_history import OrderedOutcomes, rule_checks
from evenhand.verdicts.forecast import experiment_forecast
from evenhand.verdicts.judge import Verdict, judge_state
from evenhand.verdicts.verdict_sentences import alternative_in_words

POINTS = 240  # checks on the curve of evidence


def experiment_section(trial: Experiment) -> tuple[Section, Study]:
    """Return the section about an experiment as it is now, and its study."""
    view = trial.present()
    ahead = experiment_forecast(view)
    protocol, status = view.protocol, trial.status(lambda _: ahead)
    verdict = judge_state(protocol.problem, protocol.procedure, view.state, ahead=ahead)
    estimates, standings = verdict.cells, verdict.policies
    history = evidence_over_time(view, trial.events())
    pictures = [
        floors_picture(estimates, standings),
        *guardrail_pictures(verdict),
        where_samples_went(view, standings, "Where samples went, and where they were meant to go"),
    ]
    if history:
        pictures.insert(1, evidence_picture(history))
    section = Section(
        kind="experiment",
        title="The experiment",
        lead=emphasised(_sentence(status, verdict), verdict),
        notes=((health_sentence(status.health),), *notes(verdict)),
        pictures=tuple(pictures),
        tables=(*tables(verdict), _counts(status)),
        numbers=status.to_dict()
        | {
            "verdict": verdict.to_dict(),
            "estimates": [row.to_dict() for row in estimates],
            "history": plain(history),
        },
        highlights=_highlights(status, verdict),
        progress=None if status.decided else verdict.progress,
        facts=_facts(view),
        code="evenhand audit JOURNAL --head " + str(view.head),
    )
    return section, protocol.study


def evidence_over_time(view: View, log: Iterable[LogEntry]) -> list[Evidence]:
    """Return the evidence at many points of the log, computed again from the outcomes."""
    problem, counted = view.protocol.problem, counted_outcomes(view.protocol, log)
    unit = np.ascontiguousarray(problem.family.to_unit(counted.outcome))
    return [
        Evidence(
            look.samples,
            look.evidence,
            look.needed,
            alternative_in_words(problem, look.leader, look.alternative),
        )
        for look in rule_checks(
            view.protocol.spec, OrderedOutcomes(counted.policy, counted.group, unit, counted.rails), POINTS
        )
    ]


def _sentence(status: Status, verdict: Verdict) -> str:
    """Return the sentence of the status; while it runs, the sentences of the verdict."""
    if status.state != "running" or verdict.decided or not status.leader:
        return status.sentence
    return " ".join(verdict.words())


def where_samples_went(view: View, standings: Sequence[PolicyRow], title: str) -> Picture:
    """Return the figure of samples by cell, and the sums of the probabilities with which cells were drawn."""
    problem, n, meant = view.protocol.problem, view.state.n.T, view.tally.expected
    if problem.mode == "agnostic":  # only the policy was chosen; the group is that of the arrival
        meant = problem.arrival_shares[:, None] * meant[:1]
    aim = meant.T / meant.sum() if meant.sum() > 0 else None
    rows = shares(problem, n / max(float(n.sum()), 1.0), aim, n.astype(int))
    return allocation_picture(rows, standings, title)


def _counts(status: Status) -> Table:
    rows: list[list[str | int]] = [
        [name.replace("_", " "), count] for name, count in status.counts.items() if count
    ]
    return table("What the log holds", ["event", "how often"], rows)


def _highlights(status: Status, verdict: Verdict) -> tuple[tuple[str, str], ...]:
    answer = (status.answer or "none") if status.decided else status.state
    first = ("answer" if status.decided else "state", answer)
    return (
        ("allowed", allowed_words(verdict)) if verdict.screens else first,
        ("evidence", evidence_words(verdict)),
        ("samples", f"{status.samples:,}"),
        *spent_highlight(status.spent),
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
