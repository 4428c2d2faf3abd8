"""The journal of an evaluation, and a cache of outputs that several evaluations share.

The journal is a file with a line of JSON for every call that ended, after a header that names the problem,
the procedure, the seed and the items. It is flushed after every call, so that a process that is killed loses
at most the calls that had not ended. The evaluation is a function of the header and the outcomes: a journal
is resumed by running it again with the recorded outcomes in place of calls.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenhand.errors import BadInput, Conflict, IntegrityFailed, StorageFailed
from evenhand.evaluation.pool import Pool
from evenhand.files import try_lock

FORMAT = {"evenhand": "evaluation", "version": 1}
WORDS = {
    "problem": "problem", "procedure": "procedure", "seed": "seed", "about": "choice of pool or population",
    "grader": "grader", "failures": "treatment of failures",
    "prices": "prices of calls and labels", "pool": "content of the items",
}  # fmt: skip


@dataclass(frozen=True)
class CallRecord:
    """A call that ended: its output and outcome, or its error."""

    policy: str
    item: str
    outcome: float | None = None  # None: not graded, or failed
    output: Any = None
    error: str = ""
    attempts: int = 1
    seconds: float = 0.0
    cost: float | None = None
    reused: bool = False  # the output came from the cache
    guardrails: Mapping[str, float] | None = None  # outcomes of the guard-rails by name


class CallJournal:
    """An append-only file of calls, held by one process at a time."""

    def __init__(self, path: str | Path, header: Mapping[str, Any], pool: Pool) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise BadInput(f"there is no folder {self.path.parent} to write {self.path.name} to.")
        try:
            self.file = self.path.open("a+b")
        except OSError as problem:
            raise BadInput(f"the journal {self.path} cannot be opened: {problem.strerror}.") from None
        try:
            self._hold()
            self.records = self._read(json.loads(json.dumps({**FORMAT, **header}, default=str)), pool)
        except BaseException:
            self.file.close()
            raise

    def append(self, records: Iterable[CallRecord]) -> None:
        """Write calls that ended; they are on disk when this returns."""
        lines = []
        for record in records:
            row = asdict(record)
            if record.guardrails is None:
                del row["guardrails"]
            lines.append(_line(row))
        self._write("".join(lines))

    def close(self) -> None:
        """Close the file, which ends the lock on it."""
        self.file.close()

    def _hold(self) -> None:
        if not try_lock(self.file.fileno()):
            raise Conflict(f"another process is writing the journal {self.path.name}; wait until it ends.")

    def _read(self, header: dict[str, Any], pool: Pool) -> list[CallRecord]:
        self.file.seek(0)
        content = self.file.read()
        whole, end, torn = content.rpartition(b"\n")
        if not end and not _begins_a_header(torn):
            raise self._other_file()
        rows = self._rows(whole.split(b"\n")) if end else []
        if torn:  # the process was killed within a line
            self.file.truncate(len(whole) + len(end))
        if not rows:
            self._write(_line(header))
            return []
        self._refuse_another({**header, "pool": None}, {**rows[0], "pool": None})
        records = [CallRecord(**row) for row in rows[1:]]
        _refuse_contradictions(records, pool, self.path.name)
        self._refuse_another(header, rows[0])
        return records

    def _rows(self, lines: list[bytes]) -> list[Any]:
        """Return the header and the calls; refuse a file that is no journal of an evaluation."""
        if not _begins_a_header(lines[0]):
            raise self._other_file()
        rows = [self._row(line, number) for number, line in enumerate(lines, start=1)]
        if {name: rows[0].get(name) for name in FORMAT} != FORMAT:
            raise self._other_file()
        return rows

    def _other_file(self) -> BadInput:
        return BadInput(f"{self.path.name} must be the journal of an evaluation; it is another file.")

    def _row(self, line: bytes, number: int) -> Any:
        try:
            row = json.loads(line)
            if number > 1:
                CallRecord(**row)
            return row
        except (ValueError, TypeError):
            raise IntegrityFailed(
                f"{self.path.name}, line {number} is damaged; restore the file from a copy, or remove this "
                "line to have the call made again."
            ) from None

    def _refuse_another(self, header: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        for name, words in WORDS.items():
            if header.get(name) != found.get(name):
                raise BadInput(
                    f"the journal {self.path.name} belongs to another evaluation: its {words} "
                    f"differ{'' if name == 'prices' else 's'}. Give "
                    "what it was begun with, or another journal."
                )

    def _write(self, text: str) -> None:
        try:
            self.file.write(text.encode())
            self.file.flush()
            os.fsync(self.file.fileno())
        except OSError as problem:
            raise StorageFailed(f"the journal {self.path.name} cannot be written: {problem}.") from None


class OutputCache:
    """Outputs by the name of the candidate and the content of the item, in an SQLite file."""

    def __init__(self, path: str | Path) -> None:
        try:
            self.connection = sqlite3.connect(path)
            with self.connection:
                self.connection.execute(
                    "CREATE TABLE IF NOT EXISTS outputs (digest TEXT PRIMARY KEY, output TEXT NOT NULL)"
                )
        except sqlite3.Error as problem:
            raise BadInput(f"the cache {path} cannot be opened: {problem}.") from None

    def get(self, policy: str, item: Any) -> tuple[Any, ...]:
        """Return the output, or nothing."""
        found = self.connection.execute(
            "SELECT output FROM outputs WHERE digest = ?", (_digest(policy, item),)
        ).fetchone()
        return () if found is None else (json.loads(found[0]),)

    def put(self, outputs: Iterable[tuple[str, Any, Any]]) -> None:
        """Keep outputs (policy, item, output); those that JSON cannot hold are left out."""
        rows = []
        for policy, item, output in outputs:
            text = _as_json(output)
            if text is not None:
                rows.append((_digest(policy, item), text))
        if rows:
            with self.connection:
                self.connection.executemany("INSERT OR REPLACE INTO outputs VALUES (?, ?)", rows)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


def _begins_a_header(line: bytes) -> bool:
    """Return whether a line may be a header, or the part of one that was written before a kill."""
    opening = json.dumps(FORMAT)[: -len(f"{FORMAT['version']}}}")].encode()
    return line.startswith(opening) or opening.startswith(line)


def pool_digest(pool: Pool) -> str:
    """Return a digest of the names, groups and contents of all items."""
    found = hashlib.sha256()
    for number, (name, group) in enumerate(zip(pool.names, pool.groups, strict=True)):
        found.update(json.dumps([name, group, pool.item(number)], default=str, sort_keys=True).encode())
    return found.hexdigest()


def stored(output: Any) -> Any:
    """Return an output as the journal keeps it; None where JSON cannot hold it."""
    text = _as_json(output)
    return None if text is None else json.loads(text)


def _refuse_contradictions(records: list[CallRecord], pool: Pool, file: str) -> None:
    """Refuse items that the pool does not hold, and two outcomes of one policy on one item."""
    names, seen = set(pool.names), dict[tuple[str, str], float]()
    answered = {record.item for record in records}
    if not answered <= names:
        lost = sorted(answered - names)
        raise BadInput(
            f"the pool must hold every item that was answered; it has {len(names):,} items, and {file} has "
            f"answers on {len(lost):,} others, such as {lost[0]!r}."
        )
    for record in records:
        if record.outcome is None:
            continue
        before = seen.setdefault((record.policy, record.item), record.outcome)
        if before != record.outcome:
            raise BadInput(
                f"an item counts once per policy; {file} gives {record.policy!r} two outcomes on item "
                f"{record.item!r}, {before:g} and {record.outcome:g}. Remove one of the lines."
            )


def _as_json(output: Any) -> str | None:
    try:
        return _text(output, allow_nan=False)
    except Exception:  # also RecursionError, and what methods of the output raise
        return None


def _line(row: Mapping[str, Any]) -> str:
    return f"{_text(row)}\n"


def _text(value: Any, allow_nan: bool = True) -> str:
    """Return a value as JSON; where UTF-8 has no form for a part of a character, it is escaped."""
    text = json.dumps(value, ensure_ascii=False, default=_plain, allow_nan=allow_nan)
    if text.isascii() or text == text.encode(errors="replace").decode():
        return text
    return json.dumps(value, default=_plain, allow_nan=allow_nan)


def _plain(value: Any) -> Any:
    """Return a NumPy number or array as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _digest(policy: str, item: Any) -> str:
    content = json.dumps([policy, item], default=str, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()
