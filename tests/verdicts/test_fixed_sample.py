"""One look at a sample of fixed size: how often the answer is wrong, at corners and ties, at every size.

Simulations have fixed seeds; a number of wrong answers passes if it is at most the exact binomial quantile at
the stated risk, with a false-alarm budget of 1e-6 for each test.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.estimates import refresh
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, State, new_state, new_work
from evenhand.verdicts.counts import ready, record_all
from evenhand.verdicts.fixed_cells import Sample
from evenhand.verdicts.fixed_linear import ahead_evidence
from evenhand.verdicts.fixed_penalty import PenaltyLine, _least_ratio
from evenhand.verdicts.fixed_quadratic import sum_tail
from evenhand.verdicts.fixed_sample import apply_fixed_rule, mixture_evidence

RUNS = 2000
TINY = 1e-7
GAUSSIAN, UNKNOWN = eh.Gaussian(1.0), eh.GaussianUnknown()
BERNOULLI, POISSON, EXPONENTIAL = eh.Bernoulli(), eh.Poisson(), eh.Exponential()


def a_problem(family: Any, constraint: Any, means: Any, shares: Any = None) -> eh.Problem:
    policies, groups = np.shape(means)
    shares = [1 / groups] * groups if shares is None else shares
    return eh.Problem(
        [f"p{k}" for k in range(policies)],
        {f"g{g}": share for g, share in enumerate(shares)},
        family,
        constraint,
    )


def draw(family: Any, means: np.ndarray, n: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sample means of fixed sizes."""
    if family.name == "gaussian":
        return rng.normal(means, family.sd / np.sqrt(n))
    if family.name == "bernoulli":
        return rng.binomial(n, means) / n
    if family.name == "poisson":
        return rng.poisson(n * means) / n
    return rng.gamma(n * family.shape, means / family.shape) / n


def state_of(problem: eh.Problem, spec: Spec, n: np.ndarray, x: np.ndarray) -> State:
    state = new_state(spec)
    state.n[:], state.s[:] = n.T, (n * problem.family.to_unit(x)).T
    return ready(spec, state)


def state_of_outcomes(problem: eh.Problem, spec: Spec, outcomes: np.ndarray) -> State:
    """From single outcomes, (K, L, n)."""
    policies, groups, n = outcomes.shape
    state = new_state(spec)
    k = np.repeat(np.arange(policies), groups * n)
    g = np.tile(np.repeat(np.arange(groups), n), policies)
    none = np.zeros((outcomes.size, 0))  # there are no guard-rails
    record_all(spec, state, new_work(spec), k, g, np.ascontiguousarray(outcomes.ravel()), none)
    return ready(spec, state)


def wrong_answers(
    problem: eh.Problem, means: Any, n: Any, right: int, delta: float = 0.05, sd: Any = None, runs: int = RUNS
) -> int:
    """How many of `runs` fixed samples give another answer than the right one (NONE: no policy)."""
    means = np.asarray(means, dtype=float)
    sizes = np.broadcast_to(n, means.shape)
    spec = compile_spec(problem, eh.Procedure(delta=delta))
    rng, wrong = np.random.default_rng(14), 0
    for _ in range(runs):
        if problem.family.name == "gaussian-unknown":
            spread = np.broadcast_to(sd, means.shape)[..., None]
            outcomes = rng.normal(means[..., None], spread, (*means.shape, int(sizes.max())))
            state = state_of_outcomes(problem, spec, outcomes)
        else:
            state = state_of(problem, spec, sizes, draw(problem.family, means, sizes, rng))
        weight = apply_fixed_rule(problem, spec, state)
        wrong += weight.decided and weight.leader != right
    return wrong


def most_allowed(delta: float, runs: int = RUNS) -> int:
    return int(stats.binom.ppf(1 - 1e-6, runs, delta))


