"""Gaussian evidence: the mixture is the integral it claims to be, the bound its infimum from below."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, linalg, optimize, stats

from evenhand.model.families import Gaussian
from evenhand.procedure.evidence import gaussian
from evenhand.procedure.evidence.gaussian import N0, N1
from tests.procedure.stopping.counts import counted, spec_of

Array = NDArray[np.float64]


def log_martingale(x: Array, n: Array) -> float:
    """ln M of one block at x = (null - mean) / sd, signed so that the half-space lies upwards."""
    rho, kappa, square = N1 * n / (n + N1), n * n / (n + N1), 1.0 / n.size
    total = N0 + (rho * square).sum()
    z = float((rho * math.sqrt(square) * x).sum() / math.sqrt(total))
    penalty = 0.5 * np.log1p(n / N1).sum() + 0.5 * math.log(total / N0)
    return float(0.5 * (kappa * x * x).sum() + 0.5 * z * z + math.log(2) + stats.norm.logcdf(z) - penalty)


def integrated(x: Array, n: Array) -> float:
    """The same by its definition: likelihood ratios averaged over shifts u |xi| / sqrt(N0) + N(0, 1/N1)."""

    def at(xi: float) -> float:
        centre = xi / math.sqrt(n.size * N0)
        exponent = (
            (n * x + N1 * centre) ** 2 / (2 * (n + N1)) - N1 * centre**2 / 2 + 0.5 * np.log(N1 / (n + N1))
        )
        return float(2 * stats.norm.pdf(xi) * np.exp(exponent.sum()))

    return math.log(integrate.quad(at, 0, 40, limit=400, epsabs=0, epsrel=1e-11)[0])


def infimum(blocks: list[tuple[Array, Array]], gap: float) -> float:
    """The least sum of ln M over v.x >= gap, by a general minimiser; blocks are (v, n)."""
    v = np.concatenate([block[0] for block in blocks])
    cuts = np.cumsum([block[0].size for block in blocks])[:-1]
    # with the estimates outside, the least is on the boundary: walk along it, in units of each cell's spread
    scale = np.concatenate([1 / np.sqrt(block[1]) for block in blocks])
    along = linalg.null_space((v * scale)[None, :]) if v.size > 1 else np.zeros((1, 0))
    start = v * scale**2 * gap / ((v * scale) ** 2).sum()

    def total(y: Array) -> float:
        parts = np.split(start + scale * (along @ y), cuts)
        return sum(log_martingale(x, n) for x, (_, n) in zip(parts, blocks, strict=True))

    if along.shape[1] == 0:
        return total(np.zeros(0))
    found = optimize.minimize(total, np.zeros(along.shape[1]), method="BFGS", options={"gtol": 1e-7})
    return float(found.fun)


@pytest.mark.parametrize("n", [[1.0], [20.0, 50.0, 300.0], [4.0, 4.0]])
def test_the_closed_form_is_the_mixture(n: list[float]) -> None:
    x = np.random.default_rng(3).normal(0.1, 0.3, size=len(n))
    assert log_martingale(x, np.array(n)) == pytest.approx(integrated(x, np.array(n)), abs=1e-9)


@pytest.mark.parametrize("seed", range(25))
def test_the_bound_on_being_ahead_is_the_infimum_from_below(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 5))
    q, sd = rng.dirichlet(np.ones(groups)), rng.uniform(0.3, 2.0, size=(2, groups))
    n = np.round(10 ** rng.uniform(0.3, 3.5, size=(groups, 2)))
    means = rng.normal(size=(groups, 2))
    spread = math.sqrt((q[:, None] ** 2 * sd.T**2 / n).sum())
    means[:, 0] += (
        q @ (means[:, 1] - means[:, 0]) + rng.uniform(0.5, 7.0) * spread
    )  # ahead by some deviations
    spec = spec_of(Gaussian(sd), q)
    state, _ = counted(spec, n, means)
    gap = float(q @ (means[:, 0] - means[:, 1]))
    exact = infimum([(q * sd[k], n[:, k]) for k in range(2)], gap)
    assert exact - 1e-6 <= gaussian.ahead(spec, state, 0, 1) <= exact + 1e-7


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_on_a_row_is_the_infimum_from_below(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    a = rng.normal(size=3)
    n, means, sd = np.round(10 ** rng.uniform(0.3, 3.0, size=(3, 2))), rng.normal(size=(3, 2)), 0.7
    gap = rng.uniform(0.5, 7.0) * sd * math.sqrt((a**2 / n[:, 0]).sum())
    spec = spec_of(Gaussian(sd), [0.2, 0.3, 0.5])
    state, _ = counted(spec, n, means)
    exact = infimum([(np.abs(a) * sd, n[:, 0])], gap)
    found = gaussian.row(spec, state, 0, a, float(a @ means[:, 0]) + gap)
    assert exact - 1e-6 <= found <= exact + 1e-7


def test_a_group_without_share_does_not_matter() -> None:
    with_it, without = spec_of(Gaussian(1.0), [0.4, 0.6, 0.0]), spec_of(Gaussian(1.0), [0.4, 0.6])
    n, means = np.array([[40.0, 60], [50, 30]]), np.array([[1.0, 0.2], [0.7, 0.1]])
    small, _ = counted(without, n, means)
    large, _ = counted(with_it, np.vstack([n, [5, 500]]), np.vstack([means, [-9, 9]]))
    assert gaussian.ahead(with_it, large, 0, 1) == pytest.approx(
        gaussian.ahead(without, small, 0, 1), rel=1e-13
    )


def test_one_cell_is_the_half_normal_mixture_in_both_directions() -> None:
    n, mean, sd, c = 37.0, 0.4, 0.8, 0.1
    x = (mean - c) / sd

    def at(xi: float) -> float:
        shift = xi / math.sqrt(N0)
        return float(2 * stats.norm.pdf(xi) * math.exp(n * shift * x - n * shift**2 / 2))

    integral = math.log(integrate.quad(at, 0, 40, epsabs=0, epsrel=1e-11)[0])
    assert gaussian.cell(n, n * mean, sd**2, c, 1.0) == pytest.approx(integral, abs=1e-9)
    assert gaussian.cell(n, -n * mean, sd**2, -c, -1.0) == pytest.approx(integral, abs=1e-9)


@pytest.mark.parametrize("n", [1.0, 10.0, 1000.0])
def test_one_cell_has_mean_one_on_the_boundary(n: float) -> None:
    def weighed(z: float) -> float:
        return math.exp(stats.norm.logpdf(z) + gaussian.cell(n, z * math.sqrt(n), 1.0, 0.0, 1.0))

    far = 12 * math.sqrt(1 + n / N0)  # outcomes drawn with the mixed shifts spread so much wider
    assert integrate.quad(weighed, -far, far, limit=400)[0] == pytest.approx(1.0, abs=1e-7)


def test_psi_is_smooth_where_its_tail_series_takes_over() -> None:
    for z in (-29.999, -30.0, -30.001, -1000.0):
        assert gaussian.psi(z) == pytest.approx(z * z / 2 + math.log(2) + stats.norm.logcdf(z), abs=1e-8)


def test_without_outcomes_there_is_no_evidence() -> None:
    spec = spec_of(Gaussian(1.0), [0.5, 0.5])
    state, _ = counted(spec, np.zeros((2, 2)), np.zeros((2, 2)))
    assert gaussian.ahead(spec, state, 0, 1) == 0.0
    assert gaussian.cell(0.0, 0.0, 1.0, 0.3, 1.0) == 0.0
    state.n[0], state.s[0] = 50.0, [40.0, 0.0]  # one group alone can say nothing about the overall mean
    assert gaussian.ahead(spec, state, 0, 1) < 0.0
