"""The verdict on a sample whose size was fixed before the data and that is looked at once: p-values.

With W wrong answers and alpha = delta / W, answer i when every condition that i must meet is shown at level
alpha and, for every rival k, either "i is ahead of k" or "k fails" is; answer none when "k fails" is shown
for every k. Were k0 right, each wrong i needs a true condition of its own to be refuted ("i violates this
one", or "k0 scores at least what i does"), or "k0 meets its requirement", which all of them and "none" share:
W events, each of probability at most alpha. The probability of a wrong answer is at most delta, for any
number of outcomes; nothing here is a large-sample approximation. With an indifference "k0 scores at least
what i does, and the indifference more" takes the place of the second, with a tolerance i's own conditions are
the loosened ones; k0, the best policy that meets the requirement itself, is an acceptable answer, so the
argument is the same for each of several answers. To classify K policies, each is shown to meet or to fail its
requirement at level alpha = delta / K: a false statement about k needs a true condition of k to be refuted.

    condition                            refuted by
    a floor or cap                       the cell's exact test (`fixed_cells`)
    one relative to a control            the test of one linear condition on two cells (`fixed_linear`)
    a row, a pair of groups, "ahead"     the test of one linear condition (`fixed_linear`)
    penalised scores                     `fixed_penalty`
    a quota: some set of groups, all on the wrong side      the set's cells together; the weakest set counts
    the quadratic                        the distance to its boundary (`fixed_quadratic`)

A policy fails when one of its conditions is refuted at level alpha / (number of conditions). Guard-rails add
conditions on their own outcomes. Levels are divided among the conditions of all metrics and nothing is
multiplied, so that the outcomes of one sample may depend on each other in any way.
Evidence is -ln p, so that it is read like the sequential one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from evenhand.model.problem import Problem
from evenhand.model.region import BOX, CONVEX, DISPERSION, PENALTY, QUOTA, RELATIVE, SPREAD, Region
from evenhand.procedure.estimates import refresh
from evenhand.procedure.evidence.by_family import threshold
from evenhand.procedure.guardrail_rows import guardrail_problem, metric_spec, metric_state
from evenhand.procedure.intervals import FAILED, MET, UNDECIDED
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, State, new_work
from evenhand.theory.metrics import METRIC
from evenhand.verdicts.apply_rule import (
    CellVerdicts,
    RuleResult,
    leader_with_data,
    new_cells,
    other_answers,
    policies_with_data,
)
from evenhand.verdicts.fixed_cells import Sample, cell_evidence, interval_end
from evenhand.verdicts.fixed_linear import ahead_evidence, pair_evidence, row_evidence
from evenhand.verdicts.fixed_penalty import penalised_ahead
from evenhand.verdicts.fixed_quadratic import inside_evidence, outside_evidence

Array = NDArray[np.float64]


def judge_fixed(problem: Problem, spec: Spec, state: State) -> tuple[CellVerdicts, RuleResult]:
    """Return the verdict of every cell and of the whole, as if the data were judged this once only."""
    sample, leader = _sample(problem, spec, state)
    return _cells(sample), _rule_result(sample, leader)


def apply_fixed_rule(problem: Problem, spec: Spec, state: State) -> RuleResult:
    """Return the verdict of the whole, as if the data were judged this once only."""
    return _rule_result(*_sample(problem, spec, state))


def judge_fixed_guardrails(problem: Problem, spec: Spec, state: State) -> tuple[CellVerdicts, ...]:
    """Return the verdict of every cell for each guard-rail."""
    sample, _ = _sample(problem, spec, state)
    return tuple(_cells(metric, sample) for metric in sample.guardrails)


def _sample(problem: Problem, spec: Spec, state: State) -> tuple[Sample, int]:
    work = new_work(spec)
    refresh(spec, state, work, False)
    leader = leader_with_data(work, policies_with_data(spec, state))
    rails = tuple(_guardrail_sample(problem, spec, state, j) for j in range(len(problem.guardrails)))
    return Sample(problem, spec, state, work, {}, rails), leader


def _guardrail_sample(problem: Problem, spec: Spec, state: State, j: int) -> Sample:
    """Return the outcomes of guard-rail j as a sample of their own; the level of a test stays the same."""
    own, told = metric_spec(problem, spec, j), metric_state(state, j)
    work = new_work(own)
    refresh(own, told, work, False)
    return Sample(guardrail_problem(problem, j), own, told, work, {})


def _cells(sample: Sample, whole: Sample | None = None) -> CellVerdicts:
    """Return interval and verdict of every cell; `whole` is the sample that the metric is part of."""
    spec, found = sample.spec, new_cells(sample.spec)
    level = float(threshold(spec))
    for g, k in np.ndindex(spec.phi.shape):
        floor, cap = float(spec.region.lo[g, k]), float(spec.region.hi[g, k])
        conditions = _all_bounds(whole or sample, k)
        extra = math.log(conditions)
        one_sided = math.isfinite(floor) != math.isfinite(cap)
        low_level = level + extra if one_sided and math.isfinite(cap) else level
        high_level = level + extra if one_sided and math.isfinite(floor) else level
        found.low[g, k] = interval_end(sample, g, k, low_level, 1)
        found.high[g, k] = interval_end(sample, g, k, high_level, -1)
        alpha = math.exp(-level)
        kept = _beside_control(sample, spec.region, g, k, 1, alpha)
        met = min(_cell_meets(sample, spec.region, g, k), *kept)
        broken = _beside_control(sample, spec.region, g, k, -1, alpha / conditions)
        failed = max(_cell_fails(sample, g, k), *broken)
        found.verdict[g, k] = FAILED if failed >= level + extra else MET if met >= level else UNDECIDED
    return found


def _rule_result(sample: Sample, leader: int) -> RuleResult:
    """Return the decision: every condition at its level; a rival is behind or fails, the better counts."""
    spec, state = sample.spec, sample.state
    policies, needed = spec.phi.shape[1], float(threshold(spec))
    alpha = math.exp(-needed)
    whole = policies_with_data(spec, state)
    known = [spec.region.kind in (BOX, RELATIVE) or whole[k] for k in range(policies)]
    fails = [_fails(sample, k, alpha, known[k]) for k in range(policies)]
    meets = [_meets(sample, spec.region, k, alpha) if known[k] else (0.0, 0) for k in range(policies)]
    stands = np.array(
        [
            FAILED if fails[k] >= needed else MET if meets[k][0] >= needed else UNDECIDED
            for k in range(policies)
        ]
    )
    if spec.screens:
        value, weakest = min((max(fails[k], meets[k][0]), k) for k in range(policies))
        return RuleResult(NONE, value >= needed, value, needed, weakest, stands)
    value, alternative = _weakest(sample, leader, fails, alpha)
    for i in other_answers(spec, sample.work, whole, leader):
        other, weakest = _weakest(sample, i, fails, alpha)
        if other > value:
            leader, value, alternative = i, other, weakest
    return RuleResult(leader, value >= needed, value, needed, alternative, stands)


def _weakest(sample: Sample, answer: int, fails: list[float], alpha: float) -> tuple[float, int]:
    """Return the least evidence against an alternative to this answer, and which it is."""
    policies = len(fails)
    soft = sample.spec.region.kind == PENALTY and not sample.guardrails  # a shortfall excludes no policy
    alternatives = []
    for k in range(policies):
        if k != answer:
            ahead = _ahead(sample, answer, k, alpha) if answer != NONE else 0.0
            alternatives.append((ahead if soft else max(ahead, fails[k]), k))
    if answer != NONE and not soft:
        value, which = _meets(sample, sample.spec.kept, answer, alpha)
        alternatives.append((value, policies + which))
    return min(alternatives)


def _ahead(sample: Sample, i: int, k: int, alpha: float) -> float:
    """Return -ln p against {k scores at least what i does, and the indifference more}."""
    if not (np.all(sample.state.n[:, i] > 0) and np.all(sample.state.n[:, k] > 0)):
        return 0.0
    compare = penalised_ahead if sample.spec.region.kind == PENALTY else ahead_evidence
    return compare(sample, i, k, alpha)


def _fails(sample: Sample, k: int, alpha: float, known: bool) -> float:
    """Return -ln p against {k meets its requirement}: its strongest condition, times their number.

    `known`: whether the data of the outcome suffice to test its conditions; those of guard-rails are single
    cells.
    """
    conditions = sum(_conditions(metric, k) for metric in sample.metrics)
    level = alpha / max(conditions, 1)
    values = [_broken(rail, k, level) for rail in sample.guardrails]
    if known and not (sample.spec.region.kind == PENALTY and sample.guardrails):
        values.append(_broken(sample, k, level))
    found = max(values, default=0.0) - math.log(max(conditions, 1))
    return found if sample.spec.region.kind in (BOX, PENALTY, RELATIVE) else max(found, 0.0)


def _conditions(sample: Sample, k: int) -> int:
    """Return the number of conditions that policy k must meet; floors of a penalty are none."""
    spec = sample.spec
    if spec.region.kind in (BOX, RELATIVE):
        return _bounds(spec, k)
    if spec.region.kind == PENALTY:
        return 0
    return len(list(_rows(sample, k))) + _has_quota(spec) + _has_quadratic(spec)


def _broken(sample: Sample, k: int, level: float) -> float:
    """Return the largest -ln p against {k meets this condition} of one metric, for tests at this level."""
    spec, region = sample.spec, sample.spec.region
    if region.kind in (BOX, PENALTY, RELATIVE):
        values = [0.0]
        for g in range(spec.phi.shape[0]):
            values += [_cell_fails(sample, g, k), *_beside_control(sample, region, g, k, -1, level)]
        return max(values)
    values = [row_evidence(sample, k, -a, -c, level) for _, a, c in _rows(sample, k)]
    if _has_quota(spec):
        values.append(_quota(sample, k, -1)[0])
    if _has_quadratic(spec):
        values.append(outside_evidence(sample, k, level))
    return max(values)


def _beside_control(sample: Sample, region: Region, g: int, k: int, sign: int, level: float) -> list[float]:
    """Return -ln p of the relative floor and cap of a cell: that each is met (sign 1) or broken (-1).

    Where there is none: infinite evidence that it is met, none that it is broken.
    """
    absent = math.inf if sign > 0 else 0.0
    if region.kind != RELATIVE or k == region.control:
        return [absent, absent]
    found = []
    for ratio, margin, side in (
        (float(region.floor_ratio[g]), float(region.floor_margin[g]), 1.0),
        (float(region.cap_ratio[g]), float(region.cap_margin[g]), -1.0),
    ):
        if margin == math.inf:
            found.append(absent)
        else:  # a floor is met where mean - ratio control > -margin, a cap where the negative is
            found.append(
                pair_evidence(sample, g, k, region.control, sign * side, ratio, -sign * margin, level)
            )
    return found


def _meets(sample: Sample, region: Region, k: int, alpha: float) -> tuple[float, int]:
    """Return -ln p against {k violates this condition}, the least over its conditions, and which it is.

    `region` is that of the outcome, loosened by the tolerance for an answer; guard-rails have none.
    """
    values = []
    if not (region.kind == PENALTY and sample.guardrails):
        values.append(_kept(sample, region, k, alpha))
    for j, rail in enumerate(sample.guardrails):
        value, which = _kept(rail, rail.spec.region, k, alpha)
        values.append((value, (j + 1) * METRIC + which))
    return min(values)


def _kept(sample: Sample, region: Region, k: int, alpha: float) -> tuple[float, int]:
    """Return the same for the conditions of one metric."""
    spec = sample.spec
    if region.kind in (BOX, PENALTY, RELATIVE):
        return _bounds_met(sample, region, k, alpha)
    values = [(row_evidence(sample, k, a, c, alpha), which) for which, a, c in _rows(sample, k)]
    rows = spec.region.rows.shape[0]
    if _has_quadratic(spec):
        values.append((inside_evidence(sample, k, alpha), rows))
    if _has_quota(spec):
        value, weakest = _quota(sample, k, 1, region)
        values.append((value, weakest + (rows + 1 if spec.region.kind == CONVEX else 0)))
    return min(values)


def _rows(sample: Sample, k: int) -> Iterator[tuple[int, Array, float]]:
    """Yield the linear conditions a.m >= c on policy k, with their numbers in `procedure.alternatives`."""
    r, groups = sample.spec.region, sample.spec.phi.shape[0]
    if r.kind == SPREAD:
        for g, h in np.ndindex(groups, groups):
            if g != h:
                a = np.zeros(groups)
                a[g], a[h] = 1.0, -r.rho
                yield g * groups + h, a, -r.slack
    elif r.kind == CONVEX:
        for j in range(r.rows.shape[0]):
            yield j, r.rows[j], float(r.rhs[j, k])


def _quota(sample: Sample, k: int, sign: int, region: Region | None = None) -> tuple[float, int]:
    """Return -ln p against {too few groups reach their floors} (sign 1) or {enough do} (sign -1).

    The null is a union over sets of groups, all below their floors or all at or above them. Under one set the
    normal scores z of its cells' exact p-values are independent and no larger than standard normal variables,
    so the sum of the squares of the positive ones is no larger than a mixture of chi-squared variables: j
    degrees of freedom with probability (size choose j) / 2^size. The set with the smallest sum counts; the
    group with the least evidence is returned too.
    """
    region = sample.spec.region if region is None else region
    groups, need = sample.spec.phi.shape[0], region.need
    size = groups - need + 1 if sign > 0 else need
    values = [cell_evidence(sample, g, k, float(region.lo[g, k]), sign) for g in range(groups)]
    order = np.argsort(values)[:size]
    scores = np.maximum(-special.ndtri_exp(-np.array(values)[order]), 0.0)
    return mixture_evidence(float(np.sum(scores**2)), size), int(order[0])


def mixture_evidence(total: float, size: int) -> float:
    """Return -ln of the probability that `size` squared positive parts of normal variables reach `total`."""
    if total <= 0.0:
        return 0.0
    j = np.arange(1, size + 1)
    weights = special.gammaln(size + 1) - special.gammaln(j + 1) - special.gammaln(size - j + 1)
    logs = weights - size * math.log(2.0) + stats.chi2.logsf(total, j)
    return -float(special.logsumexp(logs))


def _bounds(spec: Spec, k: int) -> int:
    """Return the number of floors and caps of policy k, relative ones included."""
    r = spec.region
    found = int(np.isfinite(r.lo[:, k]).sum() + np.isfinite(r.hi[:, k]).sum())
    if r.kind == RELATIVE and k != r.control:
        found += int(np.isfinite(r.floor_margin).sum() + np.isfinite(r.cap_margin).sum())
    return found


def _all_bounds(sample: Sample, k: int) -> int:
    """Return the number of floors and caps of policy k in all metrics, at least 1."""
    return max(sum(_bounds(metric.spec, k) for metric in sample.metrics), 1)


def _has_quota(spec: Spec) -> bool:
    return spec.region.kind == QUOTA or (spec.region.kind == CONVEX and spec.region.need > 0)


def _has_quadratic(spec: Spec) -> bool:
    return spec.region.kind == DISPERSION or (spec.region.kind == CONVEX and spec.region.limit < math.inf)


def _bounds_met(sample: Sample, region: Region, k: int, alpha: float) -> tuple[float, int]:
    """Return the least evidence that a floor or cap of policy k is met, and the number of the bound."""
    groups, values = sample.spec.phi.shape[0], [(math.inf, 0)]
    for g in range(groups):
        floor, cap = float(region.lo[g, k]), float(region.hi[g, k])
        if math.isfinite(floor):
            values.append((cell_evidence(sample, g, k, floor, 1), g))
        if math.isfinite(cap):
            values.append((cell_evidence(sample, g, k, cap, -1), groups + g))
        for side, value in enumerate(_beside_control(sample, region, g, k, 1, alpha)):
            values.append((value, (2 + side) * groups + g))
    return min(values)


def _cell_meets(sample: Sample, region: Region, g: int, k: int) -> float:
    floor, cap = float(region.lo[g, k]), float(region.hi[g, k])
    return min(
        cell_evidence(sample, g, k, floor, 1) if math.isfinite(floor) else math.inf,
        cell_evidence(sample, g, k, cap, -1) if math.isfinite(cap) else math.inf,
    )


def _cell_fails(sample: Sample, g: int, k: int) -> float:
    floor, cap = float(sample.spec.region.lo[g, k]), float(sample.spec.region.hi[g, k])
    return max(
        cell_evidence(sample, g, k, floor, -1) if math.isfinite(floor) else 0.0,
        cell_evidence(sample, g, k, cap, 1) if math.isfinite(cap) else 0.0,
    )
