"""The arithmetic side of the fold.

Rows queued from events, done by the compiled kernels, compared with what the log says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenhand.live import kernels
from evenhand.live.chain import Difference
from evenhand.live.kernels import ARRIVED, ASK_ANY, ASK_THIS, CHANCE, GROUP, POLICY, STATE, WHAT
from evenhand.live.protocol import Protocol
from evenhand.procedure.state import RUNNING, STOPPED, new_state, new_work


class Cell(NamedTuple):
    """What the rule chose, with which chance, from which state."""

    policy: int
    group: int
    p: float | None
    state: str
    chance: str


class Brain:
    """Counts, sums, the rule's memory, and what was drawn so far."""

    def __init__(self, protocol: Protocol) -> None:
        self.spec = protocol.spec
        self.seed = protocol.seed
        self.state = new_state(self.spec)
        self.work = new_work(self.spec)
        self.tally = kernels.new_tally(self.spec)
        self.has_stopped = False
        self.odd = 0  # asks whose digests or chances differ from the log's
        self.first_odd = 0
        self._problem = protocol.problem
        self._clear()

    def choose(self, n: int, group: int) -> list[Cell]:
        """Hand out n cells by the rule."""
        rows = np.full((n, 4), -1, dtype=np.int64)
        rows[:, WHAT], rows[:, ARRIVED] = ASK_ANY, group
        values, digests = np.zeros(n), np.zeros((n, 2), dtype=np.uint64)
        if self._advance(rows, values, digests) != n:
            raise AssertionError("a cell was asked for after the stop")
        return [
            Cell(k, g, None if math.isnan(p) else p, f"{data:016x}", f"{chance:016x}")
            for (_, k, g, _), p, (data, chance) in zip(
                rows.tolist(), values.tolist(), digests.tolist(), strict=True
            )
        ]

    def queue(
        self,
        seq: int,
        what: int,
        k: int,
        g: int,
        arrived: int,
        value: float,
        digests: tuple[int, int] = (0, 0),
    ) -> None:
        """One more row, done at the next flush; of an ask, `value` is the chance the log says it had."""
        self._rows.append((what, k, g, arrived))
        self._values.append(value)
        self._seqs.append(seq)
        self._digests.append(digests)

    def flush(self) -> None:
        """Do what is queued; the first row that differs from what the rule does is named."""
        if not self._rows:
            return
        rows = np.array(self._rows, dtype=np.int64)
        values, digests = np.array(self._values), np.zeros((len(rows), 2), dtype=np.uint64)
        done = self._advance(rows, values, digests)
        if done < len(rows):
            self._explain(done, rows)
        self._compare(rows, values, digests)
        self._clear()

    def replace(self, k: int, g: int, outcomes: Sequence[float]) -> None:
        """A cell's outcomes (unit scale) instead of those folded so far."""
        kernels.replace_outcomes(self.spec, self.state, self.work, k, g, np.array(outcomes, dtype=float))
        self.has_stopped = bool(self.state.clock[STOPPED] != RUNNING)

    def refresh(self) -> None:
        """Forget what can be computed again.

        Done at every snapshot, by those who write it and those who read past it, so that a fold opened at a
        snapshot goes on from exactly what the one that never stopped has.
        """
        self.work = new_work(self.spec)

    def _advance(self, rows: kernels.Ints, values: kernels.Array, digests: kernels.Digests) -> int:
        done = kernels.advance(self.spec, self.state, self.work, self.tally, self.seed, rows, values, digests)
        self.has_stopped = bool(self.state.clock[STOPPED] != RUNNING)
        return int(done)

    def _explain(self, done: int, rows: kernels.Ints) -> None:
        seq = self._seqs[done]
        if self.has_stopped:
            raise Difference(
                seq, f"follows event {self._seqs[done - 1]}, with which the stopping rule fires."
            )
        wrong, right = self._rows[done], rows[done]
        asked, rule = self._named(wrong[POLICY], wrong[GROUP]), self._named(right[POLICY], right[GROUP])
        raise Difference(seq, f"asks for {asked}, the rule for {rule}.")

    def _compare(self, rows: kernels.Ints, values: kernels.Array, digests: kernels.Digests) -> None:
        asks = rows[:, WHAT] == ASK_THIS
        logged = np.array(self._digests, dtype=np.uint64)
        odd_data = asks & (logged[:, STATE] != digests[:, STATE])
        if odd_data.any():
            seq = self._seqs[int(np.argmax(odd_data))]
            raise Difference(seq, "was decided from other counts and sums than the events before it give.")
        odd = asks & (
            (logged[:, CHANCE] != digests[:, CHANCE]) | (np.array(self._values) != values) & ~np.isnan(values)
        )
        if odd.any():
            self.note_odd(self._seqs[int(np.argmax(odd))], int(odd.sum()))

    def note_odd(self, seq: int, count: int = 1) -> None:
        """Some digits differ that may differ between builds."""
        self.first_odd = self.first_odd or seq
        self.odd += count

    def _named(self, k: int, g: int) -> str:
        policy = self._problem.policies[k]
        return f"{policy!r}" if g < 0 else f"{policy!r} in {self._problem.group_names[g]!r}"

    def _clear(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._values: list[float] = []
        self._seqs: list[int] = []
        self._digests: list[tuple[int, int]] = []
