"""Questions beyond fixed floors depend on the unit of outcomes as little, and guard-rails on theirs.

Bounds relative to a control, an indifference with a tolerance, screening: what is measured in the unit of the
outcomes goes along with it. The values are those of `test_scale`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import evenhand as eh
from evenhand.model.requirements import Constraint
from evenhand.study import Truth
from tests.crossed import crossed
from tests.test_scale import FAR_TENS, GAP, MEANS, TWOS, World, assert_the_same_plan, assert_the_same_verdict

WORLDS = [World("", scale) for scale in FAR_TENS] + [World("", 1.0, -3.25), World("", 1e-6, -3.25e-6)]
KINDS = ["relative floors", "relative caps", "indifference", "screen"]


def problem_of(world: World, kind: str) -> eh.Problem:
    rules: dict[str, Constraint] = {
        "relative floors": eh.Floors(relative_to="c", margin=0.25 * world.scale),
        "relative caps": eh.Caps(relative_to="c", margin=0.5 * world.scale),
    }
    rule = rules.get(kind, eh.Floors(float(world.at(1.0))))
    return replace(world.problem("none"), constraint=rule, goal="screen" if kind == "screen" else "best")


def question(world: World, kind: str, **options: Any) -> eh.Procedure:
    near = {"indifference": 0.125 * world.scale, "tolerance": 0.0625 * world.scale}
    return eh.Procedure(delta=0.1, **(near if kind == "indifference" else {}), **options)


def planned(world: World, kind: str) -> eh.Plan:
    near = {"indifference": 0.125 * world.scale, "tolerance": 0.0625 * world.scale}
    return eh.plan(
        problem_of(world, kind), world.at(MEANS), gap=GAP, **(near if kind == "indifference" else {})
    )


def simulated(world: World, kind: str, stopping: str) -> Any:
    procedure = question(world, kind, stopping=stopping, max_samples=120)
    runs = eh.simulate(problem_of(world, kind), world.truth(), procedure, 2, seed=3, workers=1)
    return runs.samples.tolist(), runs.correct.tolist(), runs.allocation.tolist()


def judged(world: World, kind: str) -> eh.Verdict:
    procedure = question(world, kind)
    return eh.judge(problem_of(world, kind), world.frame(), procedure=procedure, replications=0)


@crossed("family", ["gaussian", "gaussian-unknown", "bounded"], "kind", KINDS)
def test_wider_questions_do_not_depend_on_the_unit(family: str, kind: str) -> None:
    base = World(family)
    plan = None if family == "gaussian-unknown" else planned(base, kind)
    runs, verdict = simulated(base, kind, "stylised"), judged(base, kind)
    for elsewhere in WORLDS:
        world = elsewhere._replace(name=family)
        if plan is not None:
            assert_the_same_plan(plan, planned(world, kind))
        if family != "bounded" or world.shift == 0.0:  # its outcomes in [0, 1] have other last digits
            assert simulated(world, kind, "stylised") == runs
        assert_the_same_verdict(verdict, judged(world, kind), world)


@crossed("family", ["gaussian", "gaussian-unknown", "bounded"], "kind", KINDS)
def test_runs_of_wider_questions_are_the_same_to_the_last_sample_in_a_unit_of_a_power_of_two(
    family: str, kind: str
) -> None:
    base = simulated(World(family), kind, "certified")
    for scale in TWOS:
        assert simulated(World(family, scale), kind, "certified") == base


@pytest.mark.parametrize("unit", [1e-12, 1e-5, 1e12])
def test_the_unit_of_a_guardrail_is_its_own(unit: float) -> None:
    base, found = guarded(1.0), guarded(unit)
    assert found[0] == base[0]
    assert_the_same_plan(base[1], found[1])
    assert_the_same_verdict(base[2], found[2], World("gaussian"))
    for one, other in zip(base[2].guardrails, found[2].guardrails, strict=True):
        for cell, moved in zip(one.cells, other.cells, strict=True):
            assert moved.verdict == cell.verdict
            assert moved.low == pytest.approx(None if cell.low is None else cell.low * unit, rel=1e-6)


def guarded(unit: float) -> tuple[Any, eh.Plan, eh.Verdict]:
    """Runs, plan and verdict with guard-rails of known and of unknown variance, in this unit."""
    world, means = World("gaussian"), np.array([[0.5, 0.4], [0.3, 0.6], [0.7, 0.2]]) * unit
    rails = (
        eh.Guardrail("known", eh.Gaussian(unit), eh.Floors(0.1 * unit)),
        eh.Guardrail("unknown", eh.GaussianUnknown(), eh.Caps(2.0 * unit)),
    )
    both = replace(world.problem("floors"), guardrails=rails)
    known = replace(world.problem("floors"), guardrails=rails[:1])
    truth = Truth(means=world.truth().means, guardrails={"known": means.tolist()})
    runs = eh.simulate(known, truth, eh.Procedure(delta=0.1, max_samples=120), 2, seed=3, workers=1)
    plan = eh.plan(known, world.at(MEANS), gap=GAP, guardrails={"known": means})
    outcomes, rng = world.frame(), np.random.default_rng(8)
    drawn = np.round(rng.normal(0.5, 1.0, (outcomes.height, 2)) * 1024) / 1024 * unit
    frame = outcomes.with_columns(pl.Series("known", drawn[:, 0]), pl.Series("unknown", drawn[:, 1]))
    verdict = eh.judge(both, frame, procedure=eh.Procedure(delta=0.1), replications=0)
    return (runs.samples.tolist(), runs.correct.tolist()), plan, verdict
