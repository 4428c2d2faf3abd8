"""The counts of an interval, from files or a table with a row for each unit.

    policy, group, outcome, version         the version of the shares that assigned the unit; or
    policy, group, outcome, time            when it was assigned; or both
    unit                                    optional: every unit may occur once in an interval
    experiment                              optional: the experiment that the row belongs to

Instead of an outcome per row the table may hold counts per cell (n with successes or mean). One `GROUP BY`,
run where the data are, counts the rows of the interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from evenhand.errors import BadInput, Conflict, nearest, shown_address
from evenhand.live.interval_bets import IntervalBets
from evenhand.live.interval_counts import UNKNOWN, size_key, squares_key
from evenhand.live.interval_pairs import PairIntervalBets
from evenhand.model.problem import JOINED, Problem
from evenhand.procedure.assignment import literal
from evenhand.verdicts.counts import Tally, ValuesMissing
from evenhand.verdicts.read_data import MissingColumn, chosen_columns, column_names, scan_of_files
from evenhand.verdicts.tables import (
    NUMBER,
    TEXT,
    DuckTable,
    Table,
    column,
    duck_table,
    first_line,
    has_duckdb,
    open_database,
)
from evenhand.verdicts.warehouse import DISCRETE, count_table, is_address, is_remote_file, remote_scan

OWN = ("version", "time", "unit", "experiment")  # columns about intervals


class Interval(NamedTuple):
    """An interval whose rows are to be counted."""

    experiment: str
    number: int
    start: float  # seconds since 1970
    end: float
    length: float


@dataclass(frozen=True)
class OutcomeSource:
    """Where the outcomes of units are: files, or a table of a database.

    `columns` maps our names of columns to those of the data.
    """

    url: str
    table: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """Return the place of the data as messages name it, without a password."""
        return self.table or shown_address(self.url)

    @contextmanager
    def opened(self) -> Iterator[IntervalTable]:
        """Yield the table; it is closed when the block ends."""
        if is_address(self.url) and not is_remote_file(self.url):
            with open_database(self.url, self.table) as table:
                yield IntervalTable(self, table)
            return
        if self.table is not None:
            raise BadInput(f"--table is for the address of a database; {self.url} are files.")
        if not has_duckdb():
            raise BadInput("counting files needs DuckDB; install evenhand[warehouse].")
        import duckdb

        scan = remote_scan(self.url) if is_address(self.url) else scan_of_files(self.url)
        try:
            with duckdb.connect() as engine:
                yield IntervalTable(self, duck_table(engine, scan))
        except duckdb.Error as problem:
            raise BadInput(f"DuckDB cannot read {self.shown}: {first_line(problem)}") from None


class IntervalTable:
    """A table with the outcomes of units, and which of its columns are used."""

    def __init__(self, source: OutcomeSource, table: Table) -> None:
        self.table, self.shown = table, source.shown
        self._scan, self._fetched = table.name, set[tuple[str, int]]()
        self._columns = source.columns
        titles = table.titles
        for name in OWN:
            title = source.columns.get(name)
            if title is not None and title not in titles:
                raise MissingColumn(f"{self.shown} needs a column {title!r}{nearest(title, titles)}", name)
        named = {name: source.columns.get(name, name) for name in OWN}
        self.own = {name: title for name, title in named.items() if title in titles}
        if "version" not in self.own and "time" not in self.own:
            raise MissingColumn(
                f"{self.shown} needs a column 'version', the version of the shares that assigned a unit, or "
                f"'time', when it was assigned; it has {', '.join(map(repr, titles))}.",
                "version",
            )
        if "time" in self.own and table.kind(self.own["time"]) == TEXT and not table.parses_text:
            raise BadInput(f"the column {self.own['time']!r} must hold times, or seconds since 1970.")

    def counts(
        self, problem: Problem, interval: Interval, bets: IntervalBets | PairIntervalBets | None = None
    ) -> list[dict[str, Any]]:
        """Return the counts of an interval as rows for `tell_counts`; refuse what cannot be counted.

        `bets`: with linear bets on outcomes other than 0 and 1, the bets whose sums are needed too; where
        every policy serves every unit, those on the differences. All queries see the same rows, so rows that
        are added meanwhile are either checked and counted or neither.
        """
        with self.table.snapshot():
            return self._counts(problem, interval, bets)

    def _counts(
        self, problem: Problem, interval: Interval, bets: IntervalBets | PairIntervalBets | None
    ) -> list[dict[str, Any]]:
        tally = Tally(problem)
        own = {*OWN, "item"}
        given = {name: title for name, title in self._columns.items() if name not in own}
        names = {name: title for name, title in column_names(problem, given).items() if name != "item"}
        chosen = chosen_columns(self.table.titles, names, self.shown, tally.rails)
        self._choose(interval)
        self._check_clocks(interval)
        shared = isinstance(bets, PairIntervalBets)
        if shared and "outcome" not in chosen:
            raise MissingColumn(
                f"{self.shown} needs a row for every unit and policy to pair their outcomes; it has counts.",
                "outcome",
            )
        self._check_units(interval, chosen["policy"], shared)
        empty = (
            f"{self.shown} holds no row of interval {interval.number}; check the columns, and that servers "
            f"assign by version {interval.number} of the shares."
        )
        try:
            tally.finish(count_table(tally, self.table, chosen, empty, in_intervals=True))
        except ValuesMissing as error:
            advice = "Give every unit of a final interval an outcome, or leave such rows out by a view."
            raise BadInput(f"{error.fault} {advice}") from None
        rows = _as_rows(problem, tally)
        if isinstance(bets, PairIntervalBets):
            return rows + self._pairs(chosen, bets)
        if bets is not None:
            self._add_sums(problem, chosen, bets, rows)
        return rows

    def fetch(self, intervals: Sequence[Interval]) -> None:
        """Copy the rows of these intervals from files in one scan, so that each is then counted at once.

        A database finds the rows of an experiment by its index.
        """
        self._fetched.clear()
        if not isinstance(self.table, DuckTable) or "experiment" not in self.own or not intervals:
            return
        import sqlalchemy as sa

        self.table.name = self._scan
        self.table.where = sa.or_(*(self._rows_of(interval) for interval in intervals))
        if "version" in self.own:  # one condition that DuckDB evaluates with a hash table
            pairs = ", ".join(f"({literal(one.experiment)}, {one.number})" for one in intervals)
            experiment, version = (f'"{_escaped(self.own[name])}"' for name in ("experiment", "version"))
            chosen = f"({experiment}, CAST({version} AS BIGINT)) IN ({pairs})"
            self.table.where = sa.text(chosen.replace(":", "\\:"))
        self.table.copy("fetched_intervals", self.own["experiment"])
        self._fetched = {(interval.experiment, interval.number) for interval in intervals}

    def _choose(self, interval: Interval) -> None:
        """Restrict the table to the rows of an interval, among those that were fetched if they are there."""
        if isinstance(self.table, DuckTable):
            is_there = (interval.experiment, interval.number) in self._fetched
            self.table.name = "fetched_intervals" if is_there else self._scan
        self.table.where = self._rows_of(interval)

    @property
    def has_rows_per_unit(self) -> bool:
        """Return whether a row is one outcome, not the counts of a cell."""
        return self._columns.get("outcome", "outcome") in self.table.titles

    def size(self, interval: Interval) -> int:
        """Return the number of rows of an interval."""
        import sqlalchemy as sa

        self._choose(interval)
        return int(next(self.table.run(sa.select(sa.func.count())))[0][0])

    def _rows_of(self, interval: Interval) -> Any:
        """Return the SQL condition that the rows of an interval meet."""
        import sqlalchemy as sa

        parts = []
        if "experiment" in self.own:
            parts.append(column(self.own["experiment"]) == interval.experiment)
        if "version" in self.own:
            version = column(self.own["version"])
            is_text = self.table.kind(self.own["version"]) == TEXT
            parts.append((sa.cast(version, sa.BigInteger()) if is_text else version) == interval.number)
        else:
            name = self.own["time"]
            time = self._time()
            parts.append(time >= self.table.moment(name, interval.start))
            parts.append(time < self.table.moment(name, interval.end))
        return sa.and_(*parts)

    def _time(self) -> Any:
        name = self.own["time"]
        return column(name) if self.table.kind(name) == NUMBER else self.table.time(name)

    def _check_clocks(self, interval: Interval) -> None:
        """Refuse rows that were assigned an interval or more before or after their shares were valid."""
        import sqlalchemy as sa

        if "time" not in self.own:
            return
        time, before = self._time(), (self.table.where, self.table.name)
        if "version" not in self.own:  # rows from the future, among all rows
            latest = self.table.moment(self.own["time"], interval.end + interval.length)
            self.table.where, self.table.name = time >= latest, self._scan
        query = sa.select(sa.func.min(time), sa.func.max(time))
        first, last = (_seconds(value) for value in next(self.table.run(query))[0])
        self.table.where, self.table.name = before
        if first is None or last is None:
            return
        early, late = interval.start - first, last - interval.end
        if max(early, late) >= interval.length:
            apart = f"{early:,.0f} s before" if early > late else f"{late:,.0f} s after"
            raise Conflict(
                f"the clocks of servers disagree by an interval or more: a row of interval {interval.number} "
                f"in {self.shown} has a time {apart} the interval. Correct the rows or the clocks."
            )

    def _check_units(self, interval: Interval, policy: str, shared: bool) -> None:
        """Refuse a unit that occurs twice in an interval; or, where units are shared, under one policy."""
        import sqlalchemy as sa

        if "unit" not in self.own:
            if not shared:
                return
            titles = self.table.titles
            raise MissingColumn(
                f"{self.shown} needs a column 'unit', to pair the outcomes of policies on the same unit; it "
                f"has {', '.join(map(repr, titles))}.",
                "unit",
            )
        unit = column(self.own["unit"])
        policies = sa.func.count(sa.distinct(column(policy)))
        by = (unit, column(policy)) if shared else (unit,)
        query = sa.select(unit, sa.func.count(), policies).group_by(*by)
        for chunk in self.table.run(query.having(sa.func.count() > 1).limit(1)):
            name, rows, several = chunk[0]
            if shared:
                raise Conflict(
                    f"every policy may serve a unit once in an interval; {name!r} occurs {rows} times under "
                    f"one policy in interval {interval.number}. Keep its first row, for example by a view."
                )
            under = f"under {several} policies" if several > 1 else f"{rows} times"
            raise Conflict(
                f"a unit may occur once in an interval; {name!r} occurs {under} in interval "
                f"{interval.number}. Keep its first row, for example by a view."
            )

    def _add_sums(
        self, problem: Problem, chosen: Mapping[str, str], bets: IntervalBets, rows: Sequence[dict[str, Any]]
    ) -> None:
        """Add the sums of squares and of logarithms that linear bets need."""
        policy, group, outcome, where = self._expressions(chosen)
        found = {(row["policy"], row["group"]): row for row in rows}
        logs = bets.to_sql(self.table.name, policy, group, outcome, where)
        for name, place, _number, value in self.table.run_text(logs):
            found[name, place].setdefault("logs", []).append(float(value))
        squares = (
            f"SELECT {policy}, {group}, SUM(CAST({outcome} AS DOUBLE PRECISION) * "
            f"CAST({outcome} AS DOUBLE PRECISION)) FROM {self.table.name} WHERE {where} GROUP BY 1, 2"
        )
        for name, place, value in self.table.run_text(squares):
            found[name, place]["squares"] = float(value)

    def _pairs(self, chosen: Mapping[str, str], bets: PairIntervalBets) -> list[dict[str, Any]]:
        """Return the sums of the differences of all pairs of policies on the same units."""
        policy, group, outcome, where = self._expressions(chosen)
        if self.table.kind(chosen["outcome"]) != NUMBER:  # text, or true and false
            text = f"LOWER(CAST({outcome} AS VARCHAR))"
            outcome = f"CASE {text} WHEN 'true' THEN '1' WHEN 'false' THEN '0' ELSE {text} END"
        unit = f'"{_escaped(self.own["unit"])}"'
        query = bets.to_sql(self.table.name, unit, policy, group, outcome, where)
        return bets.counts(self.table.run_text(query))

    def _expressions(self, chosen: Mapping[str, str]) -> tuple[str, str, str, str]:
        """Return policy, group and outcome as SQL, and the condition of the rows."""
        titles = [title for name, title in chosen.items() if name.startswith("group")]
        policy, outcome = (f'"{_escaped(chosen[name])}"' for name in ("policy", "outcome"))
        group = f" || '{JOINED}' || ".join(f'"{_escaped(title)}"' for title in titles)
        return policy, group, outcome, self.table.as_text(self.table.where)


def _as_rows(problem: Problem, tally: Tally) -> list[dict[str, Any]]:
    """Return the counts of every cell with outcomes, in the units of the user."""
    state, family = tally.state, problem.family
    rows = []
    for k, policy in enumerate(problem.policies):
        for g, group in enumerate(problem.group_names):
            n = int(state.n[g, k])
            if n == 0:
                continue
            row: dict[str, Any] = {"policy": policy, "group": group, "n": n}
            row["sum"] = _sum(n, float(state.s[g, k]), family)
            row |= {"squares": float(state.ss[g, k])} if family.name == UNKNOWN else {}
            for j, rail in enumerate(problem.guardrails):
                size = int(state.rail_n[j, g, k])
                row |= {rail.name: _sum(size, float(state.rail_s[j, g, k]), rail.family)}
                row |= {size_key(rail.name): size}
                if rail.family.name == UNKNOWN and size:
                    row |= {squares_key(rail.name): float(state.rail_ss[j, g, k])}
            rows.append(row)
    return rows


def _sum(n: int, unit: float, family: Any) -> float:
    total = n * family.low + unit * family.width
    return float(round(total)) if family.name in DISCRETE else total


def _seconds(value: Any) -> float | None:
    """Return a time of a database as seconds since 1970; without a zone it is UTC."""
    if value is None or isinstance(value, (int, float)):
        return None if value is None else float(value)
    at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _escaped(title: str) -> str:
    return title.replace('"', '""')
