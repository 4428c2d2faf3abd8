"""Read data from files, a table of a database, a data frame or a dict: single outcomes, or counts per cell.

Files are CSV, Parquet or JSON lines: one file, all files of a folder, or those that match a pattern, such
as "outcomes/*.parquet". Where DuckDB is installed it counts large files (`warehouse`).

    policy, group, outcome                    a row per outcome
    policy, group, item, outcome              the same; outcomes on the same item are dependent
    policy, group, n, mean                    a row per cell; or
    policy, group, n, successes
    policy, group, outcome, NAME              with guard-rails: a column for each, named like it
    policy, group, n, mean, NAME, NAME n      counts: the mean of guard-rail NAME and its number of outcomes
    policy, region, age, outcome              the group in several columns, those of `Problem.by`
    policy, group, outcome, TIME              with `ordered="TIME"`: rows are sorted by this column
    {"policy": {"group": [0, 1, 1, ...]}}     a dict by policy, then by group

Every row is checked. Other columns are ignored. A field that looks like a spreadsheet formula is plain text.
"""

from __future__ import annotations

import csv
import glob
import gzip
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from evenhand.errors import BadInput, nearest, shown
from evenhand.model.argument_checks import python_number
from evenhand.model.guardrails import OUTCOME
from evenhand.model.labels import is_by_group
from evenhand.model.problem import JOINED, Problem
from evenhand.verdicts.counts import ORDER_COLUMN, Data, Tally, is_missing, size_column
from evenhand.verdicts.ordered_rows import OrderedRows
from evenhand.verdicts.readers import LINES, SUFFIXES, is_log, lm_eval, read_samples
from evenhand.verdicts.readers.inspect_logs import eval_logs
from evenhand.verdicts.readers.samples import Sample, columns_of
from evenhand.verdicts.tables import csv_scan, json_scan, listed, parquet_scan
from evenhand.verdicts.warehouse import (
    count_database,
    count_files,
    count_remote_files,
    is_address,
    is_remote_file,
)

CHUNK = 16_384  # rows held in memory at once
PART = re.compile(r"group( \d+)?")
COLUMNS = ("policy", "group", "outcome", "item", "n", "mean", "successes")


@dataclass(frozen=True)
class DataSource:
    """The study and the file that a verdict on existing data is about; names are empty where unknown."""

    title: str = ""  # of the study
    study_file: str = ""
    data_file: str = ""  # without its folder
    sha256: str = ""  # of the content of the data file; empty for a folder


def source_of(data: Any, title: str = "", study_file: str = "") -> DataSource:
    """Return the name and the hash of a data file, with the title and the file of its study."""
    if not isinstance(data, (str, Path)):
        return DataSource(title, study_file)
    path = Path(data)
    if not path.is_file():
        return DataSource(title, study_file, path.name)
    with path.open("rb") as file:
        return DataSource(title, study_file, path.name, hashlib.file_digest(file, "sha256").hexdigest())


def read(
    problem: Problem,
    source: Any,
    missing: str = "fail",
    columns: Mapping[str, str] | None = None,
    table: str | None = None,
    ordered: bool | str = False,
) -> Data:
    """Return what files, a table of a database, a frame or a dict hold.

    `columns` maps our column names to those of the data; `table` is for the address of a database. `ordered`:
    rows are in the order in which the outcomes came, or the name of a column that gives it.
    """
    by_column = ordered if isinstance(ordered, str) else None
    tally = Tally(problem, missing, OrderedRows(by_column) if ordered else None)
    names = column_names(problem, columns)
    if by_column is not None:
        _refuse_order_by_outcome(by_column, names, tally.rails)
        names[ORDER_COLUMN] = by_column
    if table is not None and (not is_address(source) or is_remote_file(source)):
        raise BadInput(f"table={shown(table)} is for the address of a database; the data are none.")
    if isinstance(source, Mapping):
        return _read_nested(tally, source)
    if (logs := eval_logs(source)) is not None:
        return _read_samples(tally, logs, names, "the logs")
    if not isinstance(source, (str, Path)):
        return _read_frame(tally, source, names)
    if isinstance(source, str) and is_address(source):
        return _read_address(tally, source, table, names)
    files = _files(source)
    if is_log(files[0]):
        return _read_logs(tally, files, names)
    if _is_parquet(files[0]):
        return tally.finish(_read_parquet_files(tally, files, names))
    return tally.finish(_read_csv_files(tally, files, names))


