"""Detect cells whose outcomes are sorted by size; some evidence depends on their order.

Exponential, gamma and unknown-variance evidence takes a cell's scale from its first outcomes, and linear bets
use estimates from earlier outcomes. Rows sorted by outcome begin with the most extreme ones, and the evidence
computed from them is invalid.

Independent outcomes of one distribution come in every order equally often. So, with n outcomes of a cell,

    they never fall           with probability  product over values of (how often it occurs)! / n!
    k of m pairs rise         with probability  at most exp(-m (ln 2 - h(k/m))) for k >= m/2   (Chernoff)

where pairs are disjoint neighbours that differ, and h is the entropy. The same holds for rising and falling
exchanged. The first finds small cells that are sorted, the second large ones that are nearly so.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes, kernel
from evenhand.errors import BadInput
from evenhand.model.problem import Problem
from evenhand.model.region import PerCell
from evenhand.procedure.compile_spec import evidence_of
from evenhand.procedure.spec import BY_EVIDENCE, LINEAR_BETS, Procedure

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

FAMILIES = ("gaussian-unknown", "exponential", "gamma")
ORDER_FREE, IN_ORDER_RULE = "order-free rule", "rule that uses the order of the outcomes"
LINEAR = "linear bets, which use the order of the outcomes"
PAIRED = "paired linear bets on shared items"
INTERVAL_BETS = "linear bets of a size that is fixed before an interval is counted"
FALSE_ALARM = 1e-9  # probability that any cell of data in their true order is called sorted
TESTS = 6  # per cell: never falls, never rises, and pairs of either parity that rise or fall
# rows of Order.counts: outcomes; steps up and down; and both among pairs, by parity
OUTCOMES, UP, DOWN, RISES, FALLS = 0, 1, 2, 3, 5


class Order(NamedTuple):
    """Statistics of the order of the outcomes in each cell, (L, K)."""

    last: PerCell  # the latest outcome
    run: Annotated[Ints, Axes("L", "K")]  # number of consecutive outcomes equal to it
    ties: PerCell  # sum of ln(length!) over the runs of equal outcomes before this one
    counts: Annotated[Ints, Axes(7, "L", "K")]  # OUTCOMES, UP, DOWN, RISES (2), FALLS (2)


def depends_on_order(problem: Problem, procedure: Procedure) -> bool:
    """Return whether this procedure's evidence depends on the order of outcomes in a cell."""
    in_order = evidence_of(problem, procedure) == LINEAR_BETS and procedure.interval is None
    ordered = problem.family.name in FAMILIES or in_order
    return ordered and procedure.stopping_name in BY_EVIDENCE


def evidence_method(problem: Problem, procedure: Procedure) -> str:
    """Return the name of the evidence that a procedure uses, for verdicts."""
    if procedure.items is not None:
        return PAIRED
    if evidence_of(problem, procedure) == LINEAR_BETS:
        return LINEAR if procedure.interval is None else INTERVAL_BETS
    return IN_ORDER_RULE if depends_on_order(problem, procedure) else ORDER_FREE


def new_order(shape: tuple[int, int]) -> Order:
    """Return an `Order` without outcomes for L x K cells."""
    return Order(
        np.zeros(shape),
        np.zeros(shape, dtype=np.int64),
        np.zeros(shape),
        np.zeros((7, *shape), dtype=np.int64),
    )


@kernel
def note_order(order: Order, policies: Ints, groups: Ints, outcomes: Array) -> None:
    """Update the statistics with outcomes, in the given order."""
    for i in range(outcomes.shape[0]):
        k, g, x = policies[i], groups[i], outcomes[i]
        n = order.counts[OUTCOMES, g, k]
        order.counts[OUTCOMES, g, k] += 1
        before = order.last[g, k]
        order.last[g, k] = x
        if n == 0 or x == before:
            order.run[g, k] += 1
            continue
        order.ties[g, k] += math.lgamma(order.run[g, k] + 1.0)
        order.run[g, k] = 1
        up = 1 if x > before else 0
        order.counts[UP, g, k] += up
        order.counts[DOWN, g, k] += 1 - up
        order.counts[(RISES if up == 1 else FALLS) + n % 2, g, k] += 1


IN_ORDER = "give the rows in the order in which they were observed"


def refuse_sorted(
    problem: Problem, order: Order, evidence_of: str | None = None, advice: str = IN_ORDER
) -> None:
    """Refuse data in which the outcomes of some cell are sorted by size, or nearly so."""
    evidence_of = evidence_of or f"{problem.family.name} outcomes"
    level = math.log(FALSE_ALARM / (TESTS * order.last.size))
    for k, policy in enumerate(problem.policies):
        for g, group in enumerate(problem.group_names):
            if log_chance(order, g, k) <= level:
                raise BadInput(
                    f"the outcomes of {policy!r} in {group!r} come sorted by size, or nearly so, and the "
                    f"evidence of {evidence_of} depends on their order; {advice}."
                )


def log_chance(order: Order, g: int, k: int) -> float:
    """Return the log of the probability, or a bound on it, of the least likely order statistic."""
    n, up, down, *pairs = order.counts[:, g, k].tolist()
    found = 0.0
    if n > 0 and min(up, down) == 0:
        found = float(order.ties[g, k]) + math.lgamma(order.run[g, k] + 1.0) - math.lgamma(n + 1.0)
    for rises, falls in zip(pairs[:2], pairs[2:], strict=True):
        found = min(found, _chernoff(max(rises, falls), rises + falls))
    return found


def _chernoff(k: int, m: int) -> float:
    """Return the log of Chernoff's bound on P(k or more heads in m tosses), k >= m/2."""
    if m == 0:
        return 0.0
    share = k / m
    entropy = -share * math.log(share) - ((1.0 - share) * math.log(1.0 - share) if k < m else 0.0)
    return -m * (math.log(2.0) - entropy)
