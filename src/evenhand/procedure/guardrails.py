"""Kernels for guard-rails: each is one more metric, with the counts, estimates and bounds of its own.

A policy meets its requirement when it lies in the region of the outcome and in that of every guard-rail. So
the cost of entering adds up over the metrics, and the cost of leaving is the least of them. The conditions of
guard-rail j are numbered from (j + 1) METRIC. Without guard-rails none of this is compiled.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import PENALTY, RELATIVE, Region, inside, margin
from evenhand.model.unit_families import divergence
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, Work
from evenhand.theory import inner
from evenhand.theory.metrics import METRIC
from evenhand.theory.regions import relative

Array = NDArray[np.float64]


@kernel
def has_control(spec: Spec) -> bool:
    """Return whether bounds of any metric are relative to a control."""
    return spec.region.kind == RELATIVE or (spec.guardrails.present and spec.guardrails.kind == RELATIVE)


@kernel
def control_of(spec: Spec) -> int:
    """Return the policy that bounds of any metric are relative to; -1 for none."""
    if spec.guardrails.present and spec.guardrails.kind == RELATIVE:
        return spec.guardrails.control
    return spec.region.control


@kernel
def has_conditions(spec: Spec) -> bool:
    """Return whether a policy can fail: not where it only pays a penalty."""
    return spec.region.kind != PENALTY or spec.guardrails.present


@kernel
def region_of(spec: Spec, j: int) -> Region:
    """Return the region of guard-rail j."""
    r, rails = spec.region, spec.guardrails
    return Region(
        rails.kind, rails.lo[j], rails.hi[j], r.rho, r.slack, 0, r.quad, math.inf, r.rows[:0], r.rhs[:0],
        r.gamma, rails.control, rails.floor_ratio[j], rails.floor_margin[j], rails.cap_ratio[j],
        rails.cap_margin[j], rails.resolution[j],
    )  # fmt: skip


@kernel
def margin_of(spec: Spec, region: Region, k: int, mean: Array, rails: Array) -> float:
    """Return how far policy k lies inside `region` and every guard-rail's; the least of these.

    `mean` is (L, K), `rails` the means of the guard-rails, (M, L, K).
    """
    least = margin(region, k, mean)
    if spec.guardrails.present:
        for j in range(rails.shape[0]):
            least = min(least, margin(region_of(spec, j), k, rails[j]))
    return least


@kernel
def meets_all(spec: Spec, region: Region, k: int, mean: Array, rails: Array) -> bool:
    """Return whether policy k lies inside `region` and every guard-rail's at these means."""
    if not inside(region, k, mean):
        return False
    if spec.guardrails.present:
        for j in range(rails.shape[0]):
            if not inside(region_of(spec, j), k, rails[j]):
                return False
    return True


@kernel
def enter_all(spec: Spec, work: Work, k: int) -> float:
    """Return a lower bound on the cost for policy k to enter the regions of all metrics.

    The outcome's nearest means are in work.lam_k and work.lam_0.
    """
    _, lower = inner.enter(spec.code, spec.region, k, work.v, work.mean, work.lam_k, work.lam_0, work.scratch)
    if spec.guardrails.present:
        lower += enter_guardrails(spec, work, k)
    return lower


@kernel
def enter_guardrails(spec: Spec, work: Work, k: int) -> float:
    """Return a lower bound on the cost for policy k to enter the region of every guard-rail."""
    total = 0.0
    for j in range(spec.guardrails.code.shape[0]):
        total += enter_guardrail(spec, work, j, k)
    return total


@kernel
def enter_guardrail(spec: Spec, work: Work, j: int, k: int) -> float:
    """Return a lower bound on the cost for policy k to enter the region of guard-rail j.

    Its nearest means are in work.rail_lam.
    """
    lam = work.rail_lam
    _, lower = inner.enter(
        spec.guardrails.code[j], region_of(spec, j), k, work.rail_v[j], work.rail_mean[j], lam[0], lam[1],
        work.scratch,
    )  # fmt: skip
    return lower


@kernel
def leave_any(spec: Spec, work: Work, region: Region, i: int) -> tuple[float, int]:
    """Return a lower bound on policy i's cost to leave `region` or a guard-rail's, and the condition."""
    _, least, which = inner.leave(
        spec.code, region, i, work.v, work.mean, work.lam_k, work.lam_0, work.scratch
    )
    if spec.guardrails.present:
        for j in range(spec.guardrails.code.shape[0]):
            lower, atom = leave_guardrail(spec, work, j, i)
            if lower < least:
                least, which = lower, (j + 1) * METRIC + atom
    return least, which


