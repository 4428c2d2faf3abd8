"""Verdicts on data for every kind of question: error rates on boundaries, classes, sentences, gaps.

Simulations have fixed seeds; a number of errors passes if it is at most the exact binomial quantile at the
stated risk, with a false-alarm budget of 1e-6 for each test.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.intervals import FAILED, MET
from evenhand.procedure.state import NONE
from evenhand.verdicts.fixed_sample import apply_fixed_rule
from tests.verdicts.test_fixed_sample import draw, most_allowed, state_of
from tests.wider_studies import STUDIES

RUNS, TINY = 1000, 1e-7
GROUPS = {"x": 0.5, "y": 0.5}


def outcomes(means: list[list[float]], n: int, names: list[str] | None = None) -> Any:
    """Bernoulli outcomes with exactly these means, as a dict by policy and group."""
    names = names or ["a", "b", "c"]
    return {
        name: {
            group: [1] * round(n * mean) + [0] * (n - round(n * mean))
            for group, mean in zip(GROUPS, row, strict=True)
        }
        for name, row in zip(names, means, strict=False)
    }


def fixed_weights(problem: eh.Problem, procedure: eh.Procedure, means: Any, n: int) -> Any:
    spec, rng = compile_spec(problem, procedure), np.random.default_rng(5)
    table, sizes = np.array(means, dtype=float), np.full(problem.shape, n)
    for _ in range(RUNS):
        yield apply_fixed_rule(
            problem, spec, state_of(problem, spec, sizes, draw(problem.family, table, sizes, rng))
        )


@pytest.mark.parametrize(
    ("family", "margin", "means"),
    [
        (eh.Gaussian(1.0), 0.1, [[0.0, 0.0], [1.0, -0.1 - TINY]]),
        (eh.Bernoulli(), 0.1, [[0.6, 0.5], [0.9, 0.4 - TINY]]),
    ],
    ids=["gaussian", "bernoulli"],
)
def test_a_policy_that_narrowly_misses_a_relative_floor_is_rarely_the_answer(
    family: Any, margin: float, means: Any
) -> None:
    problem = eh.Problem(["a", "b"], GROUPS, family, eh.Floors(relative_to="a", margin=margin))
    wrong = sum(
        w.decided and w.leader != 0 for w in fixed_weights(problem, eh.Procedure(delta=0.1), means, 60)
    )
    assert wrong <= most_allowed(0.1, RUNS)
    assert wrong > 0  # the level is used: only "b keeps its floor" stands between b and the answer


def test_a_policy_slightly_more_than_the_indifference_behind_is_rarely_the_answer() -> None:
    """Policy b is behind by 0.2 + TINY, and its rival c fails by far: only the comparison with a holds it."""
    problem = eh.Problem(["a", "b"], GROUPS, eh.Gaussian(1.0))
    procedure = eh.Procedure(delta=0.1, indifference=0.2)
    means = [[0.2 + TINY, 0.2 + TINY], [0.0, 0.0]]
    wrong = sum(w.decided and w.leader == 1 for w in fixed_weights(problem, procedure, means, 40))
    assert wrong <= most_allowed(0.1, RUNS)


def test_all_policies_on_their_boundary_are_rarely_classified_wrongly() -> None:
    """Familywise: half of the policies lie slightly below their floor, half on it."""
    problem = eh.Problem(["a", "b", "c", "d"], GROUPS, eh.Gaussian(1.0), eh.Floors(0.0), goal="screen")
    means = [[3.0, -TINY], [3.0, -TINY], [3.0, 0.0], [3.0, 0.0]]
    wrong = 0
    for weight in fixed_weights(problem, eh.Procedure(delta=0.1), means, 50):
        assert weight.leader == NONE
        wrong += bool(np.any(weight.policies[:2] == MET) or np.any(weight.policies[2:] == FAILED))
    assert wrong <= most_allowed(0.1, RUNS)
    assert wrong >= 0.02 * RUNS  # the level is used: two of four can be called met wrongly


def test_a_relative_floor_is_tested_as_a_difference_of_two_means() -> None:
    """Gaussian, known spread: z = (x_b - x_a + margin) / sqrt(1/n_a + 1/n_b) by group, the least counts."""
    problem = eh.Problem(["a", "b"], GROUPS, eh.Gaussian(1.0), eh.Floors(relative_to="a", margin=0.3))
    rows = [("a", "x", 40, 0.1), ("a", "y", 30, 0.2), ("b", "x", 20, 0.6), ("b", "y", 50, 0.4)]
    frame = {"policy": [], "group": [], "n": [], "mean": []}
    for row in rows:
        for name, value in zip(frame, row, strict=True):
            frame[name].append(value)
    import pandas as pd

    verdict = eh.judge(problem, pd.DataFrame(frame), fixed=True)
    kept = [(0.5 + 0.3) / math.sqrt(1 / 40 + 1 / 20), (0.2 + 0.3) / math.sqrt(1 / 30 + 1 / 50)]
    ahead = (0.5 * 0.6 + 0.5 * 0.4 - 0.5 * 0.1 - 0.5 * 0.2) / math.sqrt(
        0.25 * (1 / 40 + 1 / 30 + 1 / 20 + 1 / 50)
    )
    least = min(*kept, ahead)
    assert verdict.evidence == pytest.approx(-stats.norm.logsf(least))
    assert verdict.leader == "b"


def test_a_verdict_lists_what_is_allowed_failed_and_open() -> None:
    problem = eh.Problem(["a", "b", "c"], GROUPS, eh.Bernoulli(), eh.Floors(0.5))
    verdict = eh.judge(problem, outcomes([[0.9, 0.8], [0.5, 0.6], [0.9, 0.1]], 60), replications=0)
    table = verdict.to_dict()
    assert (table["allowed"], table["failed"], table["open"]) == (["a"], ["c"], ["b"])
    assert table["spent"] is None


@pytest.mark.parametrize("fixed", [False, True])
def test_screening_answers_with_the_allowed_policies(fixed: bool) -> None:
    study = STUDIES["screen"]
    data = outcomes([[0.9, 0.8], [0.85, 0.95], [0.9, 0.1]], 80)
    verdict = eh.judge(study, data, fixed=fixed, replications=0)
    assert verdict.decided
    assert verdict.answer is None
    assert verdict.leader is None
    assert (verdict.allowed, verdict.failed, verdict.open) == (("a", "b"), ("c",), ())
    assert verdict.words()[0].startswith("2 of 3 policies are allowed: a and b; c fails (")


def test_an_answer_within_the_indifference_says_so() -> None:
    study = STUDIES["indifference"]
    verdict = eh.judge(study, outcomes([[0.8, 0.7], [0.78, 0.72], [0.2, 0.1]], 200), replications=0)
    assert verdict.answer in ("a", "b")
    assert "it is within 0.2 of the best overall mean of all that meet the requirement" in verdict.words()[0]
    assert "its own bounds loosened by the tolerance" in verdict.words()[0]
    exact = eh.judge(
        study.problem, outcomes([[0.8, 0.7], [0.78, 0.72], [0.2, 0.1]], 200), 0.1, replications=0
    )
    assert not exact.decided


def test_a_tolerance_loosens_the_answers_bounds_and_not_the_verdict_on_the_requirement() -> None:
    """Policy a lies on its floor: with the tolerance it is the answer, its requirement stays open."""
    problem = eh.Problem(["a", "b", "c"], GROUPS, eh.Bernoulli(), eh.Floors(0.6))
    data = outcomes([[0.9, 0.6], [0.1, 0.1], [0.1, 0.1]], 300)
    loose = eh.Procedure(delta=0.1, tolerance=0.2)
    for fixed in (False, True):
        verdict = eh.judge(problem, data, procedure=loose, fixed=fixed, replications=0)
        assert verdict.answer == "a"
        assert verdict.open == ("a",)
        assert not eh.judge(problem, data, 0.1, fixed=fixed, replications=0).decided


def test_relative_verdicts_name_the_control_and_its_margin() -> None:
    study = STUDIES["relative"]
    verdict = eh.judge(study, outcomes([[0.5, 0.5], [0.9, 0.8], [0.9, 0.1]], 120), replications=0)
    cells = {(cell.policy, cell.group): cell for cell in verdict.cells}
    assert cells["c", "y"].verdict == "failed"
    assert cells["b", "x"].verdict == "met"
    assert cells["a", "y"].verdict == "met"
    assert cells["c", "y"].to_dict()["relative_floor"] == {
        "control": "a", "ratio": 1.0, "margin": 0.1, "value": pytest.approx(0.4)
    }  # fmt: skip
    assert "relative_floor" not in cells["a", "y"].to_dict()
    assert verdict.failed == ("c",)


def test_data_without_the_control_show_nothing_relative_to_it() -> None:
    study = STUDIES["relative"]
    data = outcomes([[0.5, 0.5], [0.9, 0.8], [0.9, 0.1]], 60)
    del data["a"]
    for fixed in (False, True):
        verdict = eh.judge(study, data, fixed=fixed, replications=0)
        assert not verdict.decided
        assert (verdict.failed, verdict.allowed) == ((), ("a",))  # nothing is required of the control


def test_costs_are_money_and_samples_are_samples() -> None:
    verdict = eh.judge(STUDIES["costs"], outcomes([[0.9, 0.8], [0.5, 0.4], [0.2, 0.1]], 100), replications=0)
    assert verdict.samples == 600
    assert verdict.spent == 200 * (1.0 + 2.5 + 4.0)
    assert "The samples have cost 1,500 so far." in verdict.words()


def test_a_hopeless_near_tie_gets_a_proposal_of_an_indifference() -> None:
    problem = eh.Problem(["a", "b"], GROUPS, eh.Bernoulli(), eh.Floors(0.3))
    verdict = eh.judge(
        problem,
        outcomes([[0.7, 0.7], [0.7, 0.7]], 400),
        procedure=eh.Procedure(max_samples=4000),
        replications=40,
    )
    found = verdict.forecast.suggestion
    assert found is not None
    assert found.acceptable == ("a", "b")
    assert (found.time, found.samples) == (None, None)  # tied exactly
    assert 0 < found.samples_with < 4 * found.time_with
    assert "Would a or b do? With indifference = " in verdict.words()[-1]
    assert "on average would fall from infinity to " in verdict.words()[-1]
    assert verdict.to_dict()["forecast"]["suggestion"]["indifference"] == found.indifference


def test_a_near_tie_beside_a_guard_rail_gets_a_proposal_too() -> None:
    rail = eh.Guardrail("load", eh.GaussianUnknown(), eh.Caps(1.0))
    problem = eh.Problem(["a", "b", "c"], GROUPS, eh.Bernoulli(), eh.Floors(0.3), guardrails=[rail])
    rng, data = np.random.default_rng(1), {}
    for policy, load in (("a", 0.2), ("b", 0.3), ("c", 1.6)):  # c is better, and its load too high
        share = 90 if policy == "c" else 70
        data[policy] = {
            group: [{"outcome": int(i % 100 < share), "load": rng.normal(load, 0.5)} for i in range(400)]
            for group in GROUPS
        }
    verdict = eh.judge(problem, data, procedure=eh.Procedure(max_samples=6000), replications=20)
    assert verdict.forecast.suggestion is not None
    assert verdict.forecast.suggestion.acceptable == ("a", "b")


def test_one_model_is_screened_by_an_evaluation() -> None:
    pool = [{"group": "even" if i % 2 else "odd", "x": i, "target": i % 3} for i in range(300)]
    found = eh.evaluate(
        {"model": lambda item: item["x"] % 3}, pool, target="target", at_least=0.8, goal="screen"
    )
    assert found.decided
    assert found.verdict.allowed == ("model",)
    eh.assert_meets(found)
    bad = eh.evaluate({"model": lambda item: 0}, pool, target="target", at_least=0.8, goal="screen")
    assert bad.verdict.failed == ("model",)
    with pytest.raises(AssertionError, match="0 of 1 policies are allowed; model fails"):
        eh.assert_meets(bad)