def _refuse_order_by_outcome(column: str, names: Mapping[str, str], rails: Sequence[str]) -> None:
    if column in (names["outcome"], *(names[rail] for rail in rails)):
        raise BadInput(
            f"rows must be in an order that does not depend on outcomes; {column!r} holds outcomes. Name a "
            "column such as the time of the outcome."
        )


def column_names(problem: Problem, columns: Mapping[str, str] | None) -> dict[str, str]:
    """Return our columns with the names that the data have for them."""
    names = _column_names(columns, tuple(rail.name for rail in problem.guardrails))
    if problem.by and "group" not in (columns or {}):
        names |= dict(zip(_parts(len(problem.by)), problem.by, strict=True))
    return names


def chosen_columns(
    titles: Sequence[str], names: Mapping[str, str], what: str, rails: Sequence[str]
) -> dict[str, str]:
    """Return the columns that are used, with their titles; refuse a table that lacks one."""
    return {name: titles[i] for name, i in _places(titles, names, what, rails).items()}


def scan_of_files(source: str | Path) -> str:
    """Return DuckDB's table function for a file, the files of a folder, or those that a pattern matches."""
    files = _files(source)
    if files[0].is_dir():
        files = sorted(file for file in files[0].rglob("*") if file.suffix.lower() in LINES)
        if not files:
            raise BadInput(f"the folder {source} holds no Parquet, CSV or JSONL file.")
    if _is_parquet(files[0]):
        return parquet_scan(files)
    if files[0].suffix.lower() in LINES:
        return f"read_json({listed(files)}, format = 'newline_delimited')"
    header = _csv_header(files[0])
    if header is None:
        raise BadInput(f"{files[0].name} cannot be read as CSV, Parquet or JSON lines.")
    return csv_scan(files, [title.strip() for title in header[0]], header[1])


def _read_address(tally: Tally, address: str, table: str | None, names: Mapping[str, str]) -> Data:
    """Count a table of a database, or files in an object store, where they are."""

    def columns_of_table(titles: Sequence[str]) -> dict[str, str]:
        return chosen_columns(titles, names, table or address, tally.rails)

    if is_remote_file(address):
        return tally.finish(count_remote_files(tally, address, columns_of_table))
    return tally.finish(count_database(tally, address, table, columns_of_table))


def _files(source: str | Path) -> list[Path]:
    """Return the file, the files of a folder or those that a pattern matches, in the order of their names."""
    path = Path(source)
    if path.is_dir():
        tables = sorted(file for file in path.rglob("*") if file.is_file() and _is_table(file))
        has_logs = any(file.suffix.lower() in SUFFIXES for file in path.rglob("*") if file.is_file())
        return tables if tables and not has_logs else [path]
    if path.exists():
        return [path]
    if not glob.has_magic(str(source)):
        raise BadInput(f"there is no file {path}; give a CSV or Parquet file of policy, group, outcome.")
    found = [
        file for name in sorted(glob.glob(str(source), recursive=True)) if (file := Path(name)).is_file()
    ]
    if not found:
        raise BadInput(f"no file matches {source}; give a CSV or Parquet file of policy, group, outcome.")
    kinds = {("log" if is_log(file) else "Parquet" if _is_parquet(file) else "CSV"): file for file in found}
    if len(kinds) > 1:
        first, second, *_ = kinds.values()
        raise BadInput(
            f"files that are read together must be of one kind; {first.name} and {second.name} are not."
        )
    return found


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _is_table(path: Path) -> bool:
    return _is_parquet(path) or path.name.lower().endswith((".csv", ".csv.gz"))


def _read_csv_files(tally: Tally, files: Sequence[Path], names: Mapping[str, str]) -> bool:
    """Add the rows of CSV files; return whether they are counts per cell."""
    headers = [_csv_header(file) for file in files]
    first = headers[0]
    if first is not None and all(header == first for header in headers):
        titles, delimiter = [title.strip() for title in first[0]], first[1]
        place = _places(titles, names, files[0].name, tally.rails)
        chosen = {name: titles[i] for name, i in place.items()}
        if count_files(tally, files, chosen, csv_scan(files, titles, delimiter)):
            return False
    return _one_kind([_read_csv(tally, file, names, len(files) > 1) for file in files], files)


