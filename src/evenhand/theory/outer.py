"""The best allocation against the nearest alternative, sup_w min_j f_j(w), with a certified interval.

Each f_j is concave and homogeneous of degree 1. Two methods close the bracket: the fixed point of the
optimality conditions (`fixed_point`), enough wherever the pieces are smooth, at any size; and cutting planes
(`cuts`), which finish what is left: pieces that are unions, weights that vanish slowly.

The equation of the best allocation, followed as an iteration.

At the optimum there are shares nu_j of the pieces with

    w_c = sum_j nu_j w_c d_c^j / f_j        (lemma of the information-directed rule: Qin and You, 2025)

so cells that discriminate more than average gain weight, others lose it, and the smallest pieces gain share.
In the logarithm of w every cell takes a step of its own, longer while it keeps its direction, shorter when it
turns: smooth cells settle geometrically, cells that must vanish do so fast, cells that swing are calmed.
No linear programme is solved; the shares nu give the upper bound as they go.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evenhand.theory.alternatives import Cuts, Pieces
from evenhand.theory.bracket import Binding, Bracket, Solution
from evenhand.theory.cutting_planes import cutting_planes
from evenhand.theory.metrics import Label
from evenhand.theory.modes import Active


def solve(pieces: Pieces, mode: Active, gap: float, enough: float = 0.0, finish: bool = True) -> Solution:
    """eq:T_star, eq:external_opt: the best allocation of this mode, and its bounds.

    Ends early once the upper bound is known to lie below `enough`. Without `finish` the cutting planes are
    left out: quicker, and the interval may stay wider than the gap.
    """
    if pieces.answer is None and pieces.control is None and type(mode) is Active and pieces.separable:
        return each_alone(pieces, mode, gap)
    found = Bracket(pieces, mode, enough=enough)
    recent = fixed_point(found, gap)
    if found.value > 0.0 and finish and not found.closed(gap):
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
    binding = tuple(
        Binding(Label("enter", int(k), 0, None, False), float(shares[k]))
        for k in np.argsort(-shares, kind="stable")
    )
    upper = 1.0 / shortest.sum() if shortest.any() else np.inf
    return Solution(mode.admit(w), float(1.0 / longest.sum()), float(upper), binding)


Array = NDArray[np.float64]

ROUNDS = 600
STALLED = 80  # rounds without halving the gap before it gives way
FIRST_STEP, SHORTEST, LONGEST = 0.5, 0.02, 50.0
LONGER, SHORTER = 1.2, 0.5
LARGEST_FALL, LARGEST_RISE = -3.0, 1.0  # of a logarithm in one round
LEAST_SHARE = 1e-12  # a piece is remembered with: it must be able to come back
KEPT = 5  # rounds whose cuts the next method may use


def fixed_point(found: Bracket, gap: float) -> Cuts:
    """Close the bracket as far as the iteration goes; returns the cuts of the last rounds."""
    pieces, mode = found.pieces, found.mode
    policies = pieces.shape[0]
    w = mode.start()
    mixing = Mixing(pieces)
    steps = Steps(w.shape)
    recent: list[Cuts] = []
    widths: list[float] = []
    while True:
        cuts = mixing.merge(found.look(w).cuts)
        recent = [*recent[1 - KEPT :], cuts]
        values = cuts.values(w, pieces.answer, pieces.control)
        if len(values) == 0 or not values.min() > 0.0:
            break
        share = mixing.towards_smallest(values)
        found.bound(cuts, share)
        widths.append(found.width)
        stalled = len(widths) > STALLED and widths[-1] > 0.5 * widths[-1 - STALLED]
        if found.closed(gap) or stalled or len(widths) == ROUNDS:
            break
        mixture = cuts.mixture(share / values, policies, pieces.answer, pieces.control)
        w = found.positive(w * steps.factors(mode.worth(w, mixture)))
    return recent[0].join(*recent[1:])


class Steps:
    """A step length for every cell from the history of its direction: resilient propagation in logarithms."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._length = np.full(shape, FIRST_STEP)
        self._direction = np.zeros(shape)

    def factors(self, worth: Array) -> Array:
        """What to multiply the weights by: worth ** step, within limits."""
        direction = np.log(np.maximum(worth, 1e-6))
        kept = direction * self._direction
        self._length = np.clip(
            self._length * np.where(kept > 0.0, LONGER, np.where(kept < 0.0, SHORTER, 1.0)), SHORTEST, LONGEST
        )
        self._direction = direction
        return np.exp(np.clip(self._length * direction, LARGEST_FALL, LARGEST_RISE))


class Mixing:
    """The shares nu of the pieces; of the answer's piece, of every way out that has been seen.

    The inner solver names only the answer's cheapest way out. Where several are equally cheap at the optimum
    all of them share, so each stays in the mixture with the cut that was last seen for it.
    """

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._answer = pieces.answer
        self._rivals = np.ones(pieces.slots)
        self._ways: dict[int, Cuts] = {}
        self._way_shares: dict[int, float] = {}
        self._merged: Cuts | None = None

    def merge(self, cuts: Cuts) -> Cuts:
        """These cuts, the answer's other ways out behind them."""
        mine = cuts.policy == (-1 if self._answer is None else self._answer)
        for atom in cuts.atom[mine].tolist():
            self._ways[atom] = cuts.take(mine)
            self._way_shares.setdefault(atom, self._rivals.mean())
        self._merged = cuts.take(~mine).join(*self._ways.values())
        return self._merged

    def towards_smallest(self, values: Array) -> Array:
        """The shares of the merged cuts, moved towards those with the smallest values."""
        assert self._merged is not None
        ways = list(self._ways)
        rivals = self._pieces.slot(self._merged)[: len(values) - len(ways)]
        share = np.concatenate([self._rivals[rivals], [self._way_shares[atom] for atom in ways]])
        share *= np.sqrt(values.min() / values)
        share = np.maximum(share / share.sum(), LEAST_SHARE)
        self._rivals[rivals] = share[: len(rivals)]
        self._way_shares = dict(zip(ways, share[len(rivals) :].tolist(), strict=True))
        # a piece a trillion times dearer than the rest must not weigh on the bound by its least share
        share[share <= LEAST_SHARE] = 0.0
        return np.asarray(share / share.sum())
