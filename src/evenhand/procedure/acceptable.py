"""Acceptable answers at given means, and the one that is estimated to be easiest to certify.

With an indifference or a tolerance several answers may be acceptable: i is when its means are within its
loosened bounds and no allowed policy's score exceeds its own by more than the indifference. Sampling follows
the easiest of these: the one with the least

    max( sum over its bounds of 2 sd^2 / slack^2,
         max over rivals k of min( 2 (sum q (sd_i + sd_k))^2 / lead^2, samples that show that k fails ) ),

sd the standard deviation of one outcome, lead the difference of the scores plus the indifference. This is a
rough estimate of the samples needed, and only sampling depends on it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import BOX, PENALTY, RELATIVE, Region
from evenhand.procedure.guardrails import margin_of, region_of
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, State, Work
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
