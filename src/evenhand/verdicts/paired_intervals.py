"""`PairedIntervals`: paired evidence from units that every policy served, summed where the data are.

    paired = PairedIntervals(problem)
    paired.add(1, run, "scores", where="day = 1")     # run: SQL to rows
    paired.verdict()

A paired bet needs the difference of two outcomes of one unit, a self-join. Its tilts are fixed when an
interval starts, from the intervals before it, so the sum of ln(1 + tau y) over the interval is an aggregate
that does not depend on the order of the units. `procedure.evidence.interval_pairs` has the formulas. The same
evidence with a log is an experiment with `items = "shared"` and `interval`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from evenhand.errors import BadInput, Conflict, shown
from evenhand.live.interval_pairs import PairBet, not_served, pairs_sql
from evenhand.model.argument_checks import optional
from evenhand.model.phrases import quantity
from evenhand.model.problem import Problem
from evenhand.model.study_like import problem_of
from evenhand.procedure.compile_spec import compile_spec, with_mixture
from evenhand.procedure.evidence import linear_minimum
from evenhand.procedure.evidence.interval_pairs import (
    Pair,
    PairBets,
    PairSums,
    Place,
    add_pairs,
    bets_on_pairs,
)
from evenhand.procedure.evidence.linear_bets import MATCHED, SINGLE, SPREAD, Block, new_block
from evenhand.procedure.evidence.linear_minimum import Null
from evenhand.procedure.item_settings import MOST_IN_INTERVALS
from evenhand.procedure.spec import Procedure, Spec
from evenhand.procedure.state import State, new_state, ready
from evenhand.study import Study
from evenhand.verdicts.items import Items
from evenhand.verdicts.judge import Verdict, judge_pairs
from evenhand.verdicts.shared_items import Comparisons, refuse_what_cannot_be_paired
from evenhand.verdicts.warehouse import DISCRETE

Run = Callable[[str], Iterable[Sequence[Any]]]
Cell = tuple[int, int]  # group and policy

NOBODY = Items(np.zeros(0, dtype=np.int64), (), 0)  # no single units are kept
ROUNDING = 1e-6  # of sums that a database adds up, in outcomes


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
    >>> paired
    <PairedIntervals of 'a', 'b': 0 intervals added>
    >>> paired.closed, paired.verdict().decided
    (0, False)
    """

    def __init__(self, problem: Problem | Study, procedure: Procedure | None = None) -> None:
        given = optional(procedure, Procedure, "procedure")
        chosen = given or (problem.procedure if isinstance(problem, Study) else Procedure())
        self.problem = problem_of(problem)
        if len(self.problem.policies) > MOST_IN_INTERVALS:
            raise BadInput(
                f"paired intervals take at most {MOST_IN_INTERVALS} policies; "
                f"{len(self.problem.policies)} are given."
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

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.problem.policies))
        return f"<PairedIntervals of {names}: {quantity(self.closed, 'interval')} added>"

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
        bets = self.bets()
        cells = self._cells(run(_CELLS.format(rows=rows, odd=self._odd_sql())))
        pairs = self._pairs(run(pairs_sql(rows, self._listed(bets))))
        self._check_complete(cells, pairs)
        for cell, (n, s) in cells.items():
            self._state.n[cell] += n
            self._state.s[cell] += s
        self.add_sums(bets, pairs)
        self.closed += 1
        return int(sum(n for (_, k), (n, _) in cells.items() if k == 0))

    def bets(self) -> dict[Place, PairBets]:
        """Return the bets of the next interval, by pair and group, in unit scale."""
        return bets_on_pairs(self._blocks)

    def add_sums(self, bets: dict[Place, PairBets], pairs: dict[Place, PairSums]) -> None:
        """Add the sums of an interval to the bets on all pairs, in both directions."""
        add_pairs(self._blocks, bets, pairs)

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

    def _listed(self, bets: dict[Place, PairBets]) -> list[PairBet]:
        """Return the bets with the names of policies and groups."""
        policies, groups = self.problem.policies, self.problem.group_names
        return [
            PairBet(policies[i], policies[k], groups[g], number, slope, found.centre)
            for ((i, k), g), found in bets.items()
            for number, slope in enumerate(found.slope.tolist())
        ]

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

    def _pairs(self, rows: Iterable[Sequence[Any]]) -> dict[Place, PairSums]:
        found: dict[Place, PairSums] = {}
        for first, second, group, number, n, s, squares, log in rows:
            i, k = self.problem.policy_index(str(first)), self.problem.policy_index(str(second))
            key = (i, k), self.problem.group_index(str(group))
            sums = found.setdefault(
                key, PairSums(float(n), float(s), float(squares), np.full(2 * MATCHED.size, math.nan))
            )
            sums.logs[int(number)] = float(log)
        return found

    def _check_complete(self, cells: dict[Cell, tuple[float, float]], pairs: dict[Place, PairSums]) -> None:
        """Refuse units that some policy did not serve: who serves a unit must not depend on outcomes."""
        names = self.problem.policies
        for g, group in enumerate(self.problem.group_names):
            sizes = [cells.get((g, k), (0.0, 0.0))[0] for k in range(len(names))]
            for i, k in ((i, k) for i, k in self._blocks if i < k):
                both = pairs[(i, k), g].n if ((i, k), g) in pairs else 0.0
                if not sizes[i] == sizes[k] == both:
                    raise Conflict(not_served(group, names[i], names[k], sizes[i], sizes[k], both))
        for ((i, k), g), sums in pairs.items():
            apart = cells[g, i][1] - cells[g, k][1]
            if not np.isfinite(sums.logs).all() or abs(sums.s - apart) > ROUNDING * (1.0 + sums.n):
                raise BadInput(
                    "the sums of the pairs do not belong to the outcomes; do not change the queries."
                )


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
