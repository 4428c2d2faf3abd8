"""API keys: created on the command line, shown once, stored as hashes in the journal.

A key reads `eh_ID_SECRET`. The journal holds ID, role and the SHA-256 of the secret; a secret of 256 random
bits needs no slow hash. An SQLite journal has one writer: while a service runs, the command line leaves its
change as a file beside the journal, and the service writes it (`take_requests`). Version 0.1 kept the keys in
a file `JOURNAL.keys`; the first writer takes it over (`take_over`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import sqlite3
import stat
import threading
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from evenhand.errors import BadInput, EvenhandError, NotFound, StorageFailed, nearest
from evenhand.live import schema
from evenhand.live.journal import Journal, open_journal
from evenhand.live.writer_lock import HasWriter

ROLES = ("operator", "analyst", "admin")  # in increasing order of permissions
NAME_CHARACTERS = 97  # of a key's owner and of `by`: an event has both, in 200 characters
STALE_SECONDS = 1.0  # seconds until a new or revoked key takes effect
WATCH_SECONDS = 0.2  # how often a service checks for changes that the command line left
PATIENCE = 10.0  # seconds that the command line waits for the service to take a change
_FORM = re.compile(r"eh_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")
_COLUMNS = [column.name for column in schema.keys.columns]
log = logging.getLogger("evenhand.service")

Row = dict[str, Any]
Change = dict[str, Any]  # {"add": row} or {"revoke": id}


@dataclass(frozen=True)
class Key:
    """The owner of a key and its role."""

    id: str
    role: str
    name: str
    made: str = ""
    expires: str | None = None
    revoked: bool = False

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def is_valid(self) -> bool:
        """Return whether the key is neither revoked nor expired."""
        return not self.revoked and (self.expires is None or self.expires > _now())


def has_control_characters(text: str) -> bool:
    """Return whether a text has line ends or other control characters; joiners of scripts are none."""
    if text.isprintable():
        return False
    return any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in text)


def any_key(journal: str) -> bool:
    """Return whether a key exists for this journal; creates no file."""
    return ("://" in journal or Path(journal).exists()) and Keys(journal).exist()


class Keys:
    """The keys of a journal, given by its address or as the open journal of a service."""

    def __init__(self, journal: str | Journal) -> None:
        self._journal = journal

    def create(self, role: str, name: str, expires: str | None = None) -> str:
        """Create a key and return it in full; it is never shown again."""
        if role not in ROLES:
            raise BadInput(f"role must be one of {', '.join(ROLES)}; it is {role!r}{nearest(role, ROLES)}")
        if not name.strip() or len(name) > NAME_CHARACTERS or has_control_characters(name):
            raise BadInput(
                f"a key needs a name of 1 to {NAME_CHARACTERS} characters, without control characters: who "
                "holds it."
            )
        identity, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        row = {
            "id": identity, "role": role, "name": name, "digest": _digest(secret).hex(), "made": _now(),
            "expires": None if expires is None else _moment(expires), "revoked": False,
        }  # fmt: skip
        self._apply({"add": row})
        return f"eh_{identity}_{secret}"

    def find(self, text: str) -> Key | None:
        """Return the key of this text; None for a wrong, revoked or expired one."""
        return _match(self.digests(), text)

    def all(self) -> list[Key]:
        return [key for key, _ in self.digests().values()]

    def digests(self) -> dict[str, tuple[Key, bytes]]:
        """Return every key ever created, by id, with the hash of its secret."""
        with self._read() as rows:
            found = sorted(rows, key=lambda row: str(row["made"]))
        return {
            row["id"]: (Key(**{name: row[name] for name in _COLUMNS if name != "digest"}), row["digest"])
            for row in found
        }

    def exist(self) -> bool:
        """Return whether any key was created; then every request needs one."""
        return bool(self.digests())

    def revoke(self, identity: str) -> None:
        if identity not in self.digests():
            raise NotFound(f"there is no key {identity!r}; list them with `evenhand keys`.")
        self._apply({"revoke": identity})

    def _apply(self, change: Change) -> None:
        """Write a change through the one writer of the journal."""
        if isinstance(self._journal, Journal):
            _write(self._journal, [change])
        elif _is_shared(self._journal):
            with _opened(self._journal) as journal:
                _write(journal, [change])
        else:
            _write_or_request(self._journal, change)

    @contextmanager
    def _read(self) -> Iterator[list[Row]]:
        if isinstance(self._journal, Journal):
            yield _rows(self._journal)
        elif _is_shared(self._journal):
            with _opened(self._journal) as journal:
                yield _rows(journal)
        else:
            yield _rows_of_file(Path(self._journal).resolve())


def _write(journal: Journal, changes: list[Change]) -> None:
    with journal.writing() as connection:
        known = set(connection.execute(sa.select(schema.keys.c.id)).scalars())
        for change in changes:
            row = change.get("add")
            if row is not None and row["id"] not in known:
                values = row | {"digest": bytes.fromhex(row["digest"])}
                connection.execute(sa.insert(schema.keys), values)
                known.add(row["id"])
            if "revoke" in change:
                revoked = sa.update(schema.keys).where(schema.keys.c.id == change["revoke"])
                connection.execute(revoked.values(revoked=True))


def _rows(journal: Journal) -> list[Row]:
    with journal.reading() as connection:
        return [dict(row._mapping) for row in connection.execute(sa.select(schema.keys))]


def _rows_of_file(path: Path) -> list[Row]:
    """Return the keys of an SQLite journal, and those of version 0.1 that were not taken over yet."""
    old = [change["add"] for change in _old_changes(path)]
    rows = {row["id"]: row | {"digest": bytes.fromhex(row["digest"])} for row in old}
    if path.exists() and path.stat().st_size > 0:
        journal = open_journal(str(path), write=False, allow_missing=True)
        try:
            with journal.reading() as connection:
                has_table = sa.inspect(connection).has_table(schema.keys.name)
            rows |= {row["id"]: row for row in _rows(journal)} if has_table else {}
        finally:
            journal.close()
    return list(rows.values())


def _is_shared(address: str) -> bool:
    return address.startswith(("postgresql:", "postgres:"))


@contextmanager
def _opened(address: str) -> Iterator[Journal]:
    journal = open_journal(address, create=True)
    try:
        yield journal
    finally:
        journal.close()


def _write_or_request(address: str, change: Change) -> None:
    """Write a change to an SQLite journal; while another process writes it, ask that one to."""
    path, request, deadline = Path(address).resolve(), None, time.monotonic() + PATIENCE
    while True:
        try:
            with _opened(str(path)) as journal:
                take_over(journal, path)
                _write(journal, [change])
            if request is not None:
                request.unlink(missing_ok=True)
            return
        except HasWriter as taken:
            if request is None:
                request = _leave_request(path, change)
            elif not request.exists():
                return  # the service wrote the change and removed the file
            elif time.monotonic() > deadline:
                with suppress(FileNotFoundError):
                    request.unlink()
                    raise StorageFailed(f"{taken} It took no change of keys within {PATIENCE:g} s.") from None
                return
        time.sleep(0.05)


def _leave_request(path: Path, change: Change) -> Path:
    """Write a change into a file beside the journal, for the process that writes the journal."""
    name = f"{path.name}.key-request-{secrets.token_hex(8)}"
    unfinished, finished = path.with_name(f".{name}"), path.with_name(name)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(change, file)
        file.flush()
        os.fsync(file.fileno())
    if hasattr(os, "geteuid") and hasattr(os, "chown") and os.geteuid() == 0:
        owner = path.stat()
        os.chown(unfinished, owner.st_uid, owner.st_gid)  # the service may run as another user than root
    os.rename(unfinished, finished)
    return finished


def take_requests(journal: Journal, path: Path) -> int:
    """Write the changes that the command line left beside the journal; return how many."""
    found = sorted(path.parent.glob(f"{_glob(path.name)}.key-request-*"))
    changes = [(file, _request(file, path)) for file in found]
    if good := [change for _, change in changes if change is not None]:
        _write(journal, good)
    for file, _ in changes:
        file.unlink(missing_ok=True)
    return len(good)


def _request(file: Path, journal: Path) -> Change | None:
    """Return the change in a file; None, with a line in the log, for one that is not to be trusted."""
    try:
        _refuse_foreign_file(file, journal)
        change = json.loads(file.read_text(encoding="utf-8"))
        if set(change) == {"revoke"} and isinstance(change["revoke"], str):
            return {"revoke": change["revoke"]}
        row = change["add"]
        if set(row) == set(_COLUMNS) and row["role"] in ROLES and len(bytes.fromhex(row["digest"])) == 32:
            return {"add": row}
    except (OSError, ValueError, KeyError, TypeError, EvenhandError) as problem:
        log.error(json.dumps({"event": "a change of keys was ignored", "says": str(problem)}))
        return None
    log.error(json.dumps({"event": "a change of keys was ignored", "says": "it is none"}))
    return None


def _refuse_foreign_file(file: Path, journal: Path) -> None:
    """Refuse a link, and a file that belongs to neither the journal's owner, this user nor root."""
    found = file.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise StorageFailed(f"{file} must be a plain file; it is not.")
    if hasattr(os, "geteuid"):
        trusted = {os.geteuid(), 0} | ({journal.stat().st_uid} if journal.exists() else set())
        if found.st_uid not in trusted:
            raise StorageFailed(f"{file} belongs to another user than the journal; remove it.")


