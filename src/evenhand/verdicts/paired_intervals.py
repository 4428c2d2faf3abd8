"""`PairedIntervals`: paired evidence from units that every policy served, summed where the data are.

    paired = PairedIntervals(problem)
    paired.add(1, run, "scores", where="day = 1")     # run: SQL to rows
    paired.verdict()

A paired bet needs the difference of two outcomes of one unit, a self-join. Its tilts are fixed when an
interval starts, from the intervals before it, so the sum of ln(1 + tau y) over the interval is an aggregate
that does not depend on the order of the units. `procedure.evidence.linear_bets` has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, Conflict, shown
from evenhand.model.argument_checks import optional
from evenhand.model.problem import Problem
from evenhand.model.study_like import problem_of
from evenhand.procedure.choose_evidence import with_mixture
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.evidence import linear_minimum
from evenhand.procedure.evidence.linear_bets import (
    BOTH,
    FARTHEST,
    MATCHED,
    SINGLE,
    SPREAD,
    Block,
    new_block,
)
from evenhand.procedure.evidence.linear_minimum import Null
from evenhand.procedure.spec import Procedure, Spec
from evenhand.procedure.state import State, new_state, ready
from evenhand.study import Study
from evenhand.verdicts.items import Items
from evenhand.verdicts.judge import Verdict, judge_pairs
from evenhand.verdicts.shared_items import Comparisons, refuse_what_cannot_be_paired
from evenhand.verdicts.tables import literal
from evenhand.verdicts.warehouse import DISCRETE

Array = NDArray[np.float64]
Run = Callable[[str], Iterable[Sequence[Any]]]
Cell = tuple[int, int]  # group and policy
Pair = tuple[int, int]  # numbers of two policies
Tilts = dict[Pair, list[tuple[Array, float]]]  # of every group, with their centre

MOST = 12  # policies: their pairs grow with the square
NOBODY = Items(np.zeros(0, dtype=np.int64), (), 0)  # no single units are kept
ROUNDING = 1e-6  # of sums that a database adds up, in outcomes


class PairSums(NamedTuple):
    """Sums over the differences of a pair in a group, in unit scale."""

    n: float
    s: float
    squares: float
    logs: Array  # for the bets that the first is ahead, then that the second is


class PairedIntervals:
    """Evidence from units that every policy served, interval by interval, with bets on their differences.

    Parameters
    ----------
    problem : Problem or Study
        The question; outcomes must be Bernoulli, binomial or bounded.
    procedure : Procedure, optional
        Its delta is used; a study's own procedure, or the default, unless given.

    Raises
    ------
    BadInput
        If the evidence from pairs would not be valid, or there are more than 12 policies.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.3))
    >>> paired = eh.PairedIntervals(problem)
    >>> paired.closed, paired.verdict().decided
    (0, False)
    """

    def __init__(self, problem: Problem | Study, procedure: Procedure | None = None) -> None:
        given = optional(procedure, Procedure, "procedure")
        chosen = given or (problem.procedure if isinstance(problem, Study) else Procedure())
        self.problem = problem_of(problem)
        if len(self.problem.policies) > MOST:
            raise BadInput(
                f"paired intervals take at most {MOST} policies; {len(self.problem.policies)} are given."
            )
        if self.problem.guardrails:
            raise BadInput(
                "paired intervals take no guard-rails; judge the outcomes with them in another way."
            )
        self._procedure = with_mixture(self.problem, Procedure(delta=chosen.delta))
        refuse_what_cannot_be_paired(self.problem, chosen, fixed=False)
        self._spec: Spec = compile_spec(self.problem, self._procedure)
        self._state: State = new_state(self._spec)
        policies = range(len(self.problem.policies))
        self._blocks = {(i, k): new_block(self._spec.shares) for i in policies for k in policies if i != k}
        self.closed = 0  # intervals that were added

    def add(
        self, interval: int, run: Run, table: str, *, unit: str = "unit", policy: str = "policy",
        group: str = '"group"', outcome: str = "outcome", where: str = "TRUE",
    ) -> int:  # fmt: skip
        """Count the next interval in a table and add it; return the number of its units.

        `run` takes SQL and returns rows, such as `lambda sql: connection.execute(sql).fetchall()`. The other
        arguments are SQL expressions; `where` selects the rows of the interval. Nothing is added if the data
        cannot be right.
        """
        if interval != self.closed + 1 or isinstance(interval, bool):
            raise Conflict(
                f"intervals are added once and in order; the next is {self.closed + 1}, and not "
                f"{shown(interval)}."
            )
        rows = self._rows_sql(table, unit, policy, group, outcome, where)
        tilts = self.tilts()
        cells = self._cells(run(_CELLS.format(rows=rows, odd=self._odd_sql())))
        pairs = self._pairs(run(_PAIRS.format(rows=rows, bets=self._bets_sql(tilts))))
        self._check_complete(cells, pairs)
        for cell, (n, s) in cells.items():
            self._state.n[cell] += n
            self._state.s[cell] += s
        self.add_sums(tilts, pairs)
        self.closed += 1
        return int(sum(n for (_, k), (n, _) in cells.items() if k == 0))

    def tilts(self) -> Tilts:
        """Return the tilts of the next interval and their centres, by ordered pair and group."""
        groups = range(self._spec.shares.size)
        return {pair: [_tilts(block, g) for g in groups] for pair, block in self._blocks.items()}

    def add_sums(self, tilts: Tilts, pairs: dict[tuple[Pair, int], PairSums]) -> None:
        """Add the sums of an interval to the bets on all pairs, in both directions."""
        for ((i, k), g), sums in pairs.items():
            half = sums.logs.size // 2
            _add(self._blocks[i, k], g, tilts[i, k][g], sums._replace(logs=sums.logs[:half]))
            other = sums._replace(s=-sums.s, logs=sums.logs[half:])
            _add(self._blocks[k, i], g, tilts[k, i][g], other)

    def ahead(self, first: str, second: str) -> float:
        """Return the ln e-value that the first policy has the better overall mean of the two."""
        compare = _ByIntervals(self._spec, ready(self._spec, self._state), NOBODY)
        compare.blocks = self._blocks
        return compare.ahead(self.problem.policy_index(first), self.problem.policy_index(second))

    def verdict(self) -> Verdict:
        """Return the verdict on all intervals so far; it may be asked for after each of them."""
        state = ready(self._spec, self._state)
        compare = _ByIntervals(self._spec, state, NOBODY)
        compare.blocks = self._blocks
        return judge_pairs(self.problem, self._procedure, self._spec, state, NOBODY, None, compare)

    def _rows_sql(self, table: str, unit: str, policy: str, group: str, outcome: str, where: str) -> str:
        family = self.problem.family
        return (
            f"(SELECT {unit} AS u, {policy} AS p, {group} AS g, (CAST({outcome} AS DOUBLE PRECISION) - "
            f"{family.low!r}) / {family.width!r} AS x FROM {table} WHERE {where})"
        )

    def _odd_sql(self) -> str:
        """Return the SQL condition that an outcome is no whole number, where it must be one."""
        family = self.problem.family
        if family.name not in DISCRETE:
            return "1 = 0"
        return f"ABS(x * {family.width!r} - ROUND(x * {family.width!r})) > {ROUNDING!r}"

    def _bets_sql(self, tilts: Tilts) -> str:
        """Return the slopes of all pairs as rows (i, k, g, number, slope, centre)."""
        names, groups = self.problem.policies, self.problem.group_names
        rows = []
        for i, k in (pair for pair in self._blocks if pair[0] < pair[1]):
            for g, group in enumerate(groups):
                ahead, centre = tilts[i, k][g]
                slopes = [*ahead.tolist(), *(-tilts[k, i][g][0]).tolist()]  # that i is ahead, that k is
                place = f"{literal(names[i])}, {literal(names[k])}, {literal(group)}"
                rows += [f"({place}, {number}, {slope!r}, {centre!r})" for number, slope in enumerate(slopes)]
        return (
            "(SELECT i, k, g, number, CAST(slope AS DOUBLE PRECISION) AS slope, CAST(centre AS DOUBLE "
            f"PRECISION) AS centre FROM (VALUES {', '.join(rows)}) AS v(i, k, g, number, slope, centre))"
        )

    def _cells(self, rows: Iterable[Sequence[Any]]) -> dict[Cell, tuple[float, float]]:
        """Return number and sum of the outcomes of every cell; refuse what cannot be right."""
        found: dict[Cell, tuple[float, float]] = {}
        for policy, group, n, units, present, total, least, most, odd in rows:
            g, k = self.problem.group_index(str(group)), self.problem.policy_index(str(policy))
            if present < n:
                raise BadInput(f"{n - present:,} rows of {policy!r} in {group!r} miss an outcome.")
            if units < n:
                raise Conflict(
                    f"a policy serves a unit once in an interval; one of {policy!r} in {group!r} comes twice."
                )
            if odd or not 0.0 <= least <= most <= 1.0:
                raise BadInput(
                    f"outcomes must be {self.problem.family.outcomes}; one of {policy!r} in {group!r} is not."
                )
            found[g, k] = float(n), float(total)
        if not found:
            raise BadInput("the interval holds no row; check the table and the condition.")
        return found

    def _pairs(self, rows: Iterable[Sequence[Any]]) -> dict[tuple[Pair, int], PairSums]:
        found: dict[tuple[Pair, int], PairSums] = {}
        for first, second, group, number, n, s, squares, log in rows:
            i, k = self.problem.policy_index(str(first)), self.problem.policy_index(str(second))
            key = (i, k), self.problem.group_index(str(group))
            sums = found.setdefault(
                key, PairSums(float(n), float(s), float(squares), np.full(2 * MATCHED.size, math.nan))
            )
            sums.logs[int(number)] = float(log)
        return found

    def _check_complete(
        self, cells: dict[Cell, tuple[float, float]], pairs: dict[tuple[Pair, int], PairSums]
    ) -> None:
        """Refuse units that some policy did not serve: who serves a unit must not depend on outcomes."""
        names = self.problem.policies
        for g, group in enumerate(self.problem.group_names):
            sizes = [cells.get((g, k), (0.0, 0.0))[0] for k in range(len(names))]
            for i, k in ((i, k) for i, k in self._blocks if i < k):
                both = pairs[(i, k), g].n if ((i, k), g) in pairs else 0.0
                if not sizes[i] == sizes[k] == both:
                    raise Conflict(
                        f"every policy must serve every unit of an interval; in {group!r} {names[i]!r} "
                        f"served {sizes[i]:,.0f}, {names[k]!r} {sizes[k]:,.0f}, and both {both:,.0f} of them."
                    )
        for ((i, k), g), sums in pairs.items():
            apart = cells[g, i][1] - cells[g, k][1]
            if not np.isfinite(sums.logs).all() or abs(sums.s - apart) > ROUNDING * (1.0 + sums.n):
                raise BadInput(
                    "the sums of the pairs do not belong to the outcomes; do not change the queries."
                )


def _add(block: Block, g: int, bets: tuple[Array, float], sums: PairSums) -> None:
    """Add the sums of an interval to one direction: W += sum ln(1 + tau (x - c)) + n tau c, B += n tau."""
    tilts, centre = bets
    c = BOTH * block.q.size + g
    block.w[c] += sums.logs + sums.n * tilts * centre
    block.b[c] += sums.n * tilts
    block.v[c] += max(sums.squares - 2.0 * centre * sums.s + sums.n * centre * centre, 0.0)
    block.n[c] += sums.n
    block.s[c] += sums.s
    block.draws[0] += sums.n


def _tilts(block: Block, g: int) -> tuple[Array, float]:
    """Return the tilts of the next interval in a group and the centre, from the intervals before it."""
    groups = block.q.size
    n, v = (table[BOTH * groups : (BOTH + 1) * groups] for table in (block.n, block.v))
    centre = float(block.s[BOTH * groups + g] / (n[g] + 1.0))
    # f = q_l / (N + 1) sqrt((t + 1) / S2),  S2 = sum of q^2 (1/4 + V) / (N + 1)^2
    error = float((block.q**2 * (0.25 + v) / (n + 1.0) ** 2).sum())
    scale = block.q[g] / (n[g] + 1.0) * math.sqrt((block.draws[0] + 1.0) / error)
    return np.minimum(MATCHED * scale, FARTHEST / (centre + 1.0)), centre


class _ByIntervals(Comparisons):
    """Comparisons by the sums of intervals; single cells are judged by their counts."""

    blocks: dict[Pair, Block]
    by_counts = True

    def _computed(self, i: int, k: int) -> float:
        block, groups = self.blocks[i, k], self.spec.shares.size
        # the differences of all groups are between -1 and 1; nothing is known of single policies here
        low = np.concatenate([np.full(groups, -1.0), np.zeros(groups)])
        high = np.concatenate([np.ones(groups), np.zeros(groups)])
        null = Null(self.spec.shares, -self.spec.indifference, low, high)
        multipliers = SINGLE if groups == 1 else SPREAD
        return float(linear_minimum.least(block, null, multipliers, math.inf, self.scratch))


_CELLS = (
    "SELECT p, g, COUNT(*), COUNT(DISTINCT u), COUNT(x), SUM(x), MIN(x), MAX(x), "
    "SUM(CASE WHEN {odd} THEN 1 ELSE 0 END) FROM {rows} AS o GROUP BY p, g ORDER BY p, g"
)
_PAIRS = (
    "SELECT d.i, d.k, d.g, b.number, COUNT(*), SUM(d.x), SUM(d.x * d.x), "
    "SUM(LN(1 + b.slope * (d.x - b.centre))) FROM (SELECT one.p AS i, two.p AS k, one.g AS g, "
    "one.x - two.x AS x FROM {rows} AS one JOIN {rows} AS two "
    "ON one.u = two.u AND one.g = two.g AND one.p <> two.p) AS d "
    "JOIN {bets} AS b ON b.i = d.i AND b.k = d.k AND b.g = d.g GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
)