def test_a_quota_narrowly_missed_in_every_group_is_rarely_called_met() -> None:
    """The null is a corner of five cells; the law of a single condition was wrong in 23% for 5%."""
    means = [[-TINY] * 5, [-3.0] * 5]
    problem = a_problem(GAUSSIAN, eh.Quota(0.0, groups=1), means)
    wrong = wrong_answers(problem, means, 50, right=NONE)
    assert wrong <= most_allowed(0.05)
    assert wrong >= 20  # the level is used: W = 2, so about half of it


@pytest.mark.parametrize("lead", [0.0, 0.5, 2.0])
def test_a_rival_on_its_floors_under_a_steep_penalty_is_rarely_called_beaten(lead: float) -> None:
    """The null has a corner at the rival's floors; the law of a single condition was wrong in 12% for 5%."""
    means = [[lead, -(lead + TINY) / 11], [0.0, 0.0]]
    problem = a_problem(GAUSSIAN, eh.Penalty(0.0, 10.0), means)
    assert wrong_answers(problem, means, 50, right=1) <= most_allowed(0.05)


def test_under_a_penalty_a_rival_that_misses_a_floor_is_not_out() -> None:
    """It was: the policy that is slightly worse was named in 49% of all samples."""
    means = [[0.5, 0.5], [2.1, -0.999]]
    problem = a_problem(GAUSSIAN, eh.Penalty(0.0, 0.1), means)
    assert np.argmax(problem.scores(np.array(means))) == 1
    assert wrong_answers(problem, means, 50, right=1) <= most_allowed(0.05)


@pytest.mark.parametrize("sd", [1.0, [[9.0, 1.0], [1.0, 1.0]], [[1.0, 9.0], [0.1, 3.0]]], ids=["=", "1", "4"])
@pytest.mark.parametrize("n", [2, 3, 10])
def test_overall_means_with_unknown_variance_are_compared_validly_at_any_size(n: int, sd: Any) -> None:
    """With normal quantiles the answer was wrong in 8% at n = 2 and 7% at n = 3, for 5%."""
    means = [[0.0, 0.0], [TINY, TINY]]
    problem = a_problem(UNKNOWN, None, means)
    assert wrong_answers(problem, means, n, right=1, sd=sd) <= most_allowed(0.05)


