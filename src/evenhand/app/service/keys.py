"""Keys: made on the command line, shown once, kept as hashes.

A key reads `eh_ID_SECRET`. The database knows ID, role and the SHA-256 of the secret; a secret of 256 random
bits needs no slow hash. For a SQLite journal the keys lie in a file of their own beside it, so that making
one does not need the journal's writer.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from evenhand.errors import BadInput, NotFound, StorageFailed, nearest

ROLES = ("operator", "analyst", "admin")  # each may do what those before it may
_FORM = re.compile(r"eh_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")

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
    """Who holds it and what they may do."""

    id: str
    role: str
    name: str
    made: str = ""
    expires: str | None = None
    revoked: bool = False

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


class Keys:
    """The keys that belong to a journal."""

    def __init__(self, journal: str) -> None:
        shared = journal.startswith(("postgresql:", "postgres:"))
        address = "postgresql+psycopg:" + journal.split(":", 1)[1] if shared else f"sqlite:///{journal}.keys"
        self._engine = sa.create_engine(address)
        with self._explained():
            _metadata.create_all(self._engine)

    def create(self, role: str, name: str, expires: str | None = None) -> str:
        """A new key, in full: it is never shown again."""
        if role not in ROLES:
            raise BadInput(f"role must be one of {', '.join(ROLES)}; it is {role!r}{nearest(role, ROLES)}")
        if not name.strip() or len(name) > 200:
            raise BadInput("a key needs a name of 1 to 200 characters: who holds it.")
        identity, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        row = {
            "id": identity, "role": role, "name": name, "digest": _digest(secret), "made": _now(),
            "expires": expires, "revoked": False,
        }  # fmt: skip
        with self._explained(), self._engine.begin() as connection:
            connection.execute(_keys.insert().values(row))
        return f"eh_{identity}_{secret}"

    def find(self, text: str) -> Key | None:
        """Whose key this is; None for a wrong, revoked or expired one. Takes as long either way."""
        form = _FORM.fullmatch(text)
        identity, secret = form.groups() if form else ("", "")
        with self._explained(), self._engine.connect() as connection:
            row = connection.execute(_keys.select().where(_keys.c.id == identity)).one_or_none()
        kept = row.digest if row is not None else bytes(32)
        fits = hmac.compare_digest(kept, _digest(secret))
        if row is None or not fits or row.revoked or (row.expires is not None and row.expires <= _now()):
            return None
        return Key(row.id, row.role, row.name)

    def all(self) -> list[Key]:
        with self._explained(), self._engine.connect() as connection:
            rows = connection.execute(_keys.select().order_by(_keys.c.made)).all()
        return [Key(row.id, row.role, row.name, row.made, row.expires, row.revoked) for row in rows]

    def exist(self) -> bool:
        """Has any key been made? Then nobody comes in without one."""
        return bool(self.all())

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


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
