"""The certified rule's e-processes for outcomes 0 and 1, written slowly and literally in plain NumPy.

From the formulas alone (tilt mixtures, their minimum over a half-space, the sum form); no line is shared
with the package. The package certifies a lower bound of the minimum; here the minimum itself is found by a
general-purpose solver.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

Array = NDArray[np.float64]

XI = 0.02 * 1.8 ** np.arange(8)
MULTIPLIERS, WEIGHTS = np.array([0.0, 1.0, 2.0]), np.array([0.25, 0.5, 0.25])


def cell(n: float, s: float, c: float, sign: float) -> float:
    """ln of: sum over g of 1/8 exp(sign xi_g S - N ln(1 - C + C e^(sign xi_g)))."""
    tau = sign * XI
    return float(logsumexp(tau * s - n * np.log(1 - c + c * np.exp(tau))) - np.log(8))


def block(n: Array, s: Array, lam: Array, sign: float) -> tuple[float, Array]:
    """ln M_p(lam), sum over g, product over groups, sum over multipliers; and its gradient."""
    tau = sign * XI[:, None, None] * MULTIPLIERS[None, None, :]  # (g, 1, j)
    inside = 1 + lam[None, :, None] * np.expm1(tau)
    exponents = tau * s[None, :, None] - n[None, :, None] * np.log(inside) + np.log(WEIGHTS)
    groups = logsumexp(exponents, axis=2)  # (g, group)
    mixture = groups.sum(axis=1)
    value = logsumexp(mixture)
    slopes = -n[None, :, None] * np.expm1(tau) / inside
    per_group = (np.exp(exponents - groups[:, :, None]) * slopes).sum(axis=2)
    return float(value - np.log(8)), np.exp(mixture - value) @ per_group


def ahead(n_i: Array, s_i: Array, n_k: Array, s_k: Array, q: Array) -> float:
    """min of ln M_i(lam_i) + ln M_k(lam_k) over q.lam_k >= q.lam_i, both in the unit cube.

    Found by SLSQP in standard errors from the estimates, then by Newton's method along the boundary.
    """
    groups, a = len(q), np.concatenate([-q, q])
    centre = np.concatenate([s_i / n_i, s_k / n_k])
    scale = np.sqrt((centre * (1 - centre) + 0.01) / np.concatenate([n_i, n_k]))

    def value(z: Array) -> tuple[float, Array]:
        lam = centre + scale * z
        (up, up_slope), (down, down_slope) = (
            block(n_i, s_i, lam[:groups], 1.0),
            block(n_k, s_k, lam[groups:], -1.0),
        )
        return up + down, np.concatenate([up_slope, down_slope]) * scale

    half_space = {"type": "ineq", "fun": lambda z: a @ (centre + scale * z), "jac": lambda _: a * scale}
    bounds = list(zip(-centre / scale, (1 - centre) / scale, strict=True))
    z = minimize(value, np.zeros(2 * groups), jac=True, method="SLSQP", bounds=bounds,
                 constraints=[half_space],
                 options={"ftol": 1e-15, "maxiter": 500}).x  # fmt: skip
    along = np.linalg.svd((a * scale)[None, :])[2][1:].T  # the minimum lies on the half-space's boundary
    assert abs(a @ (centre + scale * z)) < 1e-8
    for _ in range(10):  # the last digits, by Newton's method
        slope = along.T @ value(z)[1]
        bends = [(value(z + 1e-4 * d)[1] - value(z - 1e-4 * d)[1]) / 2e-4 for d in along.T]
        step = np.linalg.solve(np.array(bends) @ along, slope)
        z = z - along @ step
    assert slope @ step < 1e-11, "the reference's own minimum is not sharp enough"
    return value(z)[0]


def verdict(n: Array, s: Array, floor: float, q: Array, delta: float) -> dict[str, object]:
    """The whole rule on counts K x L: every cell's two e-values, and the weakest piece for the leader."""
    policies, groups = n.shape
    plus = np.array([[cell(n[k, g], s[k, g], floor, 1.0) for g in range(groups)] for k in range(policies)])
    minus = np.array([[cell(n[k, g], s[k, g], floor, -1.0) for g in range(groups)] for k in range(policies)])
    fails = logsumexp(minus, axis=1) - np.log(groups)  # E2_k = (1/L) sum_l E-_kl
    means = s / n
    able = [k for k in range(policies) if (means[k] >= floor).all()]
    leader = max(able, key=lambda k: float(means[k] @ q)) if able else None
    pieces = {}
    for k in range(policies):
        if leader is None:
            pieces[k] = fails[k]
        elif k != leader:
            pieces[k] = np.logaddexp(ahead(n[leader], s[leader], n[k], s[k], q), fails[k])
    if leader is not None:
        pieces["floors"] = plus[leader].min()
    return {
        "leader": leader, "plus": plus, "minus": minus, "fails": fails, "pieces": pieces,
        "evidence": min(pieces.values()), "needed": np.log(policies / delta),
    }  # fmt: skip
