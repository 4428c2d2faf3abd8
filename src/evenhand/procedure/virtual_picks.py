"""Shares of the next interval: the sampling rule picks policies virtually, for the expected units.

A pick counts as so many pending samples for the picks that follow. The picks of all versions use different
random numbers, so the shares are a function of the seed, the version and the counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.problem import Problem
from evenhand.model.region import PerCell, PerGroup
from evenhand.procedure.decide import next_cell
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import (
    DECISIONS,
    EMPTY,
    State,
    Work,
    mark_samples_changed,
    new_work,
    ready,
)

Array = NDArray[np.float64]

PICKS = 500  # virtual picks in every group; each represents this part of the group's units
LEAST_PICKS, CELLS = 50, 1_000  # with more cells than these there are fewer picks, which cost more each


def picks_in_a_group(spec: Spec) -> int:
    """Return the number of virtual picks in every group."""
    return min(PICKS, max(LEAST_PICKS, PICKS * CELLS // spec.phi.size))


def next_allocation(
    spec: Spec, data: State, pending: Array, volumes: Array, floor: float, seed: int, version: int
) -> Array:
    """Return the share of every policy in every group, (L, K), for the next version of the shares.

    `pending` are units that were assigned and are not counted yet, (L, K). While a cell has no outcome the
    shares are equal.
    """
    state, picked = ready(spec, data), np.full(spec.phi.shape, 1.0)
    if state.clock[EMPTY] == 0:
        state.out[:], picked[:] = pending, 0.0
        picks = picks_in_a_group(spec)
        each = np.ascontiguousarray(volumes, dtype=float) / picks
        state.clock[DECISIONS] = (version - 1) * picks * volumes.size
        pick_virtually(spec, state, new_work(spec), seed, 0, picks, each, picked)
    return with_floor(picked, floor)


def with_floor(picked: Array, floor: float) -> Array:
    """Return the shares of picks, (L, K), such that every policy has at least the floor."""
    shares = picked / picked.sum(axis=1, keepdims=True)
    return floor + (1.0 - picked.shape[1] * floor) * shares


def shares_by_name(problem: Problem, allocation: Array) -> dict[str, dict[str, float]]:
    """Return an allocation, (L, K), by group and policy; the shares of a group sum to exactly 1."""
    return {
        group: dict(zip(problem.policies, (row / row.sum()).tolist(), strict=True))
        for group, row in zip(problem.group_names, allocation, strict=True)
    }


@kernel
def pick_virtually(
    spec: Spec,
    state: State,
    work: Work,
    seed: int,
    replication: int,
    picks: int,
    each: PerGroup,
    picked: PerCell,
) -> None:
    """Add the policies that the rule picks in every group; each pick is so many pending samples."""
    for _ in range(picks):
        for g in range(spec.phi.shape[0]):
            k, _group = next_cell(spec, state, work, seed, replication, g)
            state.out[g, k] += each[g]
            mark_samples_changed(work, k)
            picked[g, k] += 1.0
