"""Evidence by outcome family: single cells, linear conditions, and floors and caps."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import RELATIVE
from evenhand.model.unit_families import EXPONENTIAL, GAUSSIAN, divergence, edge_high, edge_low
from evenhand.procedure.evidence import (
    control_pair,
    gaussian,
    gaussian_unknown,
    item_evidence,
    likelihood_mixture,
    linear_evidence,
    tilts,
)
from evenhand.procedure.evidence.thresholds import atom_ceiling, threshold
from evenhand.procedure.evidence.tilts import MIXTURE_COST, combined
from evenhand.procedure.log_space import NOTHING, added, known
from evenhand.procedure.spec import FIRST_EVIDENCE, Spec
from evenhand.procedure.state import State

__all__ = ["ahead", "atom_ceiling", "cell_above", "cell_below", "row", "threshold"]

Array = NDArray[np.float64]


@kernel
def cell_above(spec: Spec, state: State, g: int, k: int, c: float) -> float:
    """Return the ln e-value of one cell against {mean <= c}."""
    if c >= edge_high(spec.code):
        return NOTHING
    if c < edge_low(spec.code) or (spec.code == EXPONENTIAL and c <= 0.0):
        return math.inf
    return known(_cell(spec, state, g, k, c, 1.0))


@kernel
def cell_below(spec: Spec, state: State, g: int, k: int, c: float) -> float:
    """Return the ln e-value of one cell against {mean >= c}."""
    if c <= edge_low(spec.code):
        return NOTHING
    return math.inf if c > edge_high(spec.code) else known(_cell(spec, state, g, k, c, -1.0))


@kernel
def _cell(spec: Spec, state: State, g: int, k: int, c: float, sign: float) -> float:
    if spec.unknown_variance:
        return gaussian_unknown.cell(state, g, k, c, sign, atom_ceiling(spec))
    n, s, phi = state.n[g, k], state.s[g, k], spec.phi[g, k]
    if spec.code == GAUSSIAN:
        return gaussian.cell(n, s, phi, c, sign)
    ceiling = atom_ceiling(spec)
    if spec.bounded:
        found = linear_evidence.bounded_cell(state, g, k, c, sign)
    else:
        found = tilts.cell(spec.code, n / phi, s / phi, c, sign)
    if spec.evidence == FIRST_EVIDENCE or (spec.shared_items and spec.bounded):
        return found
    most = n / phi * divergence(spec.code, s / n, c) if n > 0.0 else 0.0
    if found >= ceiling or most - MIXTURE_COST <= max(found, 0.0):
        return found
    return combined(found, likelihood_mixture.cell(spec, state, g, k, c, sign), ceiling)


@kernel
def row(spec: Spec, state: State, k: int, a: Array, c: float, work: Array) -> float:
    """Return a lower bound on the ln e-value against {a.mu_k >= c}; exact for one cell."""
    used, only = 0, 0
    for g in range(a.size):
        if a[g] != 0.0:
            used, only = used + 1, g
    if used == 1:
        if a[only] > 0.0:
            return cell_below(spec, state, only, k, c / a[only])
        return cell_above(spec, state, only, k, c / a[only])
    if spec.unknown_variance:
        return known(gaussian_unknown.row(state, k, a, c, atom_ceiling(spec), work))
    if spec.code == GAUSSIAN:
        return known(gaussian.row(spec, state, k, a, c))
    if spec.code == EXPONENTIAL:
        return likelihood_mixture.row(spec, state, k, a, c, work)
    return tilts.row(spec, state, k, a, c, work)


@kernel
def ahead(spec: Spec, state: State, i: int, k: int, enough: float, work: Array) -> float:
    """Return a lower bound on the ln e-value against {q.mu_k >= q.mu_i + indifference}.

    Above `enough` the bound need not be tight.
    """
    if spec.shared_items:
        return known(item_evidence.ahead(spec, state, i, k, enough, work))
    if spec.unknown_variance:
        return known(gaussian_unknown.ahead(spec, state, i, k, threshold(spec), work))
    if spec.code == GAUSSIAN:
        if spec.linear_bets:
            return known(linear_evidence.gaussian_ahead(spec, state, i, k, enough, work))
        return known(gaussian.ahead(spec, state, i, k))
    if spec.code == EXPONENTIAL:
        return likelihood_mixture.ahead(spec, state, i, k, work)
    if spec.linear_bets:
        return known(linear_evidence.ahead(spec, state, i, k, enough, work))
    return tilts.ahead(spec, state, i, k, enough, work)


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
