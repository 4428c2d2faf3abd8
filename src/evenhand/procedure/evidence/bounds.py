"""Certified evidence about floors and caps, absolute ones and those relative to a control."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import RELATIVE
from evenhand.procedure.evidence import control_pair
from evenhand.procedure.evidence.by_family import cell_above, cell_below
from evenhand.procedure.log_space import added
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State

Array = NDArray[np.float64]


@kernel
def bounds_broken(
    spec: Spec, state: State, k: int, total: float, atoms: int, work: Array
) -> tuple[float, int]:
    """Add the e-values against {k meets this floor or cap} to `total`, in logs; and count them."""
    r = spec.region
    for g in range(spec.phi.shape[0]):
        low, high = r.lo[g, k], r.hi[g, k]
        if low > -math.inf:
            total, atoms = added(total, cell_below(spec, state, g, k, low)), atoms + 1
        if high < math.inf:
            total, atoms = added(total, cell_above(spec, state, g, k, high)), atoms + 1
    if r.kind == RELATIVE and k != r.control:
        total, atoms = control_pair.broken(spec, state, r, k, total, atoms, work)
    return total, atoms


@kernel
def bounds_kept(spec: Spec, state: State, i: int, work: Array) -> tuple[float, int]:
    """Return the least e-value against {i violates this floor or cap}, and which.

    g for a floor, L + g for a cap, 2 L + g and 3 L + g for those relative to the control.
    """
    r, groups = spec.kept, spec.phi.shape[0]
    least, which = math.inf, 0
    for g in range(groups):
        low, high = r.lo[g, i], r.hi[g, i]
        if low > -math.inf:
            value = cell_above(spec, state, g, i, low)
            if value < least:
                least, which = value, g
        if high < math.inf:
            value = cell_below(spec, state, g, i, high)
            if value < least:
                least, which = value, groups + g
    if r.kind == RELATIVE and i != r.control:
        least, which = control_pair.kept(spec, state, r, i, least, which, work)
    return least, which