def _glob(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def take_over(journal: Journal, path: Path) -> int:
    """Move the keys of a file of version 0.1 into the journal, once; return how many."""
    changes = _old_changes(path)
    if changes:
        _write(journal, changes)
    old = _old_file(path)
    if old.exists():
        os.replace(old, old.with_name(old.name + ".taken-over"))
        log.warning(json.dumps({
            "event": "keys taken over",
            "says": f"the journal now holds the {len(changes)} keys of {old.name}; the file is not used any "
            "more and can be deleted.",
        }))  # fmt: skip
    return len(changes)


def _old_file(path: Path) -> Path:
    return path.with_name(path.name + ".keys")


def _old_changes(path: Path) -> list[Change]:
    """Return the keys in the file of version 0.1 beside a journal; none if there is no such file."""
    old = _old_file(path)
    if not old.exists():
        return []
    _refuse_foreign_file(old, path)
    try:
        connection = sqlite3.connect(f"{old.as_uri()}?mode=ro", uri=True)
        try:
            rows = connection.execute(f"SELECT {', '.join(_COLUMNS)} FROM service_keys").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as problem:
        raise StorageFailed(f"the keys of version 0.1 in {old} cannot be read: {problem}.") from None
    tables = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    return [{"add": row | {"digest": row["digest"].hex(), "revoked": bool(row["revoked"])}} for row in tables]


class KnownKeys:
    """A short-lived cache of the keys, so that requests do not wait for a database."""

    def __init__(self, journal: Journal, path: Path | None = None) -> None:
        self._journal = journal
        self._path = path  # of an SQLite journal
        self._keys = Keys(journal)
        self._known: dict[str, tuple[Key, bytes]] = {}
        self._read_at = -STALE_SECONDS
        self._lock = threading.Lock()
        if path is not None:
            take_over(journal, path)
            threading.Thread(target=self._watch, name="key requests", daemon=True).start()

    def find(self, text: str) -> Key | None:
        """Return the key of this text; None for a wrong, revoked or expired one."""
        return _match(self._fresh(), text)

    def by_id(self, identity: str) -> Key | None:
        """Return the key with this id; None for an unknown, revoked or expired one."""
        key, _ = self._fresh().get(identity, (None, b""))
        return key if key is not None and key.is_valid else None

    def exist(self) -> bool:
        """Return whether any key was created; then every request needs one."""
        return bool(self._fresh())

    @property
    def is_due(self) -> bool:
        """Return whether the cache is stale."""
        return time.monotonic() - self._read_at >= STALE_SECONDS

    def read(self) -> None:
        """Read the keys, unless another thread just did."""
        with self._lock:
            if self.is_due:
                self._known = self._keys.digests()
                self._read_at = time.monotonic()

    def _fresh(self) -> dict[str, tuple[Key, bytes]]:
        if self.is_due:
            self.read()
        return self._known

    def _watch(self) -> None:
        """Write what the command line left beside the journal, until the journal is closed."""
        assert self._path is not None
        seen = -1
        while not self._journal.is_closed:
            with suppress(OSError, EvenhandError):
                changed = self._path.parent.stat().st_mtime_ns
                is_new = changed != seen or time.time_ns() - changed < 2_000_000_000  # clocks tick coarsely
                if is_new and take_requests(self._journal, self._path):
                    self._read_at = -STALE_SECONDS
                seen = changed
            time.sleep(WATCH_SECONDS)


def _match(known: dict[str, tuple[Key, bytes]], text: str) -> Key | None:
    """Return the matching key; the time taken does not depend on which part matches."""
    form = _FORM.fullmatch(text)
    identity, secret = form.groups() if form else ("", "")
    key, kept = known.get(identity, (None, bytes(32)))
    fits = hmac.compare_digest(kept, _digest(secret))
    return key if key is not None and fits and key.is_valid else None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _moment(text: str) -> str:
    """Return a time with its zone as UTC text; the texts sort by time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadInput(f"expires must be a time with its zone, as 2030-01-31T00:00:00+00:00; it is {text!r}.")
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
