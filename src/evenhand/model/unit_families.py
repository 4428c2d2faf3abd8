"""The four unit families as kernels; every family is one of these, scaled and weighted.

A family in mean parametrisation has a divergence d(mu, lam) with d/dlam d = (lam - mu) / V(lam), V its
variance function. Binomial and bounded outcomes are Bernoulli after rescaling to [0, 1]; a Gaussian with sd s
is the unit Gaussian with every sample counting 1/s^2; gamma with shape a is the exponential with every sample
counting a. So a *dispersion* phi per cell (one sample is worth 1/phi unit samples) and one shift and width
per family are all that the kernels need. The exponential's divergence is not convex beyond lam = 2 mu.

    code        V(lam)        d(mu, lam)                                        domain of the mean
    GAUSSIAN    1             (mu - lam)^2 / 2                                  the line
    BERNOULLI   lam (1-lam)   mu ln(mu/lam) + (1-mu) ln((1-mu)/(1-lam))         [0, 1]
    POISSON     lam           mu ln(mu/lam) - mu + lam                          [0, inf)
    EXPONENTIAL lam^2         mu/lam - 1 - ln(mu/lam)                           (0, inf)
"""

from __future__ import annotations

import math

from evenhand.compile import kernel

GAUSSIAN, BERNOULLI, POISSON, EXPONENTIAL = 0, 1, 2, 3


@kernel
def edge_low(code: int) -> float:
    """Return the lower end of the domain of the mean."""
    return -math.inf if code == GAUSSIAN else 0.0


@kernel
def edge_high(code: int) -> float:
    """Return the upper end of the domain of the mean."""
    return 1.0 if code == BERNOULLI else math.inf


@kernel
def _relative(mu: float, lam: float) -> float:
    """Return mu ln(mu/lam) - mu + lam, without cancellation when lam is near mu; 0 ln 0 = 0."""
    if mu == 0.0:
        return lam
    if lam == 0.0:
        return math.inf
    x = (lam - mu) / mu
    if abs(x) < 0.02:
        # mu (x - ln(1+x)) = mu x^2 (1/2 - x/3 + x^2/4 - ...): the difference would lose half the digits
        total, power = 0.0, x * x
        for n in range(2, 12):
            total += power / n if n % 2 == 0 else -power / n
            power *= x
        return mu * total
    # for lam far below mu, 1 + x loses the digits of lam: take the logarithm of the ratio itself
    return mu * (x - (math.log(lam / mu) if x < -0.5 else math.log1p(x)))


@kernel
def divergence(code: int, mu: float, lam: float) -> float:
    """Return d(mu, lam), the information of one unit sample from mean mu against mean lam."""
    if code == GAUSSIAN:
        return 0.5 * (mu - lam) * (mu - lam)
    if code == BERNOULLI:
        return _relative(mu, lam) + _relative(1.0 - mu, 1.0 - lam)
    if code == POISSON:
        return _relative(mu, lam)
    if lam == 0.0:
        return math.inf
    if mu == 0.0:
        return math.inf
    return _relative(lam, mu) / lam  # mu/lam - 1 - ln(mu/lam) = (mu - lam + lam ln(lam/mu)) / lam


@kernel
def variance(code: int, lam: float) -> float:
    """Return V(lam), the variance function."""
    if code == GAUSSIAN:
        return 1.0
    if code == BERNOULLI:
        return lam * (1.0 - lam)
    if code == POISSON:
        return lam
    return lam * lam


@kernel
def slope(code: int, mu: float, lam: float) -> float:
    """Return d/dlam d(mu, lam) = (lam - mu) / V(lam), with limits at the ends of the domain."""
    if code == GAUSSIAN:
        return lam - mu
    if code == BERNOULLI:
        if mu == 0.0:
            return 1.0 / (1.0 - lam)
        if mu == 1.0:
            return -1.0 / lam
    if code == POISSON and mu == 0.0:
        return 1.0
    return (lam - mu) / variance(code, lam)


@kernel
def curvature(code: int, mu: float, lam: float) -> float:
    """Return d^2/dlam^2 d(mu, lam)."""
    if code == GAUSSIAN:
        return 1.0
    if code == BERNOULLI:
        below = mu / (lam * lam) if mu > 0.0 else 0.0
        above = (1.0 - mu) / ((1.0 - lam) * (1.0 - lam)) if mu < 1.0 else 0.0
        return below + above
    if code == POISSON:
        return mu / (lam * lam) if mu > 0.0 else 0.0
    return (2.0 * mu - lam) / (lam * lam * lam)


@kernel
def up(code: int, mu: float, s: float) -> float:
    """Return U(mu, s), the lam above mu with (lam - mu) / V(lam) = s, for s >= 0.

    Poisson has a pole at s = 1 and the exponential no solution beyond s = 1/(4 mu): both return infinity
    there.
    """
    if code == GAUSSIAN:
        return mu + s
    if code == BERNOULLI:
        root = math.sqrt((1.0 - s) * (1.0 - s) + 4.0 * s * mu)
        # the two forms are equal; each is the one without cancellation on its side
        return 2.0 * mu / ((1.0 - s) + root) if s < 1.0 else ((s - 1.0) + root) / (2.0 * s)
    if code == POISSON:
        if s >= 1.0:
            return math.inf
        return mu / (1.0 - s)
    inside = 1.0 - 4.0 * s * mu
    if inside < 0.0:
        return math.inf
    return 2.0 * mu / (1.0 + math.sqrt(inside))


@kernel
def down(code: int, mu: float, s: float) -> float:
    """Return D(mu, s), the lam below mu with (lam - mu) / V(lam) = -s, for s >= 0."""
    if code == GAUSSIAN:
        return mu - s
    if code == BERNOULLI:
        # (1+s)^2 - 4 s mu written as a sum of non-negative terms
        return 2.0 * mu / ((1.0 + s) + math.sqrt((1.0 - s) * (1.0 - s) + 4.0 * s * (1.0 - mu)))
    if code == POISSON:
        return mu / (1.0 + s)
    return 2.0 * mu / (1.0 + math.sqrt(1.0 + 4.0 * s * mu))


@kernel
def move(code: int, mu: float, s: float) -> float:
    """Return U(mu, s) for s >= 0 and D(mu, -s) for s < 0: the mean moved by a signed tilt."""
    return up(code, mu, s) if s >= 0.0 else down(code, mu, -s)
