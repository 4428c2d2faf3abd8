"""Count outcomes where they are stored: one group-by, run by DuckDB on files or by a database on a table.

Only the groups are read: how often every outcome occurs in every cell or, for outcomes of any size, the
number, the sum and the extremes per cell. That is all that evidence which does not depend on the order of
the outcomes needs. Files that DuckDB reads in another way than `read_data`, or that hold a value which is
refused, are left to `read_data`, so the counts and the messages are the same with and without DuckDB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput
from evenhand.procedure.assignment import literal
from evenhand.procedure.outcome_order import FAMILIES
from evenhand.verdicts.counts import LARGEST, ORDER_COLUMN, Tally
from evenhand.verdicts.tables import (
    DuckTable,
    Measure,
    Table,
    column,
    duck_table,
    first_line,
    has_duckdb,
    open_database,
)

if TYPE_CHECKING:
    from evenhand.model.families import Family
    from evenhand.model.guardrails import Guardrail
    from evenhand.model.problem import Problem

Ints = NDArray[np.int64]

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9]*(\+[A-Za-z0-9_]+)?://")
OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "r2", "az", "azure", "abfss", "http", "https")
LARGE = 1_000_000  # bytes; smaller files are read row by row, which takes less time than starting DuckDB
DISCRETE = ("bernoulli", "binomial", "poisson")
UNKNOWN = "gaussian-unknown"  # the family whose evidence needs sums of squares
EMPTY = "the table holds no row; check its name, or wait until there are outcomes."


def is_address(source: Any) -> bool:
    """Return whether the data are a table of a database, or files in an object store."""
    return isinstance(source, str) and ADDRESS.match(source) is not None


def is_remote_file(source: str) -> bool:
    """Return whether an address names files that DuckDB reads through its httpfs extension."""
    return source.split("://", 1)[0].lower() in OBJECT_STORES


def order_is_needed(tally: Tally) -> str | None:
    """Return the family whose evidence depends on the order of the rows; None where there is none."""
    families = (tally.problem.family, *(rail.family for rail in tally.problem.guardrails))
    return next((family.name for family in families if family.name in FAMILIES), None)


def can_count(tally: Tally, place: Iterable[str]) -> bool:
    """Return whether groups of rows hold all that the evidence from these columns needs."""
    names = set(place)
    any_order = tally.ordered is None and order_is_needed(tally) is None
    return "outcome" in names and "item" not in names and any_order


def count_files(
    tally: Tally, files: Sequence[Path], chosen: Mapping[str, str], scan: str, others: Sequence[str] = ()
) -> bool:
    """Count the rows of files with DuckDB; return False, and count nothing, where it cannot.

    `scan` is DuckDB's table function with its arguments; `chosen` maps our columns to those of the files.
    Files with a value in one of the columns `others` are not counted.
    """
    if not has_duckdb() or not can_count(tally, chosen) or sum(f.stat().st_size for f in files) < LARGE:
        return False
    import duckdb

    counted = GroupedTally(tally)
    try:
        with duckdb.connect() as engine:
            table = DuckTable(engine, scan)
            if others and any(table.run(table.first_with(others))):
                return False
            counted.add_all(chosen, table)
            counted.check()
    except (duckdb.Error, BadInput, _LeaveToReader):
        return False  # the reader of rows reads it, or says which row is wrong
    counted.give()
    return True


def count_remote_files(tally: Tally, address: str, columns_of: Any) -> bool:
    """Count the rows of files in an object store; return whether they are counts per cell."""
    if not has_duckdb():
        raise BadInput("reading files from an object store needs DuckDB; install evenhand[warehouse].")
    import duckdb

    scan = remote_scan(address)
    try:
        with duckdb.connect() as engine:
            return _count_table(tally, duck_table(engine, scan), columns_of)
    except duckdb.Error as problem:
        raise BadInput(f"DuckDB cannot read {address}: {first_line(problem)}") from None


def remote_scan(address: str) -> str:
    """Return DuckDB's table function for files in an object store."""
    path = address.lower().split("?")[0]
    scans = {".parquet": "read_parquet", ".pq": "read_parquet", ".csv": "read_csv", ".csv.gz": "read_csv"}
    reader = next((scan for suffix, scan in scans.items() if path.endswith(suffix)), None)
    if reader is None:
        raise BadInput(f"files in an object store must end in {', '.join(scans)}; the address is {address}.")
    return f"{reader}({literal(address)}{', all_varchar = true' if reader == 'read_csv' else ''})"


