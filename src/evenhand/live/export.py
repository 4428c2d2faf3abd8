"""An experiment in one file: JSON lines, the protocol and all events with their hashes, and the head.

    {"evenhand":"export","experiment":"main","format":1}
    {"event":{...},"hash":"9f3a...","seq":1}
    ...
    {"events":4711,"head":"77c0..."}

The text of each event stands there byte for byte as it was hashed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from evenhand.errors import BadInput
from evenhand.live.chain import Difference, Head, Record, canonical
from evenhand.live.journal import Journal

FORMAT = 1
T = TypeVar("T")


class _First(msgspec.Struct, forbid_unknown_fields=True):
    evenhand: str
    experiment: str
    format: int


class _Line(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    event: msgspec.Raw
    hash: str
    seq: int


class _Last(msgspec.Struct, forbid_unknown_fields=True):
    events: int
    head: str


def write_export(journal: Journal, experiment: str, file: BinaryIO) -> Head:
    """Write the whole log; return how far it goes."""
    head = journal.head(experiment)
    first = {"evenhand": "export", "experiment": experiment, "format": FORMAT}
    file.write(canonical(first) + b"\n")
    for row in journal.read(experiment, 0, head.seq):
        seq, body, hash_ = row.record
        file.write(b'{"event":%b,"hash":"%b","seq":%d}\n' % (body, hash_.hex().encode(), seq))
    file.write(canonical({"events": head.seq, "head": str(head)}) + b"\n")
    return head


class Export:
    """An export file, read as often as needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            self.experiment = _first(file).experiment

    def read(self) -> Iterator[Record]:
        """Its records, unverified; the file must be whole."""
        decoder, seq, head = msgspec.json.Decoder(_Line), 0, b""
        with self._path.open("rb") as file:
            _first(file)
            for text in file:
                if not text.startswith(b'{"event":'):
                    self._check_end(text, seq, head, file.read(1))
                    return
                seq += 1
                line = _decoded(decoder, text, seq)
                head = _bytes(line.hash, seq)
                yield Record(line.seq, bytes(line.event), head)
        raise Difference(seq + 1, "is missing: the file ends without its last line, which names the head.")

    @staticmethod
    def _check_end(text: bytes, seq: int, head: bytes, rest: bytes) -> None:
        last = _decoded(msgspec.json.Decoder(_Last), text, seq + 1)
        if last.events != seq or last.head != head.hex():
            raise Difference(
                seq + 1, f"is missing: the last line speaks of {last.events} events and another head."
            )
        if rest:
            raise Difference(seq + 1, "stands after the last line.")


def _first(file: BinaryIO) -> _First:
    try:
        first = msgspec.json.decode(file.readline(1_000_000), type=_First)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadInput(
            f"{Path(file.name).name} must be a journal or an export of one; it is neither."
        ) from None
    if first.format > FORMAT:
        raise BadInput(
            f"the export has format {first.format}, this evenhand knows {FORMAT}; use a newer evenhand."
        )
    return first


def _decoded(decoder: msgspec.json.Decoder[T], text: bytes, seq: int) -> T:
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise Difference(seq, f"cannot be read: {problem}.") from None


def _bytes(text: str, seq: int) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise Difference(seq, "has a hash that is not hexadecimal.") from None
