"""Evidence from Gaussian outcomes of known sd against a half-space {a.mu >= c} of means.

In whitened coordinates x = sign(a) (lam - mean) / sd, cell by cell, a null lam lies in the half-space when
v.x >= gap, with v = |a| sd and gap = c - a.mean. The e-process against lam is a mixture over shifts away from
the half-space, one for each block of cells: a half-normal of variance 1/N0 along the unit vector u with equal
entries, plus N(0, 1/N1) in every cell. N0, N1 and u are fixed before the data. With n samples of a cell

    rho = N1 n / (n + N1)     kappa = n^2 / (n + N1)     R = sum rho u^2     b = rho u / sqrt(N0 + R)
    ln M(x) = 1/2 sum kappa x^2 + psi(b.x) - D           psi(z) = z^2/2 + ln(2 Phi(z))
    D = 1/2 sum ln(1 + n/N1) + 1/2 ln(1 + R/N0)

is a martingale under lam for any choice of cells, and convex in x. Its infimum over the half-space is >=

    eta gap + sum over blocks of
      psi(z) - psi'(z) z - 1/2 (eta^2 alpha - 2 eta psi'(z) gamma + psi'(z)^2 beta) - D
    alpha = sum v^2/kappa     beta = sum b^2/kappa     gamma = sum b v/kappa

for any eta >= 0 and any z (a tangent to psi, then duality). Every value is a lower bound, so ending the
iteration early loses evidence but stays valid.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State

Array = NDArray[np.float64]

N0 = 4.0  # scale of the common shift of a block: about 1/sqrt(N0) standard deviations
N1 = 200.0  # scale of the separate shift of each cell: 1/sqrt(N1) standard deviations
ROUNDS = 20  # maximum for Newton's method; three are usual
CLOSE = 1e-4  # convergence in z: a step this small changes the bound by about its square
FAR_LEFT = -30.0  # below this the series of the normal tail is exact to the last digit
FAR_RIGHT = 9.0  # above this Phi(z) is 1 to the last digit
LOG_2 = math.log(2.0)
SQRT_HALF = math.sqrt(0.5)
PEAK = 1.0 / math.sqrt(2.0 * math.pi)


class Block(NamedTuple):
    """The quantities of one block of cells that the bound needs."""

    dot: float  # a.mean
    alpha: float
    beta: float
    gamma: float
    penalty: float  # D
    reach: float  # u / sqrt(N0 + R): b is this times rho
    blind: bool  # a cell with a weight has no samples: no evidence is possible


@kernel
def ahead(spec: Spec, state: State, i: int, k: int) -> float:
    """Return a lower bound on the ln e-value against {q.mu_k >= q.mu_i + indifference}."""
    leader = block(state.n[:, i], state.s[:, i], spec.phi[:, i], spec.shares)
    rival = block(state.n[:, k], state.s[:, k], spec.phi[:, k], spec.shares)
    return ahead_by_blocks(spec, leader, rival)


@kernel
def ahead_by_blocks(spec: Spec, leader: Block, rival: Block) -> float:
    """Return the bound of `ahead` from the blocks of both policies."""
    return bound(leader.dot - rival.dot + spec.indifference, leader, rival)


@kernel
def row(spec: Spec, state: State, k: int, a: Array, c: float) -> float:
    """Return a lower bound on the ln e-value against {a.mu_k >= c}."""
    cells = block(state.n[:, k], state.s[:, k], spec.phi[:, k], a)
    return bound(c - cells.dot, cells, Block(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, False))


@kernel
def cell(n: float, s: float, phi: float, c: float, sign: float) -> float:
    """Return the exact ln e-value of one cell against {mean <= c} (sign 1) or {mean >= c} (-1)."""
    if n == 0.0:
        return 0.0
    z = sign * (s - n * c) / math.sqrt(phi * (n + N0))
    return psi(z) - 0.5 * math.log1p(n / N0)


@kernel
def block(counts: Array, sums: Array, phi: Array, a: Array) -> Block:
    """Return a policy's cells that enter a.mu as one block."""
    used = 0
    for g in range(a.size):
        used += a[g] != 0.0
    square = 1.0 / max(used, 1)  # u^2
    dot, alpha, spare, mixed, seen, growth, logs = 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0
    blind = False
    for g in range(a.size):
        n = counts[g]
        if a[g] == 0.0:
            continue
        if n == 0.0:
            blind = True
            continue
        per_sample, per_both = 1.0 / n, 1.0 / (n + N1)
        v2 = a[g] * a[g] * phi[g]
        dot += a[g] * sums[g] * per_sample
        alpha += v2 * (n + N1) * per_sample * per_sample
        spare += per_both  # beta (N0 + R) / (u N1)^2
        mixed += math.sqrt(v2) * per_sample  # gamma sqrt(N0 + R) / (u N1)
        seen += n * per_both  # R / (u^2 N1)
        growth *= 1.0 + n * (1.0 / N1)
        if growth > 1e200:
            logs, growth = logs + math.log(growth), 1.0
    total = N0 + square * N1 * seen
    scale = square * N1 * N1 / total
    penalty = 0.5 * (logs + math.log(growth * (total / N0)))
    reach = math.sqrt(square / total)
    return Block(dot, alpha, scale * spare, reach * N1 * mixed, penalty, reach, blind)


