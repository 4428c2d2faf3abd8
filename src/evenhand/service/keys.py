"""API keys: created on the command line, shown once, stored as hashes.

A key reads `eh_ID_SECRET`. The database holds ID, role and the SHA-256 of the secret; a secret of 256 random
bits needs no slow hash. For an SQLite journal the keys are in a separate file beside it, so that creating one
does not need the journal's writer.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from evenhand.errors import BadInput, NotFound, StorageFailed, nearest

ROLES = ("operator", "analyst", "admin")  # in increasing order of permissions
_FORM = re.compile(r"eh_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")

STALE_SECONDS = 1.0  # seconds until a new or revoked key takes effect

_metadata = sa.MetaData()
_keys = sa.Table(
    "service_keys",
    _metadata,
    sa.Column("id", sa.String(8), primary_key=True),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("name", sa.String(200), nullable=False),
    sa.Column("digest", sa.LargeBinary(32), nullable=False),
    sa.Column("made", sa.String(32), nullable=False),
    sa.Column("expires", sa.String(32), nullable=True),
    sa.Column("revoked", sa.Boolean, nullable=False, default=False),
)


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


def any_key(journal: str) -> bool:
    """Return whether a key exists for this journal; creates no file."""
    return ("://" in journal or Path(f"{journal}.keys").exists()) and Keys(journal).exist()


class Keys:
    """The keys of a journal."""

    def __init__(self, journal: str) -> None:
        shared = journal.startswith(("postgresql:", "postgres:"))
        address = "postgresql+psycopg:" + journal.split(":", 1)[1] if shared else f"sqlite:///{journal}.keys"
        self._engine = sa.create_engine(address, poolclass=sa.NullPool)  # no connection is kept open
        with self._explained():
            _make_table(self._engine)

    def create(self, role: str, name: str, expires: str | None = None) -> str:
        """Create a key and return it in full; it is never shown again."""
        if role not in ROLES:
            raise BadInput(f"role must be one of {', '.join(ROLES)}; it is {role!r}{nearest(role, ROLES)}")
        if not name.strip() or len(name) > 200:
            raise BadInput("a key needs a name of 1 to 200 characters: who holds it.")
        identity, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        row = {
            "id": identity, "role": role, "name": name, "digest": _digest(secret), "made": _now(),
            "expires": None if expires is None else _moment(expires), "revoked": False,
        }  # fmt: skip
        with self._explained(), self._engine.begin() as connection:
            connection.execute(_keys.insert().values(row))
        return f"eh_{identity}_{secret}"

    def find(self, text: str) -> Key | None:
        """Return the key of this text; None for a wrong, revoked or expired one."""
        return _match(self.digests(), text)

    def all(self) -> list[Key]:
        return [key for key, _ in self.digests().values()]

    def digests(self) -> dict[str, tuple[Key, bytes]]:
        """Return every key ever created, by id, with the hash of its secret."""
        with self._explained(), self._engine.connect() as connection:
            rows = connection.execute(_keys.select().order_by(_keys.c.made)).all()
        return {
            row.id: (Key(row.id, row.role, row.name, row.made, row.expires, row.revoked), row.digest)
            for row in rows
        }

    def exist(self) -> bool:
        """Return whether any key was created; then every request needs one."""
        return bool(self.digests())

    def revoke(self, identity: str) -> None:
        with self._explained(), self._engine.begin() as connection:
            found = connection.execute(_keys.update().where(_keys.c.id == identity).values(revoked=True))
        if found.rowcount == 0:
            raise NotFound(f"there is no key {identity!r}; list them with `evenhand keys`.")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as problem:
            raise StorageFailed(f"the keys cannot be read or written: {problem.orig}.") from problem


class KnownKeys:
    """A short-lived cache of the keys, so that requests do not wait for a database."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._known: dict[str, tuple[Key, bytes]] = {}
        self._read_at = -STALE_SECONDS
        self._lock = threading.Lock()

    def find(self, text: str) -> Key | None:
        """Return the key of this text; None for a wrong, revoked or expired one."""
        return _match(self._fresh(), text)

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


def _match(known: dict[str, tuple[Key, bytes]], text: str) -> Key | None:
    """Return the matching key; the time taken does not depend on which part matches."""
    form = _FORM.fullmatch(text)
    identity, secret = form.groups() if form else ("", "")
    key, kept = known.get(identity, (None, bytes(32)))
    fits = hmac.compare_digest(kept, _digest(secret))
    if key is None or not fits or key.revoked or (key.expires is not None and key.expires <= _now()):
        return None
    return key


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _make_table(engine: sa.Engine) -> None:
    try:
        _metadata.create_all(engine)
    except sa.exc.DBAPIError:  # another process created it at the same time; a real error occurs again
        _metadata.create_all(engine)


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
