"""The best allocation against the nearest alternative, sup_w min_j f_j(w), certified.

Each f_j is concave and homogeneous of degree 1. Any allocation w gives a lower bound, the smallest certified
f_j(w). Any mixture of alternatives gives an upper bound, the largest value of its cut in the mode. T* lies
between their reciprocals. Two methods narrow this bracket: an iteration on the
optimality conditions (`fixed_point`), sufficient at any size wherever the f_j are smooth; then cutting planes
(`cutting_planes`), for alternatives that are unions and for weights that converge slowly to 0.

At the optimum there are shares nu_j of the alternatives with

    w_c = sum_j nu_j w_c d_c^j / f_j        (lemma of the information-directed rule: Qin and You, 2025)

so cells that discriminate more than average gain weight, others lose it, and the alternatives with the
smallest f_j gain share. Every cell has its own step in the logarithm of w, which grows while its direction
stays the same and shrinks when it changes: smooth cells converge geometrically, weights that tend to 0 do so
fast, and oscillations are damped. No linear program is solved; the shares nu give the upper bound.

Kelley's cutting planes solve a linear program over the cuts of all alternatives found so far:

    maximise t  subject to  t <= cut . w  for every cut,  w an allocation of the mode

Solved by HiGHS, which keeps its basis while rows are added and deleted. Its results are not relied upon: the
caller recomputes the bound from the dual shares (`Cuts.mixture`, `mode.support`), so solver tolerances affect
accuracy, never correctness.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import highspy
import numpy as np
from numpy.typing import NDArray

from evenhand.theory.alternatives import Alternatives, Cuts, InnerSolution
from evenhand.theory.metrics import Label
from evenhand.theory.modes import Active

Array = NDArray[np.float64]

PATIENCE = 12  # a cut is dropped after this number of solves without dual weight
TOLERANCE = 1e-10  # the smallest feasibility tolerance that HiGHS accepts
CUTTING_ROUNDS = 400
CUTTING_STEPS = (0.5, 0.2)  # fractions of the way to the vertex at which to solve, in turn


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


def cutting_planes(found: Bracket, gap: float, cuts: Cuts) -> None:
    """Narrow the bracket by Kelley's method, between the vertex and the best allocation so far."""
    answer, control = found.alternatives.answer, found.alternatives.control
    programme = LinearProgram(found.mode, answer, control, found.value)
    programme.add(cuts)
    for turn in range(CUTTING_ROUNDS):
        vertex = programme.solve()
        if vertex is None:
            return  # the solver gives no further solution; the bracket stays as it is
        found.bound(programme.cuts, vertex.share)
        if found.closed(gap):
            return
        step = CUTTING_STEPS[turn % len(CUTTING_STEPS)]
        fresh = found.solve_at(found.positive(step * vertex.w + (1.0 - step) * found.w)).cuts
        fresh = fresh.join(found.solve_at(found.positive(vertex.w)).cuts)
        programme.forget()
        # a cut that the vertex satisfies would not move it
        programme.add(fresh.take(fresh.values(vertex.w, answer, control) < vertex.value))
        if found.closed(gap):
            return


class Vertex(NamedTuple):
    """An optimum of the linear program."""

    w: Array  # K x L
    value: float  # t, the least cut at w
    share: Array  # dual weight of each cut, summing to 1


class LinearProgram:
    """The linear program over the cuts; cuts that stay slack are dropped."""

    def __init__(self, mode: Active, answer: int | None, control: int | None, scale: float) -> None:
        self._mode = mode
        self._answer = answer
        self._control = control
        self._scale = scale  # values are divided by this, to be near 1
        self._idle = np.zeros(0, dtype=np.int64)
        self.cuts = Cuts.none(mode.cost.shape[1])
        self._highs = _blank(mode)
        self._fixed_rows = len(mode.equalities())

    def add(self, cuts: Cuts) -> None:
        """Add cuts."""
        n = len(cuts.policy)
        if n == 0:
            return
        columns, coefficients = self._mode.coefficients(cuts.policy, cuts.own)
        if self._answer is not None:
            answer = np.full(n, self._answer)
            more_columns, more = self._mode.coefficients(answer, cuts.shared)
            columns, coefficients = np.hstack([columns, more_columns]), np.hstack([coefficients, more])
        if self._control is not None and self._control != self._answer:
            more_columns, more = self._mode.coefficients(np.full(n, self._control), cuts.aside)
            columns, coefficients = np.hstack([columns, more_columns]), np.hstack([coefficients, more])
        objective = np.full((n, 1), self._mode.columns, dtype=np.int32)
        columns = np.hstack([objective, columns])
        coefficients = np.hstack([np.ones((n, 1)), -coefficients / self._scale])
        # the answer's cuts have shared = 0, the control's aside = 0: otherwise a column would occur twice
        used = coefficients != 0.0
        starts = np.concatenate([[0], np.cumsum(used.sum(axis=1))[:-1]]).astype(np.int32)
        self._highs.addRows(
            n,
            np.full(n, -highspy.kHighsInf),
            np.zeros(n),
            int(used.sum()),
            starts,
            columns[used],
            coefficients[used],
        )
        self.cuts = self.cuts.join(cuts)
        self._idle = np.concatenate([self._idle, np.zeros(n, dtype=np.int64)])

    def solve(self) -> Vertex | None:
        """Return the optimum over the cuts so far; None if the solver finds none."""
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self._highs.getSolution()
        x = np.array(solution.col_value)
        dual = np.maximum(-np.array(solution.row_dual)[self._fixed_rows :], 0.0)
        self._idle = np.where(dual > 0.0, 0, self._idle + 1)
        total = dual.sum()
        if not total > 0.0:
            return None
        return Vertex(self._mode.weights(x), float(x[self._mode.columns]) * self._scale, dual / total)

    def forget(self) -> None:
        """Drop the cuts that have been slack for PATIENCE solves."""
        old = np.nonzero(self._idle > PATIENCE)[0]
        if len(old) < len(self._idle) // 5:
            return  # too few to be worth a change of the basis
        self._highs.deleteRows(len(old), (old + self._fixed_rows).astype(np.int32))
        kept = self._idle <= PATIENCE
        self.cuts, self._idle = self.cuts.take(kept), self._idle[kept]


