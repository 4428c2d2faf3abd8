"""Evidence about penalised scores: a close lower bound of the martingale's infimum over the null."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize

from evenhand.model.families import Gaussian
from evenhand.model.requirements import NoConstraint, Penalty
from evenhand.procedure.evidence import gaussian, penalty
from evenhand.procedure.log_space import NOTHING
from evenhand.procedure.state import State
from tests.procedure.stopping.counts import counted, spec_of
from tests.procedure.stopping.test_gaussian import log_martingale

Array = NDArray[np.float64]

SD, FLOOR = 0.5, 0.2


def infimum(state: State, q: Array, gamma: float) -> float:
    """The least ln M over the null, by a general minimiser, one choice of the leader's lines at a time."""
    n, mean = state.n.T[:2], (state.s / state.n).T[:2]
    groups = q.size

    def means(x: Array) -> tuple[Array, Array]:
        return mean[0] - SD * x[:groups], mean[1] + SD * x[groups:]

    def value(x: Array) -> float:
        return log_martingale(x[:groups], n[0]) + log_martingale(x[groups:], n[1])

    def surplus(x: Array, steep: Array) -> float:
        leader, rival = means(x)
        reached = q @ (rival + gamma * np.minimum(rival - FLOOR, 0.0))
        return float(reached - q @ (leader + steep * gamma * (leader - FLOOR)))

    found = []
    for steep in itertools.product((0.0, 1.0), repeat=groups):
        condition = {"type": "ineq", "fun": surplus, "args": (np.array(steep),)}
        for start in (0.0, 0.5, 2.0):
            ended = optimize.minimize(
                value, np.full(2 * groups, start), method="SLSQP", constraints=[condition],
                options={"maxiter": 500, "ftol": 1e-12},
            )  # fmt: skip
            if ended.success and surplus(ended.x, np.array(steep)) > -1e-7:
                found.append(float(ended.fun))
    return min(found)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed in (2, 7, 8) else ()) for seed in range(10)]
)
def test_the_bound_is_just_below_the_infimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = 2 + seed % 2
    q = rng.dirichlet(np.full(groups, 3.0))
    gamma = float(rng.choice([0.5, 2.0, 10.0]))
    spec = spec_of(Gaussian(SD), q, Penalty(FLOOR, gamma))
    n = rng.integers(15, 400, size=(groups, 2)).astype(float)
    means = np.stack([rng.uniform(0.25, 0.6, groups), rng.uniform(-0.1, 0.4, groups)], axis=1)
    state, work = counted(spec, n, means)
    least = infimum(state, q, gamma)
    bound = penalty.ahead(spec, state, 0, 1, math.inf, work.last[1], work.scratch)
    assert bound <= least + 1e-5
    assert bound >= least - 1e-3


def test_without_a_penalty_it_is_the_evidence_about_overall_means() -> None:
    q = [0.3, 0.7]
    n = np.array([[30.0, 12.0], [80.0, 45.0]])
    means = np.array([[0.9, 0.3], [0.6, 0.4]])
    plain, soft = spec_of(Gaussian(SD), q, NoConstraint()), spec_of(Gaussian(SD), q, Penalty(-5.0, 0.0))
    expected = gaussian.ahead(plain, counted(plain, n, means)[0], 0, 1)
    state, work = counted(soft, n, means)
    found = penalty.ahead(soft, state, 0, 1, math.inf, work.last[1], work.scratch)
    assert found == pytest.approx(expected, abs=1e-5)


def test_it_ends_early_once_it_exceeds_what_is_enough() -> None:
    spec = spec_of(Gaussian(SD), [0.5, 0.5], Penalty(FLOOR, 3.0))
    n = np.full((2, 2), 300.0)
    state, work = counted(spec, n, [[0.6, 0.1], [0.5, 0.3]])
    whole = penalty.ahead(spec, state, 0, 1, math.inf, work.last[1], work.scratch)
    assert whole > 5.0
    assert 5.0 <= penalty.ahead(spec, state, 0, 1, 5.0, work.last[1], work.scratch) <= whole + 1e-9
    assert penalty.ahead(spec, state, 0, 1, whole + 1.0, work.last[1], work.scratch) == whole


@pytest.mark.parametrize("seed", range(10))
def test_what_was_found_before_shortens_the_search_and_changes_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spec = spec_of(Gaussian(SD), [0.3, 0.3, 0.4], Penalty(FLOOR, float(rng.choice([0.5, 2.0, 10.0]))))
    n = rng.integers(15, 400, size=(3, 2)).astype(float)
    means = np.stack([rng.uniform(0.25, 0.6, 3), rng.uniform(-0.1, 0.4, 3)], axis=1)
    state, work = counted(spec, n, means)
    whole = penalty.ahead(spec, state, 0, 1, math.inf, np.zeros(3), work.scratch)
    ended = np.zeros(3)
    penalty.ahead(spec, state, 0, 1, math.inf, ended, work.scratch)
    for last in (np.array([3.0, 0.5, 2.0]), rng.uniform(0.0, 30.0, 3), ended):
        for more in (0.0, 0.1, 3.0, math.inf):
            assert penalty.ahead(spec, state, 0, 1, whole + more, last.copy(), work.scratch) == whole
        for less in (0.1, 3.0):
            found = penalty.ahead(spec, state, 0, 1, whole - less, last.copy(), work.scratch)
            assert whole - less < found <= whole + 1e-5


def test_a_cell_without_samples_leaves_nothing_to_say() -> None:
    spec = spec_of(Gaussian(SD), [0.5, 0.5], Penalty(FLOOR, 3.0))
    state, work = counted(spec, [[9, 9], [9, 0]], [[1.0, 0.1], [1.0, 0.0]])
    assert penalty.ahead(spec, state, 0, 1, math.inf, work.last[1], work.scratch) == NOTHING
