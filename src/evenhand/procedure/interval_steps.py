"""The steps at the end of an interval: add its sums, test the assignment, derive the next shares.

*Sums.* Evidence from outcomes without a known scale needs an opening: initial outcomes, on which no bet
is placed (`evidence.gaussian_unknown`, `evidence.likelihood_mixture`). One by one these are the first
outcomes of the cell. Counts have no order, so here they are all outcomes of the first interval of the cell,
and of the following ones until two outcomes differ: any data that are complete before the outcomes that
follow may be the opening.

*Assignment.* `SampleRatios` is a sequential test of whether units were assigned as published, for shares that
change. For one policy of one group with share s, and a fixed theta, the product over intervals of

    exp(theta n) / (1 + s (e^theta - 1))^N        n of the group's N units have the policy

has expectation 1 if units are assigned as published, whatever the shares depend on. The mean over policies
and a grid of theta is the evidence E against the published shares of a group. By Ville's inequality it ever
exceeds 1/p with probability at most p, so the smallest 1/E so far is a p-value that holds at any number of
looks. A policy whose units are lost at a constant rate is found, even if each interval alone shows nothing.

*Shares.* The sampling rule picks policies virtually, for the expected units of the next interval. A pick
counts as a number of pending samples for the picks that follow. The picks of all versions use different
random numbers, so the shares are a function of the seed, the version and the counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.problem import Problem
from evenhand.model.region import PerCell, PerGroup
from evenhand.model.unit_families import EXPONENTIAL
from evenhand.procedure.decide import next_cell
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import (
    DECISIONS,
    EMPTY,
    FIRST,
    LEAP,
    LENGTH,
    SHIFTED,
    SQUARES,
    State,
    Work,
    mark_samples_changed,
    new_work,
    ready,
)

Array = NDArray[np.float64]

SAME = 1e-12  # a variance below this part of the mean square is rounding: all outcomes are equal

THETA: Array = np.concatenate([sign * 0.005 * 2.0 ** np.arange(8) for sign in (-1.0, 1.0)])

PICKS = 500  # virtual picks in every group; each represents this part of the group's units
LEAST_PICKS, CELLS = 50, 1_000  # with more cells than these there are fewer picks, which cost more each


@kernel
def add_sums(spec: Spec, state: State, k: int, g: int, n: float, s: float, ss: float) -> None:
    """Add n outcomes, their sum and their sum of squares (unit scale); call it before n and s are added."""
    if spec.unknown_variance:
        _add_squares(state.bets, state.n[g, k], state.s[g, k], k, g, n, s, ss)
    elif spec.code == EXPONENTIAL:
        _add_opening(state.bets, k, g, n, s)


@kernel
def add_guardrail_sums(
    spec: Spec, state: State, j: int, k: int, g: int, n: float, s: float, ss: float
) -> None:
    """Do the same for the outcomes of guard-rail j."""
    if spec.guardrails.unknown_variance[j]:
        _add_squares(state.rail_bets[j], state.rail_n[j, g, k], state.rail_s[j, g, k], k, g, n, s, ss)
    elif spec.guardrails.code[j] == EXPONENTIAL:
        _add_opening(state.rail_bets[j], k, g, n, s)


@kernel
def _add_opening(bets: Array, k: int, g: int, n: float, s: float) -> None:
    """Record the sum and, as a negative LENGTH, the number of the outcomes of a cell's first interval."""
    groups = bets.shape[0] // 5
    if n > 0.0 and bets[FIRST * groups + g, k] == 0.0:
        bets[FIRST * groups + g, k], bets[LENGTH * groups + g, k] = s, -n


@kernel
def _add_squares(
    bets: Array, before: float, sum_before: float, k: int, g: int, n: float, s: float, ss: float
) -> None:
    """Add distances to a fixed point, and their squares.

    With n outcomes of mean m and of squared distances V to it in the opening, the point is m - d with
    d^2 = V / (n (n - 1)): then the squares of the opening's distances sum to the square of their sum, as they
    do one by one, where all distances but the last are 0.
    """
    if n == 0.0:
        return
    groups = bets.shape[0] // 5
    mean = s / n
    around = max(ss - s * mean, 0.0)
    around = around if around > SAME * ss else 0.0
    if bets[LENGTH * groups + g, k] == 0.0:
        if before > 0.0:  # all outcomes before are equal
            apart = mean - sum_before / before
            around += apart * apart * before * n / (before + n)
        size, total = before + n, sum_before + s
        if around > SAME * (ss + before * (sum_before / max(before, 1.0)) ** 2) and size >= 2.0:
            away = math.sqrt(around / (size * (size - 1.0)))
            bets[FIRST * groups + g, k], bets[LENGTH * groups + g, k] = total / size - away, size
            bets[LEAP * groups + g, k] = bets[SHIFTED * groups + g, k] = size * away
            bets[SQUARES * groups + g, k] = (size * away) ** 2
        else:
            bets[FIRST * groups + g, k] = total / size
        return
    apart = mean - bets[FIRST * groups + g, k]
    bets[SHIFTED * groups + g, k] += n * apart
    bets[SQUARES * groups + g, k] += around + n * apart * apart


class SampleRatios:
    """The evidence against the published shares of every group, after any number of intervals."""

    def __init__(self, groups: int, policies: int) -> None:
        self.logs: Array = np.zeros((groups, policies, THETA.size))  # ln of the products
        self.highest: Array = np.zeros(groups)  # largest ln E of a group so far

    def add(self, g: int, shares: Mapping[int, float], units: Mapping[int, int]) -> None:
        """Add the units of an interval in group g; policies are numbered as in `logs`."""
        total = sum(units.values())
        for k in {*shares, *units}:
            share, n = shares.get(k, 0.0), units.get(k, 0)
            if share == 0.0 and n > 0:
                self.logs[g, k] = np.inf  # impossible under these shares
            else:
                self.logs[g, k] += THETA * n - total * np.log1p(share * np.expm1(THETA))
        peak = float(self.logs[g].max())
        evidence = np.inf if np.isinf(peak) else peak + np.log(np.mean(np.exp(self.logs[g] - peak)))
        self.highest[g] = max(self.highest[g], float(evidence))

    @property
    def p_values(self) -> Array:
        """Return, by group, a p-value that holds at any number of looks."""
        return np.exp(-self.highest)


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
    """Add the policies that the rule picks in every group; each pick is `each[g]` pending samples."""
    for _ in range(picks):
        for g in range(spec.phi.shape[0]):
            k, _group = next_cell(spec, state, work, seed, replication, g)
            state.out[g, k] += each[g]
            mark_samples_changed(work, k)
            picked[g, k] += 1.0
