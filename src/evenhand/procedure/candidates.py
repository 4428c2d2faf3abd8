"""The stopping rule if several answers may be acceptable: the one with the most evidence counts.

The evidence for an answer is that of its weakest alternative. The computation for an answer ends as soon as
it cannot have the most evidence, mostly after one or two alternatives.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.procedure.acceptable import by_estimates, is_acceptable
from evenhand.procedure.alternatives import evidence_that_fails, joined
from evenhand.procedure.evidence import certified
from evenhand.procedure.guardrails import enter_all, enter_guardrails, has_conditions, leave_any
from evenhand.procedure.spec import CERTIFIED, KAUFMANN_KOOLEN, Spec
from evenhand.procedure.state import NONE, State, Work
from evenhand.procedure.stopping import kaufmann_koolen
from evenhand.procedure.stopping.guardrail_thresholds import strongest_metric, weakest_metric
from evenhand.theory import inner


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
