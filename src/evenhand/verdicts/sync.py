"""Sync: count the intervals that are due where the data are, close them, and publish the next shares.

    source = OutcomeSource("outcomes/*.parquet")
    sync_experiment(trial, source)        # one experiment
    sync_all(journal, source)             # all experiments in intervals of a journal

An interval is due when its length and its delay have passed. It is counted once: counts, closing and next
shares are one transaction, so a sync that is repeated, interrupted or run by two processes counts no row
twice. A process that works on an experiment claims it; others skip it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from evenhand.errors import BadInput, Conflict, EvenhandError
from evenhand.live.clock import seconds_of, utc
from evenhand.live.experiment import Experiment
from evenhand.live.interval_bets import needs_logs
from evenhand.live.intervals import ClosedInterval, intervals_of, policies_of
from evenhand.live.journal import Journal
from evenhand.live.projection import IntervalView, View
from evenhand.model.problem import Problem
from evenhand.procedure.assignment import Shares
from evenhand.procedure.interval_settings import Intervals
from evenhand.verdicts.interval_table import Interval, IntervalTable, OutcomeSource


@dataclass(frozen=True)
class Synced:
    """What one run of `sync` did with an experiment.

    Attributes
    ----------
    experiment : str
        Its name.
    state : str
        "running", "decided", "closed" and so on, after the run.
    closed : tuple of int
        The intervals that were counted and closed.
    outcomes : int
        Their outcomes.
    version : int
        The version of the current shares.
    wait : float or None
        Seconds until the next interval is due; None if the experiment is over.
    late : int
        Rows that were added to the interval closed before these, after it was closed; they are not counted.
    problem : str or None
        Why nothing more could be counted.
    """

    experiment: str
    state: str
    closed: tuple[int, ...] = ()
    outcomes: int = 0
    version: int = 0
    wait: float | None = None
    late: int = 0
    problem: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `evenhand sync`."""
        table = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return table | {"closed": list(self.closed)}


def sync_experiment(trial: Experiment, source: OutcomeSource, table: IntervalTable | None = None) -> Synced:
    """Count and close the intervals of an experiment that are due, and begin the one that is due.

    `table`: the data, if they are open already.
    """
    closed: list[int] = []
    outcomes = late = 0
    # one time for the whole call: an interval that it begins cannot be due before servers know its shares
    settings, now = _settings(trial), trial.now()
    while (due := _due(trial, settings, now)) is not None:
        interval, shares, end, is_counted = due
        if interval is None:  # only the next shares are due
            _publish(trial, shares, end)
            continue
        if is_counted:
            receipt = trial.close_interval(interval.number, valid_from=end)
        else:
            with source.opened() if table is None else nullcontext(table) as data:
                if not closed:
                    late = _late_rows(trial, data, interval)
                rows = data.counts(_problem_of(trial, shares), interval, _bets(trial))
            found = _tell(trial, interval.number, rows, end)
            if found is None:
                continue  # another process has closed it
            receipt = found
        closed.append(interval.number)
        outcomes += receipt.outcomes
    view = trial.present()
    return Synced(
        view.protocol.experiment, _state(view), tuple(closed), outcomes, trial.shares().version,
        _wait(view, settings, trial.now()), late,
    )  # fmt: skip


AT_ONCE = 200  # experiments that are open at once


def sync_all(journal: Journal, source: OutcomeSource) -> Iterator[Synced]:
    """Sync all experiments in intervals of a journal; skip those that other processes work on.

    A refusal concerns one experiment: it is returned as the `problem` of that experiment.
    """
    names = journal.experiments()
    with source.opened() as table, journal.claims() as claims:
        if "experiment" not in table.own:
            raise BadInput(
                f"{source.shown} needs a column 'experiment' to sync all experiments of a journal; it has "
                f"{', '.join(map(repr, table.table.titles))}."
            )
        for start in range(0, len(names), AT_ONCE):
            mine = [name for name in names[start : start + AT_ONCE] if claims.take(name)]
            trials = [trial for trial in (Experiment.open(journal, name) for name in mine) if _runs(trial)]
            table.fetch([interval for trial in trials for interval in _read_next(trial)])
            for trial in trials:
                yield _synced(trial, source, table)
            for name in mine:
                claims.release(name)


def _runs(trial: Experiment) -> bool:
    """Return whether an experiment has intervals that sync can count."""
    settings = trial.protocol.procedure.interval
    return settings is not None and settings.length is not None and not trial.is_over


def _read_next(trial: Experiment) -> list[Interval]:
    """Return the intervals that a sync of this experiment reads first."""
    due = _due(trial, _settings(trial), trial.now())
    if due is None or due[0] is None or due[3]:
        return []
    log = trial.present().intervals
    last = None if log is None else log.last_closed
    return [due[0]] if last is None else [due[0], _closed_before(trial, due[0], last)]


