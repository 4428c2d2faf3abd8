"""One cell at a time: is its bound met or failed, and which means can the data not exclude?

The interval is the stopping rule turned round: its lower end is the largest c such that the rule's own
evidence against {mean <= c} reaches the rule's own level. So a floor is met exactly when it lies at or below
that end.

    end of the interval    level of the evidence                     ever excludes the true mean with chance
    that decides "met"     threshold = ln(wrong answers / delta)     delta / wrong answers
    that decides "failed"  threshold + ln(bounds of the policy)      delta / (wrong answers x bounds)

A policy fails when the *average* of the e-values of its bounds passes the threshold, hence the second level:
one bound alone then carries the average. Likelihood-ratio rules compare v d(mean, c) with their own level.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.model.units import GAUSSIAN, divergence, edge_high, edge_low
from evenhand.procedure.estimates import dispersion
from evenhand.procedure.spec import BUDGET, CALIBRATED, CERTIFIED, KAUFMANN_KOOLEN, Spec
from evenhand.procedure.state import TOLD, State
from evenhand.procedure.stopping import evidence
from evenhand.procedure.stopping.kaufmann_koolen import c_exp

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

UNDECIDED, MET, FAILED = range(3)
HALVINGS = 200  # enough to reach neighbouring numbers


class Cells(NamedTuple):
    """Per cell, (L, K), in unit scale."""

    low: Array
    high: Array
    verdict: Ints


def judge_cells(spec: Spec, state: State) -> Cells:
    """Every cell's interval and verdict against its own floor and cap; a cell without bounds is met."""
    found = Cells(
        np.zeros(spec.phi.shape), np.zeros(spec.phi.shape), np.zeros(spec.phi.shape, dtype=np.int64)
    )
    _judge_all(spec, state, found)
    return found


@kernel
def _judge_all(spec: Spec, state: State, found: Cells) -> None:
    groups, policies = spec.phi.shape
    for k in range(policies):
        extra = _extra(spec, k)
        for g in range(groups):
            floor, cap = spec.region.lo[g, k], spec.region.hi[g, k]
            level = cell_level(spec, state, g, k)
            # the end that decides "met" stands at the level itself; with no bound, or two, both ends do
            one_sided = (floor > -math.inf) != (cap < math.inf)
            level_low = level + extra if one_sided and cap < math.inf else level
            level_high = level + extra if one_sided and floor > -math.inf else level
            found.low[g, k] = _end(spec, state, g, k, level_low, 1.0)
            found.high[g, k] = _end(spec, state, g, k, level_high, -1.0)
            found.verdict[g, k] = _verdict(spec, state, g, k, level, extra)


@kernel
def _verdict(spec: Spec, state: State, g: int, k: int, level: float, extra: float) -> int:
    floor, cap = spec.region.lo[g, k], spec.region.hi[g, k]
    met = True
    if floor > -math.inf:
        if against(spec, state, g, k, floor, -1.0) >= level + extra:
            return FAILED
        met = met and against(spec, state, g, k, floor, 1.0) >= level
    if cap < math.inf:
        if against(spec, state, g, k, cap, 1.0) >= level + extra:
            return FAILED
        met = met and against(spec, state, g, k, cap, -1.0) >= level
    return MET if met else UNDECIDED


@kernel
def against(spec: Spec, state: State, g: int, k: int, c: float, sign: float) -> float:
    """The rule's evidence of one cell against {mean <= c} (sign 1) or {mean >= c} (sign -1)."""
    if spec.stopping == CERTIFIED or spec.stopping == BUDGET:
        if sign > 0.0:
            return evidence.cell_above(spec, state, g, k, c)
        return evidence.cell_below(spec, state, g, k, c)
    n = state.n[g, k]
    if n == 0.0:
        return 0.0
    mean = state.s[g, k] / n
    value = n / dispersion(spec, state, g, k) * divergence(spec.code, mean, c)
    return value if sign * (mean - c) > 0.0 else -value


@kernel
def cell_level(spec: Spec, state: State, g: int, k: int) -> float:
    """What the evidence of one cell must reach under the study's stopping rule."""
    if spec.stopping == CERTIFIED or spec.stopping == BUDGET:
        return evidence.threshold(spec)
    if spec.stopping == KAUFMANN_KOOLEN:
        patience = 3.0 * math.log1p(math.log(max(state.n[g, k], 1.0)))
        return patience + c_exp(math.log(spec.phi.shape[1] / spec.delta))
    patience = math.log1p(math.log(float(max(state.clock[TOLD], 1))))
    return spec.level + patience if spec.stopping == CALIBRATED else patience - math.log(spec.delta)


@kernel
def _extra(spec: Spec, k: int) -> float:
    """How much more evidence it takes to fail a policy by one of its bounds alone."""
    if spec.stopping != CERTIFIED and spec.stopping != BUDGET:
        return 0.0
    bounds = 0
    for g in range(spec.phi.shape[0]):
        bounds += spec.region.lo[g, k] > -math.inf
        bounds += spec.region.hi[g, k] < math.inf
    return math.log(float(max(bounds, 1)))


@kernel
def _end(spec: Spec, state: State, g: int, k: int, level: float, sign: float) -> float:
    """The last c below (sign 1) or above (sign -1) the mean that the evidence excludes; else the edge."""
    edge = edge_low(spec.code) if sign > 0.0 else edge_high(spec.code)
    n = state.n[g, k]
    if n == 0.0:
        return edge
    inside = state.s[g, k] / n  # the evidence against the mean itself reaches no level
    outside = edge
    if math.isinf(edge):
        step = max(abs(inside), 1.0) if spec.code != GAUSSIAN else math.sqrt(spec.phi[g, k])
        outside = inside - sign * step
        while against(spec, state, g, k, outside, sign) < level:
            step *= 2.0
            outside = inside - sign * step
            if step > 1e150:
                return edge
    elif against(spec, state, g, k, _near(edge, inside), sign) < level:
        return edge
    for _ in range(HALVINGS):
        middle = 0.5 * (inside + outside)
        if middle in (inside, outside):
            break
        if against(spec, state, g, k, middle, sign) >= level:
            outside = middle
        else:
            inside = middle
    return outside


@kernel
def _near(edge: float, inside: float) -> float:
    """Just inside the edge: on it a divergence may be infinite or undefined."""
    return edge + 1e-15 * (inside - edge)
