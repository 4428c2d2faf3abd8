"""Functions shared by sampling rules.

Drawing a cell from the evidence masses of an alternative, the least-sampled cell, and a minimum of samples.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.procedure.guardrails import control_of, has_control
from evenhand.procedure.spec import ACTIVE, AGNOSTIC, CERTIFIED, Spec
from evenhand.procedure.state import NONE, State, Work

# a policy's least-sampled cell must have at least this times the root of the count of the cell to be drawn
MINIMUM_FACTOR = 0.5
# with more policies than this the distribution of a draw is not recorded
MAX_CELLS_WRITTEN = 1024


@kernel(inlined=True)
def count(state: State, k: int, g: int) -> float:
    """Return the samples of a cell, pending ones included."""
    return state.n[g, k] + state.out[g, k]


@kernel
def least_sampled_cell(state: State, k: int) -> int:
    """Return the group in which policy k has the fewest samples."""
    best = 0
    for g in range(1, state.n.shape[0]):
        if count(state, k, g) < count(state, k, best):
            best = g
    return best


@kernel
def least_sampled_policy(state: State, g: int) -> int:
    """Return the policy with the fewest samples in group g (over all groups where g is -1)."""
    groups, policies = state.n.shape
    best, fewest = 0, math.inf
    for k in range(policies):
        total = 0.0
        for h in range(groups):
            if g < 0 or h == g:
                total += count(state, k, h)
        if total < fewest:
            best, fewest = k, total
    return best


@kernel
def from_masses(spec: Spec, work: Work, i: int, k: int, group: int, u: float) -> tuple[int, int]:
    """Draw a cell in proportion to the masses in lam_i (policy i) and lam_k (policy k).

    The masses in lam_0 are those of the control, where bounds are relative to one.
    lam_k also belongs to i where k is NONE. In proportional mode only the column of the arrived group counts;
    in agnostic mode a policy is drawn by the mass of its row. Returns (-1, -1) where there is no mass.
    """
    groups = spec.phi.shape[0]
    second = i if k == NONE else k
    if spec.has_costs:
        _divide_by_costs(spec, work, i, second)
    total = 0.0
    for g in range(groups):
        if spec.mode != ACTIVE and group >= 0 and g != group:
            continue
        total += work.lam_k[g] + (work.lam_i[g] if k != NONE else 0.0)
        if has_control(spec):
            total += work.lam_0[g]
    if not total > 0.0:
        return -1, -1
    _write_probabilities(spec, work, i, k, group, total)
    left = u * total
    last_k, last_g = -1, -1
    for half in range(2):
        if half == 1 and k == NONE:
            break
        policy = second if half == 0 else i
        for g in range(groups):
            if spec.mode != ACTIVE and group >= 0 and g != group:
                continue
            mass = work.lam_k[g] if half == 0 else work.lam_i[g]
            if mass > 0.0:
                last_k, last_g = policy, g
                left -= mass
                if left <= 0.0:
                    return policy, g
    if has_control(spec):
        for g in range(groups):
            if work.lam_0[g] > 0.0 and not (spec.mode != ACTIVE and group >= 0 and g != group):
                last_k, last_g = control_of(spec), g
                left -= work.lam_0[g]
                if left <= 0.0:
                    break
    return last_k, last_g  # u is so close to 1 that the rounded masses end below it


@kernel
def _divide_by_costs(spec: Spec, work: Work, i: int, second: int) -> None:
    """Convert shares of the cost to shares of the samples.

    Certified evidence is weighed by the root of the cost only: its bets suit cells that are sampled about
    alike, and the weakest cell of a policy would cost more than the others save.
    """
    for g in range(spec.phi.shape[0]):
        work.lam_k[g] /= _cost(spec, second, g)
        work.lam_i[g] /= _cost(spec, i, g)
        if has_control(spec):
            work.lam_0[g] /= _cost(spec, control_of(spec), g)


@kernel
def _cost(spec: Spec, k: int, g: int) -> float:
    cost = spec.costs[g, k]
    if spec.mode == AGNOSTIC:  # the group of the next unit is not known beforehand
        cost = 0.0
        for h in range(spec.phi.shape[0]):
            cost += spec.arrivals[h] * spec.costs[h, k]
    return math.sqrt(cost) if spec.stopping == CERTIFIED else cost


@kernel
def _write_probabilities(spec: Spec, work: Work, i: int, k: int, group: int, total: float) -> None:
    groups, policies = spec.phi.shape
    if policies > MAX_CELLS_WRITTEN:
        return
    work.probability[:, :] = 0.0
    second = i if k == NONE else k
    for g in range(groups):
        if spec.mode != ACTIVE and group >= 0 and g != group:
            continue
        work.probability[g, second] += work.lam_k[g] / total
        if k != NONE:
            work.probability[g, i] += work.lam_i[g] / total
        if has_control(spec):
            work.probability[g, control_of(spec)] += work.lam_0[g] / total


@kernel
def least_sampled(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """Return the least-sampled cell of the policy with the fewest samples."""
    k = least_sampled_policy(state, group)
    return certain(spec, work, k, group if group >= 0 else least_sampled_cell(state, k))


@kernel
def certain(spec: Spec, work: Work, k: int, g: int) -> tuple[int, int]:
    """Return a cell with probability 1, and record that."""
    if spec.phi.shape[1] <= MAX_CELLS_WRITTEN:
        work.probability[:, :] = 0.0
        work.probability[g, k] = 1.0
    return k, g


@kernel
def with_minimum(spec: Spec, state: State, work: Work, k: int, g: int) -> tuple[int, int]:
    """Return policy k's least-sampled cell, or the control's, instead of (k, g) if it has too few samples.

    This prevents that one cell takes all samples, and that the control has too few.
    """
    if has_control(spec) and k != control_of(spec):
        control = control_of(spec)
        if count(state, control, g) < MINIMUM_FACTOR * math.sqrt(count(state, k, g)):
            return certain(spec, work, control, g)
    if spec.mode != ACTIVE:
        return k, g  # groups arrive by themselves, so every cell of a sampled policy gets samples
    low = least_sampled_cell(state, k)
    if count(state, k, low) < MINIMUM_FACTOR * math.sqrt(count(state, k, g)):
        return certain(spec, work, k, low)
    return k, g


@kernel
def as_mode_requires(spec: Spec, k: int, g: int, group: int) -> tuple[int, int]:
    """Return the cell as the mode requires: with the arrived group, or the policy alone."""
    if spec.mode == AGNOSTIC:
        return k, -1
    return k, group if spec.mode != ACTIVE else g
