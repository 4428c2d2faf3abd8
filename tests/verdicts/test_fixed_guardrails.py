"""One look at a fixed sample with guard-rails: exact levels whatever the dependence of the metrics."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.state import NONE, State, new_state
from evenhand.verdicts.counts import ready
from evenhand.verdicts.fixed_sample import apply_fixed_rule
from tests.verdicts.test_judge_guardrails import PROBLEM, rows, written

TINY, RUNS, DELTA, N = 1e-7, 2000, 0.1, 60
GROUPS = {"x": 0.6, "y": 0.4}
RAIL = eh.Guardrail("load", eh.Gaussian(1.0), eh.Caps(0.0))
BESIDE = eh.Guardrail("load", eh.Gaussian(1.0), eh.Caps(relative_to="p0", margin=0.5))


def wrong_answers(problem: eh.Problem, means: np.ndarray, loads: np.ndarray, right: int, same: float) -> int:
    """How many fixed samples give a wrong answer; `same` is the correlation of the two metrics."""
    spec = compile_spec(problem, eh.Procedure(delta=DELTA))
    rng, wrong = np.random.default_rng(5), 0
    for _ in range(RUNS):
        state: State = new_state(spec)
        first, second = rng.normal(size=(2, *means.shape)) / math.sqrt(N)
        state.n[:], state.rail_n[:] = N, N
        state.s[:] = N * (means + first).T
        state.rail_s[0] = N * (loads + same * first + math.sqrt(1 - same**2) * second).T
        found = apply_fixed_rule(problem, spec, ready(spec, state))
        wrong += found.decided and found.leader != right
    return wrong


@pytest.mark.parametrize("same", [1.0, *(pytest.param(same, marks=pytest.mark.slow) for same in (-1.0, 0.0))])
@pytest.mark.parametrize(
    ("rail", "loads", "right"),
    [
        (RAIL, [[-3.0, -3.0], [TINY, -3.0], [-3.0, -3.0]], 2),  # the best narrowly has too high a load
        (RAIL, [[TINY, TINY]] * 3, NONE),
        pytest.param(RAIL, [[-TINY, -TINY]] * 3, 1, marks=pytest.mark.slow),
        (BESIDE, [[0.0, 0.0], [0.5 + TINY, -3.0], [-3.0, -3.0]], 2),
    ],
)
def test_wrong_answers_are_as_rare_as_stated_however_the_metrics_depend(
    rail: eh.Guardrail, loads: list[list[float]], right: int, same: float
) -> None:
    problem = eh.Problem(["p0", "p1", "p2"], GROUPS, eh.Gaussian(1.0), guardrails=[rail])
    means = np.array([[-4.0, -4.0], [4.0, 4.0], [0.0, 0.0]])
    wrong = wrong_answers(problem, means, np.array(loads), right, same)
    assert wrong <= stats.binom.ppf(1 - 1e-6, RUNS, DELTA)
    if right == 2:  # one true condition of the best is tested at delta / 3: the level is used
        assert wrong >= stats.binom.ppf(1e-6, RUNS, DELTA / 3)


def test_a_guard_rail_is_judged_by_the_exact_test_of_its_own_outcomes(tmp_path: Path) -> None:
    verdict = eh.judge(PROBLEM, written(tmp_path / "shop.csv", rows(100)), fixed=True, replications=0)
    assert (verdict.decided, verdict.answer, verdict.failed) == (True, "old", ("new",))
    errors, calls = verdict.guardrails
    assert [cell.verdict for cell in errors.cells] == ["met", "met", "met", "failed"]
    assert {cell.verdict for cell in calls.cells} == {"met"}
    # the interval of a cell with a cap: the end below decides "failed", at 4 conditions in all
    cell, level = errors.cells[0], 0.05 / 2
    count = round(cell.n * (cell.mean or 0.0))
    low, high = (
        stats.beta.ppf(level / 4, count, cell.n - count + 1),
        stats.beta.isf(level, count + 1, cell.n - count),
    )
    assert cell.low == pytest.approx(low if count else 0.0, rel=1e-6)
    assert cell.high == pytest.approx(high, rel=1e-6)


def test_missing_outcomes_are_left_out_of_their_own_metric_only(tmp_path: Path) -> None:
    table = rows(100, missing=0.3)
    verdict = eh.judge(PROBLEM, written(tmp_path / "shop.csv", table), fixed=True, replications=0)
    assert verdict.answer == "old"
    assert verdict.guardrails[1].missing == sum(row["calls"] is None for row in table)


@pytest.mark.parametrize(
    "constraint", [eh.Penalty(0.3, 1.0), eh.Gap(0.5), eh.Floors(relative_to="old", margin=0.1)]
)
def test_guard_rails_go_with_any_requirement_on_the_outcome(
    constraint: eh.Constraint, tmp_path: Path
) -> None:
    problem = eh.Problem(
        PROBLEM.policies, PROBLEM.groups, PROBLEM.family, constraint, guardrails=PROBLEM.guardrails
    )
    verdict = eh.judge(problem, written(tmp_path / "shop.csv", rows(150)), fixed=True, replications=0)
    assert "new" in verdict.failed
    assert verdict.answer == "old"
    fine = eh.judge(
        problem, written(tmp_path / "fine.csv", rows(150, errors=0.05)), fixed=True, replications=0
    )
    assert fine.answer == "new"


def test_policies_are_screened_by_their_guard_rails(tmp_path: Path) -> None:
    problem = eh.Problem(
        PROBLEM.policies, PROBLEM.groups, PROBLEM.family, eh.Floors(-0.5), goal="screen",
        guardrails=PROBLEM.guardrails,
    )  # fmt: skip
    verdict = eh.judge(problem, written(tmp_path / "shop.csv", rows(100)), fixed=True, replications=0)
    assert (verdict.decided, verdict.allowed, verdict.failed) == (True, ("old",), ("new",))
