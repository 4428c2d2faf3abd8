"""Remembered floors never lie above what solving a piece gives, and the weakest piece is always found."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.model.families import Bernoulli, Exponential, Family, Gaussian, GaussianUnknown, Poisson
from evenhand.model.problem import Problem
from evenhand.model.requirements import Constraint, Floors, Penalty
from evenhand.procedure.alternatives import weakest_by_likelihood
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.estimates import refresh
from evenhand.procedure.likelihood_bounds import highest
from evenhand.procedure.spec import Procedure
from evenhand.procedure.state import NONE, ask, new_state, new_work, record
from evenhand.theory.beat_bulk import beat_all

MEANS = np.array([[0.8, 0.6, 0.7], [0.5, 0.6, 0.4], [0.2, 0.9, 0.8], [0.7, 0.6, 0.75], [0.4, 0.3, 0.3]])
DRAWS = {
    "gaussian": (Gaussian(0.5), lambda rng, mean: rng.normal(mean, 0.5)),
    "unknown": (GaussianUnknown(), lambda rng, mean: rng.normal(mean, 0.5)),
    "bernoulli": (Bernoulli(), lambda rng, mean: float(rng.random() < mean)),
    "poisson": (Poisson(), lambda rng, mean: float(rng.poisson(mean))),
    "exponential": (Exponential(), lambda rng, mean: rng.exponential(mean)),
}


@pytest.mark.parametrize("requirement", [Floors(0.3), Penalty(0.3, 2.0)], ids=["floors", "penalty"])
@pytest.mark.parametrize("name", DRAWS)
def test_the_weakest_piece_is_found_though_few_are_solved(name: str, requirement: Constraint) -> None:
    family, draw = DRAWS[name]
    rng = np.random.default_rng(5)
    spec = compile_spec(_problem(family, requirement), Procedure(stopping="stylised"))
    state, work = new_state(spec), new_work(spec)
    for step in range(400):
        k, g = int(rng.integers(5)), int(rng.integers(3))
        if step % 3 == 0:
            ask(state, work, k, g)  # counts for the weights at once, for the mean when it is told
        record(spec, state, work, k, g, draw(rng, MEANS[k, g]), step % 3 == 0)
        if step < 40 or (state.n == 0).any():
            continue
        leader = refresh(spec, state, work, True)
        value, piece = weakest_by_likelihood(spec, work, leader)
        if leader == NONE:
            continue
        solved = [_solved(spec, work, leader, k) if k != leader else np.inf for k in range(5)]
        assert all(work.floor[k] <= highest(work, solved[k]) for k in range(5) if k != leader)
        assert value <= min(solved)
        assert piece >= 5 or solved[piece] == min(solved)


def _solved(spec, work, leader: int, k: int) -> float:  # type: ignore[no-untyped-def]
    lam_i, lam_k, lower = np.zeros(3), np.zeros(3), np.zeros(5)
    beat_all(
        spec.code,
        spec.region,
        spec.shares,
        0.0,
        leader,
        work.v,
        work.mean,
        lower,
        lam_i,
        lam_k,
        lam_k,
        work.scratch,
    )
    return float(lower[k])


def _problem(family: Family, requirement: Constraint) -> Problem:
    return Problem(list("abcde"), {"x": 0.3, "y": 0.3, "z": 0.4}, family, requirement)
