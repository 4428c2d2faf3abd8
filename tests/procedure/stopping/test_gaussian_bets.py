"""Linear bets on Gaussian outcomes: their formula, their least value, and their expectation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

import evenhand as eh
from evenhand.compile import kernel
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.evidence import certified
from evenhand.procedure.evidence.linear_bets import TILTS
from evenhand.procedure.evidence.linear_evidence import FAR
from evenhand.procedure.evidence.pair_bets import FIRST, SECOND, pair_row
from evenhand.procedure.log_space import NOTHING
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import Array, State, Work, new_state, new_work, record
from evenhand.verdicts.counts import record_all
from tests.procedure.stopping.linear_nulls import fraction, is_too_often

SHARES = {"x": 0.5, "y": 0.3, "z": 0.2}
SD = [[0.7, 1.0, 1.5], [1.2, 0.8, 1.0], [1.0, 1.0, 1.0]]  # policies by groups
LOGS = np.log([0.05, 0.10, 0.75, 0.10])


def spec_of(groups=None, sd=None, scale: float = 1.0, indifference: float = 0.01) -> Spec:
    groups = groups or SHARES
    family = eh.Gaussian((scale * np.array(sd or SD)[:, : len(groups)]).tolist())
    asked = eh.Problem([f"p{k}" for k in range(len(sd or SD))], groups, family, eh.Floors(-1e12))
    return compile_spec(asked, eh.Procedure(evidence="linear-bets", indifference=indifference))


def recorded(draws: int, seed: int = 0, groups=None, shift: float = 0.0, scale: float = 1.0):
    """A state with outcomes in a random order, and those outcomes."""
    rng = np.random.default_rng(seed)
    spec = spec_of(groups, scale=scale, indifference=0.01 * scale)
    count = spec.shares.size
    policy, group = rng.integers(3, size=draws), rng.choice(count, draws, p=spec.shares)
    mean = np.array([0.6, 0.2, 0.0])[policy] - 0.1 * group
    x = scale * (mean + np.array(SD)[policy, group] * rng.standard_normal(draws)) + shift
    state, work = new_state(spec), new_work(spec)
    record_all(spec, state, work, policy, group, x, np.zeros((draws, 0)))
    return spec, state, work, (policy, group, x)


class Pair:
    """The bets on policies i and k, from their outcomes one by one in NumPy."""

    def __init__(self, spec: Spec, i: int, k: int, data):
        q, sd = spec.shares, np.sqrt(spec.phi.T[[i, k]])
        n = np.zeros((2, q.size))
        self.w, self.b = (np.zeros((2, q.size, TILTS)) for _ in range(2))
        for p, g, x in zip(*data, strict=True):
            if p not in (i, k):
                continue
            row, sign = (0, 1.0) if p == i else (1, -1.0)
            error = float((q**2 * sd**2 / (n + 1)).sum())
            tau = 0.02 * 2.0 ** np.arange(-1, 9) * q[g] / (n[row, g] + 1) * float((q * sd).sum()) / error
            self.w[row, g] += sign * tau * x - tau**2 * sd[row, g] ** 2 / 2
            self.b[row, g] += sign * tau
            n[row, g] += 1

    def log_mixture(self, means):
        total = 0.0
        for row, g in np.ndindex(means.shape):
            bets = self.w[row, g] - self.b[row, g] * means[row, g]
            total += np.array([logsumexp([LOGS[0], *(LOGS[1:] + bets[j : j + 3])]) for j in range(8)])
        return logsumexp(total) - math.log(8)

    def least(self, q, start):
        """The least of ln M over the null by another solver, from several starts."""
        best, rng = math.inf, np.random.default_rng(0)
        for _ in range(3):
            answer = minimize(
                lambda z: self.log_mixture(z.reshape(2, q.size)),
                (start + rng.uniform(-0.2, 0.2, start.shape)).ravel(),
                constraints={"type": "ineq", "fun": lambda z: q @ (z[q.size :] - z[: q.size]) - 0.01},
                method="SLSQP",
                options={"ftol": 1e-13, "maxiter": 500},
            )
            if q @ (answer.x[q.size :] - answer.x[: q.size]) >= 0.01 - 1e-9:
                best = min(best, answer.fun)
        return best


def log_mixture_of(spec: Spec, state: State, means):
    """ln M of the pair (0, 1) at these means, (2, L), from the bets in the state."""
    pair, groups = object.__new__(Pair), spec.shares.size
    pair.w, pair.b = (np.zeros((2, groups, TILTS)) for _ in range(2))
    for p, rival, place in ((0, 1, FIRST), (1, 0, SECOND)):
        for g in range(groups):
            row = pair_row(groups, False, rival, place, g)
            pair.b[p, g] = state.bets[row + TILTS : row + 2 * TILTS, p]
            pair.w[p, g] = state.bets[row : row + TILTS, p] + pair.b[p, g] * state.bets[g, p]
    return pair.log_mixture(means)


def test_the_bets_are_those_of_the_formula():
    spec, state, _, data = recorded(900)
    pair, means = Pair(spec, 0, 1, data), np.array([[0.6, 0.4, 0.3], [0.3, 0.1, 0.2]])
    assert log_mixture_of(spec, state, means) == pytest.approx(pair.log_mixture(means), rel=1e-10)
    row = pair_row(3, False, 1, FIRST, 2)
    found = state.bets[row + TILTS : row + 2 * TILTS, 0]
    np.testing.assert_allclose(found, pair.b[0, 2], rtol=1e-12)


@pytest.mark.parametrize("groups", [SHARES, {"all": 1.0}, {"x": 0.9, "y": 0.1}])
def test_the_evidence_is_the_least_of_the_mixture(groups):
    for seed in range(2):
        spec, state, work, data = recorded(900 + 300 * seed, seed, groups)
        q, pair = spec.shares, Pair(spec, 0, 1, data)
        found = certified.ahead(spec, state, work, 0, 1, math.inf)
        expected = pair.least(q, np.tile((state.s / state.n).T[:2].mean(axis=0), (2, 1)))
        assert found > 1
        assert found == pytest.approx(expected, abs=2e-6)
        assert certified.ahead(spec, state, work, 1, 0, math.inf) == NOTHING


def test_no_mean_in_the_null_has_less_than_the_evidence():
    spec, state, work, data = recorded(400, seed=3)
    found, rng = certified.ahead(spec, state, work, 0, 1, math.inf), np.random.default_rng(1)
    pair, q = Pair(spec, 0, 1, data), spec.shares
    for size in (0.1, 1.0, 30.0, 1e4):
        for _ in range(100):
            means = (state.s / state.n).T[:2] + size * rng.standard_normal((2, q.size))
            off = max(q @ (means[0] - means[1]) + 0.01, 0.0) / (2.0 * (q @ q))
            means += np.outer([-off, off], q)  # onto the null
            assert pair.log_mixture(means) >= found - 1e-9


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1e-6), (0.0, 1e6), (1e6, 1.0), (-1e9, 1e3)])
def test_the_evidence_does_not_depend_on_the_unit_of_outcomes(shift, scale):
    spec, state, work, _ = recorded(500)
    other, moved, again, _ = recorded(500, shift=shift, scale=scale)
    expected = certified.ahead(spec, state, work, 0, 1, math.inf)
    assert certified.ahead(other, moved, again, 0, 1, math.inf) == pytest.approx(expected, abs=1e-4)


def test_there_is_no_evidence_while_a_cell_is_empty_and_no_more_than_the_most():
    spec = spec_of({"x": 0.5, "y": 0.5})
    state, work = new_state(spec), new_work(spec)
    for _ in range(50):
        for k, g in ((0, 0), (0, 1), (1, 0)):
            record(spec, state, work, k, g, 100.0 * (1 - k), False)
    assert certified.ahead(spec, state, work, 0, 1, math.inf) == NOTHING
    for _ in range(50):
        record(spec, state, work, 1, 1, 0.0, False)
    assert certified.ahead(spec, state, work, 0, 1, math.inf) == pytest.approx(FAR)


def test_a_group_without_a_share_does_not_count():
    spec, whole = spec_of({"x": 0.6, "y": 0.4, "z": 0.0}), spec_of({"x": 0.6, "y": 0.4})
    rng = np.random.default_rng(2)
    values = []
    for one in (spec, whole):
        state, work = new_state(one), new_work(one)
        rng = np.random.default_rng(2)
        for _ in range(40):
            for k, g in np.ndindex(3, 2):
                record(one, state, work, k, g, 0.8 * (k == 0) + rng.standard_normal(), False)
        if one is spec:
            for k in range(3):
                record(one, state, work, k, 2, -50.0 * (k == 0), False)
        values.append(certified.ahead(one, state, work, 0, 1, math.inf))
    assert values[1] > 1
    # the third cell has the same factor, 1, in every product
    assert values[0] == pytest.approx(values[1], abs=1e-8)


@kernel
def draw_by_luck(spec: Spec, state: State, work: Work, uniforms: Array, normals: Array, chase: float) -> None:
    """Sample two policies of mean 0: often the cell that has been luckiest for policy 0, or unluckiest."""
    for t in range(normals.shape[0]):
        most, at_g, at_k = -math.inf, 0, 0
        for g in range(state.n.shape[0]):
            for k in range(2):
                luck = chase * state.s[g, k] * (1.0 if k == 0 else -1.0)
                if t % 4 == 0:
                    luck = fraction(uniforms[t] * 7919.0 * (2.0 * g + k + 1.0))
                if luck > most:
                    most, at_g, at_k = luck, g, k
        record(spec, state, work, at_k, at_g, math.sqrt(spec.phi[at_g, at_k]) * normals[t], False)


@pytest.mark.parametrize("chase", [1.0, -1.0])
def test_the_expectation_is_at_most_1_at_a_tie_whatever_is_sampled(chase):
    spec = spec_of({"x": 0.7, "y": 0.3}, [[1.0, 2.0], [0.5, 1.0]], indifference=0.0)
    rng, logs, reached, runs = np.random.default_rng(3), [], 0, 1_500
    for _ in range(runs):
        state, work = new_state(spec), new_work(spec)
        draw_by_luck(spec, state, work, rng.random(100), rng.standard_normal(100), chase)
        logs.append(log_mixture_of(spec, state, np.zeros((2, 2))))
        if state.n.min() > 0:
            reached += certified.ahead(spec, state, work, 0, 1, math.inf) >= math.log(20)
    # a martingale, so its mean is 1; capped values have a finite variance and a mean of at most 1
    values = np.minimum(np.exp(logs), 200.0)
    assert values.mean() <= 1 + 4 * values.std() / math.sqrt(runs)
    assert not is_too_often(reached, runs)


def test_outcomes_with_a_larger_sd_than_declared_are_found_by_the_test_of_the_expectation():
    spec = spec_of({"x": 0.7, "y": 0.3}, [[1.0, 2.0], [0.5, 1.0]], indifference=0.0)
    rng, logs, runs = np.random.default_rng(3), [], 1_500
    for _ in range(runs):
        state, work = new_state(spec), new_work(spec)
        draw_by_luck(spec, state, work, rng.random(100), 1.5 * rng.standard_normal(100), 1.0)
        logs.append(log_mixture_of(spec, state, np.zeros((2, 2))))
    values = np.minimum(np.exp(logs), 200.0)
    assert values.mean() > 1 + 4 * values.std() / math.sqrt(runs)


def test_intervals_of_gaussian_outcomes_have_no_linear_bets():
    asked = eh.Problem(["a", "b"], SHARES, eh.Gaussian(1.0), eh.Floors(0.0), mode="proportional")
    intervals = eh.Procedure(evidence="linear-bets", interval=eh.Intervals(volume=100))
    with pytest.raises(eh.BadInput, match="does not support intervals of gaussian outcomes"):
        compile_spec(asked, intervals)
