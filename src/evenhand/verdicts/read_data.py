"""Read data from a CSV or Parquet file, a data frame or a dict: single outcomes, or counts per cell.

    policy, group, outcome                    a row per outcome
    policy, group, n, mean                    a row per cell; or
    policy, group, n, successes
    policy, group, outcome, NAME              with guard-rails: a column for each, named like it
    policy, group, n, mean, NAME, NAME n      counts: the mean of guard-rail NAME and its number of outcomes
    policy, region, age, outcome              the group in several columns, those of `Problem.by`
    {"policy": {"group": [0, 1, 1, ...]}}     a dict by policy, then by group

Every row is checked. Other columns are ignored. A field that looks like a spreadsheet formula is plain text.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from evenhand.errors import BadInput, nearest, shown
from evenhand.model.guardrails import OUTCOME
from evenhand.model.problem import JOINED, Problem
from evenhand.verdicts.counts import Data, Tally, is_missing, size_column

CHUNK = 16_384  # rows held in memory at once
PART = re.compile(r"group( \d+)?")
COLUMNS = ("policy", "group", "outcome", "n", "mean", "successes")


def read(
    problem: Problem, source: Any, missing: str = "fail", columns: Mapping[str, str] | None = None
) -> Data:
    """Return what a path, a frame or a dict holds; `columns` maps our column names to those of the data."""
    tally = Tally(problem, missing)
    names = _column_names(columns, tally.rails)
    if problem.by and "group" not in (columns or {}):
        names |= dict(zip(_parts(len(problem.by)), problem.by, strict=True))
    if isinstance(source, Mapping):
        return _read_nested(tally, source)
    if not isinstance(source, (str, Path)):
        return _read_frame(tally, source, names)
    path = Path(source)
    if not path.is_file():
        raise BadInput(f"there is no file {path}; give a CSV or Parquet file of policy, group, outcome.")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(tally, path, names)
    return _read_csv(tally, path, names)


def _read_csv(tally: Tally, path: Path, names: Mapping[str, str]) -> Data:
    try:
        with _open_text(path) as file:
            reader = csv.reader(file, dialect=_dialect(file), strict=True)
            header = next(reader, None)
            if header is None:
                raise BadInput(f"{path.name} is empty; it needs a header line with policy, group, outcome.")
            place = _places(header, names, path.name, tally.rails)
            counts = "outcome" not in place
            for where, columns in _chunks(reader, place, len(header)):
                _add(tally, where, columns, counts)
    except UnicodeDecodeError:
        raise BadInput(f"{path.name} must be UTF-8 text; it is not. Save it as CSV UTF-8.") from None
    except (csv.Error, gzip.BadGzipFile, EOFError) as problem:
        raise BadInput(f"{path.name} cannot be read as CSV: {problem}.") from None
    except OSError as problem:
        raise BadInput(f"{path.name} cannot be read: {problem.strerror}.") from None
    return tally.finish(counts)


def _chunks(
    reader: Any, place: Mapping[str, int], width: int
) -> Iterator[tuple[_Lines, dict[str, list[str]]]]:
    """Yield the wanted columns, a chunk of rows at a time, each row with its line number."""
    while True:
        lines: list[int] = []
        columns: dict[str, list[str]] = {name: [] for name in place}
        fill = [(columns[name].append, i) for name, i in place.items()]
        for row in reader:
            if len(row) != width:
                if not row:
                    continue  # a blank line
                raise BadInput(
                    f"line {reader.line_num}: every line needs {width} fields like the header; "
                    f"this one has {len(row)}."
                )
            lines.append(reader.line_num)
            for put, i in fill:
                put(row[i])
            if len(lines) == CHUNK:
                break
        if not lines:
            return
        yield _Lines(lines), columns


def _read_parquet(tally: Tally, path: Path, names: Mapping[str, str]) -> Data:
    if find_spec("pyarrow") is None:
        raise BadInput("reading Parquet needs pyarrow; install it, or save the data as CSV.")
    import narwhals as nw
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        file = parquet.ParquetFile(path)
        place = _places(file.schema_arrow.names, names, path.name, tally.rails)
        wanted = [file.schema_arrow.names[i] for i in place.values()]
        first = 1
        for batch in file.iter_batches(CHUNK, columns=wanted):
            frame = nw.from_native(pa.Table.from_batches([batch]), eager_only=True)
            _add_frame(tally, frame, dict(zip(place, wanted, strict=True)), first)
            first += len(frame)
    except pa.ArrowException as problem:
        raise BadInput(f"{path.name} cannot be read as Parquet: {problem}.") from None
    return tally.finish("outcome" not in place)


def _read_frame(tally: Tally, source: Any, names: Mapping[str, str]) -> Data:
    import narwhals as nw

    try:
        found = nw.from_native(source)
    except nw.exceptions.DuplicateError:
        raise BadInput("the frame must have different column names; one comes twice.") from None
    except TypeError:
        raise BadInput(
            "data must be the path of a CSV or Parquet file, a pandas, polars or arrow frame, or a dict by "
            "policy and group; "
            f"got {type(source).__name__}."
        ) from None
    frame = found.collect() if isinstance(found, nw.LazyFrame) else found
    place = _places(list(map(str, frame.columns)), names, "the frame", tally.rails)
    chosen = {name: frame.columns[i] for name, i in place.items()}
    for start in range(0, len(frame), CHUNK):
        _add_frame(tally, frame[start : start + CHUNK], chosen, start + 1)
    return tally.finish("outcome" not in place)


def _read_nested(tally: Tally, source: Mapping[str, Any]) -> Data:
    """Outcomes by policy, then by group; a cell that is not named holds none."""
    for policy, cells in source.items():
        if not isinstance(cells, Mapping):
            raise BadInput(
                "outcomes as a dict are given by policy, then by group, a list each; "
                f"{policy!r} has a {type(cells).__name__}."
            )
        for group, outcomes in cells.items():
            values = _as_list(outcomes, f"{policy!r} in {group!r}")
            where = _Items(policy, group, len(values))
            for start in range(0, len(values), CHUNK):
                part = values[start : start + CHUNK]
                columns = _nested_columns(part, tally.rails, f"{policy!r} in {group!r}")
                places = where.part(start, len(part))
                tally.add(places, [policy] * len(part), [group] * len(part), columns[OUTCOME], columns)
    return tally.finish(False)


def _nested_columns(values: list[Any], rails: Sequence[str], where: str) -> dict[str, list[Any]]:
    """Return the outcomes of all metrics as columns; with guard-rails each sample is a mapping by name."""
    if not rails:
        return {OUTCOME: values}
    names = (OUTCOME, *rails)
    for value in values:
        if not isinstance(value, Mapping) or sorted(value) != sorted(names):
            raise BadInput(f"each sample of {where} must name {', '.join(names)}; one is {shown(value)}.")
    return {name: [value[name] for value in values] for name in names}


def _as_list(outcomes: Any, where: str) -> list[Any]:
    if isinstance(outcomes, (str, bytes, Mapping, set, frozenset)) or not isinstance(outcomes, Iterable):
        raise BadInput(f"the outcomes of {where} must be a list of numbers; they are {shown(outcomes)}.")
    found = outcomes.to_list() if hasattr(outcomes, "to_list") else list(outcomes)
    return [value.item() if isinstance(value, np.generic) else value for value in found]


def _add_frame(tally: Tally, frame: Any, chosen: Mapping[str, str], first: int) -> None:
    columns = {name: frame[column].to_list() for name, column in chosen.items()}
    _add(tally, _Rows(range(first, first + len(frame))), columns, "outcome" not in chosen)


def _parts(count: int) -> list[str]:
    """Return our names of the columns that together give the group."""
    return ["group", *(f"group {number}" for number in range(2, count + 1))]


def _group_parts(names: Iterable[str], rails: Sequence[str]) -> list[str]:
    """Return those of our names of columns that give the group, or a part of it."""
    return [name for name in names if PART.fullmatch(name) and name not in rails]


def _joined(columns: Mapping[str, Sequence[Any]], rails: Sequence[str]) -> Mapping[str, Sequence[Any]]:
    """Return the columns with one for the group, joined from several; missing where a part is."""
    parts = [columns[name] for name in _group_parts(columns, rails)]
    if len(parts) == 1:
        return columns
    named = [
        None if any(is_missing(value) for value in row) else JOINED.join(str(value).strip() for value in row)
        for row in zip(*parts, strict=True)
    ]
    return {**columns, "group": named}


def _add(tally: Tally, where: Sequence[str], columns: Mapping[str, Sequence[Any]], counts: bool) -> None:
    columns = _joined(columns, tally.rails)
    if not counts:
        tally.add(where, columns["policy"], columns["group"], columns["outcome"], columns)
        return
    for i in range(len(where)):
        row = {name: values[i] for name, values in columns.items()}
        tally.add_counts(
            where[i], row["policy"], row["group"], row["n"], row.get("mean"), row.get("successes"), row
        )


def _places(
    header: Sequence[str], names: Mapping[str, str], what: str, rails: Sequence[str]
) -> dict[str, int]:
    """Return the position of every column that is used."""
    titles = [title.strip() for title in header]
    double = next((title for title in titles if title and titles.count(title) > 1), None)
    if double is not None:
        raise BadInput(f"{what} must have different column names; {double!r} comes twice.")
    place = {name: titles.index(title) for name, title in names.items() if title in titles}
    groups = _group_parts(names, rails)
    for name in ("policy", *groups, *rails):
        if name not in place:
            raise MissingColumn(f"{what} needs a column {names[name]!r}{nearest(names[name], titles)}", name)
    kinds = ["outcome" in place, "n" in place and ("mean" in place or "successes" in place)]
    if kinds == [False, False]:
        raise BadInput(
            f"{what} needs a column 'outcome', or 'n' with 'mean' or 'successes'; "
            f"it has {', '.join(map(repr, titles))}."
        )
    if kinds == [True, True]:
        raise BadInput(
            f"{what} holds single outcomes and counts at once ('outcome' and 'n'); leave one of them out."
        )
    if "mean" in place and "successes" in place and not kinds[0]:
        raise BadInput(f"{what} gives 'mean' and 'successes' at once; leave one of them out.")
    used = ("policy", *groups, *(("outcome",) if kinds[0] else ("n", "mean", "successes")))
    sizes = () if kinds[0] else tuple(size_column(name) for name in rails)
    return {name: place[name] for name in (*used, *rails, *sizes) if name in place}


class MissingColumn(BadInput):
    """A column is missing; `fault` is the message without the advice for callers in Python."""

    def __init__(self, fault: str, column: str) -> None:
        advice = f"Pass columns={{{column!r}: 'its name'}} if it has another name."
        super().__init__(f"{fault} {advice}")
        self.fault, self.column = fault, column


def _column_names(columns: Mapping[str, str] | None, rails: Sequence[str]) -> dict[str, str]:
    if columns is not None and not (
        isinstance(columns, Mapping) and all(isinstance(name, str) for name in columns.values())
    ):
        raise BadInput(f"columns must map our names of columns to those of the data; it is {shown(columns)}.")
    known_columns = (*COLUMNS, *rails, *map(size_column, rails))
    for name in columns or {}:
        if name not in known_columns:
            known = nearest(str(name), known_columns)
            raise BadInput(f"columns maps our names to those of the data; there is no {name!r}{known}")
    return {name: (columns or {}).get(name, name) for name in known_columns}


def _open_text(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _dialect(file: TextIO) -> type[csv.Dialect]:
    """Return a dialect with the delimiter, comma, semicolon or tab, that is most frequent in the header."""
    start = file.tell() if file.seekable() else 0
    header = file.readline()
    file.seek(start)
    chosen = max((",", ";", "\t"), key=header.count)

    class Found(csv.excel):
        delimiter = chosen

    return Found


class _Places(Sequence[str]):
    """The place of each row, formatted when it is read."""

    word = "row"

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: Any) -> Any:
        return f"{self.word} {self.numbers[i]:,}"

    def __iter__(self) -> Iterator[str]:
        return (f"{self.word} {number:,}" for number in self.numbers)


class _Rows(_Places):
    word = "row"


class _Lines(_Places):
    word = "line"


class _Items(_Places):
    """The places of the outcomes of one cell of a dict."""

    def __init__(self, policy: str, group: str, count: int, start: int = 0) -> None:
        super().__init__(range(start + 1, start + count + 1))
        self.policy, self.group = policy, group
        self.word = f"{policy!r} in {group!r}, outcome"

    def part(self, start: int, count: int) -> _Items:
        return _Items(self.policy, self.group, count, start)
