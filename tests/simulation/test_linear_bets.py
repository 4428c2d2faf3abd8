"""The certified rule with linear bets: wrong decisions on the boundary, and fewer samples elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.model.families import Bernoulli, Binomial, Bounded, Family, Gaussian
from evenhand.model.problem import Problem
from evenhand.model.requirements import Caps, Constraint, Floors, Gap, NoConstraint
from evenhand.procedure.spec import Procedure
from evenhand.simulation.simulate import simulate
from tests.simulation.boundary import RISK, TINY, most_errors

GROUPS = {"x": 0.5, "y": 0.3, "z": 0.2}


def problem(family: Family, constraint: Constraint, policies: int = 2, **more: Any) -> Problem:
    return Problem([f"p{k}" for k in range(policies)], GROUPS, family, constraint, **more)


# truths a thousandth from another answer: rivals slightly ahead, floors narrowly missed or met
BOUNDARIES: dict[str, tuple[Problem, list[list[float]], dict[str, Any]]] = {
    "tie, with an indifference": (
        problem(Bernoulli(), NoConstraint()),
        [[0.7, 0.7, 0.7], [0.65 - TINY, 0.65 - TINY, 0.65 - TINY]],
        {"indifference": 0.05},
    ),
    "near, even means": (problem(Bernoulli(), NoConstraint()), [[0.5] * 3, [0.5 + TINY] * 3], {}),
    "near, high means": (problem(Bernoulli(), NoConstraint()), [[0.95] * 3, [0.95 + TINY] * 3], {}),
    "near, opposed groups": (
        problem(Bernoulli(), NoConstraint()), [[0.8, 0.2, 0.5], [0.4, 0.8, 0.6 + 5 * TINY]], {},
    ),
    "near, five policies": (
        problem(Bernoulli(), Floors(0.3), 5),
        [[0.6] * 3, [0.6 + TINY] * 3, [0.6] * 3, [0.6] * 3, [0.6] * 3], {},
    ),
    "the best misses its floor, narrowly": (
        problem(Bernoulli(), Floors(0.5), 3), [[0.5 - TINY, 0.8, 0.8], [0.6, 0.6, 0.6], [0.55] * 3], {},
    ),
    "the rival meets its floor, narrowly": (
        problem(Bernoulli(), Floors(0.5), 3), [[0.5 + TINY, 0.8, 0.8], [0.6, 0.6, 0.6], [0.55] * 3], {},
    ),
    "proportional": (
        problem(Bernoulli(), Caps(0.9), mode="proportional"), [[0.5] * 3, [0.5 + TINY] * 3], {},
    ),
    "uniform, gap": (
        problem(Bernoulli(), Gap(0.2)), [[0.5, 0.7 + TINY, 0.6], [0.55, 0.55, 0.55]], {"sampling": "uniform"},
    ),
    "binomial, near": (problem(Binomial(4), Floors(1.0)), [[2.0] * 3, [2.0 + 4 * TINY] * 3], {}),
    "bounded, two values": (problem(Bounded(0.0, 1.0), Floors(0.2)), [[0.5] * 3, [0.5 + TINY] * 3], {}),
    "gaussian, active": (
        problem(Gaussian(1.0), Floors(0.0), 3), [[0.5] * 3, [0.5 + TINY] * 3, [0.3] * 3], {},
    ),
    "gaussian, proportional": (
        problem(Gaussian([[1.0, 0.5, 2.0], [0.5, 1.0, 1.0]]), Floors(-2.0), mode="proportional"),
        [[0.9, 0.2, 0.5], [0.5, 0.8, 0.6 + 5 * TINY]], {},
    ),
    "gaussian, agnostic, floor missed, narrowly": (
        problem(
            Gaussian(1.0), Floors(0.0), 3, mode="agnostic", arrivals={"x": 0.2, "y": 0.2, "z": 0.6}
        ),
        [[-TINY, 1.0, 1.0], [0.2, 0.2, 0.2], [0.1] * 3], {},
    ),
    "gaussian, proportional, rival barely feasible": (
        problem(Gaussian(1.0), Floors(0.0), 3, mode="proportional"),
        [[TINY, 1.0, 1.0], [0.2, 0.2, 0.2], [0.1] * 3], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        case if case == "near, even means" else pytest.param(case, marks=pytest.mark.slow)
        for case in BOUNDARIES
    ],
)
def test_wrong_decisions_are_as_rare_as_asked_for_on_the_boundary(case: str) -> None:
    asked, means, wider = BOUNDARIES[case]
    quick = case == "near, even means"
    found = most_errors(asked, means, horizon=300 if quick else 1_000, evidence="linear-bets", **wider)
    assert found <= RISK


def test_linear_bets_need_fewer_samples_than_mixtures() -> None:
    asked = problem(Bernoulli(), NoConstraint())
    means = [[0.9, 0.9, 0.9], [0.83, 0.83, 0.83]]
    mixture, linear = (
        simulate(asked, means, Procedure(evidence=rule, max_samples=20_000), 60, seed=4)
        for rule in ("mixture", "linear-bets")
    )
    assert linear.stopped.all()
    assert linear.correct.all()
    assert linear.samples.mean() < 0.95 * mixture.samples.mean()
    said = [runs.to_dict()["method"] for runs in (mixture, linear)]
    assert said == ["order-free rule", "linear bets, which use the order of the outcomes"]
    json.dumps(linear.to_dict())


def test_bounded_outcomes_of_small_variance_need_a_tenth_of_the_samples(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    lines = ["policy,group,outcome"]
    for policy, shift in (("p0", 0.1), ("p1", 0.0)):
        for group in GROUPS:
            draws = rng.beta(60, 40, 200) + shift
            lines += [f"{policy},{group},{float(x)!r}" for x in np.clip(draws, 0, 1)]
    (tmp_path / "data.csv").write_text("\n".join(lines))
    from evenhand.study import Truth

    asked = problem(Bounded(0.0, 1.0), Floors(0.5))
    truth = Truth(data="data.csv", folder=tmp_path)
    mixture, linear = (
        simulate(asked, truth, Procedure(evidence=rule, max_samples=20_000), 20, seed=4)
        for rule in ("mixture", "linear-bets")
    )
    assert linear.correct.all()
    assert 10 * linear.samples.mean() < mixture.samples.mean()
