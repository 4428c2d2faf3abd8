"""Number, sum and sum of squares of the outcomes that count in each cell, kept beside the kernels' own.

An event with an outcome that counts carries a digest of what it leads to, so that an outcome that was changed
shows at its own event, not only at the next decision.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import NamedTuple

_FORM = struct.Struct("<qqddd")


class Sums(NamedTuple):
    """Of one cell, in unit scale."""

    n: float = 0.0
    s: float = 0.0
    ss: float = 0.0

    def plus(self, x: float) -> Sums:
        """With one more outcome; added up as `procedure.state.record` does."""
        return Sums(self.n + 1.0, self.s + x, self.ss + x * x)

    def digest(self, ticket: int, cell: int) -> str:
        """64 bits over these numbers, the ticket that led to them and their cell, in hexadecimal digits."""
        return hashlib.blake2b(_FORM.pack(ticket, cell, *self), digest_size=8).hexdigest()


class CellSums(dict[int, Sums]):
    """By the number of the cell; cells without an outcome have zeros."""

    def __missing__(self, cell: int) -> Sums:
        return Sums()


def sums_of(outcomes: Iterable[float]) -> Sums:
    """Of these outcomes (unit scale), in this order."""
    sums = Sums()
    for x in outcomes:
        sums = sums.plus(x)
    return sums
