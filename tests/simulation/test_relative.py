"""Floors and caps relative to a control in simulations: answers, error rates, and who is sampled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evenhand.errors import BadInput
from evenhand.model.families import Bernoulli, Binomial, Bounded, Family, Gaussian, GaussianUnknown, Poisson
from evenhand.model.problem import Problem
from evenhand.model.requirements import All, Caps, Constraint, Floors
from evenhand.procedure.spec import SAMPLING, Budget, Procedure
from evenhand.procedure.state import new_work
from evenhand.simulation.simulate import simulate
from tests.procedure.sampling.rule_run import RULES, RuleRun
from tests.simulation.boundary import RISK, TINY, most_errors
from tests.simulation.studies import check_acceptable

GROUPS = {"x": 0.5, "y": 0.3, "z": 0.2}
MEANS = [[0.3, 0.4, 0.35], [0.8, 0.8, 0.9], [1.3, 1.2, 0.0]]  # the last is worse off than p0 in z


def problem(
    family: Family | None = None, constraint: Constraint | None = None, policies: int = 3, **more: Any
) -> Problem:
    names = [f"p{k}" for k in range(policies)]
    return Problem(names, GROUPS, family or Gaussian(0.5), constraint or floors(0.1), **more)


def floors(margin: Any) -> Floors:
    return Floors(relative_to="p0", margin=margin)


FAMILIES: dict[str, tuple[Family, float]] = {
    "gaussian": (Gaussian(0.5), 1.0), "bernoulli": (Bernoulli(), 0.6), "binomial": (Binomial(5), 3.0),
    "bounded": (Bounded(0.0, 2.0), 1.2), "poisson": (Poisson(), 2.0),
    "gaussian-unknown": (GaussianUnknown(), 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_the_best_policy_that_leaves_no_group_worse_off_is_found(name: str) -> None:
    family, scale = FAMILIES[name]
    means = scale * np.array(MEANS)
    runs = simulate(
        problem(family, floors(0.1 * scale)), means, Procedure(delta=0.1, max_samples=20_000), 20, seed=1
    )
    assert runs.stopped.all()
    assert runs.correct.mean() >= 0.9
    assert set(runs.rows.truth.tolist()) == {1}


@pytest.mark.parametrize(
    "constraint",
    [
        floors(0.1),
        Floors(relative_to="p0", ratio=(1.1, 0.9, 1.0)),
        Caps(relative_to="p0", margin=0.2),
        All((floors(0.3), Caps(relative_to="p0", margin=0.3), Floors(0.2))),
    ],
)
def test_what_counts_as_right_is_what_the_plan_calls_acceptable(constraint: Constraint) -> None:
    asked, tolerance = problem(constraint=constraint), 0.05
    tables = np.random.default_rng(2).uniform(0.1, 0.9, (200, 3, 3))
    for indifference in (0.0, 0.1):
        wider = {"indifference": indifference, "tolerance": tolerance if indifference else 0.0}
        procedure = Procedure(stopping=Budget(60), max_samples=60, **wider)  # type: ignore[arg-type]
        runs = simulate(asked, tables, procedure, 200, seed=2)
        check_acceptable(runs, tables)


BOUNDARIES: dict[str, tuple[Problem, list[list[float]], dict[str, Any]]] = {
    "the better one misses its floor": (
        problem(policies=2), [[0.5, 0.5, 0.5], [0.4 - TINY, 0.9, 0.9]], {},
    ),
    "the better one keeps its floor": (
        problem(policies=2), [[0.5, 0.5, 0.5], [0.4 + TINY, 0.6, 0.6]], {},
    ),
    "ratio": (
        problem(constraint=Floors(relative_to="p0", ratio=0.9), policies=3),
        [[0.5, 0.5, 0.5], [0.45 - TINY, 0.9, 0.9], [0.5, 0.6, 0.5]], {},
    ),
    "caps": (
        problem(constraint=Caps(relative_to="p0", margin=0.2), policies=3),
        [[0.5, 0.5, 0.5], [0.7 + TINY, 0.7, 0.7], [0.6, 0.6, 0.6]], {},
    ),
    "superiority": (
        problem(constraint=floors(-0.1), policies=2), [[0.5, 0.5, 0.5], [0.6 - TINY, 0.9, 0.9]], {},
    ),
    "nobody is allowed, narrowly": (
        problem(constraint=All((floors(0.1), Floors(0.5))), policies=2),
        [[0.5 - TINY, 0.9, 0.9], [0.5 - TINY, 0.9, 0.9]], {},
    ),
    "a tie with the control": (problem(policies=2), [[0.5, 0.5, 0.5], [0.5 - TINY, 0.5, 0.5]], {}),
    "outside the tolerance": (
        problem(constraint=floors(0.0), policies=2), [[0.5, 0.5, 0.5], [0.4 - TINY, 0.9, 0.9]],
        {"tolerance": 0.1, "indifference": 0.05},
    ),
    "bernoulli": (
        problem(Bernoulli(), policies=2), [[0.5, 0.5, 0.5], [0.4 - TINY, 0.9, 0.9]], {},
    ),
    "poisson": (
        problem(Poisson(), Floors(relative_to="p0", ratio=0.9), policies=2),
        [[2.0, 2.0, 2.0], [1.8 - TINY, 3.0, 3.0]], {},
    ),
    "unknown variance": (
        problem(GaussianUnknown(), policies=2), [[0.5, 0.5, 0.5], [0.4 - TINY, 0.9, 0.9]], {},
    ),
    "uniform sampling": (
        problem(policies=2), [[0.5, 0.5, 0.5], [0.4 - TINY, 0.9, 0.9]], {"sampling": "uniform"},
    ),
}  # fmt: skip
QUICK = ("the better one misses its floor", "the better one keeps its floor", "caps", "superiority", "ratio")


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in BOUNDARIES]
)
def test_wrong_decisions_are_as_rare_as_asked_for_on_the_boundary(case: str) -> None:
    asked, means, wider = BOUNDARIES[case]
    assert most_errors(asked, means, horizon=600, **wider) <= RISK


@pytest.mark.parametrize("sampling", SAMPLING)
def test_every_sampling_rule_serves_it(sampling: str) -> None:
    fixed = sampling == "sequential-halving"
    procedure = Procedure(sampling=sampling, stopping=Budget(600) if fixed else "certified", max_samples=8000)
    runs = simulate(problem(), MEANS, procedure, 10, seed=3)
    if sampling != "policy-track-and-stop":  # the baseline that does not look at requirements
        assert runs.stopped.mean() >= 0.9
    assert runs.correct[runs.stopped].mean() >= 0.9


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
def test_the_control_is_never_starved(mode: str) -> None:
    means = [[-0.5, -0.5, -0.5], *MEANS[1:]]  # it looks hopeless, but what the others may do hangs on it
    run = RuleRun(problem(mode=mode), Procedure(initial=2, max_samples=4000), means)
    cells = list(run.run(1500))
    counts = run.counts
    assert len(cells) == 1500
    for k in (1, 2):
        assert np.all(counts[0] + 1 >= 0.5 * np.sqrt(counts[k] - 1)), mode


def test_an_unlucky_control_does_not_stay_unlucky_while_two_others_compete() -> None:
    """p2 is nearly as good as p1 and allowed only if the control is worse than it is."""
    asked = Problem(["p0", "p1", "p2", "p3"], {"x": 0.6, "y": 0.4}, Bernoulli(), floors(0.05))
    means = [[0.55, 0.45], [0.68, 0.56], [0.82, 0.33], [0.6, 0.5]]
    runs = simulate(asked, means, Procedure(delta=0.1, max_samples=20_000), 30, seed=1)
    assert runs.stopped.all()


@pytest.mark.parametrize("rule", ["ts-ids", "top-two", "two-stage", "frank-wolfe", "ids"])
def test_decisions_do_not_depend_on_what_was_computed_before(rule: str) -> None:
    def run() -> RuleRun:
        return RuleRun(problem(), Procedure(sampling=RULES[rule], initial=2, max_samples=4000), MEANS)

    kept, fresh = run(), run()
    for cell in kept.run(60):
        fresh.work = new_work(fresh.spec)
        assert fresh.ask() == cell
        fresh.tell(cell)


def test_beyond_256_policies_draws_roll_and_the_control_with_them() -> None:
    means = np.tile(np.linspace(0.9, 0.1, 300)[:, None], (1, 3))
    asked = problem(policies=300)

    def run() -> RuleRun:
        return RuleRun(asked, Procedure(initial=1, stopping="stylised", max_samples=4000), means)

    kept, fresh = run(), run()
    for number, cell in enumerate(kept.run(960)):
        if number >= 900:
            fresh.work = new_work(fresh.spec)
        assert fresh.ask() == cell
        fresh.tell(cell)


def test_a_ratio_to_a_negative_mean_is_refused() -> None:
    asked = problem(constraint=Floors(relative_to="p0", ratio=0.9))
    with pytest.raises(BadInput, match="negative"):
        simulate(asked, [[-0.1, 0.4, 0.3], *MEANS[1:]], Procedure(max_samples=100), 2)
    with pytest.raises(BadInput, match="negative"):
        simulate(asked, np.array([MEANS, [[-0.1, 0.4, 0.3], *MEANS[1:]]]), Procedure(max_samples=100), 2)
