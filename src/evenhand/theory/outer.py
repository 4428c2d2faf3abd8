"""The best allocation against the nearest alternative, sup_w min_j f_j(w), certified.

Each f_j is concave and homogeneous of degree 1. Two methods narrow the bracket: an iteration on the
optimality conditions (`fixed_point`), sufficient at any size wherever the f_j are smooth; then cutting planes
(`cutting_planes`), for alternatives that are unions and for weights that converge slowly to 0.

At the optimum there are shares nu_j of the alternatives with

    w_c = sum_j nu_j w_c d_c^j / f_j        (lemma of the information-directed rule: Qin and You, 2025)

so cells that discriminate more than average gain weight, others lose it, and the alternatives with the
smallest f_j gain share. Every cell has its own step in the logarithm of w, which grows while its direction
stays the same and shrinks when it changes: smooth cells converge geometrically, weights that tend to 0 do so
fast, and oscillations are damped. No linear program is solved; the shares nu give the upper bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evenhand.theory.alternatives import Alternatives, Cuts
from evenhand.theory.bracket import Binding, Bracket, Solution
from evenhand.theory.cutting_planes import cutting_planes
from evenhand.theory.metrics import Label
from evenhand.theory.modes import Active


def solve(
    alternatives: Alternatives, mode: Active, gap: float, enough: float = 0.0, finish: bool = True
) -> Solution:
    """eq:T_star, eq:external_opt: return the best allocation of this mode, and its bounds.

    Ends early once the upper bound is below `enough`. Without `finish` the cutting planes are left out:
    faster, but the interval may stay wider than the gap.
    """
    if (
        alternatives.answer is None
        and alternatives.control is None
        and type(mode) is Active
        and alternatives.separable
    ):
        return solve_each_alone(alternatives, mode, gap)
    found = Bracket(alternatives, mode, enough=enough)
    recent = fixed_point(found, gap)
    if found.value > 0.0 and finish and not found.closed(gap):
        cutting_planes(found, gap, recent)
    return found.solution()


def solve_each_alone(alternatives: Alternatives, mode: Active, gap: float) -> Solution:
    """lemma:weight_infeas, eq:weights_emptyset_overall: each policy alone; none feasible.

    G_k is the largest value, over allocations of policy k's own budget, of its least cost to enter the
    region. Then T* = sum_k 1/G_k and w_k = v_k (1/G_k) / T*. For floors G_k is the largest d(mu_kl, C_kl)
    over the violated groups, as in the lemma; for other regions it is solved numerically. Where the bounds of
    a G_k differ, the lower one sets the weight, so the certified interval holds for every alternative.
    """
    policies, groups = alternatives.shape
    w = np.zeros((policies, groups))
    longest, shortest = np.zeros(policies), np.zeros(policies)
    for k in range(policies):
        game = Bracket(alternatives.alone(k), Active(mode.cost[k : k + 1], mode.arrivals))
        first = game.solve_at(game.mode.start())
        if len(first.cuts.policy) == 0:
            continue  # no vector of means is inside for k: nothing to prove
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
STALLED = 80  # rounds without halving the gap before the iteration ends
FIRST_STEP, SHORTEST, LONGEST = 0.5, 0.02, 50.0
LONGER, SHORTER = 1.2, 0.5
LARGEST_FALL, LARGEST_RISE = -3.0, 1.0  # change of a logarithm in one round
LEAST_SHARE = 1e-12  # smallest share that is stored, so that an alternative can gain share again
KEPT = 5  # rounds whose cuts are passed to the next method


def fixed_point(found: Bracket, gap: float) -> Cuts:
    """Narrow the bracket until the iteration stalls; return the cuts of the last rounds."""
    alternatives, mode = found.alternatives, found.mode
    policies = alternatives.shape[0]
    w = mode.start()
    mixing = Mixing(alternatives)
    steps = Steps(w.shape)
    recent: list[Cuts] = []
    widths: list[float] = []
    while True:
        cuts = mixing.merge(found.solve_at(w).cuts)
        recent = [*recent[1 - KEPT :], cuts]
        values = cuts.values(w, alternatives.answer, alternatives.control)
        if len(values) == 0 or not values.min() > 0.0:
            break
        share = mixing.towards_smallest(values)
        found.bound(cuts, share)
        widths.append(found.width)
        stalled = len(widths) > STALLED and widths[-1] > 0.5 * widths[-1 - STALLED]
        if found.closed(gap) or stalled or len(widths) == ROUNDS:
            break
        mixture = cuts.mixture(share / values, policies, alternatives.answer, alternatives.control)
        w = found.positive(w * steps.factors(mode.worth(w, mixture)))
    return recent[0].join(*recent[1:])


class Steps:
    """A step length per cell from its past directions: resilient propagation in logarithms."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._length = np.full(shape, FIRST_STEP)
        self._direction = np.zeros(shape)

    def factors(self, worth: Array) -> Array:
        """Return the factors for the weights: worth ** step, within limits."""
        direction = np.log(np.maximum(worth, 1e-6))
        kept = direction * self._direction
        self._length = np.clip(
            self._length * np.where(kept > 0.0, LONGER, np.where(kept < 0.0, SHORTER, 1.0)), SHORTEST, LONGEST
        )
        self._direction = direction
        return np.exp(np.clip(self._length * direction, LARGEST_FALL, LARGEST_RISE))


class Mixing:
    """The shares nu of the alternatives; the answer's are divided by violated condition.

    The inner solver returns only the answer's cheapest condition to violate. Where several are equally cheap
    at the optimum all of them have a share, so each stays in the mixture with the last cut found for it.
    """

    def __init__(self, alternatives: Alternatives) -> None:
        self._alternatives = alternatives
        self._answer = alternatives.answer
        self._rivals = np.ones(alternatives.slots)
        self._ways: dict[int, Cuts] = {}
        self._way_shares: dict[int, float] = {}
        self._merged: Cuts | None = None

    def merge(self, cuts: Cuts) -> Cuts:
        """Return these cuts, followed by the answer's other cuts."""
        mine = cuts.policy == (-1 if self._answer is None else self._answer)
        for atom in cuts.atom[mine].tolist():
            self._ways[atom] = cuts.take(mine)
            self._way_shares.setdefault(atom, self._rivals.mean())
        self._merged = cuts.take(~mine).join(*self._ways.values())
        return self._merged

    def towards_smallest(self, values: Array) -> Array:
        """Return the shares of the merged cuts, moved towards those with the smallest values."""
        assert self._merged is not None
        ways = list(self._ways)
        rivals = self._alternatives.slot(self._merged)[: len(values) - len(ways)]
        share = np.concatenate([self._rivals[rivals], [self._way_shares[atom] for atom in ways]])
        share *= np.sqrt(values.min() / values)
        share = np.maximum(share / share.sum(), LEAST_SHARE)
        self._rivals[rivals] = share[: len(rivals)]
        self._way_shares = dict(zip(ways, share[len(rivals) :].tolist(), strict=True))
        # the least share of an alternative that costs 1e12 times more must not affect the bound
        share[share <= LEAST_SHARE] = 0.0
        return np.asarray(share / share.sum())