def _blank(mode: Active) -> highspy.Highs:
    """Return the linear program without cuts."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("primal_feasibility_tolerance", TOLERANCE),
        ("dual_feasibility_tolerance", TOLERANCE),
    ):
        highs.setOptionValue(option, value)
    columns = mode.columns + 1
    highs.addVars(columns, np.zeros(columns), np.full(columns, highspy.kHighsInf))
    highs.changeColCost(mode.columns, -1.0)
    for rhs, where, coefficients in mode.equalities():
        highs.addRow(rhs, rhs, len(where), where, coefficients)
    return highs


ROUNDING = 1e-12  # relative allowance for the rounding errors of the bounds themselves
LEAST_WEIGHT = 1e-13  # of a cell, relative to the mean: cuts are finite where every cell has weight


class Binding(NamedTuple):
    """The share of one alternative in the optimum."""

    label: Label
    share: float


@dataclass(frozen=True)
class Solution:
    """sup_w min_j f_j(w) lies in [lower, upper]; `lower` is certified at w."""

    w: Array  # K x L at budget 1
    lower: float
    upper: float
    binding: tuple[Binding, ...]

    @property
    def gap(self) -> float:
        """Return the relative width of the interval."""
        return (self.upper - self.lower) / self.lower if self.lower > 0.0 else np.inf


@dataclass
class Bracket:
    """The best bounds so far, and the allocation and cuts that give them."""

    alternatives: Alternatives
    mode: Active
    w: Array = field(default_factory=lambda: np.zeros((0, 0)))
    value: float = -np.inf  # f*(w) by the inner solvers' own values
    proved: float = -np.inf  # the certified bound at w; far below `value` where a solver's bounds differ
    certified_w: Array = field(default_factory=lambda: np.zeros((0, 0)))
    lower: float = -np.inf  # the certified bound at certified_w, the largest so far
    upper: float = np.inf
    cuts: Cuts | None = None  # of the best mixture
    share: Array = field(default_factory=lambda: np.zeros(0))
    enough: float = 0.0  # an upper bound below this is not narrowed further

    @property
    def width(self) -> float:
        """Return the relative distance of the bounds by the inner solvers' values."""
        return (self.upper - self.value) / self.value if self.value > 0.0 else np.inf

    def closed(self, gap: float) -> bool:
        return self.width <= gap or self.value == np.inf or self.upper < self.enough

    def solve_at(self, w: Array) -> InnerSolution:
        """Solve at w, positive in every cell, and keep the result if it is the best so far."""
        found_at = self.alternatives.solve_at(w)
        if found_at.value > self.value:
            self.w, self.value, self.proved = w, found_at.value, found_at.lower
        if found_at.lower > self.lower:
            self.certified_w, self.lower = w, found_at.lower
        return found_at

    def positive(self, w: Array) -> Array:
        """Return the mode's allocation nearest to w with every cell positive."""
        return self.mode.admit(np.maximum(w, LEAST_WEIGHT * w.mean()))

    def bound(self, cuts: Cuts, share: Array) -> None:
        """Compute the upper bound of this mixture of cuts; keep it if it is the smallest so far."""
        alternatives = self.alternatives
        upper = self.mode.support(
            cuts.mixture(share, alternatives.shape[0], alternatives.answer, alternatives.control)
        )
        if upper < self.upper:
            self.upper, self.cuts, self.share = upper, cuts, share

    def solution(self) -> Solution:
        """Return the certified interval, and an allocation at which its lower end is certified.

        That is the allocation of the best value if its own certified bound is large enough, else
        `certified_w`.
        """
        lower, upper = self.lower * (1.0 - ROUNDING), self.upper * (1.0 + ROUNDING)
        w = self.w if self.proved >= lower else self.certified_w
        return Solution(w, lower, upper, self._binding(w))

    def reach(self) -> float:
        """Return the value at the solution's allocation if it is certified up to rounding.

        Else the certified bound there, if there is one.
        """
        agreed = self.lower >= self.value * (1.0 - 0.5 * ROUNDING) or self.lower <= 0.0
        return self.value if agreed else self.lower

    def _binding(self, w: Array) -> tuple[Binding, ...]:
        """Return the shares of the best mixture, summed over the cuts of each alternative."""
        if self.cuts is None:
            return ()
        total: dict[Label, float] = {}
        cuts = self.cuts
        rows = zip(cuts.policy.tolist(), cuts.atom.tolist(), cuts.own, self.share.tolist(), strict=True)
        for policy, atom, own, share in rows:
            label = self.alternatives.label(policy, atom, own * w[policy])
            total[label] = total.get(label, 0.0) + share
        found = [Binding(label, share) for label, share in total.items()]
        return tuple(sorted(found, key=lambda one: -one.share))
