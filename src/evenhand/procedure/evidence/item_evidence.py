"""Evidence of one policy's lead over another, from the items that both answered and those of one only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.evidence.item_bets import read_block
from evenhand.procedure.evidence.linear_bets import ONLY_I, ONLY_K, SINGLE, SPREAD, Block
from evenhand.procedure.evidence.linear_evidence import views
from evenhand.procedure.evidence.linear_minimum import Null, least
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State

Array = NDArray[np.float64]


@kernel
def ahead(spec: Spec, state: State, i: int, k: int, enough: float, work: Array) -> float:
    """Return a lower bound on the ln e-value against {q.mu_k >= q.mu_i + indifference}.

    Above `enough` the bound need not be tight.
    """
    block, null, rest = views(spec, work)
    read_block(state.bets, spec.bounded, i, k, block)
    return least_over(block, null, enough, rest)


@kernel
def least_over(block: Block, null: Null, enough: float, work: Array) -> float:
    """Write the ranges of the means, given what was answered, to `null`; return a bound on ln M over it."""
    groups, singles = block.q.size, False
    for g in range(groups):
        alone = block.n[ONLY_I * groups + g] + block.n[ONLY_K * groups + g] > 0.0
        singles = singles or alone
        # the means of both where a policy answered alone; else their difference, beside 0
        null.low[g], null.high[g] = 0.0 if alone else -1.0, 1.0
        null.low[groups + g], null.high[groups + g] = 0.0, 1.0 if alone else 0.0
    if groups == 1 and not singles:
        return least(block, null, SINGLE, enough, work)
    return least(block, null, SPREAD, enough, work)
