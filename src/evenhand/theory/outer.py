"""The best allocation against the nearest alternative, sup_w min_j f_j(w), with a certified interval.

Each f_j is concave and homogeneous of degree 1. Two methods close the bracket: the fixed point of the
optimality conditions (`fixed_point`), enough wherever the pieces are smooth, at any size; and cutting planes
(`cuts`), which finish what is left: pieces that are unions, weights that vanish slowly.
"""

from __future__ import annotations

import numpy as np

from evenhand.theory.bracket import Binding, Bracket, Solution
from evenhand.theory.cuts import cutting_planes
from evenhand.theory.fixed_point import fixed_point
from evenhand.theory.modes import Active
from evenhand.theory.pieces import Pieces


def solve(pieces: Pieces, mode: Active, gap: float) -> Solution:
    """eq:T_star, eq:external_opt: the best allocation of this mode, and its bounds."""
    if pieces.answer is None and type(mode) is Active:
        return each_alone(pieces, mode, gap)
    found = Bracket(pieces, mode)
    recent = fixed_point(found, gap)
    if found.value > 0.0 and not found.closed(gap):
        cutting_planes(found, gap, recent)
    return found.solution()


def each_alone(pieces: Pieces, mode: Active, gap: float) -> Solution:
    """lemma:weight_infeas, eq:weights_emptyset_overall: nobody feasible, each policy's own game.

    G_k is the most that policy k's own budget can make its cheapest way into the region cost. Then
    T* = sum_k 1/G_k and w_k = v_k (1/G_k) / T*. For floors G_k is the largest d(mu_kl, C_kl) over the
    violated groups, as the lemma has it; that is not so for every region, but the game is. Where the bounds
    of a G_k stay apart its lower one is the weight's: so every piece has what the interval promises.
    """
    policies, groups = pieces.shape
    w = np.zeros((policies, groups))
    longest, shortest = np.zeros(policies), np.zeros(policies)
    for k in range(policies):
        game = Bracket(pieces.alone(k), Active(mode.cost[k : k + 1], mode.arrivals))
        first = game.look(game.mode.start())
        if len(first.cuts.policy) == 0:
            continue  # no vector of means lets k in: there is nothing to prove
        cutting_planes(game, gap, first.cuts)
        found = game.solution()
        w[k] = found.w[0] / game.reach()
        longest[k] = 1.0 / found.lower if found.lower > 0.0 else np.inf
        shortest[k] = 1.0 / found.upper
    if not w.any():
        return Solution(mode.start(), np.inf, np.inf, ())
    shares = (mode.cost * w).sum(axis=1) / (mode.cost * w).sum()
    binding = tuple(Binding(int(k), None, float(shares[k])) for k in np.argsort(-shares, kind="stable"))
    upper = 1.0 / shortest.sum() if shortest.any() else np.inf
    return Solution(mode.admit(w), float(1.0 / longest.sum()), float(upper), binding)
