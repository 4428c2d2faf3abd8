"""`frank-wolfe`: move the weights towards cells that raise the cheapest alternatives.

After Wang, Tzeng and Proutiere (2021). The step solves a small matrix game against the alternatives within
r_t of the cheapest, which prevents zigzagging between them; the cell furthest behind the weights is sampled.
At every perfect square a round of forced exploration samples all cells. It has no step size and no
randomness, and solves each alternative once per sample.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.estimates import refresh
from evenhand.procedure.sampling.draw_cell import certain
from evenhand.procedure.sampling.tracking import (
    add_weights,
    begin_tracking,
    entry_of,
    even_weight,
    group_range,
    samples,
    samples_of,
)
from evenhand.procedure.sampling.weight_ascent import (
    add,
    alternatives_at,
    dot,
    effective,
    normalise,
    row_slope,
    slopes,
    slopes_where_free,
)
from evenhand.procedure.spec import ACTIVE, AGNOSTIC, PROPORTIONAL, Spec
from evenhand.procedure.state import State, Work

Array = NDArray[np.float64]

PLAYERS = 4  # maximum number of alternatives in the game
PLAYS = 32  # rounds of fictitious play
V, Z, VALUES, FIRST = 0, 1, 2, 3  # contents of the spare tables; slopes of the alternatives from FIRST on


@kernel
def choose(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """Return the next cell to sample."""
    begin_tracking(spec, state)
    t, z = samples(state), work.spare[Z]
    root = math.sqrt(math.floor(t / spec.phi.size))
    if root == math.floor(root):
        for g in range(spec.phi.shape[0]):
            z[g] = even_weight(spec, g)
    else:
        leader = refresh(spec, state, work, True)
        x, values, players = work.spare[V], work.spare[VALUES][0], 0
        x[:, :] = 0.0
        add(x, state.track)
        normalise(x)
        effective(spec, state, work, x, x)
        slack = t**-0.9 / spec.phi.size
        bar = values[alternatives_at(spec, work, leader, x, slack, values)] + slack
        for k in range(spec.phi.shape[1]):
            if values[k] <= bar and players < PLAYERS:
                slopes(spec, state, work, leader, k, x, work.spare[FIRST + players])
                slopes_where_free(spec, state, leader, k, work.spare[FIRST + players])
                values[players] = values[k]
                players += 1
        _play(spec, work, players, values, z)
    add_weights(spec, state, z, group)
    return _furthest_behind(spec, state, work, group)


@kernel
def _play(spec: Spec, work: Work, players: int, values: Array, z: Array) -> None:
    """Solve z = argmax over allowed weights of the least <z - x, h> over slopes h.

    `values` are <x, h>. Fictitious play (Brown 1951): z is a best response to the mixture of alternatives so
    far, and the worst alternative is a best response to z.
    """
    mixture = work.spare[FIRST + PLAYERS]
    mixture[:, :] = 0.0
    add(mixture, work.spare[FIRST])
    z[:, :] = 0.0
    rounds = PLAYS if players > 1 else 1
    for n in range(1, rounds + 1):
        _answer(spec, mixture, z)
        worst, least = 0, math.inf
        for j in range(players):
            payoff = dot(z, work.spare[FIRST + j]) / n - values[j]
            if payoff < least:
                worst, least = j, payoff
        add(mixture, work.spare[FIRST + worst])
    z /= float(rounds)


@kernel
def _answer(spec: Spec, c: Array, z: Array) -> None:
    """Add to z a best response to slopes c: one cell, one policy in each group, or one policy."""
    groups, policies = c.shape
    best, most = 0, -1.0
    for g in range(groups):
        for k in range(policies):
            gain = row_slope(spec, c, k) if spec.mode == AGNOSTIC else c[g, k]
            if gain > most:
                best, most = g * policies + k, gain
        if spec.mode == PROPORTIONAL:
            z[g, best % policies] += spec.arrivals[g]
            most = -1.0
    if spec.mode == ACTIVE:
        z[best // policies, best % policies] += 1.0
    if spec.mode == AGNOSTIC:
        for g in range(groups):
            z[g, best % policies] += spec.arrivals[g]


@kernel
def _furthest_behind(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """Return the candidate furthest behind its weight, as a ratio: argmax of x / (N / t)."""
    best_k, best_g, most = 0, max(group, 0), -1.0
    first, last = group_range(spec, group)
    for g in range(first, last):
        for k in range(spec.phi.shape[1]):
            ratio = entry_of(spec, state.track, k, g) / max(samples_of(spec, state, k, g), 1e-9)
            if ratio > most:
                best_k, best_g, most = k, g, ratio
    return certain(spec, work, best_k, best_g)
