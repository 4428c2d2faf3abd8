"""The verdict never contradicts the stopping rule, and the rule is what the formulas say."""

from __future__ import annotations

import csv
import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import evenhand as eh
from evenhand.procedure.compile_spec import compile_spec, with_mixture
from evenhand.procedure.intervals import against, cell_level
from evenhand.procedure.state import ANSWER, DECIDED, EVIDENCE, NEEDED, STOPPED, new_work
from evenhand.verdicts.counts import ready
from evenhand.verdicts.judge import Verdict, judge
from tests.reference import evidence as reference

SHARED = Path(__file__).parents[3] / "shared" / "data"
POLICIES = ["Aspirin only", "Heparin only", "Both", "Neither"]
STROKE = eh.Problem(POLICIES, {"under 80": 0.7177, "80 and over": 0.2823}, eh.Bernoulli(), eh.Floors(5 / 6))
N = np.array([[3470, 1388], [3484, 1371], [3499, 1363], [3496, 1364]], dtype=float)
S = np.array([[3097, 1170], [3049, 1094], [3046, 1069], [3151, 1125]], dtype=float)


def frame(n: np.ndarray, s: np.ndarray, problem: eh.Problem = STROKE) -> pl.DataFrame:
    cells = [(p, g) for p in problem.policies for g in problem.group_names]
    return pl.DataFrame(
        {
            "policy": [p for p, _ in cells],
            "group": [g for _, g in cells],
            "n": n.ravel(),
            "mean": (s / np.maximum(n, 1)).ravel(),
        }
    )


def stroke(**options: object) -> Verdict:
    return judge(STROKE, frame(N, S), **{"replications": 0, **options})  # type: ignore[arg-type]


def test_the_verdicts_on_the_stroke_trial_are_those_of_the_formulas() -> None:
    verdict = stroke()
    want: Any = reference.verdict(N, S, 5 / 6, np.array([0.7177, 0.2823]), 0.05)
    level = want["needed"]
    assert verdict.needed == pytest.approx(level, abs=1e-12)
    assert verdict.leader == POLICIES[want["leader"]]
    assert not verdict.decided
    assert want["evidence"] < level
    for number, cell in enumerate(verdict.cells):
        k, g = divmod(number, 2)
        failed, met = want["minus"][k, g] >= level + math.log(2), want["plus"][k, g] >= level
        assert cell.verdict == ("failed" if failed else "met" if met else "undecided"), cell
    for k, policy in enumerate(verdict.policies):
        failed, met = want["fails"][k] >= level, want["plus"][k].min() >= level
        assert policy.verdict == ("failed" if failed else "met" if met else "undecided")


def test_every_cell_of_the_stroke_trial_agrees_with_the_formulas_to_nine_digits() -> None:
    """The e-values at the floor, and the ends of the intervals: where the formula's evidence is the level."""
    spec = compile_spec(STROKE, eh.Procedure())
    state, _ = ready_state(STROKE, N, S)
    level = math.log(4 / 0.05)
    for number, cell in enumerate(stroke().cells):
        k, g = divmod(number, 2)
        for sign in (1.0, -1.0):
            want = reference.cell(N[k, g], S[k, g], 5 / 6, sign)
            assert against(spec, state, g, k, 5 / 6, sign) == pytest.approx(want, abs=1e-9)
        assert cell.low is not None
        assert cell.high is not None
        assert reference.cell(N[k, g], S[k, g], cell.low, 1.0) == pytest.approx(level, abs=1e-9)
        assert reference.cell(N[k, g], S[k, g], cell.high, -1.0) == pytest.approx(
            level + math.log(2), abs=1e-9
        )


def test_every_comparison_of_the_stroke_trial_is_a_sharp_bound_from_below() -> None:
    """Where i has the better estimates, within 1e-9; never above the formula."""
    from evenhand.procedure.evidence import certified

    spec = compile_spec(STROKE, eh.Procedure())
    state, work = ready_state(STROKE, N, S)
    q = np.array([0.7177, 0.2823])
    for i in range(4):
        for k in range(4):
            if i != k:
                want = reference.ahead(N[i], S[i], N[k], S[k], q)
                got = certified.ahead(spec, state, work, i, k, math.inf)
                assert got <= want + 1e-9
                if S[i] / N[i] @ q > S[k] / N[k] @ q and want > 0:
                    assert got >= want - 1e-9


