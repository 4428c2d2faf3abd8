"""T*_i for every acceptable answer i, the lower bound on the number of samples, and proposals for near ties.

Which acceptable answer a run will return is not known beforehand, but it can sample for the easiest:
T* = min over acceptable i of T*_i. The easiest is solved to the requested gap, the others only until it is
certain that they are not easier, with a rough interval for T*_i.

The lower bound at risk delta, with one acceptable answer: T* kl(delta, 1 - delta). With several, let p_i be
the probability that a procedure of risk delta returns the acceptable answer i. Wherever i is not acceptable
the procedure may return i with probability at most delta, so by the data-processing inequality the mean
number of samples is at least T*_i kl(p_i, delta) for every i with p_i > delta; and the probabilities sum to
at least 1 - delta. So it is at least

    min over p, sum p_i = 1 - delta, of max over i of T*_i kl+(p_i, delta),      kl+ = 0 up to p_i = delta.

The bound x is the root of sum_i p_i(x) = 1 - delta, p_i(x) the largest p with T*_i kl+(p, delta) <= x.
If there are enough acceptable answers that p_i = delta for each suffices, it is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenhand.errors import Undecidable
from evenhand.model.argument_checks import number_between
from evenhand.theory.boundary_distance import NEARLY, deviation, why_undecided
from evenhand.theory.modes import Active
from evenhand.theory.outer import Solution, solve
from evenhand.theory.question import Question

ROUGH = 1e-3  # relative width of the intervals of answers that are not the easiest
FAR = 30.0  # times T*: intervals are not narrowed further once T*_i is known to exceed this
FEW = 6  # up to this number of acceptable answers all intervals are narrowed to ROUGH

TURNS = 200  # of each bisection: double precision is exhausted before


@dataclass(frozen=True)
class Interval:
    """A number that is known to lie between two bounds."""

    low: float
    high: float


@dataclass(frozen=True)
class Answers:
    """Every acceptable answer with its T*_i, in the units of the mode's costs, and the easiest."""

    acceptable: tuple[int | None, ...]
    times: tuple[Interval, ...]  # in the same order; infinite where no number of samples certifies the answer
    easiest: int | None
    best: Solution

    @property
    def time(self) -> Interval:
        """Return T*, the smallest T*_i."""
        return Interval(min(t.low for t in self.times), min(t.high for t in self.times))


def answers_to(asked: Question, mode: Active, gap: float) -> Answers:
    """Solve for all acceptable answers; raise if no number of samples certifies any of them."""
    reasons = {i: why_undecided(asked, i) for i in asked.acceptable}
    possible = [i for i in asked.acceptable if reasons[i] is None]
    if not possible:
        raise Undecidable(str(reasons[asked.acceptable[0]]))
    if len(asked.acceptable) == 1:
        only = solve(asked.alternatives(possible[0]), mode, gap)
        return Answers(asked.acceptable, (_interval(only),), possible[0], only)
    rough: dict[int | None, Solution] = {}
    least, few = math.inf, len(possible) <= FEW
    for i in sorted(possible, key=lambda i: difficulty(asked, i)):
        rough[i] = solve(asked.alternatives(i), mode, ROUGH, _slower(FAR * least), finish=few)
        least = min(least, _interval(rough[i]).high)
    fine = {
        i: solve(asked.alternatives(i), mode, gap, _slower(least))
        for i, found in rough.items()
        if _interval(found).low <= least
    }
    times = tuple(_of(i, rough | fine) for i in asked.acceptable)
    easiest = min(fine, key=lambda i: _interval(fine[i]).high)
    return Answers(asked.acceptable, times, easiest, fine[easiest])


def difficulty(asked: Question, i: int | None) -> float:
    """Return a quick estimate of T*_i from its hardest comparison, to solve easy answers first.

    With sd the standard deviations of single outcomes, a bound with slack s takes 2 sd^2 / s^2 samples, and a
    rival that is behind by g takes 2 (sum q (sd_i + sd_k))^2 / g^2.
    """
    if i is None:
        return 0.0
    deviations = asked.deviations
    slacks = zip(asked.margins(i), deviations, strict=True)
    own = sum(_samples(float(sd[i].max()), slack) for slack, sd in slacks)
    rivals = [k for k in np.nonzero(asked.allowed)[0].tolist() if k != i]
    behind = [(asked.lead(i, k), deviation(asked, i, k)) for k in rivals]
    # the slack is NaN for a set without a kernel
    return max([0.0 if math.isnan(own) else own, *(_samples(sd, gap) for gap, sd in behind)])