CORNERS: dict[str, tuple[Any, Any, int]] = {
    # requirement, means as multiples of 1 (the base), the right answer
    "tie": (None, [[1 - TINY, 0.5], [1, 0.5]], 1),
    "floors": (lambda b: eh.Floors(0.8 * b), [[1, 0.8 - TINY], [0.9, 0.5]], NONE),
    "caps": (lambda b: eh.Caps(1.2 * b), [[1.2 + TINY, 1.2], [0.9, 1.4]], NONE),
    "gap": (lambda b: eh.Gap(0.4 * b), [[1, 0.6 - TINY], [0.3, 0.9]], NONE),
    "gap kept": (lambda b: eh.Gap(0.4 * b), [[1, 1, 0.6 + TINY, 0.6 + TINY], [0.79] * 4], 0),
    "ratio": (lambda b: eh.Ratio(0.5), [[1, 0.5 - TINY], [0.9, 0.45 - TINY]], NONE),
    "quota": (lambda b: eh.Quota(b, groups=1), [[1 - TINY] * 5, [0.3] * 5], NONE),
    "quota of two": (lambda b: eh.Quota(b, groups=2), [[1.4, *[1 - TINY] * 4], [0.3] * 5], NONE),
    "quota kept": (lambda b: eh.Quota(b, groups=3), [[1, 1, 1, 0.2, 0.2], [1.05] * 3 + [0.01] * 2], 0),
    "dispersion": (lambda b: eh.Dispersion(0.08 * b**2), [[1, 0.6 - TINY], [0.3, 0.9]], NONE),
    "dispersion kept": (lambda b: eh.Dispersion(0.08 * b**2), [[1, 0.6 + TINY], [0.79, 0.79]], 0),
    "no dispersion": (lambda b: eh.Dispersion(1e-9 * b**2), [[1] * 4, [0.7] * 4], 0),
    "polyhedron": (
        lambda b: eh.Polyhedron([[1, 1, 0], [0, 1, 1], [1, 0, 1]], [2 * b] * 3),
        [[1 - TINY] * 3, [0.4] * 3],
        NONE,
    ),
    "all": (lambda b: eh.All((eh.Floors(0.6 * b), eh.Gap(0.4 * b))), [[1, 0.6 + TINY], [0.75, 0.75]], 0),
    "all with a quota": (
        lambda b: eh.All((eh.Quota(b, groups=1), eh.Dispersion(b**2))),
        [[1 - TINY] * 4, [0.3] * 4],
        NONE,
    ),
    "penalty": (lambda b: eh.Penalty(0.7 * b, 3.0), [[1, 0.625 - TINY], [0.7, 0.7]], 1),
    "penalty, both on floors": (lambda b: eh.Penalty(0.7 * b, 3.0), [[0.7 - TINY] * 2, [0.7] * 2], 1),
}
# family, base of the means, outcomes in every cell
FAMILIES: dict[str, tuple[Any, float, int]] = {
    "gaussian": (GAUSSIAN, 1.0, 40),
    "unknown, n = 2": (UNKNOWN, 1.0, 2),
    "unknown, n = 3": (UNKNOWN, 1.0, 3),
    "unknown": (UNKNOWN, 1.0, 20),
    "bernoulli, few": (BERNOULLI, 0.5, 15),
    "bernoulli": (BERNOULLI, 0.5, 400),
    "poisson, few": (POISSON, 0.5, 15),
    "poisson": (POISSON, 4.0, 200),
    "exponential, few": (EXPONENTIAL, 1.0, 4),
    "exponential": (EXPONENTIAL, 1.0, 500),
}


@pytest.mark.slow
@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("name", FAMILIES)
def test_at_corners_wrong_answers_are_as_rare_as_stated(name: str, corner: str) -> None:
    family, base, n = FAMILIES[name]
    make, multiples, right = CORNERS[corner]
    means = base * np.array(multiples, dtype=float)
    problem = a_problem(family, None if make is None else make(base), means)
    sd = np.linspace(0.2, 3.0, means.size).reshape(means.shape)
    assert wrong_answers(problem, means, n, right, sd=sd) <= most_allowed(0.05)


@pytest.mark.parametrize("family", [BERNOULLI, POISSON, EXPONENTIAL], ids=lambda f: f.name)
def test_with_many_outcomes_the_stated_risk_is_used(family: Any) -> None:
    """At a tie of one pair the risk is all on one comparison; the bound is close to it, and never above."""
    means = [[0.5 - 1e-12], [0.5]]
    problem = a_problem(family, None, means)
    wrong = wrong_answers(problem, means, 20_000, right=1, delta=0.1)
    assert 0.05 * RUNS <= wrong <= most_allowed(0.1)


@pytest.mark.parametrize(("first", "second"), [(40, 40), (60, 15)])
def test_two_coins_are_compared_at_no_more_than_the_level_by_their_exact_law(first: int, second: int) -> None:
    """No simulation: all outcomes are listed, and the rejected ones' probability is added up."""
    delta = 0.3
    problem = a_problem(BERNOULLI, None, [[0.5], [0.5]])
    spec = compile_spec(problem, eh.Procedure(delta=delta))
    sizes = np.array([[first], [second]])
    rejected = np.zeros((first + 1, second + 1), dtype=bool)
    for i, j in product(range(first + 1), range(second + 1)):
        if i / first > j / second:
            state = state_of(problem, spec, sizes, np.array([[i / first], [j / second]]))
            rejected[i, j] = ahead_evidence(the_sample(problem, spec, state), 0, 1, delta) >= -math.log(delta)
    sizes_of_test = []
    for low, high in [(p, p) for p in np.linspace(0.02, 0.98, 49)] + [(0.2, 0.3), (0.7, 0.75), (0.4, 0.6)]:
        law = np.outer(
            stats.binom.pmf(np.arange(first + 1), first, low),
            stats.binom.pmf(np.arange(second + 1), second, high),
        )
        sizes_of_test.append(float(law[rejected].sum()))
    assert max(sizes_of_test) <= delta
    assert max(sizes_of_test) >= 0.03


