"""The arithmetic of the fold: queue event rows, run the kernels, compare with the log.

Beside the kernels' tables, number, sum and sum of squares of the counted outcomes are kept for each cell. An
event with an outcome that counts carries a digest of the sums it leads to, so that a changed outcome is
detected at its own event, not only at the next decision.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.live import item_kernels, replay_kernels
from evenhand.live.build import DecisionTables, explained_by_rounding
from evenhand.live.hash_chain import Difference
from evenhand.live.protocol import Protocol
from evenhand.live.replay_kernels import ARRIVED, ASK_ANY, ASK_THIS, CHANCE, GROUP, POLICY, STATE, WHAT
from evenhand.procedure.decide import check
from evenhand.procedure.spec import ACTIVE
from evenhand.procedure.state import (
    EMPTY,
    RUNNING,
    STOPPED,
    TOLD,
    State,
    new_state,
    new_work,
    with_policies,
)

Flags = NDArray[np.bool_]
CLOSE = 1e-6  # tolerance for probabilities between builds


class ChosenCell(NamedTuple):
    """The cell that the rule chose, its probability and digests of the state."""

    policy: int
    group: int
    p: float | None
    state: str
    chance: str
    policies: tuple[int, ...] = ()  # that answer a shared item


class Replay:
    """Counts, sums and memory of the rule, computed from the events of a log."""

    def __init__(self, protocol: Protocol) -> None:
        self.spec = protocol.spec
        self.seed = protocol.seed
        self.state = new_state(self.spec)
        self.work = new_work(self.spec)
        self.tally = replay_kernels.new_draw_tally(self.spec)
        self.has_stopped = False
        self.stopped_at = 0  # number of the event with which the stopping rule fired
        self.same_build = False  # whether this build wrote the events that are compared now
        self.other_digits = 0  # asks and snapshots of other builds that differ in digits
        self.close_decisions = 0  # asks of other builds that follow only with other last digits
        self.confirmed = 1  # number of the latest event whose digest confirms all outcomes before it
        self._problem = protocol.problem
        self._numbers = tuple(protocol.columns)  # number of the policy in each column
        self._answers = np.zeros(self.spec.phi.shape[1], dtype=np.bool_)  # scratch for one shared item
        self._clear()

    def choose(self, n: int, group: int) -> list[ChosenCell]:
        """Choose n cells by the rule."""
        rows = np.full((n, 4), -1, dtype=np.int64)
        rows[:, WHAT], rows[:, ARRIVED] = ASK_ANY, group
        values, digests, further = np.zeros(n), np.zeros((n, 2), dtype=np.uint64), self._missing(n)
        if self._advance(rows, values, digests, further) != n:
            raise AssertionError("a cell was asked for after the stop")
        return [
            ChosenCell(
                max(k, 0),
                g,
                None if math.isnan(p) else p,
                f"{data:016x}",
                f"{chance:016x}",
                self._answering(row),
            )
            for (_, k, g, _), p, (data, chance), row in zip(
                rows.tolist(), values.tolist(), digests.tolist(), further, strict=True
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
        further: Sequence[float] = (),
    ) -> None:
        """Queue a row for the next flush; for an ask `value` is the probability in the log.

        `further` are the outcomes of the guard-rails, in unit scale, NaN where one is missing; or those of
        the policies on a shared item (`item_kernels`).
        """
        if further:
            self._further[len(self._rows)] = further
        self._rows.append((what, k, g, arrived))
        self._values.append(value)
        self._seqs.append(seq)
        self._digests.append(digests)

    def flush(self) -> None:
        """Compute the queued rows; the error names the first that differs from the rule.

        Rows after the one with which the stopping rule fires are not computed: see `stopped_at`.
        """
        if not self._rows:
            return
        asked, seqs = self._rows, self._seqs
        logged, chances = np.array(self._digests, dtype=np.uint64), np.array(self._values)
        further = self._missing(len(asked))
        for row, outcomes in self._further.items():
            further[row] = outcomes
        said = further.copy() if self.spec.shared_items else further
        self._clear()  # cleared first, so that no row is computed twice after an error
        rows, values = np.array(asked, dtype=np.int64), chances.copy()
        digests = np.zeros((len(rows), 2), dtype=np.uint64)
        # on shared items no weights of a solver decide, whose last digits another build may have computed
        exact = self.same_build or self.spec.shared_items
        done = (self._advance if exact else self._advance_closely)(rows, values, digests, further)
        if self.has_stopped:
            self.stopped_at = seqs[done - 1]
        differs = done < len(rows) and not self.has_stopped  # row `done` has another cell than the rule
        asks = rows[: done + differs, WHAT] == ASK_THIS
        problems = [
            self._other_counts(asks, logged[:, STATE], digests[:, STATE], seqs),
            self._other_chance(asks[:done], logged[:, CHANCE] != digests[:, CHANCE], chances, values, seqs),
        ]
        if differs:
            wrong, right = (
                self._named(row[POLICY], row[GROUP], self._answering(table[done]))
                for row, table in ((asked[done], said), (rows[done], further))
            )
            problems.append(Difference(seqs[done], f"asks for {wrong}, the rule for {right}."))
        if found := [problem for problem in problems if problem is not None]:
            raise min(found, key=lambda problem: problem.seq)

    def replace(
        self, seq: int, k: int, g: int, outcomes: Sequence[float], rails: Sequence[Sequence[float]]
    ) -> None:
        """Replace a cell's outcomes (unit scale) by these, as event `seq` says."""
        table = np.array(rails, dtype=float).reshape((len(outcomes), self.spec.guardrails.code.size))
        replay_kernels.replace_outcomes(
            self.spec, self.state, self.work, k, g, np.array(outcomes, dtype=float), table
        )
        self._note_stop(seq)

    def replace_all(self, seq: int, rows: Sequence[tuple[int, int, float, Sequence[float]]]) -> None:
        """Replace the outcomes of all cells by rows of policy, group, outcome and guard-rails, in order."""
        policies, groups = (np.array([row[j] for row in rows], dtype=np.int64) for j in range(2))
        outcomes = np.array([row[2] for row in rows], dtype=float)
        rails = np.array([row[3] for row in rows], dtype=float)
        replay_kernels.replace_all_outcomes(
            self.spec, self.state, self.work, policies, groups, outcomes,
            rails.reshape((len(rows), self.spec.guardrails.code.size)),
        )  # fmt: skip
        self._note_stop(seq)

    def replace_items(self, seq: int, rows: Sequence[tuple[int, Sequence[float]]]) -> None:
        """Replace the outcomes on all shared items by rows of a group and outcomes, in order."""
        groups = np.array([group for group, _ in rows], dtype=np.int64)
        outcomes = np.array([row for _, row in rows], dtype=float).reshape((len(rows), self._answers.size))
        item_kernels.replace_all_items(self.spec, self.state, self.work, groups, outcomes, self._answers)
        self._note_stop(seq)

    def adopt(self, seq: int, state: State) -> None:
        """Continue from this state, to which event `seq` leads."""
        self.state, self.work = state, new_work(self.spec)
        self._note_stop(seq)

    def _note_stop(self, seq: int) -> None:
        if not self.has_stopped and self.state.clock[STOPPED] != RUNNING:
            self.has_stopped, self.stopped_at = True, seq

    def refresh(self, seq: int) -> None:
        """Clear what can be recomputed; event `seq` is a snapshot of the state.

        This is done at every snapshot, by its writer and by readers, so that a fold opened at a snapshot
        continues from exactly the same state as one that was never closed.
        """
        self.work = new_work(self.spec)
        self.confirmed = seq

    def change_policies(self, seq: int, protocol: Protocol, pending: int) -> None:
        """Continue with the policies of this protocol, as event `seq` says.

        Columns of policies that stay are kept, those that join begin with zeros. The initial samples that
        are lacking are drawn next. If none are, the stopping rule is evaluated at once.
        """
        kept = [column for column, number in enumerate(self._numbers) if number in protocol.columns]
        self.spec, self._problem, self._numbers = protocol.spec, protocol.problem, tuple(protocol.columns)
        self.state = with_policies(self.spec, self.state, kept, pending)
        self.work = new_work(self.spec)
        tables = replay_kernels.new_draw_tally(self.spec)
        for new, old in zip(tables, self.tally, strict=True):
            new[:, : len(kept)] = old[:, kept]
        self.tally = tables
        clock, initial = self.state.clock, self.spec.initial_total if self.spec.mode == ACTIVE else 0
        if clock[EMPTY] == 0 and clock[TOLD] >= initial:
            check(self.spec, self.state, self.work)
            if clock[STOPPED] != RUNNING:
                self.has_stopped, self.stopped_at = True, seq

    def note_other_digits(self) -> None:
        """Count an event whose last digits differ from those of this build."""
        self.other_digits += 1

    def _advance(
        self,
        rows: replay_kernels.Ints,
        values: replay_kernels.Array,
        digests: replay_kernels.Digests,
        further: replay_kernels.Array,
    ) -> int:
        tables = self.spec, self.state, self.work, self.tally
        if self.spec.shared_items:
            done = item_kernels.advance_items(*tables, rows, values, digests, further, self._answers)
        else:
            done = replay_kernels.advance(*tables, self.seed, rows, values, digests, further)
        self.has_stopped = bool(self.state.clock[STOPPED] != RUNNING)
        return int(done)

    def _advance_closely(
        self,
        rows: replay_kernels.Ints,
        values: replay_kernels.Array,
        digests: replay_kernels.Digests,
        rails: replay_kernels.Array,
    ) -> int:
        """Compute rows of another build; accept decisions explained by its last digits."""
        asked, said = rows.copy(), values.copy()
        begun, before = 0, self._tables.copy()
        done = self._advance(rows, values, digests, rails)
        while done < len(rows) and not self.has_stopped:
            self.state, self.work, self.tally = before
            again = asked[begun:done].copy(), said[begun:done].copy(), digests[begun:done].copy()
            self._advance(*again, rails[begun:done])  # up to the decision
            found = explained_by_rounding(self.spec, self._tables, self.seed, asked[done])
            if found is None:
                break
            (self.state, self.work, self.tally), row = found
            rows[done], values[done], digests[done] = row.row[0], row.value[0], row.digest[0]
            self.close_decisions += 1
            begun, before = done + 1, self._tables.copy()
            done = begun + self._advance(rows[begun:], values[begun:], digests[begun:], rails[begun:])
        return done

    @property
    def _tables(self) -> DecisionTables:
        return DecisionTables(self.state, self.work, self.tally)

    def _other_counts(
        self,
        asks: Flags,
        logged: replay_kernels.Digests,
        digests: replay_kernels.Digests,
        seqs: Sequence[int],
    ) -> Difference | None:
        """Return the first ask whose digest of counts and sums differs from the events before."""
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
            since = seq  # later asks agree with the events: the digest of this one is wrong
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
        """Return the first ask whose probability differs from the rule's.

        If this build wrote the log, the probabilities must be equal to the last digit.
        """
        logged, chances = logged[: len(asks)], chances[: len(asks)]
        odd = asks & (other_digest[: len(asks)] | (logged != chances) & ~np.isnan(chances))
        wrong = odd if self.same_build else odd & ~np.isclose(logged, chances, 0.0, CLOSE, equal_nan=True)
        if not wrong.any():
            self.other_digits += int(odd.sum())
            return None
        place = int(np.argmax(wrong))
        said, right = f"{logged[place]:.17g}", f"{chances[place]:.17g}"
        what = "another memory of the rule, or other chances of cells not drawn, than this very build gives"
        if said != right:
            what = f"the chance {said}; {'this very build' if self.same_build else 'the rule'} gives {right}"
        return Difference(seqs[place], f"has {what}.")

    def _answering(self, row: replay_kernels.Array) -> tuple[int, ...]:
        """Return the policies that answer the shared item of a row; none without shared items."""
        return tuple(np.flatnonzero(~np.isnan(row)).tolist()) if self.spec.shared_items else ()

    def _named(self, k: int, g: int, answering: Sequence[int]) -> str:
        names = self._problem.policies
        policies = ", ".join(repr(names[i]) for i in answering or (k,))
        return policies if g < 0 else f"{policies} in {self._problem.group_names[g]!r}"

    def _clear(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._values: list[float] = []
        self._seqs: list[int] = []
        self._digests: list[tuple[int, int]] = []
        self._further: dict[int, Sequence[float]] = {}  # row -> outcomes of its guard-rails or item

    def _missing(self, rows: int) -> replay_kernels.Array:
        """Return further outcomes for this number of rows, all missing."""
        width = self._answers.size if self.spec.shared_items else self.spec.guardrails.code.size
        return np.full((rows, width), math.nan)


_FORM, _RAIL_FORM = struct.Struct("<qqddd"), struct.Struct("<ddd")


class Sums(NamedTuple):
    """Number, sum and sum of squares of the outcomes of one cell, in unit scale."""

    n: float = 0.0
    s: float = 0.0
    ss: float = 0.0

    def plus(self, x: float) -> Sums:
        """Return the sums with one more outcome, added as `procedure.state.record` does."""
        return Sums(self.n + 1.0, self.s + x, self.ss + x * x)


class CellSums(NamedTuple):
    """The sums of the outcome in one cell, then those of each guard-rail."""

    outcome: Sums
    rails: tuple[Sums, ...] = ()

    def plus(self, x: float, rails: Sequence[float]) -> CellSums:
        """Return the sums with one more sample; an outcome of a guard-rail that is NaN is missing."""
        pairs = zip(self.rails, rails, strict=True)
        return CellSums(
            self.outcome.plus(x), tuple(sums if math.isnan(y) else sums.plus(y) for sums, y in pairs)
        )

    def digest(self, ticket: int, cell: int) -> str:
        """Return 64 bits over the sums, their latest ticket and their cell, in hexadecimal."""
        found = hashlib.blake2b(_FORM.pack(ticket, cell, *self.outcome), digest_size=8)
        for sums in self.rails:
            found.update(_RAIL_FORM.pack(*sums))
        return found.hexdigest()


def sums_digest(ticket: int, sums: Mapping[int, CellSums]) -> str:
    """Return 64 bits over the sums of the cells that an event changes, in hexadecimal."""
    parts = [sums[cell].digest(ticket, cell) for cell in sorted(sums)]
    return (
        parts[0] if len(parts) == 1 else hashlib.blake2b("".join(parts).encode(), digest_size=8).hexdigest()
    )


def no_sums(rails: int) -> CellSums:
    """Return the sums of a cell without outcomes."""
    return CellSums(Sums(), (Sums(),) * rails)
