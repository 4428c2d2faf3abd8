"""A set of request keys in little memory."""

from __future__ import annotations

import hashlib

import numpy as np

_WAITING = 20_000  # keys looked up one by one before they are sorted in


class KeySet:
    """Keys and their parts, 8 bytes each: a digest of 64 bits stands for each."""

    def __init__(self) -> None:
        self._sorted = np.zeros(0, dtype=np.uint64)
        self._waiting: set[int] = set()

    def add(self, key: str, part: int) -> bool:
        """Add a key and a part of it; return whether they are new.

        Two of a million keys have the same digest with a chance of 3e-8.
        """
        text = f"{part} {key}".encode()
        digest = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
        place = int(np.searchsorted(self._sorted, np.uint64(digest)))
        if digest in self._waiting or (place < len(self._sorted) and self._sorted[place] == digest):
            return False
        self._waiting.add(digest)
        if len(self._waiting) == _WAITING:
            self._sorted = np.sort(np.append(self._sorted, np.array(list(self._waiting), dtype=np.uint64)))
            self._waiting.clear()
        return True