def the_sample(problem: eh.Problem, spec: Spec, state: State) -> Sample:
    work = new_work(spec)
    refresh(spec, state, work, False)
    return Sample(problem, spec, state, work, {})


def test_gaussian_comparisons_have_the_normal_laws_own_p_value() -> None:
    problem = a_problem(eh.Gaussian([[1.0, 2.0], [0.5, 1.0]]), None, [[0, 0], [0, 0]], shares=[0.7, 0.3])
    spec = compile_spec(problem, eh.Procedure())
    n, x = np.array([[10, 20], [30, 40]]), np.array([[1.0, 0.8], [0.4, 0.9]])
    found = ahead_evidence(the_sample(problem, spec, state_of(problem, spec, n, x)), 0, 1, 0.05)
    q, sd = np.array([0.7, 0.3]), np.array([[1.0, 2.0], [0.5, 1.0]])
    z = (q @ (x[0] - x[1])) / math.sqrt(float((q**2 * (sd**2 / n)).sum()))
    assert found == pytest.approx(-stats.norm.logsf(z), rel=1e-12)


def test_unknown_variances_give_welchs_statistic_at_the_fewest_degrees_of_freedom() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.normal(2.0, 1.0, 8), rng.normal(0.0, 3.0, 8)
    problem = a_problem(UNKNOWN, None, [[0], [0]])
    spec = compile_spec(problem, eh.Procedure())
    state = state_of_outcomes(problem, spec, np.array([[first], [second]]))
    found = ahead_evidence(the_sample(problem, spec, state), 0, 1, 0.05)
    welch = stats.ttest_ind(first, second, equal_var=False)
    assert found == pytest.approx(-stats.t.logsf(welch.statistic, 7), rel=1e-12)
    assert found <= -math.log(welch.pvalue / 2)  # Welch's own degrees of freedom are an approximation


def test_cells_that_never_vary_or_hold_one_outcome_support_no_comparison_of_unknown_variance() -> None:
    problem = a_problem(UNKNOWN, eh.Floors(0.0), [[0, 0], [0, 0]])
    spec = compile_spec(problem, eh.Procedure())
    constant = np.broadcast_to(np.array([[5.0, 5.0], [1.0, 1.0]])[..., None], (2, 2, 6))
    for outcomes in (constant, constant[..., :1]):
        weight = apply_fixed_rule(problem, spec, state_of_outcomes(problem, spec, np.array(outcomes)))
        assert (weight.decided, weight.evidence) == (False, 0.0)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_mixture_of_chi_squares_is_the_law_of_squared_positive_parts(size: int) -> None:
    z = np.random.default_rng(3).normal(size=(400_000, size))
    totals = (np.maximum(z, 0.0) ** 2).sum(axis=1)
    for total in (0.5, 2.0, 6.0):
        reached = int((totals >= total).sum())
        chance = math.exp(-mixture_evidence(total, size))
        low, high = stats.binom.ppf([5e-7, 1 - 5e-7], totals.size, chance)
        assert low <= reached <= high


def test_a_sum_of_squared_student_variables_is_never_said_to_be_rarer_than_it_is() -> None:
    assert sum_tail(9.0, np.array([3.0])) == pytest.approx(stats.f.sf(9.0, 1, 3), rel=2e-3)
    assert sum_tail(9.0, np.array([3.0])) >= stats.f.sf(9.0, 1, 3)
    assert sum_tail(12.0, np.full(4, 1e7)) == pytest.approx(stats.chi2.sf(12.0, 4), rel=1e-2)
    assert sum_tail(12.0, np.full(4, 1e7)) >= stats.chi2.sf(12.0, 4)


