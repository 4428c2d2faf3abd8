"""Evidence from single cells and about single linear conditions, by the family of the outcomes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.model.region import BOX, PENALTY, Region
from evenhand.model.units import EXPONENTIAL, GAUSSIAN, edge_high, edge_low
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State
from evenhand.procedure.stopping import gaussian, mixture, tilt, unknown
from evenhand.procedure.stopping.logs import NOTHING

Array = NDArray[np.float64]


@kernel
def threshold(spec: Spec) -> float:
    """def:delta-PAC: what the evidence against every alternative must reach, ln(wrong answers / delta)."""
    return math.log(wrong_answers(spec.region, spec.phi.shape[1]) / spec.delta)


@kernel
def wrong_answers(region: Region, policies: int) -> int:
    """Of K policies and "none", K answers are wrong; where a policy cannot fail, "none" is no answer."""
    if region.kind == PENALTY:
        return policies - 1
    if region.kind != BOX:
        return policies
    for g in range(region.lo.shape[0]):
        if region.lo[g, 0] > -math.inf or region.hi[g, 0] < math.inf:
            return policies
    return policies - 1


@kernel
def atom_ceiling(spec: Spec) -> float:
    """The most that is ever asked of one atom: the threshold, were it alone to carry an average over all."""
    groups = spec.phi.shape[0]
    return threshold(spec) + math.log(float(groups * (groups + 1) + spec.region.rows.shape[0]))


@kernel(apart=True)
def cell_above(spec: Spec, state: State, g: int, k: int, c: float) -> float:
    """ln e-value of one cell against {mean <= c}."""
    if c >= edge_high(spec.code):
        return NOTHING
    if c < edge_low(spec.code) or (spec.code == EXPONENTIAL and c <= 0.0):
        return math.inf
    return _cell(spec, state, g, k, c, 1.0)


@kernel(apart=True)
def cell_below(spec: Spec, state: State, g: int, k: int, c: float) -> float:
    """ln e-value of one cell against {mean >= c}."""
    if c <= edge_low(spec.code):
        return NOTHING
    return math.inf if c > edge_high(spec.code) else _cell(spec, state, g, k, c, -1.0)


@kernel
def _cell(spec: Spec, state: State, g: int, k: int, c: float, sign: float) -> float:
    if spec.unknown_variance:
        return unknown.cell(state, g, k, c, sign, atom_ceiling(spec))
    n, s, phi = state.n[g, k], state.s[g, k], spec.phi[g, k]
    if spec.code == GAUSSIAN:
        return gaussian.cell(n, s, phi, c, sign)
    return tilt.cell(spec.code, n / phi, s / phi, c, sign)


@kernel(apart=True)
def row(spec: Spec, state: State, k: int, a: Array, c: float, work: Array) -> float:
    """ln e-value against {a.mu_k >= c}. A lower bound; exact where one cell matters."""
    used, only = 0, 0
    for g in range(a.size):
        if a[g] != 0.0:
            used, only = used + 1, g
    if used == 1:
        if a[only] > 0.0:
            return cell_below(spec, state, only, k, c / a[only])
        return cell_above(spec, state, only, k, c / a[only])
    if spec.unknown_variance:
        return unknown.row(state, k, a, c, atom_ceiling(spec), work)
    if spec.code == GAUSSIAN:
        return gaussian.row(spec, state, k, a, c)
    if spec.code == EXPONENTIAL:
        return mixture.row(spec, state, k, a, c, work)
    return tilt.row(spec, state, k, a, c, work)


@kernel(apart=True)
def ahead(spec: Spec, state: State, i: int, k: int, enough: float, work: Array) -> float:
    """ln e-value against {q.mu_k >= q.mu_i}: the leader i is ahead of its rival k. A lower bound.

    More than `enough` is never needed.
    """
    if spec.unknown_variance:
        return unknown.ahead(spec, state, i, k, threshold(spec), work)
    if spec.code == GAUSSIAN:
        return gaussian.ahead(spec, state, i, k)
    if spec.code == EXPONENTIAL:
        return mixture.ahead(spec, state, i, k, work)
    return tilt.ahead(spec, state, i, k, enough, work)
