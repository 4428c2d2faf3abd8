"""Plan: the answer at given means, what no procedure can beat, and where the samples should go."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.errors import BadInput, Undecidable
from evenhand.model.families import GaussianUnknown
from evenhand.model.problem import Problem
from evenhand.model.study_like import StudyLike, problem_of
from evenhand.theory.alternatives import pieces_of
from evenhand.theory.boundary_distance import WhyNone, near_changes, refuse_undecidable, why_none
from evenhand.theory.bracket import Solution
from evenhand.theory.modes import mode_of
from evenhand.theory.outer import solve

Array = NDArray[np.float64]

GAP = 1e-6  # relative width of the interval for T* that a plan aims at
WIDE = 1e-3  # and the width beyond which it warns
SMALLEST_SHARE = 1e-6  # of the optimum that a piece must hold to be named as binding


@dataclass(frozen=True)
class Bound:
    """A comparison that binds: its piece, whose it is, and its share of the optimum.

    leave: the answer might miss its requirement, in `group`. beat: `policy` might meet the requirement and be
    better. enter: `policy` might meet the requirement after all.
    """

    piece: str
    policy: str
    group: str | None
    share: float


@dataclass(frozen=True, eq=False)
class Plan:
    """T* lies in [time_low, time_high]. eq:lower_bound_m_sbfc, eq:lower_bound_ext2.

    The allocation takes at most time_high. With sampling costs, times and samples are counted in cost."""

    problem: Problem
    means: Array  # K x L, as given
    answer: str | None
    answer_index: int | None
    feasible: tuple[str, ...]
    time_low: float
    time_high: float
    allocation: Array  # K x L, shares of the samples
    binding: tuple[Bound, ...]
    why_none: WhyNone | None
    warnings: tuple[str, ...]

    def samples_at_least(self, delta: float) -> float:
        """thm:lower_bound, eq:lower_bound: T* kl(delta, 1 - delta), needed by any procedure of this risk."""
        return self.time_low * risk_in_nats(delta)

    def to_dict(self, delta: float) -> dict[str, Any]:
        """Plain numbers and names, as `evenhand plan --json` prints them."""
        return {
            "answer": self.answer,
            "answer_index": self.answer_index,
            "feasible": list(self.feasible),
            "time_low": self.time_low,
            "time_high": self.time_high if math.isfinite(self.time_high) else None,
            "allocation": self.allocation.tolist(),
            "delta": delta,
            "samples_at_least": self.samples_at_least(delta),
            "binding": [
                {"piece": b.piece, "policy": b.policy, "group": b.group, "share": b.share}
                for b in self.binding
            ],
            "why_none": None if self.why_none is None else self.why_none.to_dict(),
            "warnings": list(self.warnings),
        }


def plan(problem: Problem | StudyLike, means: ArrayLike | None = None, gap: float = GAP) -> Plan:
    """Who wins at these means, what it must cost and where to sample; T* to this relative gap.

    Of a study its own means are planned for unless others are given.
    """
    if means is None:
        if isinstance(problem, Problem):
            raise BadInput("a plan of a problem needs the means that you expect; give them, or a study.")
        problem_of(problem)
        means = problem.means()
    return _planned(problem_of(problem), means, gap)


def _planned(problem: Problem, means: ArrayLike, gap: float) -> Plan:
    if not 0.0 < gap < 1.0:
        raise BadInput(f"gap must lie strictly between 0 and 1; it is {gap}.")
    table = problem.check_means(means)
    answer = problem.answer(table)
    refuse_undecidable(problem, table, answer)
    found = solve(pieces_of(problem, table, answer), mode_of(problem), gap)
    if not found.lower > 0.0:
        _refuse_unlearnable(problem, found)
    allocation = found.w / found.w.sum()
    allocation.flags.writeable = False
    table = table.copy()
    table.flags.writeable = False
    names = problem.policies
    feasible = tuple(names[k] for k in np.nonzero(problem.feasible(table))[0])
    return Plan(
        problem=problem,
        means=table,
        answer=None if answer is None else names[answer],
        answer_index=answer,
        feasible=feasible,
        time_low=1.0 / found.upper,
        time_high=1.0 / found.lower if found.lower > 0.0 else math.inf,
        allocation=allocation,
        binding=_binding(problem, found, answer),
        why_none=why_none(problem, table, allocation) if answer is None else None,
        warnings=tuple(_warnings(problem, table, answer, found)),
    )


def risk_in_nats(delta: float) -> float:
    """kl(delta, 1 - delta), the evidence that a risk of delta asks for."""
    if not 0.0 < delta < 0.5:
        raise BadInput(f"delta must lie strictly between 0 and 0.5; it is {delta}.")
    return (1.0 - 2.0 * delta) * (math.log1p(-delta) - math.log(delta))


def _binding(problem: Problem, found: Solution, answer: int | None) -> tuple[Bound, ...]:
    bounds = []
    for piece in found.binding:
        if piece.share < SMALLEST_SHARE:
            continue
        verb = "enter" if answer is None else "leave" if piece.policy == answer else "beat"
        group = None if piece.group is None else problem.group_names[piece.group]
        bounds.append(Bound(verb, problem.policies[piece.policy], group, piece.share))
    return tuple(bounds)


def _refuse_unlearnable(problem: Problem, found: Solution) -> None:
    """No allocation of the mode tells the means from the nearest alternative."""
    silent = [
        name for name, share in zip(problem.groups, problem.arrival_shares, strict=True) if share == 0.0
    ]
    if problem.mode != "active" and silent:
        raise Undecidable(
            f"group {silent[0]!r} never arrives in {problem.mode} sampling, so nothing can be learned of it; "
            'use mode = "active" or give it a share of the arrivals.'
        )
    if found.upper <= 0.0:
        raise Undecidable(
            "an alternative fits these means exactly, and no number of samples decides; move a mean."
        )


def _warnings(problem: Problem, means: Array, answer: int | None, found: Solution) -> list[str]:
    warnings = list(near_changes(problem, means, answer))
    if found.gap > WIDE:
        width = f"only to within {found.gap:.1%}" if math.isfinite(found.gap) else "only from below"
        warnings.append(f"T* is known {width}: part of this requirement has no certified bound.")
    if isinstance(problem.family, GaussianUnknown):
        warnings.append("The variance is not known to the plan; times assume a standard deviation of 1.")
    return warnings