def _csv_header(path: Path) -> tuple[list[str], str] | None:
    """Return the titles and the delimiter of a CSV file; None where they cannot be read."""
    try:
        with _open_text(path) as file:
            dialect = _dialect(file)
            titles = next(csv.reader(file, dialect=dialect, strict=True), None)
    except (OSError, UnicodeDecodeError, csv.Error, EOFError):
        return None  # reading the rows says why
    return None if titles is None else (titles, dialect.delimiter)


def _one_kind(counts: Sequence[bool], files: Sequence[Path]) -> bool:
    """Return whether the files hold counts per cell; all must, or none."""
    if len(set(counts)) > 1:
        one, other = files[counts.index(True)].name, files[counts.index(False)].name
        raise BadInput(f"{one} holds counts and {other} single outcomes; give files of one kind.")
    return counts[0]


def _read_csv(tally: Tally, path: Path, names: Mapping[str, str], one_of_many: bool) -> bool:
    try:
        with _open_text(path) as file:
            reader = csv.reader(file, dialect=_dialect(file), strict=True)
            header = next(reader, None)
            if header is None:
                raise BadInput(f"{path.name} is empty; it needs a header line with policy, group, outcome.")
            place = _places(header, names, path.name, tally.rails)
            counts = "outcome" not in place
            for where, columns in _chunks(reader, place, len(header)):
                _add(tally, where.of(path if one_of_many else None), columns, counts)
    except UnicodeDecodeError:
        raise BadInput(f"{path.name} must be UTF-8 text; it is not. Save it as CSV UTF-8.") from None
    except (csv.Error, gzip.BadGzipFile, EOFError) as problem:
        raise BadInput(f"{path.name} cannot be read as CSV: {problem}.") from None
    except OSError as problem:
        raise BadInput(f"{path.name} cannot be read: {problem.strerror}.") from None
    return counts


def _chunks(
    reader: Any, place: Mapping[str, int], width: int
) -> Iterator[tuple[_Lines, dict[str, list[str]]]]:
    """Yield the given columns, a chunk of rows at a time, each row with its line number."""
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


def _read_logs(tally: Tally, files: Sequence[Path], names: Mapping[str, str]) -> Data:
    """Read the logs of an evaluation tool, a folder of logs, or JSON lines."""
    if _count_lines(tally, files, names):
        return tally.finish(False)
    samples = [sample for file in files for sample in read_samples(file)]
    return _read_samples(tally, samples, names, files[0].name)


def _read_samples(tally: Tally, samples: Sequence[Sample], names: Mapping[str, str], what: str) -> Data:
    """Add the samples of logs."""
    titles, table = columns_of(tally.problem, samples, names)
    place = _places(titles, names, what, tally.rails)
    chosen = {name: table[titles[i]] for name, i in place.items()}
    length = len(next(iter(chosen.values())))
    for start in range(0, length, CHUNK):
        part = {name: values[start : start + CHUNK] for name, values in chosen.items()}
        where = _Samples(range(start + 1, min(start + CHUNK, length) + 1))
        _add(tally, where, part, "outcome" not in place)
    return tally.finish("outcome" not in place)


def _count_lines(tally: Tally, files: Sequence[Path], names: Mapping[str, str]) -> bool:
    """Count JSON lines where every object has the columns as keys; return whether that was possible."""
    if files[0].is_dir():
        files = sorted(
            file for file in files[0].rglob("*") if file.is_file() and file.suffix.lower() in SUFFIXES
        )
    if not files or any(file.suffix.lower() not in LINES for file in files):
        return False
    try:
        with files[0].open(encoding="utf-8") as file:
            first = json.loads(file.readline())
        titles = list(first) if isinstance(first, dict) and not lm_eval.is_log([first]) else []
        place = _places(titles, names, files[0].name, tally.rails)
    except (BadInput, OSError, ValueError, TypeError, RecursionError):
        return False  # a log of a tool, or an error that reading the samples names
    chosen = {name: titles[i] for name, i in place.items()}
    others = [title for name, title in names.items() if name not in chosen]
    return count_files(tally, files, chosen, json_scan(files, [*chosen.values(), *others]), others)


