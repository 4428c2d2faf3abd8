"""Linear bets in the state of a procedure: their formula, their least value, and where they are refused."""

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
from evenhand.procedure.evidence.cell_bets import add_outcomes, bounded_evidence, new_sums
from evenhand.procedure.evidence.linear_bets import TILTS
from evenhand.procedure.evidence.pair_bets import FIRST, SECOND, pair_row
from evenhand.procedure.log_space import NOTHING
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import Array, State, Work, new_state, new_work, record
from evenhand.verdicts.counts import record_all
from tests.procedure.stopping.linear_nulls import fraction, is_too_often

FAMILIES = {"bernoulli": eh.Bernoulli(), "binomial": eh.Binomial(3), "bounded": eh.Bounded(0.0, 1.0)}
SHARES = {"x": 0.5, "y": 0.3, "z": 0.2}


def problem(family: str, policies: int = 3, groups=None) -> eh.Problem:
    at = 3 * 0.4 if family == "binomial" else 0.4
    names = [f"p{k}" for k in range(policies)]
    return eh.Problem(names, groups or SHARES, FAMILIES[family], eh.Floors(at))


def recorded(family: str, draws: int, seed: int = 0, groups=None):
    """A state with outcomes in a random order, and those outcomes in unit scale."""
    rng = np.random.default_rng(seed)
    asked = problem(family, groups=groups)
    spec = compile_spec(asked, eh.Procedure(evidence="linear-bets", indifference=0.01))
    count = spec.shares.size
    policy, group = rng.integers(3, size=draws), rng.choice(count, draws, p=spec.shares)
    mean = np.array([0.85, 0.6, 0.5])[policy] - 0.05 * group
    x = {
        "bernoulli": (rng.random(draws) < mean).astype(float),
        "binomial": rng.binomial(3, mean) / 3.0,
        "bounded": rng.beta(20 * mean, 20 * (1 - mean)),
    }[family]
    state, work = new_state(spec), new_work(spec)
    record_all(spec, state, work, policy, group, x, np.zeros((draws, 0)))
    return spec, state, work, (policy, group, x)


