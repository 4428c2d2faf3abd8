"""Certified evidence: lower bounds of ln e-values, whatever the family and the requirement."""

from __future__ import annotations

import math

import numpy as np

from evenhand._kernel import kernel
from evenhand.model.region import PENALTY
from evenhand.model.units import GAUSSIAN
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, Work
from evenhand.procedure.stopping import gaussian, tilt


@kernel
def threshold(spec: Spec) -> float:
    """What every piece must reach: ln(wrong answers / delta)."""
    policies = spec.phi.shape[1]
    wrong = policies - 1 if spec.region.kind == PENALTY else policies
    return math.log(wrong / spec.delta)


@kernel
def ahead(spec: Spec, state: State, work: Work, i: int, k: int) -> float:
    """Against {q.mu_k >= q.mu_i}: the leader i is ahead of its rival k."""
    if spec.code == GAUSSIAN:
        return gaussian.ahead(spec, state, i, k)
    return tilt.ahead(spec, state, i, k, work.scratch)


@kernel
def fails(spec: Spec, state: State, work: Work, k: int) -> float:
    """Against {policy k meets its requirement}: the average over its floors and caps."""
    groups = spec.phi.shape[0]
    total, atoms = -math.inf, 0
    for g in range(groups):
        if spec.region.lo[g, k] > -math.inf:
            total = np.logaddexp(total, cell_below(spec, state, g, k, spec.region.lo[g, k]))
            atoms += 1
        if spec.region.hi[g, k] < math.inf:
            total = np.logaddexp(total, cell_above(spec, state, g, k, spec.region.hi[g, k]))
            atoms += 1
    return total - math.log(float(atoms)) if atoms > 0 else -math.inf


@kernel
def meets(spec: Spec, state: State, work: Work, i: int) -> tuple[float, int]:
    """Against each {policy i violates this floor or cap}: the least of them, and which."""
    groups = spec.phi.shape[0]
    least, which = math.inf, 0
    for g in range(groups):
        if spec.region.lo[g, i] > -math.inf:
            value = cell_above(spec, state, g, i, spec.region.lo[g, i])
            if value < least:
                least, which = value, g
        if spec.region.hi[g, i] < math.inf:
            value = cell_below(spec, state, g, i, spec.region.hi[g, i])
            if value < least:
                least, which = value, groups + g
    return least, which


@kernel
def cell_above(spec: Spec, state: State, g: int, k: int, c: float) -> float:
    """One cell, against {mean <= c}."""
    return _cell(spec, state, g, k, c, 1.0)


@kernel
def cell_below(spec: Spec, state: State, g: int, k: int, c: float) -> float:
    """One cell, against {mean >= c}."""
    return _cell(spec, state, g, k, c, -1.0)


@kernel
def _cell(spec: Spec, state: State, g: int, k: int, c: float, sign: float) -> float:
    n, s, phi = state.n[g, k], state.s[g, k], spec.phi[g, k]
    if spec.code == GAUSSIAN:
        return gaussian.cell(n, s, phi, c, sign)
    return tilt.cell(spec.code, n / phi, s / phi, c, sign)
