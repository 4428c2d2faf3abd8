"""The alternatives to an answer, against the definition of the answer itself.

An alternative is a table of means with another answer. `solve_all` splits these tables by how the answer
changes and finds the nearest of each kind; here they are searched with nothing but `Problem.answer`.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from evenhand.model.families import Bernoulli, Family, Gaussian
from evenhand.model.problem import Problem
from evenhand.model.requirements import Constraint, Dispersion, Floors, Penalty
from evenhand.theory import inner
from evenhand.theory.alternatives import alternatives_to, solve_all

Array = NDArray[np.float64]

SOMEBODY = np.array([[0.62, 0.55], [0.40, 0.45], [0.15, 0.90]])
NOBODY = np.array([[0.25, 0.70], [0.10, 0.20], [0.05, 0.90]])
CASES: dict[str, tuple[Family, Constraint, Array]] = {
    "floors, gaussian": (Gaussian(0.7), Floors(0.3), SOMEBODY),
    "floors, bernoulli": (Bernoulli(), Floors(0.3), SOMEBODY),
    "floors, nobody feasible": (Bernoulli(), Floors(0.3), NOBODY),
    "dispersion, gaussian": (Gaussian(0.7), Dispersion(0.04), SOMEBODY),
    "dispersion, bernoulli": (Bernoulli(), Dispersion(0.04), SOMEBODY),
    "dispersion, nobody feasible": (Gaussian(0.7), Dispersion(0.004), NOBODY),
    "penalty, gaussian": (Gaussian(0.7), Penalty(0.3, 4.0), SOMEBODY),
    "penalty, bernoulli": (Bernoulli(), Penalty(0.3, 4.0), SOMEBODY),
}
each_case = pytest.mark.parametrize("name", CASES)


def case(name: str) -> tuple[Problem, Array, Array]:
    """A problem, its means and an allocation, both K x L."""
    family, constraint, means = CASES[name]
    problem = Problem(["a", "b", "c"], {"x": 0.6, "y": 0.4}, family, constraint)
    return problem, means, np.random.default_rng(3).dirichlet(np.ones(6)).reshape(3, 2)


def cost(problem: Problem, w: Array, means: Array, lam: Array) -> float:
    return float((w * problem.family.divergence(means, lam)).sum())


@each_case
@pytest.mark.parametrize("few", [False, True], ids=["any allocation", "few samples of one of its cells"])
def test_no_means_with_another_answer_are_nearer_than_the_nearest_alternative(name: str, few: bool) -> None:
    problem, means, w = case(name)
    answer = problem.answer(means)
    if few:
        w[0, 1] *= 0.02  # so few that the answer may well miss its requirement there
    found = alternatives_to(problem, means, answer).solve_at(w)
    assert found.lower <= found.value <= searched(problem, means, w) < 1.5 * found.value


def searched(problem: Problem, means: Array, w: Array) -> float:
    """The least cost of means with another answer, among random ones and then around the best so far."""
    answer = problem.answer(means)
    rng = np.random.default_rng(5)
    best, least = means, np.inf
    cheap = np.sqrt(w.mean() / w)  # cells without weight can go farther
    for step in range(700):
        size, centre = (0.3, means) if step < 300 else (0.05, best)
        lam = centre + size * cheap * rng.normal(size=means.shape) * (rng.random(means.shape) < 0.5)
        lam = np.clip(lam, 0.01, 0.99) if isinstance(problem.family, Bernoulli) else lam
        if problem.answer(lam) == answer:
            continue
        near, far = 0.0, 1.0  # the answer changes between these two points of the way from the means
        for _ in range(30):
            middle = (near + far) / 2
            changed = problem.answer(means + middle * (lam - means)) != answer
            near, far = (near, middle) if changed else (middle, far)
        there = means + far * (lam - means)
        if cost(problem, w, means, there) < least:
            best, least = there, cost(problem, w, means, there)
    return least


@each_case
def test_every_alternative_found_costs_its_value_and_changes_the_answer_just_beyond_it(name: str) -> None:
    problem, means, w = case(name)
    answer = problem.answer(means)
    code, shares, phi, region = problem.standard
    value, lower, atom = np.empty(3), np.empty(3), np.full(3, -1, dtype=np.intp)
    lam, work = np.empty((3, 3, 2)), np.empty(inner.work_size(2, 0))
    index = -1 if answer is None else answer
    v = np.ascontiguousarray(w.T) / phi
    solve_all(
        code, region, region, shares, 0.0, index, v, problem.unit_means(means), value, lower, atom, lam, work
    )
    # with penalties no policy can leave: the answer's own alternative does not exist
    assert np.isinf(value).tolist() == [k == answer and name.startswith("penalty") for k in range(3)]
    for k in np.flatnonzero(np.isfinite(value)):
        there, beyond = means.copy(), means.copy()
        there[k] = lam[k, 1]
        if k == answer:
            beyond[k] = there[k] + 1e-6 * (there[k] - means[k])
        else:
            # a little nearer to its own overall mean and a little higher: inside the region, and better
            overall = shares @ there[k]
            beyond[k] = overall + (1 - 1e-6) * (there[k] - overall) + 1e-6
            if answer is not None:
                there[answer] = lam[k, 0]
                beyond[answer] = lam[k, 0] - 1e-6
        assert cost(problem, w, means, there) == pytest.approx(value[k], rel=1e-9)
        assert problem.answer(beyond) != answer
