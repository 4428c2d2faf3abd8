"""Decisions of another build that its last digits explain.

Some rules follow weights that a solver improves step by step, and where two comparisons are all but equal
the last digit decides which one a step follows. Two builds then come to other weights, and now and then to
another cell. Such a decision is the rule's as well, from weights that differ in their last digits only;
whoever follows the log goes on from such weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evenhand.live import kernels
from evenhand.live.kernels import Tally
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, Work

SIZES = (1e-12, 1e-9, 1e-7, 1e-6, 1e-5)  # relative changes that are tried, and how often each
TRIES = 25


class Tables(NamedTuple):
    """Everything that a decision changes."""

    state: State
    work: Work
    tally: Tally

    def copy(self) -> Tables:
        return Tables(
            State._make(table.copy() for table in self.state),
            Work._make(table.copy() for table in self.work),
            Tally._make(table.copy() for table in self.tally),
        )


class Row(NamedTuple):
    """One ask: what the log says of it goes in, what the rule gives comes out."""

    row: kernels.Ints
    value: kernels.Array
    digest: kernels.Digests


def explained(spec: Spec, tables: Tables, seed: int, asked: kernels.Ints) -> tuple[Tables, Row] | None:
    """Tables as close to these as two builds are, from which the rule decides as the log says, if there are.

    `asked` is the row of one ask. The changes tried are the same every time.
    """
    for size in SIZES:
        for number in range(TRIES):
            changed = tables.copy()
            for place, table in enumerate((changed.state.w, changed.state.track)):
                table *= 1.0 + size * _between(2 * number + place, table.shape)
            row = Row(asked.reshape(1, -1).copy(), np.zeros(1), np.zeros((1, 2), dtype=np.uint64))
            if kernels.advance(spec, *changed, seed, *row) == 1:
                return changed, row
    return None


def _between(number: int, shape: tuple[int, ...]) -> kernels.Array:
    """Numbers between -1 and 1 that are the same on every machine."""
    count = int(np.prod(shape))
    places = np.arange(1, count + 1, dtype=np.float64) + number * count
    return (2.0 * np.modf(places * 0.6180339887498949)[0] - 1.0).reshape(shape)
