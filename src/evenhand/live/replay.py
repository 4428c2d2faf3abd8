"""The arithmetic side of the fold.

Rows queued from events, done by the compiled kernels, compared with what the log says.

Number, sum and sum of squares of the outcomes that count in each cell, kept beside the kernels' own.

An event with an outcome that counts carries a digest of what it leads to, so that an outcome that was changed
shows at its own event, not only at the next decision.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.live import replay_kernels
from evenhand.live.build import Tables, explained
from evenhand.live.hash_chain import Difference
from evenhand.live.protocol import Protocol
from evenhand.live.replay_kernels import ARRIVED, ASK_ANY, ASK_THIS, CHANCE, GROUP, POLICY, STATE, WHAT
from evenhand.procedure.state import RUNNING, STOPPED, new_state, new_work

Flags = NDArray[np.bool_]
CLOSE = 1e-6  # so much a chance may differ between builds


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
        self.tally = replay_kernels.new_tally(self.spec)
        self.has_stopped = False
        self.stopped_at = 0  # number of the event with which the stopping rule fired
        self.same_build = False  # did this very build write the events that are compared now?
        self.odd = 0  # asks and snapshots of other builds that differ in digits
        self.close_decisions = 0  # asks of other builds that only their last digits explain
        self.confirmed = 1  # number of the latest event whose digest confirms all outcomes before it
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
        """Do what is queued, once; the first row that differs from what the rule does is named.

        Rows after the one with which the stopping rule fires are not done: see `stopped_at`.
        """
        if not self._rows:
            return
        asked, seqs = self._rows, self._seqs
        logged, chances = np.array(self._digests, dtype=np.uint64), np.array(self._values)
        self._clear()  # whatever is found, nothing is done twice
        rows, values = np.array(asked, dtype=np.int64), chances.copy()
        digests = np.zeros((len(rows), 2), dtype=np.uint64)
        advance = self._advance if self.same_build else self._advance_closely
        done = advance(rows, values, digests)
        if self.has_stopped:
            self.stopped_at = seqs[done - 1]
        differs = done < len(rows) and not self.has_stopped  # row `done` asks for another cell than the rule
        asks = rows[: done + differs, WHAT] == ASK_THIS
        problems = [
            self._other_counts(asks, logged[:, STATE], digests[:, STATE], seqs),
            self._other_chance(asks[:done], logged[:, CHANCE] != digests[:, CHANCE], chances, values, seqs),
        ]
        if differs:
            wrong, right = (self._named(row[POLICY], row[GROUP]) for row in (asked[done], rows[done]))
            problems.append(Difference(seqs[done], f"asks for {wrong}, the rule for {right}."))
        if found := [problem for problem in problems if problem is not None]:
            raise min(found, key=lambda problem: problem.seq)

    def replace(self, seq: int, k: int, g: int, outcomes: Sequence[float]) -> None:
        """A cell's outcomes (unit scale) instead of those folded so far, as event `seq` says."""
        replay_kernels.replace_outcomes(
            self.spec, self.state, self.work, k, g, np.array(outcomes, dtype=float)
        )
        if not self.has_stopped and self.state.clock[STOPPED] != RUNNING:
            self.has_stopped, self.stopped_at = True, seq

    def refresh(self, seq: int) -> None:
        """Forget what can be computed again; event `seq` is a snapshot of what is known.

        Done at every snapshot, by those who write it and those who read past it, so that a fold opened at a
        snapshot goes on from exactly what the one that never stopped has.
        """
        self.work = new_work(self.spec)
        self.confirmed = seq

    def note_odd(self) -> None:
        """Count one more event with digits that may differ between builds, and do."""
        self.odd += 1

    def _advance(
        self, rows: replay_kernels.Ints, values: replay_kernels.Array, digests: replay_kernels.Digests
    ) -> int:
        done = replay_kernels.advance(
            self.spec, self.state, self.work, self.tally, self.seed, rows, values, digests
        )
        self.has_stopped = bool(self.state.clock[STOPPED] != RUNNING)
        return int(done)

    def _advance_closely(
        self, rows: replay_kernels.Ints, values: replay_kernels.Array, digests: replay_kernels.Digests
    ) -> int:
        """Do rows of another build: decisions that its last digits explain are taken over."""
        asked, said = rows.copy(), values.copy()
        begun, before = 0, self._tables.copy()
        done = self._advance(rows, values, digests)
        while done < len(rows) and not self.has_stopped:
            self.state, self.work, self.tally = before
            again = asked[begun:done].copy(), said[begun:done].copy(), digests[begun:done].copy()
            self._advance(*again)  # to where the decision was made
            found = explained(self.spec, self._tables, self.seed, asked[done])
            if found is None:
                break
            (self.state, self.work, self.tally), row = found
            rows[done], values[done], digests[done] = row.row[0], row.value[0], row.digest[0]
            self.close_decisions += 1
            begun, before = done + 1, self._tables.copy()
            done = begun + self._advance(rows[begun:], values[begun:], digests[begun:])
        return done

    @property
    def _tables(self) -> Tables:
        return Tables(self.state, self.work, self.tally)

    def _other_counts(
        self,
        asks: Flags,
        logged: replay_kernels.Digests,
        digests: replay_kernels.Digests,
        seqs: Sequence[int],
    ) -> Difference | None:
        """The first ask that was decided from other counts and sums than the events before it give."""
        places = np.flatnonzero(asks)
        if not places.size:
            return None
        same = logged[places] == digests[places]
        if same.all():
            self.confirmed = seqs[places[-1]]
            return None
        first = int(np.argmin(same))
        seq = seqs[places[first]]
        since = 1 + (seqs[places[first - 1]] if first else self.confirmed)
        if same[first + 1 :].any():
            since = seq  # later asks agree with the events: it is this one's digest that is wrong
        return Difference(
            seq, "was decided from other counts and sums than the events before it give.", since
        )

    def _other_chance(
        self,
        asks: Flags,
        other_digest: Flags,
        logged: replay_kernels.Array,
        chances: replay_kernels.Array,
        seqs: Sequence[int],
    ) -> Difference | None:
        """The first ask with another chance than the rule gives, to the last digit if this build wrote it."""
        logged, chances = logged[: len(asks)], chances[: len(asks)]
        odd = asks & (other_digest[: len(asks)] | (logged != chances) & ~np.isnan(chances))
        wrong = odd if self.same_build else odd & ~np.isclose(logged, chances, 0.0, CLOSE, equal_nan=True)
        if not wrong.any():
            self.odd += int(odd.sum())
            return None
        place = int(np.argmax(wrong))
        said, right = f"{logged[place]:.17g}", f"{chances[place]:.17g}"
        what = "another memory of the rule, or other chances of cells not drawn, than this very build gives"
        if said != right:
            what = f"the chance {said}; {'this very build' if self.same_build else 'the rule'} gives {right}"
        return Difference(seqs[place], f"has {what}.")

    def _named(self, k: int, g: int) -> str:
        policy = self._problem.policies[k]
        return f"{policy!r}" if g < 0 else f"{policy!r} in {self._problem.group_names[g]!r}"

    def _clear(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._values: list[float] = []
        self._seqs: list[int] = []
        self._digests: list[tuple[int, int]] = []


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
