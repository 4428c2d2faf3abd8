"""Screening: every policy is to be classified as meeting its requirement or not.

A policy is settled when the evidence that it stands on the side of its requirement where its estimates put it
reaches K/delta: that of its weakest condition where they meet all, else the average of E2. To misjudge one of
K policies an e-process of one of its own true conditions must reach K/delta, so all are judged right together
but for a risk of delta. Only what is not settled is sampled, so that what is settled stays so.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.procedure.alternatives import failing
from evenhand.procedure.evidence import certified
from evenhand.procedure.spec import BUDGET, CALIBRATED, CERTIFIED, KAUFMANN_KOOLEN, Spec
from evenhand.procedure.state import NONE, TOLD, State, Work
from evenhand.procedure.stopping import kaufmann_koolen, stylised
from evenhand.theory import inner


@kernel
def weakest_classification(spec: Spec, state: State, work: Work) -> tuple[float, float, int]:
    """Of the policy that is settled least: its evidence, what it needs, and which policy it is."""
    value, needed, weakest = math.inf, 0.0, 0
    for k in range(spec.phi.shape[1]):
        mine, need = settled_by(spec, state, work, k)
        if k == 0 or mine - need < value - needed:
            value, needed, weakest = mine, need, k
    return value, needed, weakest


@kernel
def settled_by(spec: Spec, state: State, work: Work, k: int) -> tuple[float, float]:
    """Evidence that policy k stands on the side of its requirement that its estimates say, and its need."""
    inside = work.margin[k] >= 0.0
    if spec.stopping in (CERTIFIED, BUDGET):
        bar = math.log(float(spec.phi.shape[1]) / spec.delta)
        if inside:
            return certified.meets(spec, state, work, k)[0], bar
        return failing(spec, state, work, k), bar
    if inside:
        _, lower, _ = inner.leave(
            spec.code, spec.region, k, work.v, work.mean, work.lam_k, work.lam_0, work.scratch
        )
    else:
        _, lower = inner.enter(
            spec.code, spec.region, k, work.v, work.mean, work.lam_k, work.lam_0, work.scratch
        )
    if spec.stopping == KAUFMANN_KOOLEN:
        return lower, kaufmann_koolen.piece_threshold(spec, state, k, NONE)
    told = state.clock[TOLD]
    if spec.stopping == CALIBRATED:
        return lower, spec.level + stylised.patience(told)
    return lower, stylised.threshold(told, spec.delta)


@kernel
def first_allowed(work: Work) -> int:
    """The first policy that meets its requirement by the estimates, or NONE."""
    for k in range(work.margin.size):
        if work.margin[k] >= 0.0:
            return k
    return NONE
