"""The four unit families: what their kernels promise, by the defining identities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from evenhand.model import unit_families
from evenhand.model.unit_families import BERNOULLI, EXPONENTIAL, GAUSSIAN, POISSON

CODES = [GAUSSIAN, BERNOULLI, POISSON, EXPONENTIAL]
NAMES = ["gaussian", "bernoulli", "poisson", "exponential"]
each_family = pytest.mark.parametrize("code", CODES, ids=NAMES)


def means(code: int) -> st.SearchStrategy[float]:
    """Means well inside the domain."""
    low, high = {GAUSSIAN: (-3.0, 3.0), BERNOULLI: (0.02, 0.98)}.get(code, (0.05, 5.0))
    return st.floats(low, high)


@each_family
@given(data=st.data())
def test_the_divergence_is_the_integral_of_its_slope(code: int, data: st.DataObject) -> None:
    mu, lam = data.draw(means(code)), data.draw(means(code))
    area, _ = quad(lambda x: (x - mu) / unit_families.variance(code, x), mu, lam, epsabs=1e-13, epsrel=1e-12)
    assert unit_families.divergence(code, mu, lam) == pytest.approx(area, rel=1e-9, abs=1e-12)


@each_family
@given(data=st.data())
def test_slope_and_curvature_are_derivatives(code: int, data: st.DataObject) -> None:
    mu, lam = data.draw(means(code)), data.draw(means(code))
    h = 1e-5 * (1.0 if code == GAUSSIAN else lam)
    ahead, here, behind = (unit_families.divergence(code, mu, x) for x in (lam + h, lam, lam - h))
    steep = (
        1.0 + abs(unit_families.curvature(code, mu, lam)) * h
    )  # rounding and truncation grow with the steepness
    assert unit_families.slope(code, mu, lam) == pytest.approx(
        (ahead - behind) / (2 * h), rel=1e-6, abs=1e-6 * steep
    )
    assert unit_families.slope(code, mu, lam) == pytest.approx(
        (lam - mu) / unit_families.variance(code, lam), rel=1e-12
    )
    bend = (ahead - 2 * here + behind) / h**2
    size = (abs(here) + 1.0) * 1e-15 / h**2
    assert unit_families.curvature(code, mu, lam) == pytest.approx(bend, rel=1e-3, abs=10 * size)


@each_family
@given(data=st.data(), s=st.floats(0.0, 50.0))
def test_down_falls_to_where_the_divergence_falls_at_the_given_rate(
    code: int, data: st.DataObject, s: float
) -> None:
    mu = data.draw(means(code))
    lam = unit_families.down(code, mu, s)
    assert unit_families.edge_low(code) <= lam <= mu
    # lam - mu = -s V(lam), the defining identity
    assert mu == pytest.approx(lam + s * unit_families.variance(code, lam), rel=1e-12, abs=1e-12)


@each_family
@given(data=st.data(), s=st.floats(0.0, 50.0))
def test_up_climbs_to_where_the_divergence_climbs_at_the_given_rate(
    code: int, data: st.DataObject, s: float
) -> None:
    mu = data.draw(means(code))
    lam = unit_families.up(code, mu, s)
    if (code == POISSON and s >= 1.0) or (code == EXPONENTIAL and s > 0.25 / mu):
        assert lam == math.inf
        return
    assert mu <= lam <= unit_families.edge_high(code)
    # lam - mu = s V(lam); measured in units of what rounding of lam makes of it
    blurred = (1.0 + s * lam) * 4e-16 * max(abs(lam), 1.0)
    assert lam - s * unit_families.variance(code, lam) == pytest.approx(mu, rel=1e-10, abs=100 * blurred)


@given(mu=st.floats(-3.0, 3.0), s=st.floats(0.0, 50.0))
def test_for_the_gaussian_down_undoes_up(mu: float, s: float) -> None:
    assert unit_families.down(GAUSSIAN, unit_families.up(GAUSSIAN, mu, s), s) == pytest.approx(mu, abs=1e-12)


@each_family
@given(data=st.data(), s=st.floats(-3.0, 0.2))
def test_move_goes_up_for_positive_pulls_and_down_for_negative_ones(
    code: int, data: st.DataObject, s: float
) -> None:
    mu = data.draw(means(code))
    expected = unit_families.up(code, mu, s) if s >= 0 else unit_families.down(code, mu, -s)
    assert unit_families.move(code, mu, s) == expected


@pytest.mark.parametrize("code", [BERNOULLI, POISSON, EXPONENTIAL], ids=NAMES[1:])
@pytest.mark.parametrize("step", [1e-4, 1e-7, 1e-10])
def test_the_divergence_keeps_its_digits_next_to_the_mean(code: int, step: float) -> None:
    mu = 0.3
    lam = mu * (1 + step)
    distance = lam - mu  # as the machine has it
    # d = (lam - mu)^2 / (2 V(mu)) (1 + O(step)), with a third-order term of at most 3 step for these families
    expected = distance**2 / (2 * unit_families.variance(code, mu))
    assert unit_families.divergence(code, mu, lam) == pytest.approx(expected, rel=3 * step + 1e-12)


@each_family
@given(data=st.data())
def test_the_divergence_is_zero_at_the_mean_and_positive_elsewhere(code: int, data: st.DataObject) -> None:
    mu, lam = data.draw(means(code)), data.draw(means(code))
    assert unit_families.divergence(code, mu, mu) == 0.0
    assert unit_families.divergence(code, mu, lam) > 0.0 or abs(lam - mu) < 1e-12


def test_edges_of_the_bernoulli_domain() -> None:
    assert unit_families.divergence(BERNOULLI, 0.0, 0.25) == pytest.approx(-math.log(0.75), rel=1e-15)
    assert unit_families.divergence(BERNOULLI, 1.0, 0.25) == pytest.approx(-math.log(0.25), rel=1e-15)
    assert (
        unit_families.divergence(BERNOULLI, 0.5, 0.0)
        == unit_families.divergence(BERNOULLI, 0.5, 1.0)
        == math.inf
    )
    assert (
        unit_families.divergence(BERNOULLI, 0.0, 0.0) == unit_families.divergence(BERNOULLI, 1.0, 1.0) == 0.0
    )
    # from 0 a pull of strength up to 1 moves nothing, then 1 - 1/s; from 1 downwards mirrored
    for s, lam in [(0.5, 0.0), (1.0, 0.0), (4.0, 0.75)]:
        assert unit_families.up(BERNOULLI, 0.0, s) == pytest.approx(lam, abs=1e-15)
        assert unit_families.down(BERNOULLI, 1.0, s) == pytest.approx(1.0 - lam, abs=1e-15)
    assert unit_families.up(BERNOULLI, 1.0, 7.0) == 1.0
    assert unit_families.down(BERNOULLI, 0.0, 7.0) == 0.0
    assert unit_families.slope(BERNOULLI, 0.0, 0.0) == 1.0
    assert unit_families.slope(BERNOULLI, 1.0, 1.0) == -1.0


def test_edges_of_the_poisson_and_exponential_domains() -> None:
    assert unit_families.divergence(POISSON, 0.0, 2.5) == 2.5
    assert unit_families.divergence(POISSON, 2.5, 0.0) == math.inf
    assert unit_families.slope(POISSON, 0.0, 0.0) == 1.0
    assert unit_families.curvature(POISSON, 0.0, 0.0) == 0.0
    assert unit_families.up(POISSON, 2.0, 1.0) == math.inf
    assert unit_families.divergence(EXPONENTIAL, 1.0, 0.0) == math.inf
    assert unit_families.up(EXPONENTIAL, 2.0, 1 / 8) == pytest.approx(4.0)  # the last solution, at lam = 2 mu
    assert unit_families.up(EXPONENTIAL, 2.0, 0.13) == math.inf
    assert unit_families.curvature(EXPONENTIAL, 1.0, 1.9) > 0 > unit_families.curvature(EXPONENTIAL, 1.0, 2.1)


@pytest.mark.parametrize("s", [1e-3, 0.99, 1.0, 1.01, 1e3, 1e8])
def test_the_bernoulli_maps_stay_inside_and_ordered_where_they_change_form(s: float) -> None:
    grid = np.linspace(0.0, 1.0, 101)
    ups = np.array([unit_families.up(BERNOULLI, mu, s) for mu in grid])
    downs = np.array([unit_families.down(BERNOULLI, mu, s) for mu in grid])
    assert np.all(ups >= grid - 1e-15)
    assert np.all(downs <= grid + 1e-15)
    assert np.all(np.diff(ups) >= -1e-15)
    assert np.all(np.diff(downs) >= -1e-15)
    assert ups.max() <= 1.0 + 1e-15
    assert downs.min() >= 0.0
    # success and failure may change places
    np.testing.assert_allclose(ups, 1.0 - downs[::-1], atol=1e-15)
