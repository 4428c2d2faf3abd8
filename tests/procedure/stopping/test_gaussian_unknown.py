"""Unknown variance: the plausible variances are those the bets left, the bound holds at every null."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, stats

from evenhand.model.families import Gaussian, GaussianUnknown
from evenhand.procedure.evidence import gaussian, gaussian_unknown
from evenhand.procedure.log_space import NOTHING
from tests.procedure.stopping.counts import recorded, spec_of

Array = NDArray[np.float64]
CEILING = 5.0


def log_bet(xs: Array, sigma: float) -> float:
    """ln S by its definition: predictive densities, one by one, over the best normal one with this sigma."""
    opening = 1 + int(np.argmax(xs[1:] != xs[0])) + 1
    total = 0.0
    for j in range(opening, xs.size):
        before = xs[:j]
        spread = before.std(ddof=1) * math.sqrt(1 + 1 / j)
        total += stats.t.logpdf(xs[j], j - 1, before.mean(), spread)
    rest = xs[opening:]
    return float(total - stats.norm.logpdf(rest, rest.mean(), sigma).sum())


@pytest.mark.parametrize("cells", [1, 6])
def test_the_plausible_variances_end_where_the_bets_reach_the_ceiling(cells: int) -> None:
    xs = np.random.default_rng(0).normal(3.0, 2.0, size=60)
    spec = spec_of(GaussianUnknown(), [1.0])
    state, _ = recorded(spec, {(0, 0): xs})
    low, high = gaussian_unknown.plausible(state, 0, 0, cells, CEILING)
    assert low < 4.0 < high
    for end in (low, high):
        assert log_bet(xs, math.sqrt(end)) == pytest.approx(CEILING + math.log(10 * cells), abs=1e-8)


def test_equal_first_outcomes_open_a_cell_longer() -> None:
    xs = np.array([1.0, 1.0, 1.0, 2.0, 3.5, 2.2, 1.7])
    spec = spec_of(GaussianUnknown(), [1.0])
    state, _ = recorded(spec, {(0, 0): xs})
    _, high = gaussian_unknown.plausible(state, 0, 0, 1, CEILING)
    assert log_bet(xs, math.sqrt(high)) == pytest.approx(CEILING + math.log(10), abs=1e-8)


@pytest.mark.parametrize("xs", [[], [1.0], [1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 2.0, 5.0, 5.0, 5.0]])
def test_too_few_outcomes_give_no_evidence(xs: list[float]) -> None:
    spec = spec_of(GaussianUnknown(), [1.0])
    state, work = recorded(spec, {(0, 0): xs, (1, 0): np.linspace(-3, -2, 30)})
    assert gaussian_unknown.cell(state, 0, 0, -5.0, 1.0, CEILING) == NOTHING
    assert gaussian_unknown.ahead(spec, state, 0, 1, CEILING, work.scratch) == NOTHING


def test_units_and_origin_of_the_outcomes_do_not_matter() -> None:
    rng = np.random.default_rng(1)
    told = {(k, g): rng.normal(0.9 - k, 1.0 + g, size=40 + 9 * g) for k in range(2) for g in range(2)}
    spec = spec_of(GaussianUnknown(), [0.3, 0.7])
    state, work = recorded(spec, told)
    moved, _ = recorded(spec, {cell: 1e6 + 1e-3 * xs for cell, xs in told.items()})
    here = gaussian_unknown.ahead(spec, state, 0, 1, CEILING, work.scratch)
    assert -5.0 < here < CEILING
    assert gaussian_unknown.ahead(spec, moved, 0, 1, CEILING, work.scratch) == pytest.approx(here, abs=1e-4)
    assert gaussian_unknown.cell(moved, 0, 0, 1e6 + 1e-4, 1.0, CEILING) == pytest.approx(
        gaussian_unknown.cell(state, 0, 0, 0.1, 1.0, CEILING), abs=1e-4
    )


@pytest.mark.parametrize("seed", range(4))
def test_no_null_mean_and_variance_is_bet_on_less_than_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = [(k, g) for k in range(2) for g in range(2)]
    told = {(k, g): rng.normal(0.6 - 0.6 * k, 1.0 + g, size=60 + 30 * g) for k, g in cells}
    q = np.array([0.4, 0.6])
    spec = spec_of(GaussianUnknown(), q)
    state, work = recorded(spec, told)
    n = np.array([told[cell].size - 2 for cell in cells])
    variance = np.array([told[cell][2:].var() for cell in cells])
    regret = np.array([log_bet(told[cell], math.sqrt(v)) for cell, v in zip(cells, variance, strict=True)])

    def mixed(logs: Array) -> float:
        """ln of 9/10 M + 1/10 mean S, least over the means, at these sigmas."""
        known = spec_of(Gaussian(np.exp(logs).reshape(2, 2)), q)
        ratio = variance / np.exp(2 * logs)
        on_sigma = np.logaddexp.reduce(regret + n / 2 * (ratio - 1 - np.log(ratio)))
        return float(
            np.logaddexp(math.log(0.9) + gaussian.ahead(known, state, 0, 1), on_sigma + math.log(0.1 / 4))
        )

    exact = optimize.minimize(mixed, np.log(variance) / 2, method="Nelder-Mead", options={"fatol": 1e-6}).fun
    # the bound looks at one box of sigmas; with the ceiling where the least bet lies it loses little
    for ceiling in (exact - 1.0, exact, exact + 1.0):
        assert gaussian_unknown.ahead(spec, state, 0, 1, ceiling, work.scratch) <= exact + 1e-6
    assert gaussian_unknown.ahead(spec, state, 0, 1, exact, work.scratch) >= exact - 1.5


def test_one_cell_is_the_known_variance_at_the_worst_plausible_one() -> None:
    xs = np.random.default_rng(5).normal(1.0, 1.0, size=200)
    spec = spec_of(GaussianUnknown(), [1.0])
    state, _ = recorded(spec, {(0, 0): xs})
    low, high = gaussian_unknown.plausible(state, 0, 0, 1, CEILING)
    n, s = xs.size, xs.sum()
    expected = math.log(0.9) + gaussian.cell(n, s, high, 0.85, 1.0)
    assert gaussian_unknown.cell(state, 0, 0, 0.85, 1.0, CEILING) == pytest.approx(expected, rel=1e-12)
    assert gaussian_unknown.cell(state, 0, 0, 0.0, 1.0, CEILING) == CEILING
    wrong_side = math.log(0.9) + min(gaussian.cell(n, s, v, 2.0, 1.0) for v in (low, high))
    assert gaussian_unknown.cell(state, 0, 0, 2.0, 1.0, CEILING) == pytest.approx(wrong_side, rel=1e-12)


def test_a_first_difference_whose_square_vanishes_gives_no_evidence() -> None:
    # 1e-244 squared is 0 in floating point; it used to be taken for all the evidence that is ever asked for
    xs = [0.0, 1.4e-244, 0.0, 1.0]
    spec = spec_of(GaussianUnknown(), [1.0])
    state, work = recorded(spec, {(0, 0): xs, (1, 0): xs})
    assert gaussian_unknown.plausible(state, 0, 0, 1, CEILING) == (0.0, math.inf)
    assert gaussian_unknown.cell(state, 0, 0, -5.0, 1.0, CEILING) == NOTHING
    assert gaussian_unknown.ahead(spec, state, 0, 1, CEILING, work.scratch) == NOTHING