def _synced(trial: Experiment, source: OutcomeSource, table: IntervalTable) -> Synced:
    try:
        return sync_experiment(trial, source, table)
    except (BadInput, Conflict) as problem:
        view = trial.present()
        version = trial.shares().version
        return Synced(view.protocol.experiment, _state(view), version=version, problem=str(problem))


def _settings(trial: Experiment) -> Intervals:
    settings = trial.protocol.procedure.interval
    if settings is None:
        intervals_of(None)
    assert settings is not None
    if settings.length_seconds is None:
        raise BadInput(
            "sync needs the length of an interval, such as interval = { volume = 10000, length = '10m' }; "
            "the study has none. Tell the counts with tell-counts instead."
        )
    return settings


def _due(
    trial: Experiment, settings: Intervals, now: float
) -> tuple[Interval | None, Shares, str | None, bool] | None:
    """Return what is due at a time: an interval to close, or the next shares (None as interval); else None.

    With the shares of that interval, from when the next shares are valid, and whether it is counted already.
    """
    view = trial.present()
    log = view.intervals
    if log is None or log.latest is None or view.stop is not None or view.closed:
        return None
    number, found = next(iter(log.open.items()))
    start, length = _start(view, found.shares), settings.length_seconds or 0.0
    latest = number == log.latest.version
    end = now if latest else _start(view, log.open[number + 1].shares)
    if latest and now < settings.end_after(start):
        return None
    if latest and settings.delay_seconds > 0:
        return None, found.shares, utc(now), False
    if now < end + settings.delay_seconds:
        begun = _start(view, log.latest)
        return (None, log.latest, utc(now), False) if now >= settings.end_after(begun) else None
    interval = Interval(view.protocol.experiment, number, start, end, length)
    return interval, found.shares, utc(now) if latest else None, found.cells is not None


def _publish(trial: Experiment, shares: Shares, valid_from: str | None) -> None:
    try:
        trial.publish_shares(valid_from=valid_from, after=shares.version)
    except Conflict:
        if trial.shares().version == shares.version:
            raise


def _tell(trial: Experiment, number: int, rows: list[dict[str, Any]], valid_from: str | None) -> Any:
    """Record and close an interval; return None if another process has closed it."""
    try:
        return trial.tell_counts(number, rows, close=True, valid_from=valid_from)
    except EvenhandError:
        log = trial.present().intervals
        if log is not None and log.last_closed is not None and log.last_closed.number >= number:
            return None
        raise


def _late_rows(trial: Experiment, table: IntervalTable, interval: Interval) -> int:
    """Return the rows that came to the last closed interval later; refuse a table that has lost some."""
    log = trial.present().intervals
    last = None if log is None else log.last_closed
    if last is None:
        return 0
    before = _closed_before(trial, interval, last)
    had, has = sum(cell.n for cell in last.cells), table.size(before)
    if has < had and table.has_rows_per_unit:
        raise Conflict(
            f"counts must not shrink: interval {last.number} had {had:,} outcomes when it was closed, and "
            f"{table.shown} holds {has:,} rows of it now. Restore the rows, or check the table."
        )
    return has - had if table.has_rows_per_unit else 0


def _closed_before(trial: Experiment, interval: Interval, last: ClosedInterval) -> Interval:
    """Return the interval that was closed last."""
    start = _start(trial.present(), last.shares)
    return Interval(interval.experiment, last.number, start, seconds_of(last.ended), interval.length)


def _problem_of(trial: Experiment, shares: Shares) -> Problem:
    """Return the problem with the policies that the shares of an interval name."""
    begun, names = trial.protocol.study.problem, policies_of(shares)
    return begun if set(names) == set(begun.policies) else begun.with_policies(tuple(names))


def _bets(trial: Experiment) -> Any:
    """Return the bets whose sums the counts need: of outcomes other than 0 and 1, or of pairs of policies."""
    protocol = trial.protocol
    return trial.bets() if needs_logs(protocol) or protocol.spec.shared_items else None


def _wait(view: View, settings: Intervals, now: float) -> float | None:
    """Return the seconds until something is due; None if the experiment is over."""
    log: IntervalView | None = view.intervals
    if log is None or log.latest is None or view.stop is not None or view.closed:
        return None
    times = [settings.end_after(_start(view, log.latest))]
    number = next(iter(log.open))
    if number + 1 in log.open:
        times.append(_start(view, log.open[number + 1].shares) + settings.delay_seconds)
    return max(min(times) - now, 0.0)


def _start(view: View, shares: Shares) -> float:
    return seconds_of(shares.valid_from or view.protocol.at)


def _state(view: View) -> str:
    from evenhand.live.compute_status import state_word

    return state_word(view)