def test_no_choice_of_lines_has_less_evidence_than_the_bound_over_all() -> None:
    rng = np.random.default_rng(4)
    for _ in range(300):
        start = PenaltyLine(float(rng.uniform(0.1, 1)), float(rng.uniform(0.2, 3)))
        choices = [PenaltyLine(float(rng.uniform(0.05, 2)), float(rng.uniform(-0.2, 1))) for _ in range(5)]
        ratios = []
        for bits in product((0, 1), repeat=5):
            taken = [start, *(c for c, bit in zip(choices, bits, strict=True) if bit)]
            ratios.append(sum(c.distance for c in taken) / math.sqrt(sum(c.variance for c in taken)))
        least = min(ratios)
        bound = _least_ratio(start, choices)
        assert bound <= least + 1e-12
        assert bound >= least - 0.25 * abs(least) - 0.1  # and not far below


@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("name", ["gaussian", "unknown", "bernoulli", "poisson", "exponential"])
def test_clear_cases_are_decided_rightly(name: str, corner: str) -> None:
    """Means well inside or outside, and many outcomes: every requirement and family can be decided."""
    family, base, _ = FAMILIES[name]
    make, multiples, _ = CORNERS[corner]
    shape = np.shape(multiples)
    means = np.full(shape, 0.5)
    means[0], means[1] = 1.1, 0.85
    if corner == "caps":
        means[0], means[1] = 0.9, 0.6
    if corner.startswith("quota"):
        means[0] = 1.3
    problem = a_problem(family, None if make is None else make(base), base * means)
    spec = compile_spec(problem, eh.Procedure())
    n = 4000
    if family is UNKNOWN:
        outcomes = np.random.default_rng(6).normal((base * means)[..., None], 0.5, (*shape, n))
        state = state_of_outcomes(problem, spec, outcomes)
    else:
        state = state_of(problem, spec, np.full(shape, n), base * means)
    weight = apply_fixed_rule(problem, spec, state)
    right = problem.scores(base * means)
    feasible = problem.feasible(base * means)
    answer = int(np.argmax(np.where(feasible, right, -np.inf))) if feasible.any() else NONE
    if corner == "no dispersion":  # a limit of almost nothing cannot be shown to be kept
        assert not weight.decided
    else:
        assert (weight.decided, weight.leader) == (True, answer)


def test_the_risk_needed_is_the_one_at_which_a_fixed_sample_decides() -> None:
    from evenhand.verdicts.judge import judge_state

    means = np.array([[0.62, 0.58, 0.6], [0.5, 0.53, 0.51]])
    for constraint in (eh.Floors(0.5), eh.Gap(0.3), eh.Penalty(0.55, 1.0)):
        problem = a_problem(BERNOULLI, constraint, means)
        for delta in (1e-9, 0.05, 0.4):
            spec = compile_spec(problem, eh.Procedure(delta=delta))
            state = state_of(problem, spec, np.full((2, 3), 150), means)
            risk = judge_state(problem, eh.Procedure(delta=delta), state, fixed=True).delta_needed
            assert risk is not None
            assert not apply_fixed_rule(problem, spec._replace(delta=0.99 * risk), state).decided
            assert apply_fixed_rule(problem, spec._replace(delta=1.01 * risk), state).decided


def test_the_hardest_comparison_of_a_gap_is_named_by_its_groups() -> None:
    from evenhand.verdicts.judge import judge_state

    means = np.array([[0.6, 0.9, 0.5], [0.3, 0.3, 0.3]])
    problem = a_problem(GAUSSIAN, eh.Gap(0.45), means)
    spec = compile_spec(problem, eh.Procedure())
    state = state_of(problem, spec, np.full((2, 3), 400), means)
    verdict = judge_state(problem, eh.Procedure(), state, fixed=True)
    assert verdict.weakest == "p0: g2 beside g1"
