"""Plans: the answer at given means, the lower bound on samples, and the best allocation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.errors import BadInput, Undecidable
from evenhand.model.argument_checks import number_between
from evenhand.model.families import GaussianUnknown
from evenhand.model.problem import Problem
from evenhand.model.study_like import StudyLike, problem_of
from evenhand.result import Result
from evenhand.theory.answers import (
    Answers,
    Interval,
    Proposal,
    answers_to,
    propose,
    risk_in_nats,
    samples_needed,
)
from evenhand.theory.boundary_distance import WhyNone, evidence_against_each, near_changes
from evenhand.theory.modes import Active, mode_of
from evenhand.theory.outer import Solution
from evenhand.theory.question import Question, question_of
from evenhand.theory.screening import screen, why_unclassified

__all__ = ["Bound", "Plan", "plan", "risk_in_nats"]

Array = NDArray[np.float64]

GAP = 1e-6  # relative width of the interval for T* that a plan aims at
WIDE = 1e-3  # and the width beyond which it warns
SMALLEST_SHARE = 1e-6  # of the optimum: alternatives with a smaller share are not listed as binding


@dataclass(frozen=True)
class Bound:
    """A binding comparison: its kind, its policy, and its share of the optimum.

    leave: `policy` might miss its requirement, in `group`. beat: `policy` might meet the requirement and be
    better. enter: `policy` might meet the requirement after all. `metric` is the guard-rail whose bound it
    would violate, `relative_to` the control where that bound is relative.
    """

    piece: str
    policy: str
    group: str | None
    share: float
    metric: str | None = None
    relative_to: str | None = None

    def to_dict(self) -> dict[str, Any]:
        table = {"piece": self.piece, "policy": self.policy, "group": self.group, "share": self.share}
        more = {"metric": self.metric, "relative_to": self.relative_to}
        return table | {name: value for name, value in more.items() if value is not None}


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Result):
    """eq:lower_bound_m_sbfc, eq:lower_bound_ext2: T* in [time_low, time_high], an allocation.

    Times are numbers of samples, and the allocation takes at most time_high of them. With sampling costs
    `cost` bounds the same in cost, and the allocation is the cheapest: it costs at most cost.high. With
    several acceptable answers T* is that of the easiest.

    Examples
    --------
    >>> import evenhand as eh
    >>> plan = eh.plan(eh.Problem(["a", "b"], {"x": 1.0}, eh.Gaussian(1.0)), [[1.0], [0.0]])
    >>> plan.allocation.round(3).tolist()
    [[0.5], [0.5]]
    """

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
    guardrails: Mapping[str, Array]  # the means of every guard-rail, K x L
    indifference: float
    tolerance: Any
    acceptable: tuple[str | None, ...]  # None for "none of the policies"; empty where policies are screened
    easiest: str | None
    times: tuple[Interval, ...]  # T*_i of every acceptable answer, in samples
    costs: tuple[Interval, ...]  # the same in cost; empty without sampling costs
    proposal: Proposal | None  # an indifference that would save much

    @property
    def cost(self) -> Interval | None:
        """Return the least cost per unit of evidence of any procedure; None without sampling costs."""
        if not self.costs:
            return None
        return Interval(min(c.low for c in self.costs), min(c.high for c in self.costs))

    @property
    def failed(self) -> tuple[str, ...]:
        """Return the policies that do not meet the requirement."""
        return tuple(name for name in self.problem.policies if name not in self.feasible)

    def samples_at_least(self, delta: float) -> float:
        """thm:lower_bound, eq:lower_bound: return the least mean number of samples at this risk."""
        return samples_needed([time.low for time in self.times], delta)

    def cost_at_least(self, delta: float) -> float | None:
        """Return the least mean cost of any procedure of this risk; None without sampling costs."""
        return samples_needed([cost.low for cost in self.costs], delta) if self.costs else None

    def to_dict(self, delta: float = 0.05) -> dict[str, Any]:
        """Return plain numbers and names at this risk, as `evenhand plan --json` prints them."""
        table: dict[str, Any] = {
            "answer": self.answer,
            "answer_index": self.answer_index,
            "feasible": list(self.feasible),
            "acceptable": list(self.acceptable),
            "easiest": self.easiest,
            "time_low": self.time_low,
            "time_high": _finite(self.time_high),
            "allocation": self.allocation.tolist(),
            "delta": delta,
            "samples_at_least": self.samples_at_least(delta),
            "binding": [bound.to_dict() for bound in self.binding],
            "why_none": None if self.why_none is None else self.why_none.to_dict(),
            "warnings": list(self.warnings),
        }
        if len(self.times) > 1:
            table["times"] = [
                {"answer": name, "time_low": _finite(time.low), "time_high": _finite(time.high)}
                for name, time in zip(self.acceptable, self.times, strict=True)
            ]
        if self.cost is not None:
            table |= {"cost_low": self.cost.low, "cost_high": _finite(self.cost.high)}
            table["cost_at_least"] = self.cost_at_least(delta)
        if self.problem.goal == "screen":
            table |= {"goal": "screen", "allowed": list(self.feasible), "failed": list(self.failed)}
        if self.proposal is not None:
            table["proposal"] = self.proposal.to_dict(delta)
        return table


def plan(
    problem: Problem | StudyLike,
    means: ArrayLike | Mapping[str, Any] | None = None,
    gap: float = GAP,
    *,
    guardrails: Mapping[str, Any] | None = None,
    indifference: float | None = None,
    tolerance: Any = None,
) -> Plan:
    """Return the answer at these means, the least number of samples, and where to take them.

    Parameters
    ----------
    problem : Problem or Study
        The question; what is not given is taken from the study.
    means : table, dict or frame
        The mean of every cell: a row per policy, or by name.
    gap : float
        The relative width of the interval for T* to aim at, strictly between 0 and 1.
    guardrails : mapping, optional
        The means of every guard-rail, by its name.
    indifference : float
        A policy within this of the best is good enough.
    tolerance : float, list, dict or series
        How far outside its own floors and caps an answer may be: one number, one per group, or by group name.

    Returns
    -------
    Plan
        The answer, the interval for T*, the allocation and the comparisons that bind.

    Raises
    ------
    BadInput
        If the means do not fit the problem.
    Undecidable
        If no number of samples decides: a tie, or a mean on the boundary.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["old", "new"], {"young": 0.7, "elderly": 0.3}, eh.Bernoulli(), eh.Floors(0.4))
    >>> means = {"old": {"young": 0.8, "elderly": 0.75}, "new": {"young": 0.9, "elderly": 0.1}}
    >>> plan = eh.plan(problem, means)
    >>> plan.answer, round(plan.samples_at_least(0.05))
    ('old', 30)
    """
    number_between(gap, "gap", 0.0, 1.0)
    asked = _question(problem, means, guardrails, indifference, tolerance)
    problem = asked.problem
    priced = mode_of(problem)
    samples = replace(priced, cost=np.ones_like(priced.cost))
    try:
        in_samples = _solve(asked, samples, gap)
        in_cost = _solve(asked, priced, gap) if problem.costs is not None else None
    except Undecidable as refusal:
        raise Undecidable(_with_proposal(str(refusal), asked, samples)) from None
    followed = in_cost or in_samples
    if not followed.best.lower > 0.0:
        _refuse_unlearnable(problem, followed.best)
    allocation = followed.best.w / followed.best.w.sum()
    screening = problem.goal == "screen"
    answer = None if screening else asked.answer
    names = problem.policies
    time = in_samples.time
    return Plan(
        problem=problem,
        means=_read_only(asked.means),
        answer=None if answer is None else names[answer],
        answer_index=answer,
        feasible=tuple(names[k] for k in np.nonzero(asked.allowed)[0]),
        time_low=time.low,
        time_high=time.high,
        allocation=_read_only(allocation),
        binding=_binding(problem, followed.best),
        why_none=None if asked.answer is not None else evidence_against_each(asked, allocation),
        warnings=tuple(_warnings(asked, followed, screening)),
        guardrails={name: _read_only(table) for name, table in asked.guardrail_means.items()},
        indifference=asked.indifference,
        tolerance=asked.tolerance,
        acceptable=() if screening else tuple(None if i is None else names[i] for i in in_samples.acceptable),
        easiest=None if followed.easiest is None or screening else names[followed.easiest],
        times=in_samples.times,
        costs=() if in_cost is None else in_cost.times,
        proposal=None if screening else propose(asked, samples, time.low),
    )


def _question(
    given: Problem | StudyLike, means: Any, guardrails: Any, indifference: float | None, tolerance: Any
) -> Question:
    """Return the question that `plan` was called with, completed from the study."""
    problem = problem_of(given)
    if not isinstance(given, Problem):
        if means is None:
            means, guardrails = given.means(), guardrails or given.guardrail_means()
        indifference = given.procedure.indifference if indifference is None else indifference
        tolerance = given.procedure.tolerance if tolerance is None else tolerance
    if means is None:
        raise BadInput("a plan of a problem needs the means that you expect; give them, or a study.")
    return question_of(
        problem, means, guardrails, 0.0 if indifference is None else indifference,
        0.0 if tolerance is None else tolerance,
    )  # fmt: skip


def _solve(asked: Question, mode: Active, gap: float) -> Answers:
    """Solve for the acceptable answers or the classification, in the units of the mode's costs."""
    if asked.problem.goal != "screen":
        return answers_to(asked, mode, gap)
    undecided = why_unclassified(asked)
    if undecided is not None:
        raise Undecidable(undecided)
    found = screen(asked.metrics, asked.allowed, mode, gap)
    high = 1.0 / found.lower if found.lower > 0.0 else math.inf
    return Answers((None,), (Interval(1.0 / found.upper, high),), None, found)