def count_database(tally: Tally, address: str, table: str | None, columns_of: Any) -> bool:
    """Count the rows of a table or view of a database; return whether they are counts per cell.

    `columns_of` takes the titles and returns our columns mapped to those of the table.
    """
    with open_database(address, table) as found:
        return _count_table(tally, found, columns_of)


def _count_table(tally: Tally, table: Table, columns_of: Any) -> bool:
    return count_table(tally, table, columns_of(table.titles), EMPTY)


def count_table(
    tally: Tally, table: Table, chosen: Mapping[str, str], empty: str, in_intervals: bool = False
) -> bool:
    """Count the rows of a table; return whether they are counts per cell.

    `empty`: the refusal of no row. In intervals the order of the rows of one does not matter.
    """
    if "outcome" not in chosen:
        _add_counts(tally, table, chosen)
        if tally.rows == 0:
            raise BadInput(empty)
        return True
    if tally.ordered is not None:
        _add_in_order(tally, table, chosen, empty)
        return False
    family = order_is_needed(tally)
    if family is not None and not in_intervals:
        raise BadInput(
            f"the evidence of {family} outcomes depends on their order, and a table has none; export the "
            "rows in the order in which they were observed to a CSV or Parquet file."
        )
    if "item" in chosen:
        raise BadInput(
            "outcomes on items are compared item by item in the order of the rows, and a table has no order; "
            "export them to a CSV or Parquet file, or judge a view without the item column."
        )
    counted = GroupedTally(tally)
    try:
        counted.add_all(chosen, table)
    except _LeaveToReader as problem:
        raise BadInput(f"the outcomes cannot be added up: {problem}") from None
    if counted.rows == 0:
        raise BadInput(empty)
    counted.give()
    return False


def _add_in_order(tally: Tally, table: Table, chosen: Mapping[str, str], empty: str) -> None:
    """Add the rows of a table with a column that gives their order; they are sorted later."""
    import sqlalchemy as sa

    from evenhand.verdicts.read_data import joined

    if ORDER_COLUMN not in chosen:
        raise BadInput(
            "the rows of a table have no order of their own; name the column that gives the order in which "
            "the outcomes came, such as a time."
        )
    for rows in table.run(sa.select(*[column(title) for title in chosen.values()])):
        columns = joined(dict(zip(chosen, map(list, zip(*rows, strict=True)), strict=True)), tally.rails)
        where = [f"row {tally.rows + number:,}" for number in range(1, len(rows) + 1)]
        tally.add(where, columns["policy"], columns["group"], columns["outcome"], columns)
    if tally.rows == 0:
        raise BadInput(empty)


def _add_counts(tally: Tally, table: Table, chosen: Mapping[str, str]) -> None:
    """Add a table of counts per cell, row by row."""
    from evenhand.verdicts.read_data import joined

    for number, values in enumerate(table.rows(list(chosen.values())), start=1):
        row = {name: values[i] for i, name in enumerate(chosen)}
        group = joined({name: [value] for name, value in row.items()}, tally.rails)["group"][0]
        where = f"row {number:,}"
        tally.add_counts(where, row["policy"], group, row["n"], row.get("mean"), row.get("successes"), row)


class _LeaveToReader(Exception):
    """The sums of the groups do not say whether every outcome is valid."""


class CellSums(NamedTuple):
    """A metric of each group of rows: its outcomes, their sum in unit scale, the least and the largest."""

    present: Sequence[int]
    total: Sequence[Any]
    least: Sequence[Any]
    most: Sequence[Any]
    squares: Sequence[Any] | None = None  # their sum in unit scale, where it is needed


