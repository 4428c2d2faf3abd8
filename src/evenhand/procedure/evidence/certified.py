"""Certified evidence for every family and requirement: lower bounds on ln e-values.

With E1_ik against {q.mu_k >= q.mu_i + indifference} (`ahead`), E2_k against {k meets its requirement}
(`fails`) and, for each atom a of the requirement, E_ia against {i violates a} (`meets` is the least of them),
stop

    with i      when E_ia >= K/delta for every atom, and E1_ik + E2_k >= K/delta for every rival k
    with none   when E2_k >= K/delta for every k.

If k0 is the right answer, E2_k0 and one process for each wrong i (that of an atom it violates, or E1_ik0) are
K e-processes, and every wrong stop implies that their mean is at least 1/delta.

With a tolerance, i's own atoms are those of its loosened requirement. An atom is one condition: a floor, a
cap, a row, an ordered pair of groups, the quota, the quadratic. Those of guard-rails count too: E2_k averages
over the atoms of all metrics.

`ahead_from_stored` and `meets_from_stored` compute again only when the outcomes they depend on have changed:
Work holds what was computed, with the number of changes of the policy's outcomes (`Work.outcome_changes`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import BOX, CONVEX, DISPERSION, PENALTY, QUOTA, RELATIVE, SPREAD, Region
from evenhand.model.unit_families import GAUSSIAN
from evenhand.procedure.evidence import by_family, gaussian, guardrails, likelihood_mixture, penalty
from evenhand.procedure.evidence.by_family import (
    atom_ceiling,
    bounds_broken,
    bounds_kept,
    cell_above,
    cell_below,
    threshold,
)
from evenhand.procedure.guardrails import has_control
from evenhand.procedure.log_space import NOT_COMPUTED, NOTHING, add, added, known
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import OUTCOMES, State, Work

__all__ = ["ahead", "cell_above", "cell_below", "fails", "meets", "threshold"]

Array = NDArray[np.float64]


@kernel
def ahead(spec: Spec, state: State, work: Work, i: int, k: int, enough: float) -> float:
    """Return the evidence against {k scores at least as much as i plus the indifference}.

    Above `enough` the bound need not be tight.
    """
    if spec.region.kind == PENALTY:
        if spec.code == GAUSSIAN and not spec.unknown_variance:
            return penalty.ahead(spec, state, i, k, enough, work.last[k], work.scratch)
        return likelihood_mixture.beats(spec, state, work, spec.region, i, k, threshold(spec))
    return by_family.ahead(spec, state, i, k, enough, work.scratch)


@kernel
def fails(spec: Spec, state: State, work: Work, k: int) -> float:
    """Return the evidence against {policy k meets its requirement}: the average over its atoms."""
    r = spec.region
    total, atoms = -math.inf, 0
    if r.kind in (BOX, RELATIVE):
        total, atoms = bounds_broken(spec, state, k, total, atoms, work.scratch)
    elif r.kind == SPREAD:
        total, atoms = _pairs_broken(spec, state, work, k)
    elif r.kind == CONVEX:
        total, atoms = _rows_broken(spec, state, work, k)
    if r.kind == QUOTA or (r.kind == CONVEX and r.need > 0):
        total, atoms = added(total, _quota(spec, state, work, r, k, -1.0, r.need)[0]), atoms + 1
    if r.kind == DISPERSION or (r.kind == CONVEX and r.limit < math.inf):
        total, atoms = (
            added(total, likelihood_mixture.enters(spec, state, work, _quadratic(r), k, atom_ceiling(spec))),
            atoms + 1,
        )
    if spec.guardrails.present:
        total, atoms = guardrails.broken(spec, state, work, k, total, atoms)
    if math.isnan(total):
        return NOT_COMPUTED
    return max(total - math.log(float(atoms)), NOTHING) if atoms > 0 else NOTHING


@kernel
def meets(spec: Spec, state: State, work: Work, i: int) -> tuple[float, int]:
    """Return the least evidence against {policy i violates this atom}, and the atom.

    Atom numbers: g for a floor, L + g for a cap, 2 L + g and 3 L + g for those relative to the control,
    g L + h for the pair "g is too far below h", the row's number for a row; after the rows the quadratic,
    then the quota with its weakest group; from (j + 1) METRIC on the bounds of guard-rail j.
    """
    r, groups = spec.kept, spec.phi.shape[0]
    least, which = math.inf, 0
    if r.kind in (BOX, RELATIVE):
        least, which = bounds_kept(spec, state, i, work.scratch)
    elif r.kind == SPREAD:
        least, which = _pairs_kept(spec, state, work, i)
    elif r.kind == CONVEX:
        least, which = _rows_kept(spec, state, work, i)
    rows = r.rows.shape[0]
    if r.kind == DISPERSION or (r.kind == CONVEX and r.limit < math.inf):
        value = likelihood_mixture.leaves(spec, state, work, _quadratic(r), i, atom_ceiling(spec))
        if value < least:
            least, which = value, rows
    if r.kind == QUOTA or (r.kind == CONVEX and r.need > 0):
        value, weakest = _quota(spec, state, work, r, i, 1.0, groups - r.need + 1)
        if value < least:
            least, which = value, weakest + (rows + 1 if r.kind == CONVEX else 0)
    if spec.guardrails.present:
        least, which = guardrails.kept(spec, state, work, i, least, which)
    return least, which


@kernel
def _quadratic(r: Region) -> Region:
    """Return the region with only the quadratic of an intersection."""
    return Region(
        DISPERSION, r.lo, r.hi, r.rho, r.slack, r.need, r.quad, r.limit, r.rows[:0], r.rhs[:0], r.gamma,
        r.control, r.floor_ratio, r.floor_margin, r.cap_ratio, r.cap_margin,
        r.resolution,
    )  # fmt: skip


@kernel
def _pairs_broken(spec: Spec, state: State, work: Work, k: int) -> tuple[float, int]:
    """Return the sum of the e-values against {m_g >= rho m_h - slack} and the number of pairs."""
    groups, total = spec.phi.shape[0], -math.inf
    for g in range(groups):
        for h in range(groups):
            if g != h:
                _pair(work.lam_i, g, h, 1.0, -spec.region.rho)
                value = _broken(spec, state, k, work.lam_i, -spec.region.slack, work.scratch)
                total = added(total, value)
    return total, groups * (groups - 1)


@kernel
def _pairs_kept(spec: Spec, state: State, work: Work, i: int) -> tuple[float, int]:
    """Return the least e-value over ordered pairs against {m_g <= rho m_h - slack}, and which."""
    groups = spec.phi.shape[0]
    least, which = math.inf, 0
    for g in range(groups):
        for h in range(groups):
            if g != h:
                _pair(work.lam_i, g, h, -1.0, spec.region.rho)
                value = by_family.row(spec, state, i, work.lam_i, spec.region.slack, work.scratch)
                if value < least:
                    least, which = value, g * groups + h
    return least, which


@kernel
def _pair(a: Array, g: int, h: int, at_g: float, at_h: float) -> None:
    for j in range(a.size):
        a[j] = 0.0
    a[g], a[h] = at_g, at_h


@kernel
def _rows_broken(spec: Spec, state: State, work: Work, k: int) -> tuple[float, int]:
    """Return the sum of the e-values against {row.m >= rhs}, and the number of rows."""
    r, total = spec.region, -math.inf
    for j in range(r.rows.shape[0]):
        total = added(total, _broken(spec, state, k, r.rows[j], r.rhs[j, k], work.scratch))
    return total, r.rows.shape[0]


@kernel
def _rows_kept(spec: Spec, state: State, work: Work, i: int) -> tuple[float, int]:
    """Return the least of the e-values against {row.m <= rhs}, and which row."""
    r, a = spec.region, work.lam_i
    least, which = math.inf, 0
    for j in range(r.rows.shape[0]):
        for g in range(a.size):
            a[g] = -r.rows[j, g]
        value = by_family.row(spec, state, i, a, -r.rhs[j, i], work.scratch)
        if value < least:
            least, which = value, j
    return least, which


@kernel
def _broken(spec: Spec, state: State, k: int, a: Array, c: float, work: Array) -> float:
    """Return the ln e-value against {a.mu_k >= c}; no evidence where the estimates meet it."""
    dot = -c
    for g in range(a.size):
        if a[g] != 0.0:
            if state.n[g, k] == 0.0:
                return NOTHING
            dot += a[g] * state.s[g, k] / state.n[g, k]
    return NOTHING if dot >= 0.0 else by_family.row(spec, state, k, a, c, work)


@kernel
def _quota(
    spec: Spec, state: State, work: Work, r: Region, k: int, sign: float, take: int
) -> tuple[float, int]:
    """Return the mean of the `take` smallest one-cell e-values at the quota's floors.

    Also returns the group of the smallest. The null is a union over sets of groups: `take` groups reach their
    floors (sign -1), or miss them (sign 1). The e-value against each set is the mean over its groups, and the
    least of these means is that of the smallest e-values.
    """
    groups, values = spec.phi.shape[0], work.lam_i
    for g in range(groups):
        floor = r.lo[g, k]
        values[g] = (
            cell_above(spec, state, g, k, floor) if sign > 0.0 else cell_below(spec, state, g, k, floor)
        )
    total, weakest = -math.inf, -1
    for _ in range(take):
        smallest = 0
        for g in range(groups):
            if values[g] < values[smallest]:
                smallest = g
        if values[smallest] == NOT_COMPUTED:
            return NOT_COMPUTED, smallest
        total = add(total, values[smallest])
        weakest = smallest if weakest < 0 else weakest
        values[smallest] = math.inf
    return total - math.log(float(take)), weakest


@kernel
def ahead_from_stored(spec: Spec, state: State, work: Work, i: int, k: int, enough: float) -> float:
    """Do what `ahead` does, with stored quantities of both policies where it is Gaussian."""
    known_variance = spec.code == GAUSSIAN and not spec.unknown_variance
    if known_variance and spec.region.kind != PENALTY and not spec.linear_bets:
        return known(
            gaussian.ahead_by_blocks(spec, _block(spec, state, work, i), _block(spec, state, work, k))
        )
    return ahead(spec, state, work, i, k, enough)


@kernel
def _block(spec: Spec, state: State, work: Work, k: int) -> gaussian.Block:
    """Return the quantities of policy k that the Gaussian evidence needs."""
    if work.stamp_block[k] != work.outcome_changes[k]:
        work.stamp_block[k] = work.outcome_changes[k]
        found = gaussian.block(state.n[:, k], state.s[:, k], spec.phi[:, k], spec.shares)
        work.block[k, 0], work.block[k, 1], work.block[k, 2] = found.dot, found.alpha, found.beta
        work.block[k, 3], work.block[k, 4], work.block[k, 5] = found.gamma, found.penalty, found.reach
        work.block[k, 6] = 1.0 if found.blind else 0.0
    return gaussian.Block(
        work.block[k, 0], work.block[k, 1], work.block[k, 2], work.block[k, 3], work.block[k, 4],
        work.block[k, 5], work.block[k, 6] != 0.0,
    )  # fmt: skip


@kernel
def meets_from_stored(spec: Spec, state: State, work: Work, i: int) -> tuple[float, int]:
    """Do what `meets` does; the result for the last policy is stored."""
    # bounds relative to a control depend on its outcomes too
    changes = work.changes[OUTCOMES] if has_control(spec) else work.outcome_changes[i]
    if work.stamp_met[0] != i or work.stamp_met[1] != changes:
        found, which = meets(spec, state, work, i)
        work.met[0] = found
        work.stamp_met[0], work.stamp_met[1], work.stamp_met[2] = i, changes, which
    return work.met[0], work.stamp_met[2]
