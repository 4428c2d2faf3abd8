"""Verdicts on requirements, confidence intervals for the means, and rows of both.

The interval inverts the stopping rule: its lower end is the largest c such that the rule's own
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

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.problem import Problem
from evenhand.model.region import BOX, PENALTY, QUOTA, RELATIVE, Region
from evenhand.model.result_rows import CellRow, PolicyRow, RelativeBound
from evenhand.model.unit_families import GAUSSIAN, divergence, edge_high, edge_low
from evenhand.procedure.estimates import dispersion, pooled_variance, variance
from evenhand.procedure.evidence import certified, control_pair
from evenhand.procedure.evidence.by_family import cell_above, cell_below, threshold
from evenhand.procedure.evidence.thresholds import cost_of_checks, stylised_threshold
from evenhand.procedure.guardrails import enter_all, leave_any, region_of
from evenhand.procedure.log_space import NOT_COMPUTED
from evenhand.procedure.spec import BUDGET, CALIBRATED, CERTIFIED, KAUFMANN_KOOLEN, Spec
from evenhand.procedure.state import NONE, TOLD, State, Work
from evenhand.procedure.stopping import kaufmann_koolen
from evenhand.procedure.stopping.kaufmann_koolen import strongest_metric, weakest_metric
from evenhand.theory.regions import relative

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

UNDECIDED, MET, FAILED = range(3)
NOT_KNOWN = -1  # the evidence for a policy could not be computed
WORDS = ("undecided", "met", "failed")
HALVINGS = 200  # enough to reach adjacent floating-point numbers


@kernel
def policy_verdict(spec: Spec, state: State, work: Work, k: int) -> int:
    """Return whether policy k meets its whole requirement: MET, FAILED, UNDECIDED or NOT_KNOWN.

    `work` holds up-to-date estimates (`estimates.refresh`). `spec` is without a tolerance (`own_bounds`).
    """
    control = spec.region.control  # has no bound relative to itself
    if spec.region.kind != BOX and not (spec.region.kind == RELATIVE and k == control):
        for g in range(spec.phi.shape[0]):
            if state.n[g, k] == 0.0 or (control >= 0 and state.n[g, control] == 0.0):
                return UNDECIDED
    if spec.stopping in (CERTIFIED, BUDGET):
        needed = threshold(spec)
        fails = certified.fails(spec, state, work, k)
        if fails >= needed:
            return FAILED
        met, _ = certified.meets(spec, state, work, k)
        if met >= needed:
            return MET
        return NOT_KNOWN if min(fails, met) == NOT_COMPUTED else UNDECIDED
    if spec.stopping == KAUFMANN_KOOLEN and spec.guardrails.present:
        if work.margin[k] < 0.0:
            value, needed = strongest_metric(spec, state, work, NONE, k)
            return FAILED if value >= needed else UNDECIDED
        value, needed, _ = weakest_metric(spec, state, work, spec.region, k)
        return MET if value >= needed else UNDECIDED
    if work.margin[k] >= 0.0:
        lower, _ = leave_any(spec, work, spec.region, k)
        return MET if lower >= _likelihood_level(spec, state, k, True) else UNDECIDED
    lower = enter_all(spec, work, k)
    return FAILED if lower >= _likelihood_level(spec, state, k, False) else UNDECIDED


def own_bounds(spec: Spec) -> Spec:
    """Return the spec without a tolerance: verdicts are about the requirement itself."""
    return spec._replace(kept=spec.region)


def verdicts(spec: Spec, state: State, work: Work) -> tuple[Ints, Ints, bool]:
    """Return the verdicts of cells (L, K) and policies (K,), and whether all were computed.

    `work` holds up-to-date estimates. Evidence that was not computed gives "undecided".
    """
    cells, policies = np.zeros(spec.phi.shape, dtype=np.int64), np.zeros(spec.phi.shape[1], dtype=np.int64)
    judge_every_cell(spec, state, work, cells)
    judge_every_policy(own_bounds(spec), state, work, policies)
    known = policies != NOT_KNOWN
    found = reconciled(requirement_kind(spec), cells, np.where(known, policies, UNDECIDED))
    return *found, bool(known.all())


def requirement_kind(spec: Spec) -> int:
    """Return the kind of the requirement for `reconciled`; with guard-rails a penalty is not all of it."""
    return BOX if spec.guardrails.present and spec.region.kind == PENALTY else spec.region.kind


def reconciled(kind: int, cells: Ints, policies: Ints) -> tuple[Ints, Ints]:
    """Return the verdicts of cells (L, K) and policies (K,) for their own requirements only.

    A requirement across groups belongs to the policy. A penalty excludes no policy: the policy's verdict then
    reports on its floors.
    """
    if kind == PENALTY:
        every = np.where((cells == MET).all(axis=0), MET, UNDECIDED)
        return cells, np.where((cells == FAILED).any(axis=0), FAILED, every)
    if kind not in (BOX, QUOTA, RELATIVE):
        return np.broadcast_to(policies, cells.shape), policies
    return cells, policies


@kernel
def judge_every_policy(spec: Spec, state: State, work: Work, verdict: Ints) -> None:
    """Write `policy_verdict` of all policies to `verdict`, (K,)."""
    for k in range(spec.phi.shape[1]):
        verdict[k] = policy_verdict(spec, state, work, k)


@kernel
def judge_every_cell(spec: Spec, state: State, work: Work, verdict: Ints) -> None:
    """Write `cell_verdict` of all cells to `verdict`, (L, K); `work` holds up-to-date estimates."""
    for g in range(spec.phi.shape[0]):
        for k in range(spec.phi.shape[1]):
            verdict[g, k] = cell_verdict(spec, state, work, g, k)


@kernel
def every_interval(spec: Spec, state: State, low: Array, high: Array) -> None:
    """Write `cell_interval` of all cells to `low` and `high`, (L, K)."""
    for g in range(spec.phi.shape[0]):
        for k in range(spec.phi.shape[1]):
            low[g, k], high[g, k] = cell_interval(spec, state, g, k)


@kernel
def cell_verdict(spec: Spec, state: State, work: Work, g: int, k: int) -> int:
    """Return the verdict of one cell on its floor and cap; MET where it has neither."""
    floor, cap = spec.region.lo[g, k], spec.region.hi[g, k]
    level, extra = cell_level(spec, state, g, k), _extra(spec, k)
    met = True
    if floor > -math.inf:
        if against(spec, state, g, k, floor, -1.0) >= level + extra:
            return FAILED
        met = met and against(spec, state, g, k, floor, 1.0) >= level
    if cap < math.inf:
        if against(spec, state, g, k, cap, 1.0) >= level + extra:
            return FAILED
        met = met and against(spec, state, g, k, cap, -1.0) >= level
    if spec.region.kind == RELATIVE and k != spec.region.control:
        for side in range(2):
            found = _relative_verdict(spec, state, work, g, k, side)
            if found == FAILED:
                return FAILED
            met = met and found == MET
    return MET if met else UNDECIDED


@kernel
def _relative_verdict(spec: Spec, state: State, work: Work, g: int, k: int, side: int) -> int:
    """Return the verdict on the floor (side 0) or cap (1) of a cell relative to the control's mean."""
    r = spec.region
    margin, ratio = r.floor_margin[g], r.floor_ratio[g]
    if side == 1:
        margin, ratio = r.cap_margin[g], r.cap_ratio[g]
    if margin == math.inf:
        return MET
    if state.n[g, k] == 0.0 or state.n[g, r.control] == 0.0:
        return UNDECIDED
    sign = 1.0 if side == 0 else -1.0
    if spec.stopping in (CERTIFIED, BUDGET):
        level = threshold(spec)
        broken = control_pair.against(spec, state, r.control, g, k, sign, ratio, -margin, work.scratch)
        if broken >= level + _extra(spec, k):
            return FAILED
        kept = control_pair.against(spec, state, r.control, g, k, -sign, ratio, margin, work.scratch)
        return MET if kept >= level else UNDECIDED
    _, kept = relative.cross_bound(spec.code, r, k, 2 + side, g, False, work.v, work.mean, work.scratch)
    _, broken = relative.cross_bound(spec.code, r, k, 2 + side, g, True, work.v, work.mean, work.scratch)
    if broken > 0.0:
        return FAILED if broken >= _likelihood_level(spec, state, k, False) else UNDECIDED
    return MET if kept >= _likelihood_level(spec, state, k, True) else UNDECIDED


