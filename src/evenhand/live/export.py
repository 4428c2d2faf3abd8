"""Export of an experiment to a JSON-lines file: all events, their hashes, and the head.

    {"evenhand":"export","experiment":"main","format":1}
    {"event":{...},"hash":"9f3a...","seq":1}
    ...
    {"events":4711,"head":"77c0..."}

Each event is stored byte for byte as it was hashed. A reader accepts exactly these bytes: every bit of the
file is either hashed or compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from evenhand.errors import BadInput, IntegrityFailed
from evenhand.live.hash_chain import Difference, Head, Record, canonical, genesis, verified

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
            f"the export has format {int(found[2])}, this evenhand knows {FORMAT}; use a newer evenhand."
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
            seq + 1, f"is missing: the last line speaks of {int(found[1])} events and another head."
        )
    if rest:
        raise Difference(seq + 1, "stands after the last line.")