class Pair:
    """The bets on policies i and k, from their outcomes one by one in NumPy."""

    def __init__(self, q, i, k, data):
        self.n, self.s, self.v = (np.zeros((2, q.size)) for _ in range(3))
        self.w, self.b = (np.zeros((2, q.size, 10)) for _ in range(2))
        sizes = 0.01 * 2.0 ** np.arange(-1, 9)
        for p, g, x in zip(*data, strict=True):
            if p not in (i, k):
                continue
            row, sign = (0, 1.0) if p == i else (1, -1.0)
            guess = (0.5 + self.s[row, g]) / (self.n[row, g] + 1)
            variance = (0.25 + self.v) / (self.n + 1)
            error = float((q**2 * variance / (self.n + 1)).sum())
            f = q[g] / (self.n[row, g] + 1) * float((q * np.sqrt(variance)).sum()) / error
            tau = sign * np.minimum(sizes * f, 0.9 / (guess if p == i else 1 - guess))
            self.w[row, g] += np.log1p(tau * (x - guess)) + tau * guess
            self.b[row, g] += tau
            self.v[row, g] += (x - guess) ** 2
            self.n[row, g], self.s[row, g] = self.n[row, g] + 1, self.s[row, g] + x

    def log_mixture(self, means):
        logs = np.log([0.05, 0.10, 0.75, 0.10])
        total = 0.0
        for row, g in np.ndindex(means.shape):
            bets = self.w[row, g] - self.b[row, g] * means[row, g]
            total += np.array([logsumexp([logs[0], *(logs[1:] + bets[j : j + 3])]) for j in range(8)])
        return logsumexp(total) - math.log(8)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bets_are_those_of_the_formula(family):
    spec, state, _, data = recorded(family, 900)
    groups = spec.shares.size
    for i, k in ((0, 1), (2, 0)):
        pair = Pair(spec.shares, i, k, data)
        for row, (p, rival, place) in enumerate(((i, k, FIRST), (k, i, SECOND))):
            for g in range(groups):
                begin = pair_row(groups, spec.bounded, rival, place, g)
                found = state.bets[begin : begin + 2 * TILTS, p]
                expected = np.concatenate([pair.w[row, g], pair.b[row, g]])
                np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("family", "groups"), [("bounded", SHARES), ("bernoulli", {"all": 1.0}), ("bounded", {"all": 1.0})]
)
def test_the_evidence_is_the_least_of_the_mixture(family, groups):
    spec, state, work, data = recorded(family, 300, seed=4, groups=groups)
    q, pair = spec.shares, Pair(spec.shares, 0, 1, data)
    found = certified.ahead(spec, state, work, 0, 1, math.inf)
    best, rng = math.inf, np.random.default_rng(0)
    for _ in range(4):
        answer = minimize(
            lambda z: pair.log_mixture(z.reshape(2, q.size)),
            np.repeat([0.7, 0.72], q.size) + rng.uniform(-0.08, 0.08, 2 * q.size),
            constraints={"type": "ineq", "fun": lambda z: q @ (z[q.size :] - z[: q.size]) - 0.01},
            bounds=[(0, 1)] * (2 * q.size),
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        if q @ (answer.x[q.size :] - answer.x[: q.size]) >= 0.01 - 1e-9:
            best = min(best, answer.fun)
    assert found > 2
    assert found == pytest.approx(best, abs=1e-6)
    assert certified.ahead(spec, state, work, 1, 0, math.inf) == NOTHING


@kernel
def draw_by_luck(spec: Spec, state: State, work: Work, uniforms: Array, truth: float, chase: float) -> None:
    """Sample two policies of this mean: often the cell that has been luckiest for policy 0, or unluckiest."""
    for t in range(uniforms.shape[0]):
        most, at_g, at_k = -math.inf, 0, 0
        for g in range(state.n.shape[0]):
            for k in range(2):
                luck = chase * (state.s[g, k] - truth * state.n[g, k]) * (1.0 if k == 0 else -1.0)
                if t % 4 == 0:
                    luck = fraction(uniforms[t, 1] * 7919.0 * (2.0 * g + k + 1.0))
                if luck > most:
                    most, at_g, at_k = luck, g, k
        record(spec, state, work, at_k, at_g, 1.0 if uniforms[t, 0] < truth else 0.0, False)


@pytest.mark.parametrize("chase", [1.0, -1.0])
def test_the_expectation_is_at_most_1_at_the_truth_whatever_is_sampled(chase):
    spec = compile_spec(problem("bernoulli", 2, {"x": 0.6, "y": 0.4}), eh.Procedure(evidence="linear-bets"))
    truth, rng, logs, reached, runs = 0.7, np.random.default_rng(3), [], 0, 300
    for _ in range(runs):
        state, work = new_state(spec), new_work(spec)
        draw_by_luck(spec, state, work, rng.random((100, 2)), truth, chase)
        logs.append(log_mixture_of(spec, state, np.full((2, 2), truth)))
        if state.n.min() > 0:
            reached += certified.ahead(spec, state, work, 0, 1, math.inf) >= math.log(20)
    values = np.exp(logs)
    assert values.mean() <= 1 + 5 * values.std() / math.sqrt(runs)
    assert not is_too_often(reached, runs)


def log_mixture_of(spec, state, means):
    """ln M of the pair (0, 1) at these means, (2, L), from the bets in the state."""
    pair, groups = object.__new__(Pair), spec.shares.size
    pair.w, pair.b = (np.zeros((2, groups, TILTS)) for _ in range(2))
    for p, rival, place in ((0, 1, FIRST), (1, 0, SECOND)):
        for g in range(groups):
            row = pair_row(groups, spec.bounded, rival, place, g)
            pair.w[p, g] = state.bets[row : row + TILTS, p]
            pair.b[p, g] = state.bets[row + TILTS : row + 2 * TILTS, p]
    return pair.log_mixture(means)


def test_bounded_cells_have_bets_at_the_bound():
    spec, state, _, (policy, group, x) = recorded("bounded", 600, seed=2)
    sums = new_sums(state.n.shape)
    add_outcomes(sums, policy, group, x)
    for k, g, c, sign in ((0, 0, 0.7, 1.0), (1, 2, 0.6, -1.0), (2, 1, 0.3, 1.0)):
        expected = bounded_evidence(sums[g, k], float(state.n[g, k]), c, sign)
        found = (certified.cell_above if sign > 0 else certified.cell_below)(spec, state, g, k, c)
        assert found == pytest.approx(expected, abs=1e-9)


def test_binary_cells_are_the_same_with_and_without_linear_bets():
    spec, state, _, _ = recorded("bernoulli", 600)
    plain = compile_spec(problem("bernoulli"), eh.Procedure(indifference=0.01))
    for c in (0.3, 0.55, 0.9):
        for one in (certified.cell_above, certified.cell_below):
            assert one(spec, state, 1, 0, c) == one(plain, state, 1, 0, c)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"family": eh.Poisson()}, "the family is 'poisson'"),
        ({"constraint": eh.Penalty(0.5, 1.0)}, "does not support penalties"),
        ({"policies": [f"p{k}" for k in range(65)]}, "supports up to 64 policies; there are 65"),
    ],
)
def test_linear_bets_are_refused_where_they_do_not_serve(change, said):
    parts = {
        "policies": ["a", "b"], "groups": SHARES, "family": eh.Bernoulli(), "constraint": eh.Floors(0.5)
    } | change  # fmt: skip
    with pytest.raises(eh.BadInput, match=said):
        compile_spec(eh.Problem(**parts), eh.Procedure(evidence="linear-bets"))


def test_linear_bets_belong_to_the_certified_rule():
    with pytest.raises(eh.BadInput, match="belongs to stopping 'certified'"):
        eh.Procedure(evidence="linear-bets", stopping="stylised")
    with pytest.raises(eh.BadInput, match="evidence must be one of mixture, linear-bets"):
        eh.Procedure(evidence="linear")


def test_a_procedure_is_written_with_its_evidence_and_read_again():
    chosen = eh.Procedure(evidence="linear-bets")
    assert chosen.to_dict()["evidence"] == "linear-bets"
    assert eh.Procedure.from_dict(chosen.to_dict()) == chosen
    assert "evidence" not in eh.Procedure().to_dict()


def test_the_evidence_does_not_depend_on_what_the_scratch_held():
    spec, state, work, _ = recorded("bernoulli", 500)
    found = certified.ahead(spec, state, work, 0, 1, math.inf)
    work.scratch[:] = 1e9 * np.random.default_rng(0).standard_normal(work.scratch.size)
    assert certified.ahead(spec, state, work, 0, 1, math.inf) == found
