"""Screening: classify every policy as meeting its requirement or not.

A policy is classified when the evidence for the side of its requirement on which its estimates are reaches
K/delta: the evidence of its weakest condition if the estimates meet all, else the average E2. For a wrong
classification of one of K policies an e-process of one of its own true conditions must reach K/delta, so all
classifications are right together except with probability delta. Only unclassified policies are sampled, so a
classification does not change.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.procedure.alternatives import evidence_that_fails
from evenhand.procedure.evidence import certified
from evenhand.procedure.evidence.thresholds import cost_of_checks, stylised_threshold
from evenhand.procedure.guardrails import enter_all, leave_any
from evenhand.procedure.spec import BUDGET, CALIBRATED, CERTIFIED, KAUFMANN_KOOLEN, Spec
from evenhand.procedure.state import NONE, TOLD, State, Work
from evenhand.procedure.stopping import kaufmann_koolen
from evenhand.procedure.stopping.kaufmann_koolen import strongest_metric, weakest_metric


@kernel
def weakest_classification(spec: Spec, state: State, work: Work) -> tuple[float, float, int]:
    """Return evidence, threshold and number of the policy with the least evidence for its class."""
    value, needed, weakest = math.inf, 0.0, 0
    for k in range(spec.phi.shape[1]):
        mine, need = settled_by(spec, state, work, k)
        if k == 0 or mine - need < value - needed:
            value, needed, weakest = mine, need, k
    return value, needed, weakest


@kernel
def settled_by(spec: Spec, state: State, work: Work, k: int) -> tuple[float, float]:
    """Return the evidence for policy k's class by its estimates, and its threshold."""
    inside = work.margin[k] >= 0.0
    if spec.stopping in (CERTIFIED, BUDGET):
        bar = math.log(spec.wrong_statements / spec.delta)
        if inside:
            return certified.meets(spec, state, work, k)[0], bar
        return evidence_that_fails(spec, state, work, k), bar
    if spec.stopping == KAUFMANN_KOOLEN and spec.guardrails.present:
        if not inside:
            return strongest_metric(spec, state, work, NONE, k)
        value, needed, _ = weakest_metric(spec, state, work, spec.region, k)
        return value, needed
    if inside:
        lower, _ = leave_any(spec, work, spec.region, k)
    else:
        lower = enter_all(spec, work, k)
    if spec.stopping == KAUFMANN_KOOLEN:
        return lower, kaufmann_koolen.alternative_threshold(spec, state, k, NONE)
    told = state.clock[TOLD]
    if spec.stopping == CALIBRATED:
        return lower, spec.level + cost_of_checks(told)
    return lower, stylised_threshold(told, spec.delta)


@kernel
def first_allowed(work: Work) -> int:
    """Return the first policy that meets its requirement by the estimates, or NONE."""
    for k in range(work.margin.size):
        if work.margin[k] >= 0.0:
            return k
    return NONE
