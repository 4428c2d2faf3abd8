"""One contract for all outcome families: each is checked against its distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from evenhand.errors import BadInput
from evenhand.model import families
from evenhand.model.families import FAMILIES, Family


@dataclass(frozen=True)
class Case:
    """A family, the distribution with a given mean, and means to try."""

    family: Family
    distribution: Callable[[float], Any]
    mu: float
    lam: float
    impossible: tuple[float, ...]  # outcomes that cannot be


def two_point(low: float, high: float) -> Callable[[float], Any]:
    return lambda mean: stats.rv_discrete(
        values=((low, high), ((high - mean) / (high - low), (mean - low) / (high - low)))
    )


CASES = [
    Case(families.Gaussian(0.7), lambda m: stats.norm(m, 0.7), 0.3, -0.8, (np.nan, np.inf)),
    Case(families.GaussianUnknown(), lambda m: stats.norm(m, 1.0), 0.3, -0.8, (np.nan, np.inf)),
    Case(families.Bernoulli(), stats.bernoulli, 0.3, 0.85, (0.5, 2.0, -1.0, np.nan)),
    Case(families.Binomial(5), lambda m: stats.binom(5, m / 5), 1.2, 3.9, (0.5, 6.0, -1.0, np.nan)),
    Case(families.Poisson(), stats.poisson, 2.2, 0.6, (0.5, -1.0, np.inf)),
    Case(families.Exponential(), lambda m: stats.expon(scale=m), 0.4, 1.9, (0.0, -1.0, np.nan)),
    Case(families.Gamma(2.5), lambda m: stats.gamma(2.5, scale=m / 2.5), 2.4, 0.7, (0.0, -1.0, np.inf)),
    Case(families.Bounded(-1.0, 3.0), two_point(-1.0, 3.0), 0.1, 2.5, (-1.5, 3.5, np.nan)),
]
each_family = pytest.mark.parametrize("case", CASES, ids=lambda case: case.family.name)


def test_the_contract_covers_every_family() -> None:
    assert {case.family.name for case in CASES} == set(FAMILIES)


@each_family
def test_the_divergence_is_the_expected_log_likelihood_ratio(case: Case) -> None:
    p, q = case.distribution(case.mu), case.distribution(case.lam)
    if hasattr(p, "pmf"):
        low, high = p.support()
        outcomes = np.arange(low, min(high, 200) + 1)
        outcomes = outcomes[p.pmf(outcomes) > 0]
        expected = float(p.pmf(outcomes) @ (p.logpmf(outcomes) - q.logpmf(outcomes)))
    else:
        low, high = p.ppf(1e-15), p.ppf(1 - 1e-15)
        expected, _ = quad(lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), low, high, limit=400)
    assert case.family.divergence(case.mu, case.lam) == pytest.approx(expected, rel=1e-6)


@each_family
def test_the_variance_is_the_distributions(case: Case) -> None:
    for mean in (case.mu, case.lam):
        assert case.family.variance(mean) == pytest.approx(case.distribution(mean).var(), rel=1e-9)


@each_family
def test_up_and_down_move_to_where_the_divergence_has_the_given_slope(case: Case) -> None:
    s = 0.09
    for lam, sign in ((case.family.up(case.mu, s), 1), (case.family.down(case.mu, s), -1)):
        assert sign * (float(lam) - case.mu) > 0
        # (lam - mu) / V(lam) = s going up and -s going down
        assert (lam - case.mu) / case.family.variance(lam) == pytest.approx(sign * s, rel=1e-9)


@each_family
def test_the_slope_of_the_divergence_is_distance_over_variance(case: Case) -> None:
    h = 1e-6
    ahead, behind = (case.family.divergence(case.mu, case.lam + step) for step in (h, -h))
    expected = (case.lam - case.mu) / case.family.variance(case.lam)
    assert (ahead - behind) / (2 * h) == pytest.approx(float(expected), rel=1e-6)


@each_family
def test_real_outcomes_are_admitted_and_impossible_ones_are_not(case: Case) -> None:
    drawn = case.distribution(case.mu).rvs(size=50, random_state=np.random.default_rng(0))
    assert case.family.admits(drawn).all()
    assert not case.family.admits(np.array(case.impossible)).any()


@each_family
def test_the_domain_holds_the_means_and_the_unit_scale_keeps_their_order(case: Case) -> None:
    low, high = case.family.domain
    assert low < min(case.mu, case.lam) < max(case.mu, case.lam) < high
    unit = case.family.to_unit([case.mu, case.lam])
    assert (unit[0] < unit[1]) == (case.mu < case.lam)
    assert case.family.low + case.family.width * unit[0] == pytest.approx(case.mu)


@each_family
def test_numbers_go_in_as_tables_too(case: Case) -> None:
    table = np.array([[case.mu, case.lam], [case.lam, case.mu]])
    each = [[float(case.family.divergence(case.mu, x)) for x in row] for row in table]
    np.testing.assert_allclose(case.family.divergence(case.mu, table), each)
    assert case.family.dispersion(2, 2).shape == (2, 2)
    assert (case.family.dispersion(2, 2) > 0).all()


@each_family
def test_a_family_is_a_frozen_value(case: Case) -> None:
    assert hash(case.family) == hash(case.family)
    with pytest.raises(AttributeError):
        case.family.anything = 1  # type: ignore[attr-defined]


def test_a_gaussian_may_have_a_standard_deviation_per_cell() -> None:
    family = families.Gaussian([[0.5, 1.0], [2.0, 4.0]])
    np.testing.assert_array_equal(family.dispersion(2, 2), [[0.25, 1.0], [4.0, 16.0]])
    mu, lam = np.zeros((2, 2)), np.ones((2, 2))
    np.testing.assert_allclose(family.divergence(mu, lam), 1 / (2 * family.dispersion(2, 2)))
    with pytest.raises(BadInput, match="row per policy"):
        family.dispersion(3, 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: families.Gaussian(0.0),
        lambda: families.Gaussian([1.0, 2.0]),
        lambda: families.Gaussian("wide"),
        lambda: families.Binomial(0),
        lambda: families.Binomial(2.5),  # type: ignore[arg-type]
        lambda: families.Gamma(-1.0),
        lambda: families.Gamma(np.nan),
        lambda: families.Bounded(1.0, 1.0),
        lambda: families.Bounded(0.0, np.inf),
    ],
)
def test_parameters_without_a_distribution_are_refused(make: Callable[[], Family]) -> None:
    with pytest.raises(BadInput):
        make()
