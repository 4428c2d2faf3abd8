"""Regret mixtures: what is bet sums to one, and the evidence is the inner problem's value less the regret."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from evenhand.model.families import Bernoulli, Exponential, Gamma, Gaussian, GaussianUnknown, Poisson
from evenhand.model.requirements import Penalty
from evenhand.procedure.evidence import likelihood_mixture
from evenhand.procedure.evidence.likelihood_mixture import N0
from evenhand.procedure.log_space import NOTHING
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State
from evenhand.theory import inner
from tests.procedure.stopping.counts import counted, recorded, spec_of

WORK = np.zeros(4000)


def against(spec: Spec, state: State, c: float) -> float:
    """ln of the mixture's likelihood over that at mean c, for the one cell of policy 0."""
    above = likelihood_mixture.row(spec, state, 0, np.array([-1.0]), -c, WORK)
    below = likelihood_mixture.row(spec, state, 0, np.array([1.0]), c, WORK)
    return max(above, below)  # one of them finds the estimate inside its half-space


@pytest.mark.parametrize("n", [1, 7, 60])
def test_the_beta_mixture_has_mean_one(n: int) -> None:
    spec, c = spec_of(Bernoulli(), [1.0]), 0.35
    values = [math.exp(against(spec, counted(spec, [[n, n]], [[s / n, 0.5]])[0], c)) for s in range(n + 1)]
    assert stats.binom.pmf(range(n + 1), n, c) @ values == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("c", [0.2, 30.0])
def test_the_gamma_mixture_has_mean_one(c: float) -> None:
    spec, n = spec_of(Poisson(), [1.0]), 3
    s = np.arange(0, 2000)
    logs = [against(spec, counted(spec, [[n, n]], [[x / n, 1.0]])[0], c) for x in s]
    # averaged over rates it has heavy tails: what is left of them beyond 2,000 is less than the tolerance
    assert np.exp(stats.poisson.logpmf(s, n * c) + logs).sum() == pytest.approx(1.0, abs=0.6)
    assert np.exp(stats.poisson.logpmf(s, n * c) + logs).sum() <= 1.0 + 1e-9


@pytest.mark.parametrize("shape", [1.0, 2.5])
def test_bets_on_waiting_times_have_mean_one_given_the_first(shape: float) -> None:
    spec, c, first = spec_of(Gamma(shape), [1.0]), 2.0, 0.7

    def weighed(x: float) -> float:
        state, _ = recorded(spec, {(0, 0): [first, x]})
        return math.exp(stats.gamma.logpdf(x, shape, scale=c / shape) + against(spec, state, c))

    total = integrate.quad(weighed, 0, 1, limit=200)[0] + integrate.quad(weighed, 1, 2000, limit=2000)[0]
    assert total == pytest.approx(1.0, abs=2e-3)  # the bet's tail falls like a power


def test_the_unit_of_waiting_times_does_not_matter() -> None:
    rng = np.random.default_rng(2)
    told = {(k, g): rng.exponential(1.5 - 0.5 * k, size=50) for k in range(2) for g in range(2)}
    spec = spec_of(Exponential(), [0.5, 0.5])
    seconds, _ = recorded(spec, told)
    hours, _ = recorded(spec, {cell: xs / 3600 for cell, xs in told.items()})
    here = likelihood_mixture.ahead(spec, seconds, 0, 1, WORK)
    assert likelihood_mixture.ahead(spec, hours, 0, 1, WORK) == pytest.approx(here, abs=1e-9)


def test_without_individual_outcomes_waiting_times_say_nothing() -> None:
    spec = spec_of(Exponential(), [1.0])
    state, _ = counted(spec, [[50, 50]], [[3.0, 1.0]])
    assert likelihood_mixture.ahead(spec, state, 0, 1, WORK) == NOTHING


def test_gaussian_penalties_shrink_the_weights_and_charge_every_cell() -> None:
    spec = spec_of(Gaussian(0.5), [0.4, 0.6], Penalty(0.3, 2.0))
    n, means = np.array([[30.0, 50], [80, 20]]), np.array([[0.5, 0.2], [0.4, 0.3]])
    state, work = counted(spec, n, means)
    v = n**2 / (n + N0) / 0.25
    lam_i, lam_k = np.zeros(2), np.zeros(2)
    _, lower = inner.beat(
        spec.code, spec.region, spec.shares, 0.0, 0, 1, v, means, lam_i, lam_k, lam_k, work.scratch
    )
    expected = lower - 0.5 * np.log1p(n / N0).sum()
    found = likelihood_mixture.beats(spec, state, work, spec.region, 0, 1, math.inf)
    assert found == pytest.approx(expected, rel=1e-12)


def test_with_unknown_variance_penalties_use_the_largest_plausible_one() -> None:
    rng = np.random.default_rng(4)
    told = {(k, g): rng.normal(1.0 - k, 0.5, size=100) for k in range(2) for g in range(2)}
    spec = spec_of(GaussianUnknown(), [0.5, 0.5], Penalty(0.3, 2.0))
    known = spec_of(Gaussian(0.5), [0.5, 0.5], Penalty(0.3, 2.0))
    state, work = recorded(spec, told)
    found = likelihood_mixture.beats(spec, state, work, spec.region, 0, 1, 9.0)
    assert found == 9.0
    found = likelihood_mixture.beats(spec, state, work, spec.region, 0, 1, 60.0)
    assert 0.0 < found < likelihood_mixture.beats(known, state, work, known.region, 0, 1, math.inf)