@kernel
def cell_interval(spec: Spec, state: State, g: int, k: int) -> tuple[float, float]:
    """Return the means of one cell that the data do not exclude, in unit scale."""
    floor, cap = spec.region.lo[g, k], spec.region.hi[g, k]
    level, extra = cell_level(spec, state, g, k), _extra(spec, k)
    # the end that decides "met" is at the level itself; with no bound, or two, both ends are
    one_sided = (floor > -math.inf) != (cap < math.inf)
    low = level + extra if one_sided and cap < math.inf else level
    high = level + extra if one_sided and floor > -math.inf else level
    return _end(spec, state, g, k, low, 1.0), _end(spec, state, g, k, high, -1.0)


@kernel
def against(spec: Spec, state: State, g: int, k: int, c: float, sign: float) -> float:
    """Return the rule's evidence of one cell against {mean <= c} (sign 1) or {mean >= c} (-1)."""
    n = state.n[g, k]
    if n == 0.0:
        return 0.0
    if spec.stopping in (CERTIFIED, BUDGET):
        if sign > 0.0:
            return cell_above(spec, state, g, k, c)
        return cell_below(spec, state, g, k, c)
    mean = state.s[g, k] / n
    value = n / _dispersion(spec, state, g, k) * divergence(spec.code, mean, c)
    return value if sign * (mean - c) > 0.0 else -value