def _read_parquet_files(tally: Tally, files: Sequence[Path], names: Mapping[str, str]) -> bool:
    """Add the rows of Parquet files; return whether they are counts per cell."""
    if find_spec("pyarrow") is None:
        raise BadInput("reading Parquet needs pyarrow; install it, or save the data as CSV.")
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        titles = parquet.read_schema(files[0]).names
    except (pa.ArrowException, OSError) as problem:
        raise BadInput(f"{files[0].name} cannot be read as Parquet: {problem}.") from None
    place = _places(titles, names, files[0].name, tally.rails)
    if count_files(tally, files, {name: titles[i] for name, i in place.items()}, parquet_scan(files)):
        return False
    return _one_kind([_read_parquet(tally, file, names, len(files) > 1) for file in files], files)


def _read_parquet(tally: Tally, path: Path, names: Mapping[str, str], one_of_many: bool) -> bool:
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
            of = path if one_of_many else None
            _add_frame(tally, frame, dict(zip(place, wanted, strict=True)), first, of)
            first += len(frame)
    except pa.ArrowException as problem:
        raise BadInput(f"{path.name} cannot be read as Parquet: {problem}.") from None
    return "outcome" not in place


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
    """Add outcomes by policy, then by group, or the other way round; a cell that is not named holds none."""
    if tally.ordered is not None:
        raise BadInput(
            "outcomes as a dict are in order within a cell only, not across cells; give a frame or a file "
            "with a row per outcome, or leave the order out."
        )
    by_group = is_by_group(source, tuple(tally.policies), tuple(tally.groups), "outcomes")
    for name, cells in source.items():
        if not isinstance(cells, Mapping):
            raise BadInput(
                "outcomes as a dict are given by policy, then by group, a list each; "
                f"{name!r} has {shown(cells)}."
            )
        for other, outcomes in cells.items():
            policy, group = (other, name) if by_group else (name, other)
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
    return list(map(python_number, found))


def _add_frame(
    tally: Tally, frame: Any, chosen: Mapping[str, str], first: int, of: Path | None = None
) -> None:
    columns = {name: frame[column].to_list() for name, column in chosen.items()}
    _add(tally, _Rows(range(first, first + len(frame))).of(of), columns, "outcome" not in chosen)


def _parts(count: int) -> list[str]:
    """Return our names of the columns that together give the group."""
    return ["group", *(f"group {number}" for number in range(2, count + 1))]


def _group_parts(names: Iterable[str], rails: Sequence[str]) -> list[str]:
    """Return those of our names of columns that give the group, or a part of it."""
    return [name for name in names if PART.fullmatch(name) and name not in rails]


def joined(columns: Mapping[str, Sequence[Any]], rails: Sequence[str]) -> Mapping[str, Sequence[Any]]:
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
    columns = joined(columns, tally.rails)
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
    if ORDER_COLUMN in names and ORDER_COLUMN not in place:
        raise BadInput(
            f"{what} needs the column {names[ORDER_COLUMN]!r}, which gives the order of the rows"
            f"{nearest(names[ORDER_COLUMN], titles)}"
        )
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
    used = (
        "policy",
        *groups,
        *(("outcome", "item", ORDER_COLUMN) if kinds[0] else ("n", "mean", "successes")),
    )
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

    def of(self, file: Path | None) -> _Places:
        """Return the same places with the name of their file, where several are read."""
        if file is not None:
            self.word = f"{file.name}, {self.word}"
        return self

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


class _Samples(_Places):
    word = "sample"


class _Items(_Places):
    """The places of the outcomes of one cell of a dict."""

    def __init__(self, policy: str, group: str, count: int, start: int = 0) -> None:
        super().__init__(range(start + 1, start + count + 1))
        self.policy, self.group = policy, group
        self.word = f"{policy!r} in {group!r}, outcome"

    def part(self, start: int, count: int) -> _Items:
        return _Items(self.policy, self.group, count, start)
