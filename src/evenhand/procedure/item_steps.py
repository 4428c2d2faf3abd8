"""Shared items: which group the next item is of, who answers it, and when the stopping rule is checked.

Every policy that is open answers the item, so only its group is chosen. A policy is open until it is shown to
fail its requirement; where policies are classified, until it is classified. Both are decided from outcomes on
earlier items only: evidence on pairs would not be valid if a policy answered or not because of what another
answered on the same item.

After the initial items the weakest alternative to the leader decides the group: for one of its bounds the
group of that bound; for a rival the group that makes their difference known best, or that in which it
violates a bound most, whichever should take fewer items. With sampling "uniform" all groups get equally
many. The stopping rule is checked after a hundredth more items, and at least after every `batch`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import BOX
from evenhand.model.unit_families import divergence
from evenhand.procedure.decide import check
from evenhand.procedure.evidence import certified
from evenhand.procedure.evidence.item_bets import difference, record_on_pairs
from evenhand.procedure.sampling.draw_cell import count
from evenhand.procedure.spec import ACTIVE, UNIFORM, Spec
from evenhand.procedure.state import (
    ANSWER,
    DECISIONS,
    EMPTY,
    ITEMS,
    NEXT_CHECK,
    NONE,
    TOLD,
    WEAKEST,
    State,
    Work,
    ask,
    drop,
    record,
)

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

RARELY = 100  # the stopping rule is checked after this part more items
LEAST_SD = 0.05  # of the differences in a group, for the choice of the group


@kernel
def next_item(spec: Spec, state: State, work: Work, arrived: int, answers: Flags) -> int:
    """Return the group of the next item, and write who answers it; `arrived` is its group, or -1."""
    state.clock[DECISIONS] += 1
    g = arrived if spec.mode != ACTIVE else _group_that_lacks(spec, state)
    started = g < 0 or spec.mode != ACTIVE
    if g < 0:
        g = _least_drawn(spec, state) if spec.sampling == UNIFORM else _aimed_group(spec, state)
    write_answering(spec, state, work, started, answers)
    return g


@kernel
def ask_item(state: State, work: Work, g: int, answers: Flags) -> None:
    """Count a request for an item of group g that these policies answer."""
    for k in range(answers.size):
        if answers[k]:
            ask(state, work, k, g)


@kernel
def record_item(
    spec: Spec, state: State, work: Work, g: int, answers: Flags, outcomes: Array, was_out: bool
) -> None:
    """Record what the policies that were asked answered, in unit scale; NaN where an outcome is lost."""
    record_on_pairs(state.bets, spec.shares, spec.bounded, g, outcomes, work.scratch)
    for k in range(answers.size):
        if answers[k] and not math.isnan(outcomes[k]):
            record(spec, state, work, k, g, outcomes[k], was_out)
        elif answers[k] and was_out:
            drop(spec, state, work, k, g)
    state.clock[ITEMS] += 1


@kernel
def read_answers(outcomes: Array, answers: Flags) -> None:
    """Write who was asked for an item of a log.

    There an outcome is NaN where a policy was not asked. One that is missing is infinite and becomes NaN.
    """
    for k in range(answers.size):
        answers[k] = not math.isnan(outcomes[k])
        if math.isinf(outcomes[k]):
            outcomes[k] = math.nan


@kernel
def check_after_item(spec: Spec, state: State, work: Work) -> bool:
    """Check the stopping rule if it is due; return whether it was."""
    if not is_check_due(spec, state):
        return False
    check(spec, state, work)
    items = state.clock[ITEMS]
    state.clock[NEXT_CHECK] = items + max(spec.batch, items // RARELY)
    return True


@kernel
def is_check_due(spec: Spec, state: State) -> bool:
    """Return whether the stopping rule must be checked now; at the end, even where cells are empty."""
    if state.clock[TOLD] >= spec.cap:
        return True
    return state.clock[EMPTY] == 0 and state.clock[ITEMS] >= state.clock[NEXT_CHECK]


@kernel
def write_answering(spec: Spec, state: State, work: Work, started: bool, answers: Flags) -> None:
    """Write which policies answer the next item: those that are open, or all if there are none."""
    found = 0
    for k in range(answers.size):
        answers[k] = not (started and _is_settled(spec, state, work, k))
        found += answers[k]
    if found == 0:
        for k in range(answers.size):
            answers[k] = True


@kernel
def _is_settled(spec: Spec, state: State, work: Work, k: int) -> bool:
    """Return whether a policy with outcomes in every group is shown to fail, or is classified."""
    for g in range(spec.phi.shape[0]):
        if state.n[g, k] == 0.0:
            return False
    needed = certified.threshold(spec)
    if certified.fails(spec, state, work, k) >= needed:
        return True
    return spec.screens and certified.meets(spec, state, work, k)[0] >= needed


@kernel
def _group_that_lacks(spec: Spec, state: State) -> int:
    """Return the group with the fewest items of those that lack initial items or outcomes, or -1."""
    groups, policies = spec.phi.shape
    best, fewest = -1, math.inf
    for g in range(groups):
        for k in range(policies):
            drawn = count(state, k, g)
            lacks = drawn < spec.initial[g, k] or (state.n[g, k] == 0.0 and state.out[g, k] == 0.0)
            if lacks and drawn < fewest:
                best, fewest = g, drawn
    return best


@kernel
def drawn_items(state: State, g: int) -> float:
    """Return the number of items of a group, pending ones included, that the most asked policy had."""
    most = 0.0
    for k in range(state.n.shape[1]):
        most = max(most, count(state, k, g))
    return most


@kernel
def _least_drawn(spec: Spec, state: State) -> int:
    best, fewest = 0, math.inf
    for g in range(spec.phi.shape[0]):
        drawn = drawn_items(state, g)
        if drawn < fewest:
            best, fewest = g, drawn
    return best


@kernel
def _aimed_group(spec: Spec, state: State) -> int:
    """Return the group of the next item, from the weakest alternative at the last check."""
    groups, policies = spec.phi.shape
    leader, code = state.clock[ANSWER], int(state.level[WEAKEST])
    box = spec.region.kind == BOX
    if code >= policies:  # a bound of the leader's own
        return (code - policies) % groups if box else _best_known(spec, state, NONE, NONE)
    if spec.screens or leader == NONE:
        return _group_of_own_bounds(spec, state, code) if box else _best_known(spec, state, NONE, NONE)
    gap, sd = 0.0, 0.0
    for g in range(groups):
        mean, spread = difference(state.bets, groups, spec.bounded, leader, code, g)
        gap, sd = gap + spec.shares[g] * mean, sd + spec.shares[g] * spread
    by_value = gap * gap / (2.0 * sd * sd)
    g, evident = _most_violated(spec, state, code)
    if box and evident > by_value:
        return g
    return _best_known(spec, state, leader, code)


@kernel
def _best_known(spec: Spec, state: State, i: int, k: int) -> int:
    """Return the group in which an item makes the difference of i and k known best.

    argmax q^2 sd^2 / (N (N + 1)), with sd that of the differences on shared items, or 1 without two policies.
    """
    groups = spec.phi.shape[0]
    best, most = 0, -math.inf
    for g in range(groups):
        sd, drawn = 1.0, drawn_items(state, g)
        if i != NONE:
            _, spread = difference(state.bets, groups, spec.bounded, i, k, g)
            sd = max(spread, LEAST_SD)
        value = (spec.shares[g] * sd) ** 2 / (drawn * (drawn + 1.0) + 1e-9)
        if value > most:
            best, most = g, value
    return best


@kernel
def _most_violated(spec: Spec, state: State, k: int) -> tuple[int, float]:
    """Return the group in which policy k seems to violate its bounds most, and the divergence per item."""
    worst, most = 0, 0.0
    for g in range(spec.phi.shape[0]):
        inside, divergent = _beside_bounds(spec, state, k, g)
        if inside < 0.0 and divergent > most:
            worst, most = g, divergent
    return worst, most


@kernel
def _beside_bounds(spec: Spec, state: State, k: int, g: int) -> tuple[float, float]:
    """Return how far a cell's mean is inside its floor and cap, and its divergence from the nearest."""
    mean = state.s[g, k] / max(state.n[g, k], 1.0)
    low, high = spec.region.lo[g, k], spec.region.hi[g, k]
    bound = low if mean - low < high - mean else high
    inside = min(mean - low, high - mean)
    if not -math.inf < bound < math.inf:
        return inside, math.inf
    return inside, divergence(spec.code, mean, bound) / spec.phi[g, k]


@kernel
def _group_of_own_bounds(spec: Spec, state: State, k: int) -> int:
    """Return the group in which one policy violates its bounds most, or is least known to meet them."""
    worst, most = _most_violated(spec, state, k)
    if most > 0.0:
        return worst
    best, least = 0, math.inf
    for g in range(spec.phi.shape[0]):
        _, divergent = _beside_bounds(spec, state, k, g)
        known = max(state.n[g, k], 1.0) * divergent
        if known < least:
            best, least = g, known
    return best