@kernel
def _dispersion(spec: Spec, state: State, g: int, k: int) -> float:
    """Return phi of a cell, computed without a `Work`."""
    lacking = spec.unknown_variance and (state.n[g, k] < 2.0 or variance(state, g, k) <= 0.0)
    return dispersion(spec, state, pooled_variance(state) if lacking else 1.0, g, k)


@kernel
def cell_level(spec: Spec, state: State, g: int, k: int) -> float:
    """Return the evidence that one cell must reach under the study's stopping rule."""
    if spec.stopping in (CERTIFIED, BUDGET):
        return threshold(spec)
    if spec.stopping == KAUFMANN_KOOLEN:
        return kaufmann_koolen.cell_threshold(spec, state, g, k)
    return _likelihood_level(spec, state, k, True)


@kernel
def _likelihood_level(spec: Spec, state: State, k: int, leaves: bool) -> float:
    """Return the likelihood ratio that "policy k leaves its region" or "enters it" must reach."""
    if spec.stopping == KAUFMANN_KOOLEN:
        if leaves:
            return kaufmann_koolen.leave_threshold(spec, state, k)
        return kaufmann_koolen.alternative_threshold(spec, state, k, NONE)
    if spec.stopping == CALIBRATED:
        return spec.level + cost_of_checks(state.clock[TOLD])
    return stylised_threshold(state.clock[TOLD], spec.delta)


@kernel
def _extra(spec: Spec, k: int) -> float:
    """Return the additional evidence needed to fail a policy by one of its bounds alone."""
    if spec.stopping not in (CERTIFIED, BUDGET):
        return 0.0
    bounds = _bounds(spec.region, k)
    if spec.guardrails.present:
        for j in range(spec.guardrails.code.shape[0]):
            bounds += _bounds(region_of(spec, j), k)
    return math.log(float(max(bounds, 1)))


@kernel
def _bounds(r: Region, k: int) -> int:
    """Return the number of floors and caps of policy k."""
    bounds = 0
    for g in range(r.lo.shape[0]):
        bounds += r.lo[g, k] > -math.inf
        bounds += r.hi[g, k] < math.inf
        if r.kind == RELATIVE and k != r.control:
            bounds += r.floor_margin[g] < math.inf
            bounds += r.cap_margin[g] < math.inf
    return bounds