@kernel
def leave_guardrail(spec: Spec, work: Work, j: int, i: int) -> tuple[float, int]:
    """Return a lower bound on policy i's cost to leave the region of guard-rail j, and its condition."""
    lam = work.rail_lam
    _, lower, atom = inner.leave(
        spec.guardrails.code[j], region_of(spec, j), i, work.rail_v[j], work.rail_mean[j], lam[0], lam[1],
        work.scratch,
    )  # fmt: skip
    return lower, atom


@kernel
def leave_guardrail_by(spec: Spec, work: Work, i: int, which: int) -> None:
    """Write the nearest means at which policy i violates this condition of a guard-rail to work.rail_lam."""
    j, atom, lam = which // METRIC - 1, which % METRIC, work.rail_lam
    relative.leave_by(
        spec.guardrails.code[j], region_of(spec, j), i, atom, work.rail_v[j], work.rail_mean[j],
        lam[0], lam[1], work.scratch,
    )  # fmt: skip


@kernel
def add_masses_of_entering(spec: Spec, work: Work, k: int) -> None:
    """Add what every cell's guard-rails carry of the cost of entering to lam_k and lam_0."""
    for j in range(spec.guardrails.code.shape[0]):
        enter_guardrail(spec, work, j, k)
        _add_masses(spec, work, j, k, work.rail_lam[0], work.lam_k)
        if spec.guardrails.kind == RELATIVE and k != spec.guardrails.control:
            _add_masses(spec, work, j, spec.guardrails.control, work.rail_lam[1], work.lam_0)


@kernel
def masses_of_leaving(spec: Spec, work: Work, i: int, which: int) -> None:
    """Write what every cell carries of policy i's cost to break a guard-rail's condition."""
    j, atom, lam = which // METRIC - 1, which % METRIC, work.rail_lam
    work.lam_k[:] = 0.0
    work.lam_0[:] = 0.0
    leave_guardrail_by(spec, work, i, which)
    _add_masses(spec, work, j, i, lam[0], work.lam_k)
    if spec.guardrails.kind == RELATIVE and i != spec.guardrails.control:
        _add_masses(spec, work, j, spec.guardrails.control, lam[1], work.lam_0)
    total = 0.0
    for g in range(spec.phi.shape[0]):
        total += work.lam_k[g] + work.lam_0[g]
    if not total > 0.0:  # no evidence yet: the cell itself
        work.lam_k[atom % spec.phi.shape[0]] = 1.0


@kernel
def _add_masses(spec: Spec, work: Work, j: int, k: int, lam: Array, masses: Array) -> None:
    code = spec.guardrails.code[j]
    for g in range(spec.phi.shape[0]):
        if work.rail_v[j, g, k] > 0.0:
            mass = work.rail_v[j, g, k] * divergence(code, work.rail_mean[j, g, k], lam[g])
            masses[g] += mass if math.isfinite(mass) else 0.0


@kernel
def state_of(state: State, j: int) -> State:
    """Return the state with the outcomes of guard-rail j in place of the outcome's."""
    return state._replace(
        n=state.rail_n[j], s=state.rail_s[j], ss=state.rail_ss[j], bets=state.rail_bets[j],
        theta=state.rail_theta[j],
    )  # fmt: skip


@kernel
def best_of(spec: Spec, mean: Array, rails: Array) -> int:
    """Return the best policy that meets its requirement and its guard-rails; -1 for none."""
    if not spec.guardrails.present:
        return inner.best(spec.region, spec.shares, mean)
    found, top = -1, -math.inf
    for k in range(mean.shape[1]):
        if meets_all(spec, spec.region, k, mean, rails):
            scored = inner.score(spec.region, spec.shares, k, mean)
            if scored > top:
                found, top = k, scored
    return found


@kernel
def is_classified(spec: Spec, mean: Array, rails: Array, mu: Array, rail_mu: Array) -> bool:
    """Return whether every policy is on the same side of its requirement at both means."""
    if not spec.guardrails.present:
        return inner.is_classified(spec.region, mean, mu)
    apart = 0
    for k in range(mu.shape[1]):
        here = meets_all(spec, spec.region, k, mean, rails)
        apart += here != meets_all(spec, spec.region, k, mu, rail_mu)
    return apart == 0