@kernel
def bound(gap: float, one: Block, two: Block) -> float:
    """Return the value of the dual where the iteration ends."""
    if one.blind or two.blind:
        # a cell without samples can have any mean at no cost, so only eta = 0 is possible; z = 0 is valid
        return -2.0 * PEAK * PEAK * (one.beta + two.beta) - one.penalty - two.penalty
    eta, z1, z2, p1, p2, tail1, tail2 = _solve(gap, one, two)
    first = _psi(z1, tail1) - p1 * z1 - p1 * (0.5 * p1 * one.beta - eta * one.gamma) - one.penalty
    second = _psi(z2, tail2) - p2 * z2 - p2 * (0.5 * p2 * two.beta - eta * two.gamma) - two.penalty
    return eta * (gap - 0.5 * eta * (one.alpha + two.alpha)) + first + second


@kernel
def solve(gap: float, one: Block, two: Block) -> tuple[float, float, float, float, float]:
    """Return eta, z and psi'(z) for both blocks by Newton: z + beta psi'(z) = eta gamma."""
    eta, z1, z2, p1, p2, _, _ = _solve(gap, one, two)
    return eta, z1, z2, p1, p2


@kernel
def _solve(gap: float, one: Block, two: Block) -> tuple[float, float, float, float, float, float, float]:
    """Return what `solve` returns, and `tail(z)` for both blocks."""
    alpha = one.alpha + two.alpha
    c1, c2 = one.gamma / (1.0 + one.beta), two.gamma / (1.0 + two.beta)
    eta = max(gap, 0.0) / (alpha - one.gamma * c1 - two.gamma * c2)
    z1, z2 = eta * c1, eta * c2  # exact where Phi(z) is 1
    p1, p2, tail1, tail2 = 0.0, 0.0, 0.0, 0.0
    for turn in range(ROUNDS):
        tail1, tail2 = tail(z1), tail(z2)
        m1, m2 = _mills(z1, tail1), _mills(z2, tail2)
        p1, p2 = z1 + m1, z2 + m2
        eta = (gap + p1 * one.gamma + p2 * two.gamma) / alpha
        pull = 1.0 / alpha if eta > 0.0 else 0.0
        eta = max(eta, 0.0)
        c1, c2 = 1.0 - m1 * p1, 1.0 - m2 * p2  # psi''
        r1, r2 = z1 + one.beta * p1 - eta * one.gamma, z2 + two.beta * p2 - eta * two.gamma
        j11 = 1.0 + c1 * (one.beta - pull * one.gamma * one.gamma)
        j22 = 1.0 + c2 * (two.beta - pull * two.gamma * two.gamma)
        cross = pull * one.gamma * two.gamma
        over = 1.0 / (j11 * j22 - cross * cross * c1 * c2)
        s1, s2 = (j22 * r1 + cross * c2 * r2) * over, (j11 * r2 + cross * c1 * r1) * over
        if s1 * s1 + s2 * s2 < CLOSE * CLOSE or turn == ROUNDS - 1:
            break
        z1, z2 = max(z1 - s1, FAR_LEFT), max(z2 - s2, FAR_LEFT)
    return eta, z1, z2, p1, p2, tail1, tail2


@kernel
def tail(z: float) -> float:
    """Return 2 Phi(z); 2 where Phi(z) is 1 to the last digit."""
    return 2.0 if z > FAR_RIGHT else math.erfc(-SQRT_HALF * z)


@kernel
def psi(z: float) -> float:
    """Return z^2/2 + ln(2 Phi(z)): the log of the mean of exp(z |xi|), xi standard normal."""
    return _psi(z, tail(z) if z > FAR_LEFT else 0.0)


@kernel
def _psi(z: float, tail: float) -> float:
    """Return psi(z) from tail(z), which is not used for very negative z."""
    if z > FAR_RIGHT:
        return 0.5 * z * z + LOG_2
    if z > FAR_LEFT:
        return 0.5 * z * z + math.log(tail)
    return math.log(2.0 * PEAK / -z) + math.log1p(_left_series(z))


@kernel
def mills(z: float) -> float:
    """Return phi(z) / Phi(z), so that psi'(z) = z + mills(z)."""
    return _mills(z, tail(z))


@kernel
def _mills(z: float, tail: float) -> float:
    if z > FAR_RIGHT:
        return 0.0
    return 2.0 * PEAK * math.exp(-0.5 * z * z) / tail


@kernel
def _left_series(z: float) -> float:
    """Return Phi(z) |z| / phi(z) - 1 for very negative z."""
    y = 1.0 / (z * z)
    return -y * (1.0 - 3.0 * y * (1.0 - 5.0 * y * (1.0 - 7.0 * y)))