@kernel
def _end(spec: Spec, state: State, g: int, k: int, level: float, sign: float) -> float:
    """Return the last excluded c below (sign 1) or above (-1) the mean; else the domain's end."""
    edge = edge_low(spec.code) if sign > 0.0 else edge_high(spec.code)
    n = state.n[g, k]
    if n == 0.0:
        return edge
    inside = state.s[g, k] / n  # the evidence against the mean itself reaches no level
    outside = edge
    if math.isinf(edge):
        step = math.sqrt(spec.phi[g, k]) if spec.code == GAUSSIAN else max(abs(inside), 1.0)
        outside = inside - sign * step
        while against(spec, state, g, k, outside, sign) < level:
            step *= 2.0
            outside = inside - sign * step
            if not step <= 1e150:
                return edge
    else:
        # just inside the domain: on its boundary a divergence may be infinite or undefined
        near = edge + 1e-15 * (inside - edge)
        if against(spec, state, g, k, near, sign) < level:
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


def cell_rows(
    problem: Problem,
    spec: Spec,
    state: State,
    verdict: Ints,
    low: Array | None = None,
    high: Array | None = None,
    pending: Array | None = None,
) -> tuple[CellRow, ...]:
    """Return one row for each cell, policy by policy; all tables are (L, K), intervals in unit scale."""
    family, region = problem.family, spec.region

    def user(unit: float) -> float | None:
        return family.low + family.width * float(unit) if math.isfinite(unit) else None

    return tuple(
        CellRow(
            policy=problem.policies[k],
            group=problem.group_names[g],
            n=int(state.n[g, k]),
            mean=user(state.s[g, k] / state.n[g, k]) if state.n[g, k] > 0 else None,
            low=None if low is None else user(low[g, k]),
            high=None if high is None else user(high[g, k]),
            verdict=WORDS[verdict[g, k]],
            floor=user(region.lo[g, k]),
            cap=user(region.hi[g, k]),
            pending=None if pending is None else round(float(pending[g, k]), 6),
            **_relative_bounds(problem, spec, state, g, k),
        )
        for k in range(len(problem.policies))
        for g in range(len(problem.groups))
    )


def _relative_bounds(problem: Problem, spec: Spec, state: State, g: int, k: int) -> dict[str, RelativeBound]:
    """Return the floor and the cap of a cell that are relative to the control."""
    r, family, found = spec.region, problem.family, {}
    if r.control < 0 or k == r.control:
        return {}
    n = float(state.n[g, r.control])
    for name, ratio, margin, sign in (
        ("relative_floor", float(r.floor_ratio[g]), float(r.floor_margin[g]), -1.0),
        ("relative_cap", float(r.cap_ratio[g]), float(r.cap_margin[g]), 1.0),
    ):
        if math.isfinite(margin):
            # with a ratio the margin is 0, whatever the origin of the unit scale makes of it
            own = float(f"{family.width * margin:.12g}") if ratio == 1.0 else 0.0
            mean = family.low + family.width * float(state.s[g, r.control]) / n if n > 0 else None
            value = None if mean is None else ratio * mean + sign * own
            found[name] = RelativeBound(problem.policies[r.control], ratio, own, value)
    return found


def spent_on(problem: Problem, state: State) -> float | None:
    """Return what the samples have cost; None where the problem has no costs."""
    return None if problem.costs is None else float((problem.sampling_costs.T * state.n).sum())


def policy_rows(
    problem: Problem, spec: Spec, state: State, verdict: Ints, leader: int
) -> tuple[PolicyRow, ...]:
    """Return one row for each policy; `leader` is its number, or NONE."""
    family = problem.family
    means = np.where(state.n > 0, state.s / np.maximum(state.n, 1.0), 0.0)
    scores = problem.scores((family.low + family.width * means).T)
    known = ((state.n > 0) | (spec.shares[:, None] == 0)).all(axis=0)
    order = sorted(range(len(scores)), key=lambda k: (not known[k], -scores[k], k))
    place = {k: number for number, k in enumerate(order, start=1)}
    return tuple(
        PolicyRow(name, float(scores[k]) if known[k] else None, WORDS[verdict[k]], place[k], k == leader)
        for k, name in enumerate(problem.policies)
    )