def ready_state(problem: eh.Problem, n: np.ndarray, s: np.ndarray, procedure: eh.Procedure | None = None):  # type: ignore[no-untyped-def]
    from evenhand.verdicts.read_data import read

    spec = compile_spec(problem, with_mixture(problem, procedure or eh.Procedure()))
    return ready(spec, read(problem, frame(n, s, problem)).state), new_work(spec)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared stroke-trial data are not beside the checkout")
def test_the_raw_rows_of_the_stroke_trial_give_what_its_counts_give(tmp_path: Path) -> None:
    with (
        gzip.open(SHARED / "ist_minimal.csv.gz", "rt") as source,
        (tmp_path / "rows.csv").open("w") as target,
    ):
        print("policy,group,outcome", file=target)
        for row in csv.DictReader(source):
            aspirin, heparin = row["RXASP"] == "Y", row["RXHEP"] in "LMH"
            policy = {(1, 0): 0, (0, 1): 1, (1, 1): 2, (0, 0): 3}[aspirin, heparin]
            group = "80 and over" if int(row["AGE"]) >= 80 else "under 80"
            good = all(row[event] == "0" for event in ("ID14", "ISC14", "H14", "TRAN14", "NCB14"))
            print(f"{POLICIES[policy]},{group},{int(good)}", file=target)
    verdict = judge(STROKE, tmp_path / "rows.csv", replications=0)
    assert verdict.rows == 19_435
    assert [(c.n, c.verdict) for c in verdict.cells] == [(c.n, c.verdict) for c in stroke().cells]
    assert verdict.evidence == pytest.approx(stroke().evidence, abs=1e-9)


def test_the_tempting_policy_stays_undecided_for_the_elderly_and_two_fail() -> None:
    verdict = stroke()
    assert not verdict.decided
    assert verdict.answer is None
    by = {(c.policy, c.group): c.verdict for c in verdict.cells}
    assert by["Both", "80 and over"] == "failed"
    assert by["Neither", "80 and over"] == "undecided"
    assert {p.policy: p.place for p in verdict.policies}["Neither"] == 1
    assert verdict.words()[0] == "Undecided. Aspirin only leads."


