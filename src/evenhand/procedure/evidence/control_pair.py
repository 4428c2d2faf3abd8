"""Evidence about a policy and the control in one group, against {s (mu_k - r mu_0) >= c}.

The null is a half-space of two cells, that of policy k and that of the control 0, with the coefficients s and
-s r. The bets are those of `gaussian`, with a block for each cell, and of `tilts`, with both cells in one
block. A block of one cell has no differences between its cells, so its N1 is large; if variances are unknown
it has its usual value, which also covers a wrong variance. All of this is fixed before the data.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import Region
from evenhand.model.unit_families import GAUSSIAN
from evenhand.procedure.evidence import gaussian, gaussian_unknown, tilts
from evenhand.procedure.evidence.gaussian import N0, Block
from evenhand.procedure.evidence.thresholds import atom_ceiling
from evenhand.procedure.log_space import NOTHING, added, known
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State

Array = NDArray[np.float64]

PAIR_N1 = 2000.0
UNKNOWN_N1 = 200.0


@kernel
def broken(
    spec: Spec, state: State, r: Region, k: int, total: float, atoms: int, work: Array
) -> tuple[float, int]:
    """Return ln of the sum of e-values against {k meets this relative bound}, and their number."""
    for g in range(spec.phi.shape[0]):
        if r.floor_margin[g] < math.inf:
            value = _unless_kept(
                spec, state, r.control, g, k, 1.0, r.floor_ratio[g], -r.floor_margin[g], work
            )
            total, atoms = added(total, value), atoms + 1
        if r.cap_margin[g] < math.inf:
            value = _unless_kept(spec, state, r.control, g, k, -1.0, r.cap_ratio[g], -r.cap_margin[g], work)
            total, atoms = added(total, value), atoms + 1
    return total, atoms


@kernel
def kept(
    spec: Spec, state: State, r: Region, i: int, least: float, which: int, work: Array
) -> tuple[float, int]:
    """Return the least of `least` and the e-values against {i misses this relative bound}, and which.

    2 L + g for the floor in group g, 3 L + g for its cap.
    """
    groups = spec.phi.shape[0]
    for g in range(groups):
        if r.floor_margin[g] < math.inf:
            value = against(spec, state, r.control, g, i, -1.0, r.floor_ratio[g], r.floor_margin[g], work)
            if value < least:
                least, which = value, 2 * groups + g
        if r.cap_margin[g] < math.inf:
            value = against(spec, state, r.control, g, i, 1.0, r.cap_ratio[g], r.cap_margin[g], work)
            if value < least:
                least, which = value, 3 * groups + g
    return least, which


@kernel
def against(
    spec: Spec, state: State, control: int, g: int, k: int, sign: float, ratio: float, c: float, work: Array
) -> float:
    """Return a lower bound on the ln e-value against {sign (mu_k - ratio mu_control) >= c} in group g."""
    if spec.unknown_variance:
        return known(_unknown(spec, state, control, g, k, sign, ratio, c))
    if spec.code == GAUSSIAN:
        one = _block(state.n[g, k], state.s[g, k], spec.phi[g, k], sign, PAIR_N1)
        two = _block(state.n[g, control], state.s[g, control], spec.phi[g, control], -sign * ratio, PAIR_N1)
        return known(gaussian.bound(c - one.dot - two.dot, one, two))
    if state.n[g, k] == 0.0 or state.n[g, control] == 0.0:
        return NOTHING
    return tilts.pair(spec, state, g, k, sign, control, -sign * ratio, c, work)


@kernel
def _unless_kept(
    spec: Spec, state: State, control: int, g: int, k: int, sign: float, ratio: float, c: float, work: Array
) -> float:
    """Return the same as `against`; NOTHING, without computing it, if the estimates are in the null."""
    n, n_0 = state.n[g, k], state.n[g, control]
    if n == 0.0 or n_0 == 0.0 or sign * (state.s[g, k] / n - ratio * state.s[g, control] / n_0) >= c:
        return NOTHING
    return against(spec, state, control, g, k, sign, ratio, c, work)


@kernel
def _block(n: float, s: float, phi: float, a: float, n1: float) -> Block:
    """Return one cell as a block (see `gaussian`), with u = 1 and N1 = n1."""
    if n == 0.0:
        return Block(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, True)
    total = N0 + n1 * n / (n + n1)
    v, reach = abs(a) * math.sqrt(phi), 1.0 / math.sqrt(total)
    alpha = v * v * (n + n1) / (n * n)
    beta = n1 * n1 / ((n + n1) * total)
    penalty = 0.5 * (math.log1p(n / n1) + math.log(total / N0))
    return Block(a * s / n, alpha, beta, v * n1 * reach / n, penalty, reach, False)


@kernel
def _unknown(
    spec: Spec, state: State, control: int, g: int, k: int, sign: float, ratio: float, c: float
) -> float:
    """Return the bound for unknown variances: the least over the plausible ones."""
    ceiling = atom_ceiling(spec)
    low, high = gaussian_unknown.plausible(state, g, k, 2, ceiling)
    low_0, high_0 = gaussian_unknown.plausible(state, g, control, 2, ceiling)
    if high == math.inf or high_0 == math.inf:
        return NOTHING
    one = _block(state.n[g, k], state.s[g, k], high, sign, UNKNOWN_N1)
    two = _block(state.n[g, control], state.s[g, control], high_0, -sign * ratio, UNKNOWN_N1)
    gap = c - one.dot - two.dot
    eta, z, z_0, p, p_0 = gaussian.solve(gap, one, two)
    first = _worst(state.n[g, k], 1.0, low, high, one, eta, z, p)
    second = _worst(state.n[g, control], ratio, low_0, high_0, two, eta, z_0, p_0)
    return min(gaussian_unknown.LOG_ON_MEANS + eta * gap + first + second, ceiling)


@kernel
def _worst(
    n: float, size: float, low: float, high: float, cell: Block, eta: float, z: float, slope: float
) -> float:
    """Return a cell's part of the dual at its worst plausible variance (see `gaussian_unknown`)."""
    pulled = slope * cell.reach * UNKNOWN_N1 * n / (n + UNKNOWN_N1)
    up = max(eta * size * math.sqrt(high) - pulled, 0.0)
    down = max(pulled - eta * size * math.sqrt(low), 0.0)
    farthest = max(up, down)
    return gaussian.psi(z) - slope * z - 0.5 * farthest * farthest * (n + UNKNOWN_N1) / (n * n) - cell.penalty