class GroupedTally(Tally):
    """Adds groups of equal rows, or sums per cell, and gives the counts to a `Tally` at the end."""

    def __init__(self, target: Tally) -> None:
        super().__init__(target.problem, "drop" if target.drops_missing else "fail")
        self.target = target

    def add_all(self, chosen: Mapping[str, str], table: Table) -> None:
        """Add all rows of a table, grouped by the table's engine."""
        measures = {
            name: Measure(chosen[name], family.low, family.width, family.name == UNKNOWN)
            for name, family in _families(self.problem).items()
            if family.name not in DISCRETE
        }
        keys = {name: title for name, title in chosen.items() if name not in measures}
        if not measures:
            for rows in table.grouped(list(keys.values())):
                *values, sizes = zip(*rows, strict=True)
                self.add_groups(_joined(keys, values, self.rails), np.array(sizes, dtype=np.int64))
            return
        needed = chosen["outcome"] if "outcome" in measures else None
        for rows in table.summed(list(keys.values()), list(measures.values()), needed):
            columns = list(zip(*rows, strict=True))
            values, sizes, found = columns[: len(keys)], columns[len(keys)], columns[len(keys) + 1 :]
            sums = {}
            for name, measure in measures.items():
                sums[name] = CellSums(*found[: 4 + measure.squared])
                found = found[4 + measure.squared :]
            self.add_sums(_joined(keys, values, self.rails), sizes, sums)

    def add_groups(self, columns: Mapping[str, Sequence[Any]], sizes: Ints) -> None:
        """Add groups of rows with equal values; `sizes` has the number of rows of each."""
        where = _Groups(columns, sizes)
        k, g = self._cells(columns, where)
        keep, x = self._valid(columns, where, k, g, sizes)
        self.rows += int(sizes.sum())
        cell, times = (g[keep], k[keep]), sizes[keep].astype(float)
        np.add.at(self.state.n, cell, times)
        np.add.at(self.state.s, cell, times * self.problem.family.to_unit(x[keep]))
        rails = self._rails(where, columns, keep)
        for j in range(len(self.rails)):
            self._add_rail(j, cell, times, rails[:, j])

    def add_sums(
        self, columns: Mapping[str, Sequence[Any]], sizes: Sequence[int], sums: Mapping[str, CellSums]
    ) -> None:
        """Add groups of rows, with the sums of the metrics that are no part of the group."""
        where = _Groups(columns, np.array(sizes))
        k, g = self._cells(columns, where)
        times = np.array(sizes, dtype=np.int64)
        self.rows += int(times.sum())
        if "outcome" in sums:
            present = self._add_outcomes(where, k, g, times, sums["outcome"])
        else:
            keep, x = self._valid(columns, where, k, g, times)
            present = np.where(keep, times, 0)
            np.add.at(self.state.n, (g[keep], k[keep]), times[keep])
            np.add.at(self.state.s, (g[keep], k[keep]), times[keep] * self.problem.family.to_unit(x[keep]))
        kept = np.flatnonzero(present)
        cell = g[kept], k[kept]
        for j, rail in enumerate(self.problem.guardrails):
            if rail.name in sums:
                self._add_rail_sums(j, rail, where, kept, cell, sums[rail.name])
                continue
            values = self._numbers(columns[rail.name], where)
            self._check_rail(rail, where, values, columns[rail.name])
            unit = np.where(np.isnan(values), np.nan, rail.family.to_unit(values))
            self._add_rail(j, cell, present[kept].astype(float), unit[kept])

    def _valid(
        self, columns: Mapping[str, Sequence[Any]], where: Sequence[str], k: Ints, g: Ints, sizes: Ints
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return which groups have valid outcomes, and the outcomes; note the others."""
        outcomes = columns["outcome"]
        x = self._numbers(outcomes, where)
        absent = (k < 0) | (g < 0) | np.isnan(x)
        outside = ~absent & ~(self.problem.family.admits(x) & (np.abs(x) <= LARGEST))
        for rows, which in ((self.absent, absent), (self.outside, outside)):
            rows.note(where, which, outcomes)
            rows.count += int(sizes[which].sum() - which.sum())
        return ~absent & ~outside, x

    def _add_outcomes(self, where: Sequence[str], k: Ints, g: Ints, sizes: Ints, sums: CellSums) -> Ints:
        """Add the sums of outcomes; return how many outcomes of each group count."""
        present = np.zeros(len(where), dtype=np.int64)
        for i in range(len(where)):
            named = k[i] >= 0 and g[i] >= 0
            missing = int(sizes[i] - sums.present[i]) if named else int(sizes[i])
            if missing:
                self.absent.note([where[i]], np.array([True]), [""])
                self.absent.count += missing - 1
            if not named or not sums.present[i]:
                continue
            ends = _ends(where[i], sums, i)
            wrong = ~(self.problem.family.admits(ends) & (np.abs(ends) <= LARGEST))
            self.outside.note([where[i]] * 2, wrong, ends.tolist())
            present[i] = sums.present[i]
            self.state.n[g[i], k[i]] += float(sums.present[i])
            self.state.s[g[i], k[i]] += float(sums.total[i])
            self.state.ss[g[i], k[i]] += 0.0 if sums.squares is None else float(sums.squares[i])
        return present

    def _add_rail(self, j: int, cell: tuple[Ints, Ints], times: Any, unit: Any) -> None:
        """Add the outcomes of a guard-rail in unit scale, each with its count; NaN where one is missing."""
        seen = ~np.isnan(unit)
        at = cell[0][seen], cell[1][seen]
        np.add.at(self.state.rail_n[j], at, times[seen])
        np.add.at(self.state.rail_s[j], at, times[seen] * unit[seen])

    def _add_rail_sums(
        self, j: int, rail: Guardrail, where: Sequence[str], kept: Ints, cell: tuple[Ints, Ints],
        sums: CellSums,
    ) -> None:  # fmt: skip
        for place, i in enumerate(kept.tolist()):
            if sums.present[i]:
                self._check_rail(rail, [where[i]] * 2, _ends(where[i], sums, i))
                at = cell[0][place], cell[1][place]
                self.state.rail_n[j][at] += float(sums.present[i])
                self.state.rail_s[j][at] += float(sums.total[i])
                self.state.rail_ss[j][at] += 0.0 if sums.squares is None else float(sums.squares[i])

    def check(self) -> None:
        """Refuse what `finish` refuses, before anything is given to the tally of the reader."""
        self.finish(False)

    def give(self) -> None:
        """Add everything that was counted to the tally of the reader."""
        for name in ("n", "s", "ss", "rail_n", "rail_s", "rail_ss"):
            getattr(self.target.state, name)[:] += getattr(self.state, name)
        self.target.rows += self.rows
        for mine, theirs in ((self.absent, self.target.absent), (self.outside, self.target.outside)):
            theirs.count += mine.count
            theirs.first.extend(mine.first)

    def _cells(self, columns: Mapping[str, Sequence[Any]], where: Sequence[str]) -> tuple[Ints, Ints]:
        policies, groups = columns["policy"], columns["group"]
        return (
            np.array(
                [self._index(self.policies, name, "policy", where, i) for i, name in enumerate(policies)]
            ),
            np.array([self._index(self.groups, name, "group", where, i) for i, name in enumerate(groups)]),
        )


class _Groups(Sequence[str]):
    """The description of each group of rows, formatted when it is read."""

    def __init__(self, columns: Mapping[str, Sequence[Any]], sizes: Any) -> None:
        self.columns, self.sizes = columns, sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, i: Any) -> Any:
        rows = f"{self.sizes[i]:,} row{'s' if self.sizes[i] != 1 else ''}"
        return f"{rows} of {self.columns['policy'][i]!r} in {self.columns['group'][i]!r}"


def _families(problem: Problem) -> dict[str, Family]:
    """Return the families of the outcome and of the guard-rails, by the names of their columns."""
    return {"outcome": problem.family} | {rail.name: rail.family for rail in problem.guardrails}


def _joined(
    keys: Iterable[str], values: Sequence[Sequence[Any]], rails: Sequence[str]
) -> Mapping[str, Sequence[Any]]:
    """Return the columns of a result by name, with one column for the group."""
    from evenhand.verdicts.read_data import joined

    return joined(dict(zip(keys, values, strict=True)), rails)


def _ends(where: str, sums: CellSums, i: int) -> NDArray[np.float64]:
    """Return the least and the largest outcome of a group; refuse what is not finite."""
    ends = np.array([sums.least[i], sums.most[i]], dtype=float)
    if not math.isfinite(float(sums.total[i])) or not np.isfinite(ends).all():
        raise _LeaveToReader(f"{where}: an outcome is not a finite number.")
    return ends
