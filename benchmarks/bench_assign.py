"""Assigning units by the salted hash: arrays of numbers, and single units.

python -m benchmarks assign
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

import evenhand as eh
from benchmarks.rows import Row, more, seconds

UNITS, SINGLE = 2_000_000, 200_000


def rows() -> Iterator[Row]:
    shares = eh.Shares.of({"all": {"a": 0.5, "b": 0.3, "c": 0.2}}, salt="0123456789abcdef")
    units = np.random.default_rng(0).integers(0, 10**9, UNITS)
    rate = UNITS / seconds(lambda: eh.assign(units, "all", shares))
    yield more("assign units of an array", rate, 1e7, "1/s", 1.0)
    single = units[:SINGLE].tolist()

    def one_by_one() -> None:
        for unit in single:
            eh.assign(unit, "all", shares)

    def hash_alone() -> None:
        for unit in single:
            hashlib.md5(f"{shares.salt}:{unit}".encode(), usedforsecurity=False).digest()

    rate, alone = SINGLE / seconds(one_by_one), SINGLE / seconds(hash_alone)
    yield more("assign units one by one", rate, 1e6, "1/s", 1.0)
    yield more("assign units one by one against Python's MD5 alone", rate, alone, "1/s")