FAMILIES = [eh.Bernoulli(), eh.Binomial(3), eh.Bounded(-1, 2), eh.Poisson(), eh.Gaussian(0.7)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
@pytest.mark.parametrize("constraint", [eh.Floors(0.5), eh.Caps(0.5)], ids=["floors", "caps"])
@pytest.mark.parametrize("stopping", ["certified", "stylised"])
def test_a_bound_is_met_exactly_when_the_interval_clears_it(
    family: Any, constraint: Any, stopping: str
) -> None:
    problem = eh.Problem(["a", "b"], {"x": 0.4, "y": 0.6}, family, constraint)
    rng = np.random.default_rng(3)
    procedure = eh.Procedure(stopping=stopping)
    spec = compile_spec(problem, with_mixture(problem, procedure))
    verdicts = set()
    for _ in range(25):
        n = rng.integers(1, 2000, size=(2, 2)).astype(float)
        means = np.clip(0.5 + rng.normal(size=(2, 2)) * 0.12, 0.02, 0.98)
        verdict = judge(problem, frame(n, n * means, problem), procedure=procedure, replications=0)
        state, _ = ready_state(problem, n, n * means, procedure)
        for number, cell in enumerate(verdict.cells):
            k, g = divmod(number, 2)
            level = cell_level(spec, state, g, k)
            is_floor = isinstance(constraint, eh.Floors)
            c = float(spec.region.lo[g, k] if is_floor else spec.region.hi[g, k])
            met = against(spec, state, g, k, c, 1.0 if is_floor else -1.0) >= level
            assert (cell.verdict == "met") == met
            if is_floor:
                assert met == (cell.low is not None and cell.low >= 0.5)
            else:
                assert met == (cell.high is not None and cell.high <= 0.5)
            verdicts.add(cell.verdict)
    assert verdicts == {"met", "failed", "undecided"}


def test_a_failed_cell_fails_its_policy_and_a_policy_meets_exactly_when_all_its_cells_do() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        n = rng.integers(1, 4000, size=(4, 2)).astype(float)
        s = rng.binomial(n.astype(int), np.clip(0.83 + 0.05 * rng.normal(size=(4, 2)), 0, 1)).astype(float)
        verdict = judge(STROKE, frame(n, s), replications=0)
        for policy in verdict.policies:
            mine = [c.verdict for c in verdict.cells if c.policy == policy.policy]
            if "failed" in mine:
                assert policy.verdict == "failed"
            assert (policy.verdict == "met") == all(v == "met" for v in mine) or policy.verdict == "failed"


def test_the_decision_is_the_stopping_rules_own() -> None:
    from evenhand.procedure.decide import check

    rng = np.random.default_rng(8)
    decided = 0
    for _ in range(60):
        n = rng.integers(50, 60_000, size=(4, 2)).astype(float)
        s = rng.binomial(n.astype(int), [[0.89, 0.86], [0.87, 0.79], [0.87, 0.78], [0.9, 0.81]]).astype(float)
        verdict = judge(STROKE, frame(n, s), replications=0)
        state, work = ready_state(STROKE, n, s)
        check(compile_spec(STROKE, eh.Procedure()), state, work)
        assert verdict.decided == (state.clock[STOPPED] == DECIDED)
        assert verdict.evidence == state.level[EVIDENCE]
        assert verdict.needed == state.level[NEEDED]
        if verdict.decided:
            decided += 1
            assert verdict.answer == STROKE.policies[state.clock[ANSWER]]
    assert decided > 5


def test_an_empty_cell_is_shown_undecided_and_never_left_out() -> None:
    n, s = N.copy(), S.copy()
    n[3, 1] = s[3, 1] = 0
    verdict = judge(STROKE, frame(n, s), replications=0)
    empty = verdict.cells[7]
    assert (empty.n, empty.mean, empty.low, empty.high, empty.verdict) == (0, None, 0.0, 1.0, "undecided")
    neither = verdict.policies[3]
    assert (neither.mean, neither.verdict, neither.place) == (None, "undecided", 4)
    assert not verdict.decided
    assert any("1 of 8 cells hold no data" in sentence for sentence in verdict.words())


def test_no_data_at_all_is_undecided() -> None:
    verdict = judge(STROKE, frame(0 * N, 0 * S), replications=0)
    assert not verdict.decided
    assert {cell.verdict for cell in verdict.cells} == {"undecided"}
    assert math.isfinite(verdict.evidence)


def test_that_no_policy_meets_the_floor_can_be_decided_even_with_an_empty_cell() -> None:
    n, s = 100 * N, 100 * S * 0.7
    n[0, 0] = s[0, 0] = 0
    verdict = judge(STROKE, frame(n, s), replications=0)
    assert verdict.decided
    assert verdict.answer is None
    assert verdict.words()[0] == "None of the policies meets the requirement (certified at risk 5%)."
    assert any("falls short in" in sentence for sentence in verdict.words())


def test_a_clear_case_is_decided_with_its_reason() -> None:
    verdict = judge(STROKE, frame(100 * N, 100 * S))
    assert verdict.decided
    assert verdict.answer == "Aspirin only"
    assert verdict.more == {0.5: 0, 0.7: 0, 0.8: 0, 0.9: 0}
    assert np.all(verdict.next == 0)
    assert verdict.words()[0].startswith("Aspirin only is the answer (certified at risk 5%)")


def test_a_looser_risk_and_other_floors_tell_what_would_have_been_decided() -> None:
    n = np.full((4, 2), 1500.0)
    s = n * np.array([[0.94, 0.91], [0.90, 0.86], [0.86, 0.80], [0.80, 0.70]])
    strict = 1e-9
    verdict = judge(STROKE, frame(n, s), delta=strict, replications=0)
    assert not verdict.decided
    assert verdict.delta_needed is not None
    assert not judge(STROKE, frame(n, s), delta=0.99 * verdict.delta_needed, replications=0).decided
    assert judge(STROKE, frame(n, s), delta=1.01 * verdict.delta_needed, replications=0).decided


@pytest.mark.parametrize("fixed", [False, True], ids=["sequential", "fixed"])
@pytest.mark.parametrize("delta", [1e-9, 0.05], ids=["undecided", "decided"])
def test_under_another_floor_the_data_decide_what_they_would_if_it_were_the_floor(
    delta: float, fixed: bool
) -> None:
    n = np.full((4, 2), 1500.0)
    s = n * np.array([[0.94, 0.91], [0.90, 0.86], [0.86, 0.80], [0.80, 0.70]])
    verdict = judge(STROKE, frame(n, s), delta=delta, replications=0, fixed=fixed)
    assert verdict.decided == (delta == 0.05)
    others = {True: 0, False: 0}
    for other in verdict.alternatives:
        problem = eh.Problem(STROKE.policies, STROKE.groups, STROKE.family, eh.Floors(other.bound))
        again = judge(problem, frame(n, s), delta=delta, replications=0, fixed=fixed)
        assert (again.decided, again.answer) == (other.decided, other.answer)
        others[other.decided] += 1
    assert others[True] + others[False] > 5
    assert others[False] > 0


OTHER_REQUIREMENTS = [
    eh.NoConstraint(), eh.Gap(0.2), eh.Ratio(0.8), eh.Quota(0.8, groups=1), eh.Dispersion(0.01),
    eh.Polyhedron([[1, 0]], [0.7]), eh.All((eh.Floors(0.6), eh.Gap(0.2))), eh.Penalty(0.8, 1.0),
]  # fmt: skip


@pytest.mark.parametrize("constraint", OTHER_REQUIREMENTS, ids=lambda c: c.kind)
@pytest.mark.parametrize("fixed", [False, True], ids=["sequential", "fixed"])
def test_every_requirement_gets_a_verdict_with_finite_numbers(constraint: object, fixed: bool) -> None:
    import json

    problem = eh.Problem(STROKE.policies, STROKE.groups, STROKE.family, constraint)  # type: ignore[arg-type]
    verdict = judge(problem, frame(N, S), fixed=fixed, replications=0)
    told = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    assert {cell["verdict"] for cell in told["cells"]} <= {"met", "failed", "undecided"}
    assert len(told["policies"]) == 4
    assert verdict.words()


def test_a_fixed_sample_is_labelled_and_asks_for_less_evidence() -> None:
    fixed, sequential = stroke(fixed=True), stroke()
    assert fixed.to_dict()["fixed_sample"]
    assert "fixed sample" in judge(STROKE, frame(100 * N, 100 * S), fixed=True).words()[0]
    for one, other in zip(fixed.cells, sequential.cells, strict=True):
        assert one.low is not None
        assert other.low is not None
        assert one.low >= other.low  # looking once excludes more


def test_fixed_sample_intervals_are_exact_for_coins() -> None:
    from scipy.stats import beta

    cell = stroke(fixed=True).cells[0]
    # Clopper and Pearson's ends, at delta / K below and delta / (K L) above
    assert cell.low == pytest.approx(beta.ppf(0.05 / 4, 3097, 3470 - 3097 + 1), abs=1e-9)
    assert cell.high == pytest.approx(beta.ppf(1 - 0.05 / 8, 3097 + 1, 3470 - 3097), abs=1e-9)


def test_judging_changes_nothing_it_was_given() -> None:
    from evenhand.verdicts.judge import judge_state

    state, _ = ready_state(STROKE, N, S)
    before = [np.array(part) for part in state]
    judge_state(STROKE, eh.Procedure(), state, replications=0)
    assert all(np.array_equal(a, b) for a, b in zip(before, state, strict=True))


@pytest.mark.parametrize("family", [eh.Bernoulli(), eh.Gaussian(1.0)], ids=lambda f: f.name)
def test_intervals_hold_the_true_mean_at_all_times_as_often_as_stated(family: Any) -> None:
    """500 cells looked at after each of 250 outcomes; an interval that ever misses counts as a miss.

    False alarm 1e-6: the exact binomial quantile at the stated level.
    """
    from scipy.stats import binom

    from evenhand.procedure.state import new_state
    from evenhand.verdicts.apply_rule import judge_cells

    groups, steps = 250, 250
    problem = eh.Problem(["a", "b"], {f"g{g}": 1 / groups for g in range(groups)}, family)
    procedure = eh.Procedure(delta=0.1)
    spec = compile_spec(problem, with_mixture(problem, procedure))
    rng = np.random.default_rng(11)
    truth = 0.3
    draw = (
        rng.random((steps, groups, 2)) < truth
        if family.name == "bernoulli"
        else rng.normal(truth, 1, (steps, groups, 2))
    )
    state, missed = new_state(spec), np.zeros((groups, 2), dtype=bool)
    for x in draw:
        state.n[:] += 1
        state.s[:] += x
        cells = judge_cells(spec, state)
        missed |= (cells.low > truth) | (cells.high < truth)
    verdict = judge(problem, frame(state.n.T, state.s.T, problem), procedure=procedure, replications=0)
    assert missed.sum() <= binom.ppf(1 - 1e-6, missed.size, 1 - verdict.coverage)
    assert missed.sum() >= 10  # the level is used: such intervals are finite
