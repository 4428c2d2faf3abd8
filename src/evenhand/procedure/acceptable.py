"""Acceptable answers: the easiest to certify, and the one with the most evidence.

With an indifference or a tolerance several answers may be acceptable: i is when its means are within its
loosened bounds and no allowed policy's score exceeds its own by more than the indifference. Sampling follows
the easiest of these: the one with the least

    max( sum over its bounds of 2 sd^2 / slack^2,
         max over rivals k of min( 2 (sum q (sd_i + sd_k))^2 / lead^2, samples that show that k fails ) ),

sd the standard deviation of one outcome, lead the difference of the scores plus the indifference. This is a
rough estimate of the samples needed, and only sampling depends on it.

The stopping rule takes the acceptable answer with the most evidence (`strongest`). The evidence for an answer
is that of its weakest alternative. The computation for an answer ends as soon as it cannot have the most
evidence, mostly after one or two alternatives.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import BOX, PENALTY, RELATIVE, Region
from evenhand.procedure.alternatives import evidence_that_fails, joined
from evenhand.procedure.evidence import certified
from evenhand.procedure.guardrails import (
    enter_all,
    enter_guardrails,
    has_conditions,
    leave_any,
    margin_of,
    region_of,
)
from evenhand.procedure.spec import CERTIFIED, KAUFMANN_KOOLEN, Spec
from evenhand.procedure.state import NONE, State, Work
from evenhand.procedure.stopping import kaufmann_koolen
from evenhand.procedure.stopping.kaufmann_koolen import strongest_metric, weakest_metric
from evenhand.theory import inner
from evenhand.theory.inner import score

Array = NDArray[np.float64]

# with more policies, comparing every pair at each step takes too long: the best is followed
MANY = 256


class PolicySummary(NamedTuple):
    """Scores, margins and times of all policies at given means: the estimates or a posterior draw."""

    mean: Array
    rails: Array  # (M, L, K) of the guard-rails
    score: Array  # (K,)
    margin: Array  # (K,) how far inside the region
    kept_margin: Array  # (K,) how far inside the loosened region
    keep_time: Array  # (K,) estimated samples to show that k meets its own bounds
    fail_time: Array  # (K,) estimated samples to show that k fails


@kernel
def by_estimates(work: Work) -> PolicySummary:
    """Return the standing of the policies by the estimates."""
    return PolicySummary(
        work.mean, work.rail_mean, work.score, work.margin, work.kept_margin, work.keep_time, work.fail_time
    )


@kernel
def by_draw(state: State, work: Work) -> PolicySummary:
    """Return the standing of the policies by the latest posterior draw."""
    table = work.drawn_standing
    return PolicySummary(state.theta, state.rail_theta, table[0], table[1], table[2], table[3], table[4])


@kernel
def is_acceptable(spec: Spec, at: PolicySummary, best: int, i: int) -> bool:
    """Return whether policy i is an acceptable answer; `best` is the best allowed policy."""
    if at.kept_margin[i] < 0.0:
        return False
    return best == NONE or i == best or at.score[i] + spec.indifference >= at.score[best]


@kernel
def easiest(spec: Spec, work: Work, at: PolicySummary, best: int) -> int:
    """Return the acceptable answer with the smallest estimated time; the best on ties."""
    policies = spec.phi.shape[1]
    if policies > MANY:
        return best
    found, least = best, _time(spec, work, at, best) if best != NONE else _time_of_none(at)
    for i in range(policies):
        if i != best and is_acceptable(spec, at, best, i):
            time = _time(spec, work, at, i)
            if time < least:
                found, least = i, time
    return found


@kernel
def update_summary(spec: Spec, work: Work, at: PolicySummary, k: int) -> None:
    """Compute the entries of policy k from its means."""
    at.score[k] = score(spec.region, spec.shares, k, at.mean)
    at.margin[k] = margin_of(spec, spec.region, k, at.mean, at.rails)
    at.kept_margin[k] = margin_of(spec, spec.kept, k, at.mean, at.rails)
    if spec.region.kind == PENALTY:
        at.keep_time[k], at.fail_time[k] = 0.0, math.inf
    elif spec.region.kind in (BOX, RELATIVE):
        times = _time_of_bounds(spec.kept, spec.region, at.mean, work.noise, k)
        at.keep_time[k], at.fail_time[k] = times
    else:
        _time_of_margin(spec, work, at, k)
    if spec.guardrails.present:
        _add_time_of_guardrails(spec, work, at, k)


@kernel
def _add_time_of_guardrails(spec: Spec, work: Work, at: PolicySummary, k: int) -> None:
    for j in range(spec.guardrails.code.shape[0]):
        region = region_of(spec, j)
        keep, fail = _time_of_bounds(region, region, at.rails[j], work.rail_noise[j], k)
        at.keep_time[k] += keep
        at.fail_time[k] = min(at.fail_time[k], fail)


@kernel
def _time_of_bounds(own: Region, r: Region, means: Array, noises: Array, k: int) -> tuple[float, float]:
    """Return the times to show that k meets the floors and caps of `own`, and that it misses one of r."""
    kept, failed = 0.0, math.inf
    for g in range(means.shape[0]):
        mean, noise = means[g, k], noises[g, k]
        slack = min(mean - own.lo[g, k], own.hi[g, k] - mean)
        short = max(r.lo[g, k] - mean, mean - r.hi[g, k])
        keep, fail = samples_for(noise, slack), samples_for(noise, short)
        if r.kind == RELATIVE and k != r.control:
            keep = max(keep, _time_beside_control(own, means, noises, g, k, 1.0))
            fail = min(fail, _time_beside_control(r, means, noises, g, k, -1.0))
        kept, failed = kept + keep, min(failed, fail)
    return kept, failed


@kernel
def _time_beside_control(r: Region, means: Array, noises: Array, g: int, k: int, sign: float) -> float:
    """Return the time to show that k meets its relative bounds in group g (sign 1) or misses one (-1)."""
    own, control = means[g, k], means[g, r.control]
    sd, sd_0 = math.sqrt(noises[g, k]), math.sqrt(noises[g, r.control])
    floor = own - r.floor_ratio[g] * control + r.floor_margin[g]
    cap = r.cap_ratio[g] * control + r.cap_margin[g] - own
    by_floor = samples_for((sd + r.floor_ratio[g] * sd_0) ** 2, sign * floor)
    by_cap = samples_for((sd + r.cap_ratio[g] * sd_0) ** 2, sign * cap)
    return max(by_floor, by_cap) if sign > 0.0 else min(by_floor, by_cap)


@kernel
def _time_of_margin(spec: Spec, work: Work, at: PolicySummary, k: int) -> None:
    """Compute the times of any other requirement from its margin and the largest variance."""
    noise = 0.0
    for g in range(spec.phi.shape[0]):
        noise = max(noise, work.noise[g, k])
    at.keep_time[k] = samples_for(noise, at.kept_margin[k])
    at.fail_time[k] = samples_for(noise, -at.margin[k])


@kernel
def samples_for(noise: float, gap: float) -> float:
    """Return the estimated samples to show a difference of this size; infinite if it is not positive."""
    return 2.0 * noise / (gap * gap) if gap > 0.0 else math.inf


@kernel
def _time(spec: Spec, work: Work, at: PolicySummary, i: int) -> float:
    """Return the estimated time to certify policy i."""
    most = at.keep_time[i]
    for k in range(at.score.size):
        if k != i:
            apart = work.score_sd[i] + work.score_sd[k]
            lead = at.score[i] - at.score[k] + spec.indifference
            most = max(most, min(samples_for(apart * apart, lead), at.fail_time[k]))
    return most


@kernel
def _time_of_none(at: PolicySummary) -> float:
    """Return the estimated time to show that every policy fails."""
    total = 0.0
    for k in range(at.score.size):
        total += at.fail_time[k]
    return total


@kernel
def strongest(
    spec: Spec, state: State, work: Work, leader: int, value: float, needed: float, alternative: int
) -> tuple[int, float, float, int]:
    """Return the acceptable answer with the most evidence above its threshold.

    Returns the answer, its evidence, its threshold and its weakest alternative.

    `value`, `needed` and `alternative` are those of the leader.
    """
    answer, flat = leader, needed
    if work.lead[0] == NONE and leader != NONE:
        mine, need, weak = _weight(spec, state, work, NONE, leader, flat, value - needed)
        if mine - need > value - needed:
            answer, value, needed, alternative = NONE, mine, need, weak
    for i in range(spec.phi.shape[1]):
        if i != leader and is_acceptable(spec, by_estimates(work), work.lead[0], i):
            mine, need, weak = _weight(spec, state, work, i, leader, flat, value - needed)
            if mine - need > value - needed:
                answer, value, needed, alternative = i, mine, need, weak
    return answer, value, needed, alternative


@kernel
def _weight(
    spec: Spec, state: State, work: Work, i: int, first: int, flat: float, least: float
) -> tuple[float, float, int]:
    """Return evidence, threshold and code of the weakest alternative to i.

    The search ends once the evidence is at most `least` above the threshold. Rival `first` is evaluated
    first. `flat` is the threshold if it is the same for all alternatives.
    """
    policies = spec.phi.shape[1]
    value, needed, alternative = math.inf, flat, 0
    if i != NONE and has_conditions(spec):
        value, needed, which = _own(spec, state, work, i, flat)
        alternative = policies + which
    for turn in range(policies):
        if not value - needed > least:
            break
        k = turn
        if 0 < turn <= first:
            k = turn - 1
        elif turn == 0 and first != NONE:
            k = first
        if k != i:
            mine, need = _rival(spec, state, work, i, k, flat, value - needed)
            if mine - need < value - needed:
                value, needed, alternative = mine, need, k
    return value, needed, alternative


@kernel
def _own(spec: Spec, state: State, work: Work, i: int, flat: float) -> tuple[float, float, int]:
    """Return the evidence that i meets its own bounds, its threshold, and the weakest bound."""
    if spec.stopping == CERTIFIED:
        met, which = certified.meets(spec, state, work, i)
        return met, flat, which
    if spec.stopping == KAUFMANN_KOOLEN and spec.guardrails.present:
        return weakest_metric(spec, state, work, spec.kept, i)
    lower, which = leave_any(spec, work, spec.kept, i)
    if spec.stopping == KAUFMANN_KOOLEN:
        return lower, kaufmann_koolen.alternative_threshold(spec, state, i, NONE), which
    return lower, flat, which


@kernel
def _rival(
    spec: Spec, state: State, work: Work, i: int, k: int, flat: float, enough: float
) -> tuple[float, float]:
    """Return the evidence against "k is allowed and better by the indifference", and its threshold."""
    if spec.stopping == CERTIFIED:
        if not has_conditions(spec):
            return certified.ahead(spec, state, work, i, k, flat + enough), flat
        found = evidence_that_fails(spec, state, work, k)
        if i != NONE and found <= flat + enough:
            found = joined(spec, certified.ahead(spec, state, work, i, k, flat + enough), found)
        return found, flat
    if spec.stopping == KAUFMANN_KOOLEN and spec.guardrails.present:
        return strongest_metric(spec, state, work, i, k)
    if i == NONE:
        lower = enter_all(spec, work, k)
    else:
        _, lower = inner.beat(
            spec.code, spec.region, spec.shares, spec.indifference, i, k, work.v, work.mean,
            work.lam_i, work.lam_k, work.lam_0, work.scratch,
        )  # fmt: skip
        if spec.guardrails.present:
            lower += enter_guardrails(spec, work, k)
    if spec.stopping == KAUFMANN_KOOLEN:
        return lower, kaufmann_koolen.alternative_threshold(spec, state, k, i)
    return lower, flat
