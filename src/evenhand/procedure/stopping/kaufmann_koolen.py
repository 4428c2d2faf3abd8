"""`kaufmann-koolen`: thresholds for the likelihood ratio of a piece from its own cells (Kaufmann and Koolen 2021)."""

from __future__ import annotations

import math

from evenhand._kernel import kernel
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, State


@kernel
def piece_threshold(spec: Spec, state: State, k: int, other: int) -> float:
    """What the likelihood ratio of a piece that touches policy k (and `other`, unless NONE) must reach."""
    groups, policies = spec.phi.shape
    cells, patience = 0, 0.0
    for g in range(groups):
        patience += 3.0 * math.log1p(math.log(max(state.n[g, k], 1.0)))
        cells += 1
        if other != NONE:
            patience += 3.0 * math.log1p(math.log(max(state.n[g, other], 1.0)))
            cells += 1
    return patience + cells * c_exp(math.log(policies / spec.delta) / cells)


@kernel
def c_exp(x: float) -> float:
    """Their C_exp, bounded above by x + 4 ln(1 + x + sqrt(2 x)) from x = 5 on."""
    return x + 4.0 * math.log(1.0 + x + math.sqrt(2.0 * x)) + 8.0
