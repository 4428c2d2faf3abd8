"""Export of an experiment: its log as JSON lines, or the outcomes that count as CSV or Parquet.

The log, all events with their hashes and the head:

    {"evenhand":"export","experiment":"main","format":1}
    {"event":{...},"hash":"9f3a...","seq":1}
    ...
    {"events":4711,"head":"77c0..."}

Each event is stored byte for byte as it was hashed. A reader accepts exactly these bytes: every bit of the
file is either hashed or compared.

The table, for spreadsheets, `evenhand judge` and data tools, has one row per outcome with its latest
correction, in the order in which they were first recorded. A table cannot be audited.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from evenhand.errors import BadInput, IntegrityFailed
from evenhand.files import escaped
from evenhand.live import events as ev
from evenhand.live.events import LogEntry, sample_of
from evenhand.live.hash_chain import Difference, Head, Record, canonical, genesis, verified
from evenhand.live.load_log import load_protocol
from evenhand.live.projection import LogState
from evenhand.live.protocol import Protocol
from evenhand.live.tickets import ticket_code

if TYPE_CHECKING:
    from evenhand.live.journal import Journal

FORMAT = 1
_FIRST = re.compile(rb'\{"evenhand":"export","experiment":"([A-Za-z0-9_-]{1,64})","format":([1-9][0-9]*)\}\n')
_EVENT = b'{"event":'
_AFTER_EVENT = re.compile(rb',"hash":"([0-9a-f]{64})","seq":([1-9][0-9]*)\}\n\Z')
_LENGTH = 200  # maximum length of what follows an event on its line
_LAST = re.compile(rb'\{"events":([1-9][0-9]*),"head":"([0-9a-f]{64})"\}\n')


def write_export(journal: Journal, experiment: str, file: BinaryIO) -> Head:
    """Write the whole log and verify its hash chain; return its head."""
    head = journal.head(experiment)
    first = {"evenhand": "export", "experiment": experiment, "format": FORMAT}
    file.write(canonical(first) + b"\n")
    last = genesis(experiment)
    for seq, body, hash_ in verified((row.record for row in journal.read(experiment, 0, head.seq)), last):
        file.write(b'{"event":%b,"hash":"%b","seq":%d}\n' % (body, hash_.hex().encode(), seq))
        last = Head(seq, hash_)
    if last != head:
        raise Difference(last.seq, "is not the one that the journal's head names.")
    file.write(canonical({"events": head.seq, "head": str(head)}) + b"\n")
    return head


def end_of_export(path: Path) -> Head:
    """Return the head of the log in an export, from its last line."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _LENGTH, 0))
        found = _LAST.fullmatch(file.read().splitlines(keepends=True)[-1])
    if found is None:
        raise IntegrityFailed(f"{path.name} is not a whole export: its last line does not name the head.")
    return Head(int(found[1]), bytes.fromhex(found[2].decode()))


class Export:
    """An export file; it can be read repeatedly."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            self.experiment = _experiment(file)

    def read(self) -> Iterator[Record]:
        """Yield its records, unverified; refuse an incomplete file."""
        seq, head = 0, b""
        with self._path.open("rb") as file:
            _experiment(file)
            for line in file:
                if not line.startswith(_EVENT):
                    _check_end(line, seq, head, file.read(1))
                    return
                record = _record(line, seq + 1)
                seq, head = seq + 1, record.hash
                yield record
        raise Difference(seq + 1, "is missing: the file ends without its last line, which names the head.")


def _experiment(file: BinaryIO) -> str:
    """Return the experiment's name from the first line."""
    found = _FIRST.fullmatch(file.readline(1_000_000))
    if found is None:
        name = Path(file.name).name
        if file.readline(len(_EVENT)) == _EVENT:
            raise IntegrityFailed(f"{name} was changed: its first line is not that of an export.")
        raise BadInput(f"{name} must be a journal or an export of one; it is neither.")
    if int(found[2]) > FORMAT:
        raise BadInput(
            f"the export has format {int(found[2])}, this version reads {FORMAT}; use a newer evenhand."
        )
    return found[1].decode()


def _record(line: bytes, seq: int) -> Record:
    """Return the record of a line; refuse any other beginning or end than the fixed ones."""
    start = max(len(line) - _LENGTH, len(_EVENT))
    found = _AFTER_EVENT.search(line, start)
    if found is None:
        raise Difference(seq, "cannot be read: its line is not that of an event.")
    return Record(int(found[2]), line[len(_EVENT) : found.start()], bytes.fromhex(found[1].decode()))


