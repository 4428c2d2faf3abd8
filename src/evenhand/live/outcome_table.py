"""The outcomes that count, as a table: CSV for spreadsheets and `evenhand judge`, Parquet for data tools.

One row per outcome with its latest correction, in the order in which they were first recorded. The log itself
is in the export (`export`); a table cannot be audited.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from evenhand.errors import BadInput
from evenhand.live import events as ev
from evenhand.live.events import LogEntry, sample_of
from evenhand.live.load_log import load_protocol
from evenhand.live.projection import LogState
from evenhand.live.protocol import Protocol
from evenhand.live.tickets import ticket_code
from evenhand.spreadsheets import escaped

if TYPE_CHECKING:
    from evenhand.live.journal import Journal

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
    names = ["policy", "group", "outcome", *rails, *after]
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
        metrics = sample.metrics or {}
        yield [
            policy, group, sample.outcome, *(metrics.get(name) for name in rails),
            ticket_code(protocol.hash, event.ticket), None if out is None else out.at, event.at,
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
    numbers = [pa.float64()] * (len(names) - 2 - len(AFTER_RAILS))
    kinds = [pa.string(), pa.string(), *numbers, *texts, pa.bool_()]
    schema, count = pa.schema(list(zip(names, kinds, strict=True))), 0
    with pq.ParquetWriter(file, schema) as writer:
        while batch := list(islice(rows, BATCH)):
            columns = [list(column) for column in zip(*batch, strict=True)]
            writer.write_table(pa.table(columns, schema=schema))
            count += len(batch)
    return count
