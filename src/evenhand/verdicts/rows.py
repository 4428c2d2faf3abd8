"""Rows of a verdict: every cell and policy is met, failed or undecided, with its interval and rank."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from evenhand.model.problem import Problem
from evenhand.procedure.evidence.by_family import threshold
from evenhand.procedure.intervals import WORDS, reconciled
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State
from evenhand.verdicts.apply_rule import Cells, Weight


@dataclass(frozen=True)
class CellVerdict:
    """One policy in one group; where a requirement joins groups, with the verdict of its policy."""

    policy: str
    group: str
    n: int
    mean: float | None
    low: float | None  # None: open, the data exclude nothing on this side
    high: float | None
    verdict: str
    floor: float | None = None
    cap: float | None = None

    @property
    def bounded(self) -> bool:
        return self.floor is not None or self.cap is not None


@dataclass(frozen=True)
class PolicyVerdict:
    """One policy: the verdict on its whole requirement, and the rank of its overall mean."""

    policy: str
    mean: float | None
    verdict: str
    place: int


def cell_rows(
    problem: Problem, spec: Spec, state: State, cells: Cells, weight: Weight
) -> tuple[CellVerdict, ...]:
    family, region = problem.family, spec.region
    verdict, _ = reconciled(region.kind, cells.verdict, weight.policies)

    def user(unit: float) -> float | None:
        return family.low + family.width * float(unit) if math.isfinite(unit) else None

    return tuple(
        CellVerdict(
            policy=problem.policies[k],
            group=problem.group_names[g],
            n=int(state.n[g, k]),
            mean=user(state.s[g, k] / state.n[g, k]) if state.n[g, k] > 0 else None,
            low=user(cells.low[g, k]),
            high=user(cells.high[g, k]),
            verdict=WORDS[verdict[g, k]],
            floor=user(region.lo[g, k]),
            cap=user(region.hi[g, k]),
        )
        for k in range(len(problem.policies))
        for g in range(len(problem.groups))
    )


def policy_rows(
    problem: Problem, spec: Spec, state: State, cells: Cells, weight: Weight
) -> tuple[PolicyVerdict, ...]:
    family = problem.family
    means = np.where(state.n > 0, state.s / np.maximum(state.n, 1.0), 0.0)
    scores = problem.scores((family.low + family.width * means).T)
    known = ((state.n > 0) | (spec.shares[:, None] == 0)).all(axis=0)
    order = sorted(range(len(scores)), key=lambda k: (not known[k], -scores[k], k))
    _, verdict = reconciled(spec.region.kind, cells.verdict, weight.policies)
    return tuple(
        PolicyVerdict(name, float(scores[k]) if known[k] else None, WORDS[verdict[k]], order.index(k) + 1)
        for k, name in enumerate(problem.policies)
    )


def coverage(spec: Spec) -> float:
    """Return the coverage of the intervals (see `procedure.intervals`): nominal unless certified."""
    each = math.exp(-threshold(spec))  # the probability that an end at the threshold ever misses
    bounds = (np.isfinite(spec.region.lo).sum(axis=0) + np.isfinite(spec.region.hi).sum(axis=0)).min()
    one_sided = np.isfinite(spec.region.lo).all() != np.isfinite(spec.region.hi).all()
    return float(1.0 - each * (1.0 + 1.0 / bounds if one_sided and bounds else 2.0))