def _samples(sd: float, gap: float) -> float:
    return 2.0 * (sd / gap) ** 2 if gap else math.inf


def _slower(time: float) -> float:
    """Return the value of an allocation below which T*_i exceeds this time; 0 for time 0."""
    return 1.0 / time if time > 0.0 else 0.0


def _interval(found: Solution) -> Interval:
    return Interval(1.0 / found.upper, 1.0 / found.lower if found.lower > 0.0 else math.inf)


def _of(i: int | None, solved: dict[int | None, Solution]) -> Interval:
    return _interval(solved[i]) if i in solved else Interval(math.inf, math.inf)


WORTHWHILE = 0.5  # of T*: an indifference is proposed if the new T* is at most this share
PROPOSAL_GAP = 1e-3


@dataclass(frozen=True)
class Proposal:
    """An indifference, the acceptable answers with it, and T*_i of each, in samples."""

    indifference: float
    acceptable: tuple[str, ...]
    times: tuple[Interval, ...]

    @property
    def time_low(self) -> float:
        """Return the lower end of T*, the smallest T*_i."""
        return min(time.low for time in self.times)

    @property
    def time_high(self) -> float:
        """Return the upper end of T*."""
        return min(time.high for time in self.times)

    def samples_at_least(self, delta: float) -> float:
        """Return the least mean number of samples of any procedure of this risk."""
        return samples_needed([time.low for time in self.times], delta)

    def to_dict(self, delta: float) -> dict[str, Any]:
        return {
            "indifference": self.indifference,
            "acceptable": list(self.acceptable),
            "time_low": self.time_low,
            "time_high": self.time_high,
            "samples_at_least": self.samples_at_least(delta),
        }


def propose(asked: Question, mode: Active, time: float) -> Proposal | None:
    """Return an indifference for a near tie with this T*; None if it saves little.

    Twice the largest lead over the rivals that are nearly tied, and no less than what counts as nearly tied,
    rounded up to one digit: the choice between them is then no longer required.
    """
    if asked.indifference > 0.0 or asked.answer is None:
        return None
    wanted = 0.0
    for k in np.nonzero(asked.allowed)[0].tolist():
        near = NEARLY * deviation(asked, asked.answer, k)
        lead = asked.lead(asked.answer, k)
        if k != asked.answer and lead < near:
            wanted = max(wanted, 2.0 * lead, near)
    if wanted == 0.0:
        return None
    eps = _rounded_up(wanted * asked.problem.family.width)
    other = replace(asked, indifference=eps)
    try:
        found = answers_to(other, mode, PROPOSAL_GAP)
    except Undecidable:
        return None
    if not found.time.high <= WORTHWHILE * time:
        return None
    names = tuple(asked.problem.policies[i] for i in found.acceptable if i is not None)
    return Proposal(eps, names, found.times)


def _rounded_up(number: float) -> float:
    """Return the next larger number with one significant digit."""
    exponent = math.floor(math.log10(number))
    digit = math.ceil(number / 10.0**exponent - 1e-9)
    return round(digit * 10.0**exponent, -exponent)


def samples_needed(times: Sequence[float], delta: float) -> float:
    """Return the least mean number of samples at this risk, given T*_i of acceptable answers."""
    if len(times) == 1:
        return times[0] * risk_in_nats(delta)
    finite = [time for time in times if math.isfinite(time)]
    risk_in_nats(delta)  # refuses an invalid risk
    if not finite or len(times) * delta >= 1.0 - delta:
        return 0.0 if finite else math.inf
    low, high = 0.0, min(finite) * kl(1.0 - delta, delta)
    for _ in range(TURNS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if sum(_largest(middle / time, delta) for time in times) < 1.0 - delta:
            low = middle
        else:
            high = middle
    return low


def risk_in_nats(delta: float) -> float:
    """Return kl(delta, 1 - delta), the evidence that a risk of delta requires."""
    number_between(delta, "delta", 0.0, 0.5)
    return (1.0 - 2.0 * delta) * (math.log1p(-delta) - math.log(delta))


def kl(p: float, q: float) -> float:
    """Return the divergence between two probabilities, 0 < q < 1."""
    first = p * math.log(p / q) if p > 0.0 else 0.0
    return first + ((1.0 - p) * math.log((1.0 - p) / (1.0 - q)) if p < 1.0 else 0.0)


def _largest(nats: float, delta: float) -> float:
    """Return the largest p in [delta, 1] with kl(p, delta) <= nats."""
    if nats >= -math.log(delta):
        return 1.0
    low, high = delta, 1.0
    for _ in range(TURNS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if kl(middle, delta) <= nats:
            low = middle
        else:
            high = middle
    return low
