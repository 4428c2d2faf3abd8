"""Screening in simulations: every policy is classified, all of them right but for the risk asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evenhand.errors import BadInput
from evenhand.model.families import Bernoulli, Family, Gaussian, GaussianUnknown, Poisson
from evenhand.model.problem import Problem
from evenhand.model.requirements import Caps, Constraint, Dispersion, Floors, Gap, Quota
from evenhand.procedure.spec import SCREENING, Budget, Procedure
from evenhand.procedure.state import new_work
from evenhand.simulation.calibrate import calibrate
from evenhand.simulation.simulate import simulate
from evenhand.study import Study, Truth
from evenhand.theory.plan import plan
from tests.procedure.sampling.rule_run import RuleRun
from tests.simulation.boundary import RISK, TINY, most_errors

GROUPS = {"x": 0.5, "y": 0.5}
MEANS = [[0.9, 0.8], [0.9, 0.2], [0.3, 0.3]]


def problem(
    family: Family | None = None,
    constraint: Constraint | None = None,
    policies: int = 3,
    mode: str = "active",
) -> Problem:
    names = [f"p{k}" for k in range(policies)]
    return Problem(names, GROUPS, family or Gaussian(0.5), constraint or Floors(0.5), mode, goal="screen")


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
@pytest.mark.parametrize(
    "constraint",
    [
        Floors(0.5),
        Caps(0.6),
        Gap(0.3),
        Quota(0.6, groups=1),
        Dispersion(0.03),
        Floors(relative_to="p2", margin=0.0),
    ],
)
def test_every_policy_is_classified(constraint: Constraint, mode: str) -> None:
    asked = problem(constraint=constraint, mode=mode)
    runs = simulate(asked, MEANS, Procedure(delta=0.1, max_samples=20_000), 20, seed=1)
    allowed = asked.feasible(np.array(MEANS))
    assert runs.stopped.all()
    assert runs.correct.all()
    assert [runs.answers()[name] == 1.0 for name in asked.policies] == allowed.tolist()


def test_one_policy_is_enough() -> None:
    asked = problem(Bernoulli(), Floors(0.8), policies=1)
    good = simulate(asked, [[0.9, 0.9]], Procedure(max_samples=20_000), 30, seed=2, checkpoints=[10, 5000])
    bad = simulate(asked, [[0.9, 0.6]], Procedure(max_samples=20_000), 30, seed=2)
    assert good.answers() == {"p0": 1.0, "none": 0.0}
    assert bad.answers() == {"p0": 0.0, "none": 1.0}
    assert good.correct.all()
    assert bad.correct.all()
    assert good.at_checkpoint(0).rate <= good.at_checkpoint(1).rate == 1.0
    assert good.to_dict()["exactly_best"] == 1.0


def test_the_mean_number_of_samples_comes_near_the_bound_of_the_plan() -> None:
    delta = 1e-6
    runs = simulate(problem(), MEANS, Procedure(delta=delta, max_samples=50_000), 100, seed=3)
    least = plan(problem(), MEANS).samples_at_least(delta)
    assert least < runs.samples.mean() < 2.5 * least


BOUNDARIES: dict[str, tuple[Problem, list[list[float]], dict[str, Any]]] = {
    "all miss a floor, narrowly": (problem(), [[0.5 - TINY, 0.9]] * 3, {}),
    "all meet their floors, narrowly": (problem(), [[0.5 + TINY, 0.5 + TINY]] * 3, {}),
    "slightly to either side": (
        problem(constraint=Caps(0.5)),
        [[0.5 - TINY, 0.5 - TINY], [0.5 + TINY, 0.2], [0.5 + TINY, 0.5 + TINY]], {},
    ),
    "beside a control": (
        problem(constraint=Floors(relative_to="p0", margin=0.1)),
        [[0.5, 0.5], [0.4 - TINY, 0.8], [0.4 + TINY, 0.8]], {},
    ),
    "bernoulli": (problem(Bernoulli()), [[0.5 - TINY, 0.9], [0.5 + TINY, 0.9], [0.5 + TINY, 0.5 + TINY]], {}),
    "poisson": (problem(Poisson(), Caps(1.0)), [[1.0 + TINY, 0.5]] * 3, {}),
    "unknown variance": (problem(GaussianUnknown()), [[0.5 - TINY, 0.9]] * 3, {}),
}  # fmt: skip
QUICK = ("all miss a floor, narrowly", "slightly to either side", "beside a control")


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in BOUNDARIES]
)
def test_wrong_classifications_are_as_rare_as_asked_for_on_the_boundary(case: str) -> None:
    asked, means, wider = BOUNDARIES[case]
    assert most_errors(asked, means, horizon=600, **wider) <= RISK


@pytest.mark.parametrize("sampling", SCREENING)
def test_the_rules_that_serve_it(sampling: str) -> None:
    runs = simulate(problem(), MEANS, Procedure(sampling=sampling, max_samples=5000), 10, seed=4)
    assert runs.stopped.all()
    assert runs.correct.all()


def test_other_rules_and_an_indifference_are_refused() -> None:
    with pytest.raises(BadInput, match="is sampled by ts-ids, uniform, oracle; the sampling is 'top-two'"):
        simulate(problem(), MEANS, Procedure(sampling="top-two"), 1)
    with pytest.raises(BadInput, match="indifference belongs to goal"):
        simulate(problem(), MEANS, Procedure(indifference=0.1), 1)


def test_other_stopping_rules_serve_it_too() -> None:
    for stopping in ("stylised", "kaufmann-koolen", Budget(200)):
        runs = simulate(problem(), MEANS, Procedure(stopping=stopping, max_samples=20_000), 20, seed=5)  # type: ignore[arg-type]
        assert runs.stopped.all()
        assert runs.correct.mean() >= 0.9
    study = Study(problem(), Procedure(delta=0.1))
    scenarios = {"near": Truth(means=((0.51, 0.9), (0.49, 0.9), (0.3, 0.3)))}
    assert calibrate(study, scenarios, 200, 1, horizon=200).threshold > 0


def test_decisions_do_not_depend_on_what_was_computed_before() -> None:
    kept, fresh = (RuleRun(problem(), Procedure(initial=2, max_samples=4000), MEANS) for _ in range(2))
    for cell in kept.run(80):
        fresh.work = new_work(fresh.spec)
        assert fresh.ask() == cell
        fresh.tell(cell)