def _binding(problem: Problem, found: Solution) -> tuple[Bound, ...]:
    bounds = []
    for (kind, policy, metric, g, relative), share in found.binding:
        if share < SMALLEST_SHARE:
            continue
        group = None if g is None else problem.group_names[g]
        rail = problem.guardrails[metric - 1].name if metric else None
        against = problem.control if relative else None
        bounds.append(Bound(kind, problem.policies[policy], group, share, rail, against))
    return tuple(bounds)


def _with_proposal(refusal: str, asked: Question, mode: Active) -> str:
    """Return the message; after a tie, with an indifference that makes it decidable."""
    found = None if asked.problem.goal == "screen" else propose(asked, mode, math.inf)
    if found is None:
        return refusal
    return (
        f"{refusal[:-1]}, or accept {' or '.join(map(repr, found.acceptable))}: with indifference = "
        f"{found.indifference:g} T* is {found.time_high:.4g}."
    )


def _refuse_unlearnable(problem: Problem, found: Solution) -> None:
    """Raise if no allocation of the mode separates the means from the nearest alternative."""
    absent = [
        name for name, share in zip(problem.groups, problem.arrival_shares, strict=True) if share == 0.0
    ]
    if problem.mode != "active" and absent:
        raise Undecidable(
            f"group {absent[0]!r} never arrives in {problem.mode} sampling, so there are no data about it; "
            'use mode = "active" or give it a share of the arrivals.'
        )
    if found.upper <= 0.0:
        raise Undecidable(
            "an alternative fits these means exactly, and no number of samples decides; move a mean."
        )


def _warnings(asked: Question, followed: Answers, screening: bool) -> list[str]:
    problem, found = asked.problem, followed.best
    warnings = list(near_changes(asked, None if screening else followed.easiest))
    if found.gap > WIDE:
        width = f"only to within {found.gap:.1%}" if math.isfinite(found.gap) else "only from below"
        warnings.append(f"T* is known {width}: part of this requirement has no certified bound.")
    if isinstance(problem.family, GaussianUnknown):
        warnings.append("The variance is not known to the plan; times assume a standard deviation of 1.")
    if problem.guardrails:
        warnings.append("With guard-rails T* is exact where the outcomes of one sample are independent.")
    return warnings


def _read_only(table: Array) -> Array:
    table = table.copy()
    table.flags.writeable = False
    return table


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
