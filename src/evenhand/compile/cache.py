"""The cache on disk: compiled code by a hash of its inputs, each file with a checksum."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import warnings
from pathlib import Path

PROGRAMS, CLUSTERS = "programs", "clusters"
_MARK = b"evenhand compiled 1\n"
_DIGEST = hashlib.sha256


class CacheWarning(UserWarning):
    """The cache cannot be used, so every process compiles again."""


def cache_directory() -> Path:
    """Return the cache directory: EVENHAND_CACHE, or a folder in the user's cache."""
    return Path(os.environ.get("EVENHAND_CACHE") or Path.home() / ".cache" / "evenhand") / "compiled"


def lookup(kind: str, key: str) -> bytes | None:
    """Return the content stored under this key; a damaged file is removed and counts as absent."""
    path = cache_directory() / kind / key
    try:
        data = path.read_bytes()
    except OSError:
        return None
    content = _checked(data)
    if content is None:
        with contextlib.suppress(OSError):
            path.unlink()
    return content


def store(kind: str, key: str, content: bytes) -> None:
    """Store content under this key; if that fails, warn once and continue."""
    folder = cache_directory() / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".part-", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MARK + _DIGEST(content).digest() + content)
            os.replace(name, folder / key)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as problem:
        _warn_once(f"{folder} cannot be written ({problem.strerror}), so what is compiled is not kept.")


def damaged_files() -> list[Path]:
    """Return the files of the cache with a wrong checksum."""
    return [path for path in files() if _checked(_content(path)) is None]


def files() -> list[Path]:
    """Return all files of the cache that hold compiled code."""
    root = cache_directory()
    found = [path for kind in (PROGRAMS, CLUSTERS) for path in (root / kind).glob("*") if path.is_file()]
    return sorted(path for path in found if not path.name.startswith("."))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return _MARK + _DIGEST(b"").digest()  # another process has just replaced it
    except OSError:
        return b""


def _checked(data: bytes) -> bytes | None:
    """Return the content of a file, or None where its checksum is wrong."""
    start = len(_MARK) + _DIGEST().digest_size
    content = data[start:]
    fits = data[: len(_MARK)] == _MARK and data[len(_MARK) : start] == _DIGEST(content).digest()
    return content if fits else None


_warned: set[str] = set()


def _warn_once(message: str) -> None:
    if not _warned:
        _warned.add(message)
        warnings.warn(f"{message} Name another place in EVENHAND_CACHE.", CacheWarning, stacklevel=2)
