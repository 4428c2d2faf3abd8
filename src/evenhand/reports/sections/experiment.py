"""The section about a live experiment: its status, its evidence over time, and the head of its log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from evenhand.live.events import LogEntry
from evenhand.live.experiment import Experiment
from evenhand.live.projection import LogState, View
from evenhand.live.status import Status
from evenhand.live.status_sentences import changes_sentence, health_sentence
from evenhand.live.ticket_history import CountedItems, counted_outcomes
from evenhand.model.result_rows import PolicyRow
from evenhand.reports.captioned_figures import (
    allocation_picture,
    evidence_picture,
    floors_picture,
    shares_picture,
)
from evenhand.reports.figure_rows import Evidence, IntervalShares, plain, shares
from evenhand.reports.page_parts import AT_THE_BEGINNING, Field, Picture, Section, Table, table
from evenhand.reports.requirement_marks import requirement_marks, with_bounds
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
from evenhand.verdicts.evidence_history import AnsweredItems, OrderedOutcomes, rule_checks
from evenhand.verdicts.forecast import experiment_forecast
from evenhand.verdicts.interval_history import IntervalRow, read_intervals
from evenhand.verdicts.judge import Verdict, judge_state
from evenhand.verdicts.verdict_sentences import alternative_in_words

POINTS = 240  # checks on the curve of evidence
LATEST_INTERVALS = 24  # rows of the table of intervals


def experiment_section(trial: Experiment) -> tuple[Section, Study]:
    """Return the section about an experiment as it is now, and its study."""
    view = trial.present()
    ahead = experiment_forecast(view)
    protocol, status = view.protocol, trial.status(lambda _: ahead)
    verdict = judge_state(protocol.problem, protocol.procedure, view.state, ahead=ahead)
    estimates, standings = verdict.cells, verdict.policies
    intervals = _intervals(view, trial)
    history = evidence_over_time(view, trial.events()) if view.intervals is None else at_closings(intervals)
    pictures = [
        floors_picture(
            with_bounds(protocol.problem, estimates),
            standings,
            marks=requirement_marks(protocol.problem, estimates),
            indifference=protocol.procedure.indifference,
        ),
        *guardrail_pictures(verdict),
        where_samples_went(
            view,
            standings,
            "Where samples went" + ("" if intervals else ", and where they were meant to go"),
        ),
    ]
    if history:
        pictures.insert(1, evidence_picture(history))
    if intervals and not (status.intervals is not None and status.intervals.shared):
        pictures.append(shares_picture(share_rows(intervals), standings))
    section = Section(
        kind="experiment",
        title="The experiment",
        lead=emphasised(_sentence(status, verdict), verdict),
        notes=(*_changes_note(view, status, verdict), (health_sentence(status.health),), *notes(verdict)),
        pictures=tuple(pictures),
        tables=(*tables(verdict), *_changes(status), *_interval_tables(intervals, status), *_counts(status)),
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
    told: OrderedOutcomes | AnsweredItems
    if isinstance(counted, CountedItems):
        told = AnsweredItems(*counted)
    else:
        unit = np.ascontiguousarray(problem.family.to_unit(counted.outcome))
        told = OrderedOutcomes(counted.policy, counted.group, unit, counted.rails)
    return [
        Evidence(
            look.samples,
            look.evidence,
            look.needed,
            alternative_in_words(problem, look.leader, look.alternative),
        )
        for look in rule_checks(view.protocol.spec, told, POINTS)
    ]


def _intervals(view: View, trial: Experiment) -> list[IntervalRow]:
    """Return the intervals of the log; none for an experiment with tickets."""
    return (
        [] if view.intervals is None else read_intervals(LogState(view.protocol.as_begun()), trial.events())
    )


def at_closings(intervals: Sequence[IntervalRow]) -> list[Evidence]:
    """Return the evidence when intervals were closed."""
    return [
        Evidence(row.samples, row.evidence, row.needed, row.weakest)
        for row in intervals
        if row.samples is not None and row.evidence is not None and row.needed is not None
    ]


def share_rows(intervals: Sequence[IntervalRow]) -> list[IntervalShares]:
    """Return the published shares of intervals, for the figure."""
    return [IntervalShares(row.number, row.shares) for row in intervals]


def _interval_tables(intervals: Sequence[IntervalRow], status: Status) -> tuple[Table, ...]:
    """Return the latest intervals, and their units: whether they were assigned as published, or shared."""
    if status.intervals is None:
        return ()
    rows: list[list[Field]] = [
        [str(row.number), row.valid_from[:19].replace("T", " "), row.outcomes, row.evidence, row.leader or "",
         row.corrections]
        for row in intervals[-LATEST_INTERVALS:]
    ]  # fmt: skip
    columns = ["interval", "valid from (UTC)", "outcomes", "evidence", "leader", "corrections"]
    title = "Intervals" if len(intervals) <= LATEST_INTERVALS else f"The latest {LATEST_INTERVALS} intervals"
    found = status.intervals
    units: list[list[Field]] = [
        [group, round(expected), found.units[group]] for group, expected in found.expected.items()
    ]
    titles = ["group", "expected", "counted"]
    what = "Units of the interval closed last, each served by every policy"
    if not found.shared:
        what = "Units of the interval closed last, and whether all were assigned as published"
        titles.append("p-value of the shares, at any number of looks")
        units = [[*row, found.sample_ratios[str(row[0])]] for row in units]
    return table(title, columns, rows), table(what, titles, units)


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


def _changes_note(view: View, status: Status, verdict: Verdict) -> tuple[tuple[str, ...], ...]:
    """Return which policies the answer is about, if some joined or left and the lead does not say so."""
    said = not view.changes or _sentence(status, verdict) == status.sentence
    return () if said else ((changes_sentence(view),),)


def _changes(status: Status) -> tuple[Table, ...]:
    """Return the table of policies that joined and left; none if nothing changed."""
    changes = [("joined", row) for row in status.joined] + [("left", row) for row in status.withdrawn]
    rows: list[list[str | int]] = [
        [row.at[:19].replace("T", " "), row.policy, what, "" if row.samples is None else row.samples,
         row.by, row.reason]
        for what, row in sorted(changes, key=lambda change: change[1].at)
    ]  # fmt: skip
    columns = ["time (UTC)", "policy", "change", "samples until then", "by", "reason"]
    return (table("Policies that joined and left", columns, rows),) if rows else ()


def _counts(status: Status) -> tuple[Table, ...]:
    """Return the numbers of tickets and of what came of them; none for an experiment without tickets."""
    rows: list[list[str | int]] = [
        [name.replace("_", " "), count] for name, count in status.counts.items() if count
    ]
    return (table("What the log contains", ["event", "how often"], rows),) if rows else ()


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
    versions = [(name + AT_THE_BEGINNING, version) for name, version in protocol.versions.items()]
    return (
        ("experiment", protocol.experiment),
        ("head of the log", str(view.head)),
        ("protocol", protocol.hash.hex()),
        ("seed of the experiment", str(protocol.seed)),
        *versions,
    )
