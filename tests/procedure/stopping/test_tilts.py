"""Tilt mixtures: martingales summed out exactly, and the bound their infimum from below."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, optimize, special, stats

from evenhand.model.families import Bernoulli, Binomial, Bounded, Family, Poisson
from evenhand.model.unit_families import BERNOULLI, EXPONENTIAL, POISSON
from evenhand.procedure.evidence import tilts
from evenhand.procedure.evidence.tilt_mixture import SIZES
from tests.procedure.stopping.counts import counted, spec_of

Array = NDArray[np.float64]
WEIGHTS, TIMES = np.array([0.25, 0.5, 0.25]), np.array([0, 1, 2])


def log_martingale(code: int, blocks: list[list[int]], a: Array, n: Array, s: Array, lam: Array) -> float:
    """ln M by its definition."""
    sizes = SIZES[0 if code == BERNOULLI else 1]
    tau = np.where(a < 0, 1, -1)[:, None, None] * sizes[:, None] * TIMES
    lifted = lam[:, None, None] * np.expm1(tau)
    cumulant = np.log1p(lifted) if code == BERNOULLI else lifted
    terms = special.logsumexp(tau * s[:, None, None] - n[:, None, None] * cumulant, b=WEIGHTS, axis=2)
    return float(sum(special.logsumexp(terms[block].sum(axis=0)) - math.log(sizes.size) for block in blocks))


def infimum(code: int, blocks: list[list[int]], a: Array, n: Array, s: Array, c: float) -> float:
    """The least ln M on {a.lam = c} that a general minimiser finds, thrice restarted where it ended."""
    mean = (s + 0.5) / (n + 1)
    scale, high = np.sqrt(mean / n), 1.0 if code == BERNOULLI else math.inf
    lam = _onto(a, c, mean, scale, high)
    for _ in range(3):
        here = lam
        found = optimize.minimize(
            lambda y, here=here: log_martingale(code, blocks, a, n, s, np.clip(here + scale * y, 0, high)),
            np.zeros(a.size),
            method="SLSQP",
            bounds=[(-x / w, (high - x) / w) for x, w in zip(here, scale, strict=True)],
            constraints={"type": "eq", "fun": lambda y: (a * scale) @ y / np.linalg.norm(a * scale)},
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        lam = _onto(a, c, np.clip(here + scale * found.x, 0, high), scale, high)
    assert a @ lam == pytest.approx(c, abs=1e-12)
    return log_martingale(code, blocks, a, n, s, lam)


def _onto(a: Array, c: float, lam: Array, scale: Array, high: float) -> Array:
    """The point of {a.lam = c} near lam, inside the domain."""
    far = 1.0
    while a @ np.clip(lam + far * a * scale, 0, high) < c or a @ np.clip(lam - far * a * scale, 0, high) > c:
        far *= 2
    step = optimize.brentq(lambda t: a @ np.clip(lam + t * a * scale, 0, high) - c, -far, far, xtol=1e-16)
    return np.clip(lam + step * a * scale, 0, high)


def random_pair(family: Family, seed: int) -> tuple[Array, Array, Array]:
    """Shares, counts, sums: policy 0 is ahead by some deviations; some cells are sampled too much."""
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 4))
    q = rng.dirichlet(2 * np.ones(groups))
    n = np.round(10 ** rng.uniform(1.0, 3.0) * np.exp(rng.normal(size=(groups, 2))) + 1)
    means = rng.uniform(0.2, 0.8, size=(groups, 2)) * (3 if isinstance(family, Poisson) else 1)
    spread = math.sqrt((q[:, None] ** 2 * means / n).sum())
    shift = (q @ (means[:, 1] - means[:, 0]) + rng.uniform(1.0, 6.0) * spread) / 2
    means = np.clip(means + shift * np.array([1, -1]), 0.01, None if isinstance(family, Poisson) else 0.99)
    return q, n, np.round(n * means)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=["bernoulli", "poisson"])
def test_the_bound_on_being_ahead_is_the_infimum_from_below(family: Family, seed: int) -> None:
    q, n, s = random_pair(family, seed)
    if q @ (s[:, 0] / n[:, 0]) <= q @ (s[:, 1] / n[:, 1]):
        n, s = n[:, ::-1], s[:, ::-1]
    spec = spec_of(family, q)
    state, work = counted(spec, n, s / n)
    groups = q.size
    blocks = [list(range(groups)), list(range(groups, 2 * groups))]
    cells = (np.concatenate([-q, q]), n.T.ravel(), s.T.ravel())
    exact = infimum(spec.code, blocks, *cells, 0.0)
    found = tilts.ahead(spec, state, 0, 1, math.inf, work.scratch)
    assert exact - 2e-6 <= found <= exact + 1e-7


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_on_a_row_is_the_infimum_from_below(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, n = np.array([1.0, -0.8]), np.round(10 ** rng.uniform(1.0, 3.0, size=2))
    s = np.round(n * rng.uniform(0.3, 0.5, size=2))
    c = float(a @ (s / n)) + rng.uniform(1, 5) * math.sqrt((a**2 * 0.25 / n).sum())
    spec = spec_of(Bernoulli(), [0.5, 0.5])
    state, work = counted(spec, np.c_[n, n], np.c_[s / n, s / n])
    exact = infimum(BERNOULLI, [[0, 1]], a, n, s, c)
    assert exact - 2e-6 <= tilts.row(spec, state, 0, a, c, work.scratch) <= exact + 1e-7


@pytest.mark.parametrize("n", [1, 5, 40])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_bernoulli_cell_has_mean_one_on_the_boundary(n: int, sign: float) -> None:
    c, s = 0.3, np.arange(n + 1)
    values = [math.exp(tilts.cell(BERNOULLI, float(n), float(x), c, sign)) for x in s]
    assert stats.binom.pmf(s, n, c) @ values == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_poisson_cell_has_mean_one_on_the_boundary(sign: float) -> None:
    n, c = 7, 1.3
    s = np.arange(400)
    values = [math.exp(tilts.cell(POISSON, float(n), float(x), c, sign)) for x in s]
    assert stats.poisson.pmf(s, n * c) @ values == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_exponential_cell_has_mean_one_on_the_boundary_in_any_unit(sign: float) -> None:
    n, unit = 6, 1e-3

    def weighed(y: float) -> float:
        return stats.gamma.pdf(y, n) * math.exp(tilts.cell(EXPONENTIAL, float(n), y * unit, unit, sign))

    # drawn with means up to e^1.28 times larger
    assert integrate.quad(weighed, 0, 400, limit=400)[0] == pytest.approx(1.0, abs=1e-7)


def test_beyond_the_boundary_one_cell_has_mean_below_one() -> None:
    n, s = 40, np.arange(41)
    values = [math.exp(tilts.cell(BERNOULLI, 40.0, float(x), 0.3, 1.0)) for x in s]
    assert stats.binom.pmf(s, n, 0.25) @ values < 0.99


def test_the_mixture_over_several_cells_has_mean_one_under_its_null() -> None:
    lam, n, a = np.array([0.3, 0.6, 0.5]), np.array([4.0, 3.0, 5.0]), np.array([-0.5, -0.5, 1.0])
    total = 0.0
    for s in itertools.product(*(range(int(m) + 1) for m in n)):
        chance = math.prod(stats.binom.pmf(s, n, lam))
        total += chance * math.exp(log_martingale(BERNOULLI, [[0, 1], [2]], a, n, np.array(s, float), lam))
    assert total == pytest.approx(1.0, abs=1e-12)


def test_bounded_outcomes_have_mean_at_most_one() -> None:
    # three points with mean 0.3: the sum of two outcomes, all nine ways
    points, chances = np.array([0.0, 0.5, 1.0]), np.array([0.5, 0.4, 0.1])
    total = sum(
        p * r * math.exp(tilts.cell(BERNOULLI, 2.0, x + y, 0.3, 1.0))
        for (x, p), (y, r) in itertools.product(zip(points, chances, strict=True), repeat=2)
    )
    assert total < 1.0


def test_a_binomial_outcome_is_worth_its_trials() -> None:
    n, means = np.array([[30.0, 25]]), np.array([[0.6, 0.4]])
    many, one = spec_of(Binomial(4), [1.0]), spec_of(Bernoulli(), [1.0])
    a, work = counted(many, n, means)
    b, _ = counted(one, 4 * n, means)
    assert tilts.ahead(many, a, 0, 1, math.inf, work.scratch) == tilts.ahead(
        one, b, 0, 1, math.inf, work.scratch
    )


def test_a_cell_sampled_out_of_proportion_is_passed_over() -> None:
    # a group of small share, sampled a hundred times more than the rest, hardly touches the evidence
    spec = spec_of(Bernoulli(), [0.45, 0.45, 0.1])
    means = np.array([[0.7, 0.5], [0.7, 0.5], [0.5, 0.5]])
    even, work = counted(spec, [[200, 200]] * 3, means)
    lopsided, _ = counted(spec, [[200, 200], [200, 200], [20000, 20000]], means)
    before = tilts.ahead(spec, even, 0, 1, math.inf, work.scratch)
    assert tilts.ahead(spec, lopsided, 0, 1, math.inf, work.scratch) > before - 2.0


def test_without_outcomes_or_a_leader_there_is_no_evidence() -> None:
    for family in (Bernoulli(), Poisson(), Bounded(0, 1)):
        spec = spec_of(family, [0.5, 0.5])
        state, work = counted(spec, np.zeros((2, 2)), np.zeros((2, 2)))
        assert tilts.ahead(spec, state, 0, 1, math.inf, work.scratch) <= 0.0
        state, _ = counted(spec, [[9, 9]] * 2, [[0.2, 0.6]] * 2)
        assert -math.inf < tilts.ahead(spec, state, 0, 1, math.inf, work.scratch) <= 0.0


def test_means_that_no_outcome_can_have_are_refuted_for_free() -> None:
    spec = spec_of(Bernoulli(), [0.5, 0.5])
    state, work = counted(spec, [[9, 9]] * 2, [[0.2, 0.6]] * 2)
    assert tilts.row(spec, state, 0, np.array([1.0, 1.0]), 2.5, work.scratch) == math.inf
