"""`frank-wolfe`: move the weights towards the vertex that helps the cheapest pieces most (Wang, Tzeng and Proutiere 2021).

Pieces within r_t of the cheapest are played against each other as a small matrix game, so that the
weights do not zigzag between them; the cell furthest behind the weights is drawn. Forced rounds at every
perfect square keep all cells alive. No step size; one solve per piece and pick. A good second choice
where a deterministic rule is wanted.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.procedure.estimates import refresh
from evenhand.procedure.sampling.ascent import effective, pieces_at, row_slope, slopes
from evenhand.procedure.sampling.pick import count, surely
from evenhand.procedure.sampling.tracking import even, owe, remember_start, samples, spare
from evenhand.procedure.spec import ACTIVE, AGNOSTIC, PROPORTIONAL, Spec
from evenhand.procedure.state import State, Work

Array = NDArray[np.float64]

PLAYERS = 4  # at most so many pieces play
PLAYS = 32  # rounds of fictitious play between them
V, Z, VALUES, FIRST = 0, 1, 2, 3  # which spare table holds what; the players' slopes come last


@kernel
def choose(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """The next cell."""
    remember_start(state)
    t = samples(state)
    z = spare(spec, work, Z)
    root = math.sqrt(math.floor(t / spec.phi.size))
    if root == math.floor(root):
        for g in range(spec.phi.shape[0]):
            z[g] = even(spec, g)
    else:
        _direction(spec, state, work, t, z)
    owe(spec, state, z, group)
    return _most_owed(spec, state, work, group)


@kernel
def _direction(spec: Spec, state: State, work: Work, t: float, z: Array) -> None:
    """z = argmax over allowed weights of min over near-cheapest pieces of (z - x).h."""
    leader = refresh(spec, state, work, True)
    x, values = spare(spec, work, V), spare(spec, work, VALUES)[0]
    x[:, :] = state.track
    x /= np.sum(state.track)
    effective(spec, state, x, x)
    cheapest = pieces_at(spec, work, leader, x, values)
    bar = values[cheapest] + t**-0.9 / spec.phi.size
    players = 0
    for k in range(spec.phi.shape[1]):
        if values[k] <= bar and players < PLAYERS:
            slopes(spec, state, work, leader, k, x, spare(spec, work, FIRST + players))
            # the payoff <z - x, h> differs from <z, h> by f = <x, h>: its k-th value moves to the front
            values[players] = values[k]
            players += 1
    z[:, :] = 0.0
    _play(spec, work, players, values, z)


@kernel
def _play(spec: Spec, work: Work, players: int, values: Array, z: Array) -> None:
    """Fictitious play (Brown 1951): the weights answer the pieces' mixture so far, the worst-served piece answers the weights."""
    mixture = spare(spec, work, FIRST + PLAYERS)
    mixture[:, :] = spare(spec, work, FIRST)
    rounds = PLAYS if players > 1 else 1
    for n in range(1, rounds + 1):
        _answer(spec, mixture, z)
        worst, least = 0, math.inf
        for j in range(players):
            payoff = np.sum(z * spare(spec, work, FIRST + j)) / n - values[j]
            if payoff < least:
                worst, least = j, payoff
        mixture += spare(spec, work, FIRST + worst)
    z /= rounds


@kernel
def _answer(spec: Spec, c: Array, z: Array) -> None:
    """Add to z the allowed weights that gain most from slopes c: one cell, one policy in each group, or one policy."""
    groups, policies = c.shape
    if spec.mode == ACTIVE:
        best = np.argmax(c)
        z[best // policies, best % policies] += 1.0
    elif spec.mode == PROPORTIONAL:
        for g in range(groups):
            z[g, np.argmax(c[g])] += spec.arrivals[g]
    else:
        best = 0
        for k in range(1, policies):
            if row_slope(spec, c, k) > row_slope(spec, c, best):
                best = k
        for g in range(groups):
            z[g, best] += spec.arrivals[g]


@kernel
def _most_owed(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """argmax of x / (N / t): the cell whose samples lag most behind its weight, as a ratio."""
    groups, policies = spec.phi.shape
    best_k, best_g, most = 0, max(group, 0), -1.0
    for g in range(groups):
        if spec.mode == PROPORTIONAL and g != group:
            continue
        for k in range(policies):
            owed, drawn = state.track[g, k], count(state, k, g)
            if spec.mode == AGNOSTIC:
                owed, drawn = np.sum(state.track[:, k]), np.sum(state.n[:, k]) + np.sum(state.out[:, k])
            if owed > most * drawn:
                best_k, best_g, most = k, g, owed / max(drawn, 1e-9)
    return surely(spec, work, best_k, best_g)
