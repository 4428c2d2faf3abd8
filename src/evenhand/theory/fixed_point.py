"""The equation of the best allocation, followed as an iteration.

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

from evenhand.theory.bracket import Bracket
from evenhand.theory.pieces import Cuts, Pieces

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
        values = cuts.values(w, pieces.answer)
        if len(values) == 0 or not values.min() > 0.0:
            break
        share = mixing.towards_smallest(values)
        found.bound(cuts, share)
        widths.append(found.width)
        stalled = len(widths) > STALLED and widths[-1] > 0.5 * widths[-1 - STALLED]
        if found.closed(gap) or stalled or len(widths) == ROUNDS:
            break
        mixture = cuts.mixture(share / values, policies, pieces.answer)
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
        self._answer = pieces.answer
        self._rivals = np.ones(pieces.shape[0])
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
        rivals = self._merged.policy[: len(values) - len(ways)]
        share = np.concatenate([self._rivals[rivals], [self._way_shares[atom] for atom in ways]])
        share *= np.sqrt(values.min() / values)
        share = np.maximum(share / share.sum(), LEAST_SHARE)
        self._rivals[rivals] = share[: len(rivals)]
        self._way_shares = dict(zip(ways, share[len(rivals) :].tolist(), strict=True))
        # a piece a trillion times dearer than the rest must not weigh on the bound by its least share
        share[share <= LEAST_SHARE] = 0.0
        return np.asarray(share / share.sum())