def _check_end(line: bytes, seq: int, head: bytes, rest: bytes) -> None:
    found = _LAST.fullmatch(line)
    if found is None:
        raise Difference(seq + 1, "cannot be read: its line is neither that of an event nor the last one.")
    if int(found[1]) != seq or found[2].decode() != head.hex():
        raise Difference(
            seq + 1, f"is missing: the last line states {int(found[1])} events and another head."
        )
    if rest:
        raise Difference(seq + 1, "follows the last line.")


AFTER_RAILS = ("ticket", "asked_at", "told_at", "worker", "told_by", "source", "corrected")
BATCH = 20_000  # rows written at once
Row = list[Any]


def format_of(path: Path) -> str:
    """Return the format that the end of a file's name says."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise BadInput(f"the name of a table of outcomes must end in .csv or .parquet; it is {path.name!r}.")
    return path.suffix.lower()[1:]


def write_outcomes(journal: Journal, experiment: str, file: BinaryIO, kind: str) -> int:
    """Write the table as "csv" or "parquet"; return the number of rows."""
    protocol = load_protocol(journal, experiment)
    rails = _rails(protocol)
    after = [f"{name} (ticket)" if name in rails else name for name in AFTER_RAILS]
    item = [] if protocol.procedure.items is None else ["item"]  # a ticket is for one item
    names = ["policy", "group", "outcome", *item, *rails, *after]
    until = journal.head(experiment).seq

    def entries() -> Iterator[LogEntry]:
        return (LogEntry.of(row.record) for row in journal.read(experiment, 0, until))

    rows = outcome_rows(protocol, entries(), corrections(entries()))
    return (_write_csv if kind == "csv" else _write_parquet)(names, rows, file)


def corrections(entries: Iterable[LogEntry]) -> dict[int, ev.Sample]:
    """Return the latest corrected outcome by ticket, of those that count."""
    events = (entry.event for entry in entries)
    return {
        event.ticket: sample_of(event) for event in events if isinstance(event, ev.Amended) and event.counted
    }


def outcome_rows(
    protocol: Protocol, entries: Iterable[LogEntry], corrected: dict[int, ev.Sample]
) -> Iterator[Row]:
    """Yield a row for every outcome that counts."""
    state, rails = LogState(protocol.as_begun()), _rails(protocol)
    for entry in entries:
        event = entry.event
        out = state.open_tickets.get(event.ticket) if isinstance(event, ev.Told) else None
        place = state.apply(event)
        if place is None or not isinstance(event, (ev.Told, ev.Imported)):
            continue
        policy, group = state.protocol.members.names[place[0]], protocol.problem.group_names[place[1]]
        sample = corrected.get(event.ticket, sample_of(event))
        metrics, ticket = sample.metrics or {}, ticket_code(protocol.hash, event.ticket)
        told = sample.outcome if isinstance(sample.outcome, dict) else {policy: sample.outcome}
        for name, outcome in told.items():
            if outcome is None:
                continue
            yield [
                name, group, outcome, *([ticket] if isinstance(sample.outcome, dict) else ()),
                *(metrics.get(rail) for rail in rails),
                ticket, None if out is None else out.at, event.at,
                None if out is None else out.worker, None if event.actor is None else event.actor.name,
                event.source if isinstance(event, ev.Imported) else "ask", event.ticket in corrected,
            ]  # fmt: skip


def _rails(protocol: Protocol) -> list[str]:
    return [rail.name for rail in protocol.problem.guardrails]


def _write_csv(names: list[str], rows: Iterator[Row], file: BinaryIO) -> int:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer, count = csv.writer(text, lineterminator="\r\n"), 0
    writer.writerow([escaped(name) for name in names])
    for row in rows:
        writer.writerow([escaped(_plain(value)) for value in row])
        count += 1
    text.detach()  # the caller closes the file
    return count


def _plain(value: Any) -> Any:
    """Return a value as `judge` reads it: whole numbers without a point, truth in small letters."""
    if isinstance(value, bool):
        return str(value).lower()
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


def _write_parquet(names: list[str], rows: Iterator[Row], file: BinaryIO) -> int:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise BadInput("Parquet needs pyarrow; install evenhand[warehouse], or take CSV.") from None
    texts = [pa.string()] * (len(AFTER_RAILS) - 1)
    numbers = [pa.string() if name == "item" else pa.float64() for name in names[2 : -len(AFTER_RAILS)]]
    kinds = [pa.string(), pa.string(), *numbers, *texts, pa.bool_()]
    schema, count = pa.schema(list(zip(names, kinds, strict=True))), 0
    with pq.ParquetWriter(file, schema) as writer:
        while batch := list(islice(rows, BATCH)):
            columns = [list(column) for column in zip(*batch, strict=True)]
            writer.write_table(pa.table(columns, schema=schema))
            count += len(batch)
    return count
