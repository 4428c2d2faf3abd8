"""Indifference and tolerance in simulations: every acceptable answer is right, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.model.families import Bernoulli, Family, Gaussian, GaussianUnknown, Poisson
from evenhand.model.problem import Problem
from evenhand.model.requirements import Caps, Constraint, Floors, Gap, NoConstraint, Penalty, Quota
from evenhand.procedure.spec import SAMPLING, Budget, Procedure
from evenhand.simulation.calibrate import calibrate
from evenhand.simulation.runs import Runs, read_npz, write_npz
from evenhand.simulation.simulate import compare, simulate
from evenhand.study import Study, Truth
from tests.simulation.boundary import RISK, TINY, most_errors
from tests.simulation.studies import check_acceptable

GROUPS = {"x": 0.5, "y": 0.3, "z": 0.2}


def problem(
    family: Family | None = None, constraint: Constraint | None = None, policies: int = 3, **more: Any
) -> Problem:
    names = [f"p{k}" for k in range(policies)]
    return Problem(names, GROUPS, family or Gaussian(0.5), constraint or Floors(0.0), **more)


NEAR_TIE = [[0.6, 0.5, 0.7], [0.57, 0.47, 0.68], [0.2, 0.4, 0.3]]


def test_a_near_tie_is_decided_with_an_indifference_and_both_notions_are_reported() -> None:
    exact = simulate(problem(), NEAR_TIE, Procedure(max_samples=3000), 100, seed=3)
    close = simulate(problem(), NEAR_TIE, Procedure(max_samples=3000, indifference=0.15), 100, seed=3)
    assert exact.stopped.mean() < 0.5
    assert close.stopped.mean() > 0.95
    said = close.to_dict()
    assert said["correct"]["rate"] >= 0.95
    assert said["exactly_best"] == np.mean(close.answer == 0) < said["correct"]["rate"]
    assert set(close.answer[close.correct].tolist()) == {0, 1}


def test_an_exact_tie_ends_with_either() -> None:
    tie = [NEAR_TIE[0], NEAR_TIE[0], NEAR_TIE[2]]
    runs = simulate(problem(), tie, Procedure(max_samples=4000, indifference=0.15), 100, seed=4)
    assert runs.stopped.all()
    assert runs.correct.all()
    assert 0.1 < np.mean(runs.answer == 1) < 0.9


def test_a_policy_below_its_floor_by_less_than_the_tolerance_is_an_answer() -> None:
    means = [[0.45, 0.8, 0.8], [0.1, 0.2, 0.1]]
    asked = problem(constraint=Floors(0.5), policies=2)
    strict = simulate(asked, means, Procedure(max_samples=6000), 60, seed=5)
    loose = simulate(asked, means, Procedure(max_samples=6000, tolerance=[0.2, 0.0, 0.0]), 60, seed=5)
    assert set(strict.answer[strict.stopped].tolist()) == {-1}
    assert {0} <= set(loose.answer.tolist()) <= {0, -1}  # no policy is allowed, so "none" is right too
    assert loose.correct[loose.stopped].all()
    assert loose.samples.mean() < strict.samples.mean()


@pytest.mark.parametrize(
    "constraint", [Floors(0.3), Caps(0.7), Gap(0.4), Quota(0.4, groups=2), Penalty(0.5, 2.0)]
)
def test_what_counts_as_right_is_what_the_plan_calls_acceptable(constraint: Constraint) -> None:
    loosens = isinstance(constraint, (Floors, Caps, Quota))
    procedure = Procedure(
        stopping=Budget(30), max_samples=30, indifference=0.1, tolerance=0.1 if loosens else 0.0
    )
    asked = problem(constraint=constraint)
    tables = np.random.default_rng(6).uniform(0.1, 0.9, (200, 3, 3))
    runs = simulate(asked, tables, procedure, 200, seed=6, checkpoints=[20])
    check_acceptable(runs, tables)
    assert np.any(runs.correct != runs.exactly_best)


BOUNDARIES: dict[str, tuple[Problem, list[list[float]], dict[str, Any]]] = {
    "behind by more than the indifference": (
        problem(constraint=NoConstraint(), policies=2),
        [[0.7, 0.7, 0.7], [0.6 - TINY, 0.6 - TINY, 0.6 - TINY]],
        {"indifference": 0.1},
    ),
    "bernoulli, behind by more than the indifference": (
        problem(Bernoulli(), NoConstraint(), 2),
        [[0.7, 0.7, 0.7], [0.6 - TINY, 0.6 - TINY, 0.6 - TINY]],
        {"indifference": 0.1},
    ),
    "poisson, behind by more than the indifference": (
        problem(Poisson(), Caps(3.0), 2),
        [[1.5, 1.5, 1.5], [1.0 - TINY, 1.0 - TINY, 1.0 - TINY]],
        {"indifference": 0.5},
    ),
    "unknown variance, outside the tolerance": (
        problem(GaussianUnknown(), Floors(0.5), 2),
        [[0.4 - TINY, 0.9, 0.9], [0.5, 0.5, 0.5]],
        {"tolerance": 0.1, "indifference": 0.1},
    ),
    "outside the tolerance": (
        problem(constraint=Floors(0.5), policies=3),
        [[0.4 - TINY, 0.9, 0.9], [0.6, 0.6, 0.6], [0.5, 0.6, 0.6]],
        {"tolerance": 0.1, "indifference": 0.05},
    ),
    "a rival on its own floor is judged at the floor": (
        problem(constraint=Floors(0.5), policies=3),
        [[0.5, 0.9, 0.9], [0.6, 0.6, 0.6], [0.5, 0.6, 0.6]],
        {"tolerance": 0.1, "indifference": 0.05},
    ),
    "penalties": (
        problem(constraint=Penalty(0.5, 2.0), policies=2),
        [[0.7, 0.7, 0.7], [0.6 - TINY, 0.6 - TINY, 0.6 - TINY]],
        {"indifference": 0.1},
    ),
}  # fmt: skip


QUICK = ("behind by more than the indifference", "outside the tolerance")


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in BOUNDARIES]
)
def test_wrong_decisions_are_as_rare_as_asked_for_on_the_boundary(case: str) -> None:
    asked, means, wider = BOUNDARIES[case]
    assert most_errors(asked, means, horizon=600, **wider) <= RISK


@pytest.mark.parametrize("sampling", [rule for rule in SAMPLING if rule != "sequential-halving"])
def test_every_sampling_rule_reaches_an_acceptable_answer(sampling: str) -> None:
    means = [[0.6, 0.5, 0.7], [0.55, 0.45, 0.65], [-0.3, 0.1, 0.1]]
    procedure = Procedure(sampling=sampling, indifference=0.25, max_samples=4000)
    runs = simulate(problem(), means, procedure, 10, seed=8)
    assert runs.stopped.mean() >= 0.9
    assert runs.correct[runs.stopped].all()


def test_other_stopping_rules_weigh_every_acceptable_answer_too() -> None:
    for stopping in ("stylised", "kaufmann-koolen"):
        procedure = Procedure(stopping=stopping, indifference=0.15, max_samples=20_000)
        runs = simulate(problem(), [NEAR_TIE[0], NEAR_TIE[0], NEAR_TIE[2]], procedure, 30, seed=9)
        assert runs.stopped.all(), stopping
        assert runs.correct.mean() >= 0.9, stopping


def test_it_can_be_compared_and_calibrated() -> None:
    truth = Truth(means=tuple(map(tuple, NEAR_TIE)))
    studies = {
        str(eps): Study(problem(), Procedure(indifference=eps, max_samples=2000), truth) for eps in (0.1, 0.2)
    }
    found = compare(studies, 60, seed=10)
    assert found.samples("0.2").high < 0  # the wider, the sooner
    # the answer p1 is wrong in the scenario: it is behind by more than the indifference
    apart = Truth(means=((0.8, 0.8, 0.8), (0.6, 0.6, 0.6), (0.1, 0.1, 0.1)))
    needs = [calibrate(study, {"apart": apart}, 200, 1, horizon=200).threshold for study in studies.values()]
    assert 0 < needs[1] <= needs[0]


def test_runs_saved_before_several_answers_could_be_acceptable_are_read(tmp_path: Path) -> None:
    runs = simulate(problem(), NEAR_TIE, Procedure(max_samples=200), 20, seed=11, checkpoints=[50])
    runs.save(tmp_path / "now.npz")
    header, rows = read_npz(tmp_path / "now.npz")
    older = {name: getattr(rows, name) for name in rows._fields if name not in ("right", "right_at", "cost")}

    class Older:
        def _asdict(self) -> dict[str, Any]:
            return older

    write_npz(tmp_path / "older.npz", header, Older())  # type: ignore[arg-type]
    read = Runs.load(tmp_path / "older.npz")
    assert read.correct.tolist() == runs.correct.tolist()
    assert read.at_checkpoint(0) == runs.at_checkpoint(0)
