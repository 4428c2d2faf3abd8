"""Verdict: may we commit to one of these policies, by the data we already have?

    verdict = judge(problem, frame, delta=0.05)
    verdict.answer, verdict.decided, verdict.cells, verdict.more

Three states everywhere: met, failed, undecided. Nothing here contradicts the stopping rule: the verdicts, the
intervals and the decision are the rule's own evidence against the rule's own levels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.judge.fixed import judge_fixed
from evenhand.judge.forecast import Forecast, forecast
from evenhand.judge.read import read
from evenhand.judge.tally import ready
from evenhand.judge.weigh import Cells, Weight, judge_cells, weigh
from evenhand.judge.words import piece_in_words, sentences
from evenhand.model.constraints import Caps, Constraint, Floors, Gap, Ratio
from evenhand.model.problem import Problem
from evenhand.model.region import BOX, PENALTY, QUOTA
from evenhand.procedure.spec import Procedure, Spec, compile_spec
from evenhand.procedure.state import NONE, TOLD, State
from evenhand.procedure.stopping.cells import threshold

Array = NDArray[np.float64]

WORDS = ("undecided", "met", "failed")  # by the codes of `procedure.verdicts`
CLAIMS = {
    "certified": "certified",
    "kaufmann-koolen": "certified",
    "stylised": "by a heuristic",
    "calibrated": "calibrated by simulation",
    "budget": "by the best estimate at the budget, no claim",
}
OTHER_BOUNDS = 9  # so many other floors (caps, gaps, ratios) are tried


@dataclass(frozen=True)
class CellVerdict:
    """One policy in one group; where a requirement ties groups together, with its policy's verdict."""

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
    """One policy: does it meet its whole requirement, and which place does its overall mean take?"""

    policy: str
    mean: float | None
    verdict: str
    place: int


@dataclass(frozen=True)
class Alternative:
    """What the same data would decide under another bound."""

    bound: float
    answer: str | None
    decided: bool


@dataclass(frozen=True)
class Verdict:
    """What the data say, and what they do not say yet."""

    problem: Problem
    procedure: Procedure
    cells: tuple[CellVerdict, ...]
    policies: tuple[PolicyVerdict, ...]
    decided: bool
    leader: str | None  # the answer if decided; by the estimates, otherwise
    evidence: float
    needed: float
    weakest: str
    coverage: float  # every interval holds its true mean at least this often, however often one looks
    fixed: bool = False  # judged as data of a size fixed beforehand, looked at once
    forecast: Forecast | None = None
    delta_needed: float | None = None  # the risk at which these data would just have decided
    alternatives: tuple[Alternative, ...] = ()
    rows: int = 0
    missing: int = 0

    @property
    def answer(self) -> str | None:
        """The chosen policy; None both while undecided and when none meets the requirement: see `decided`."""
        return self.leader if self.decided else None

    @property
    def samples(self) -> int:
        return sum(cell.n for cell in self.cells)

    @property
    def progress(self) -> float:
        """The share of the evidence needed that there is, between 0 and 1."""
        return min(max(self.evidence / self.needed, 0.0), 1.0)

    @property
    def more(self) -> dict[float, int] | None:
        """Further samples by which the decision is made with this chance."""
        return None if self.forecast is None else self.forecast.more

    @property
    def horizon(self) -> int:
        return 0 if self.forecast is None else self.forecast.horizon

    @property
    def next(self) -> Array | None:
        """Where to take further samples, K x L shares; zeros when decided."""
        return None if self.forecast is None else np.array(self.forecast.next)

    @property
    def claim(self) -> str:
        """What may be said of the decision."""
        if self.fixed:
            return "as one look at a fixed sample"
        return CLAIMS[self.procedure.stopping_name]

    @property
    def floor_met(self) -> tuple[str, float] | None:
        """Who is certified for the largest floor in every group, and for which."""
        found: list[tuple[float, str]] = []
        for policy in self.policies:
            lows = [cell.low for cell in self.cells if cell.policy == policy.policy]
            if all(low is not None for low in lows):
                found.append((min(low for low in lows if low is not None), policy.policy))
        if not isinstance(self.problem.constraint, Floors) or not found:
            return None
        floor, name = max(found)
        return name, floor

    def words(self) -> list[str]:
        """The verdict in sentences, the one to act on first."""
        return sentences(self)

    def to_dict(self) -> dict[str, Any]:
        """What `evenhand judge --json` prints."""
        return {
            "answer": self.answer,
            "decided": self.decided,
            "leader": self.leader,
            "cells": [vars(cell) for cell in self.cells],
            "policies": [vars(policy) for policy in self.policies],
            "evidence": self.evidence,
            "needed": self.needed,
            "weakest": self.weakest,
            "more": None if self.more is None else {str(chance): n for chance, n in self.more.items()},
            "unfinished": None if self.forecast is None else self.forecast.unfinished,
            "horizon": None if self.forecast is None else self.forecast.horizon,
            "next": None if self.forecast is None else [list(row) for row in self.forecast.next],
            "delta": self.procedure.delta,
            "delta_needed": self.delta_needed,
            "alternatives": [vars(alternative) for alternative in self.alternatives],
            "stopping": self.procedure.stopping_name,
            "fixed_sample": self.fixed,
            "coverage": self.coverage,
            "samples": self.samples,
            "rows": self.rows,
            "missing": self.missing,
            "words": self.words(),
        }


def judge(
    problem: Problem,
    data: Any,
    delta: float | None = None,
    procedure: Procedure | None = None,
    *,
    missing: str = "fail",
    columns: dict[str, str] | None = None,
    fixed: bool = False,
    replications: int = 200,
    seed: int = 0,
) -> Verdict:
    """Judge data already collected: a CSV or Parquet file, or a frame, of outcomes or of counts.

    `fixed` treats them as a sample of a size fixed beforehand, looked at once. `replications` continued runs
    make the forecast of further samples; 0 leaves it out.
    """
    found = read(problem, data, missing, columns)
    chosen = procedure or Procedure()
    if delta is not None:
        chosen = replace(chosen, delta=delta)
    state = ready(compile_spec(problem, chosen), found.state)
    verdict = judge_state(problem, chosen, state, fixed=fixed, replications=replications, seed=seed)
    return replace(verdict, rows=found.rows, missing=found.missing)


def judge_state(
    problem: Problem,
    procedure: Procedure,
    state: State,
    *,
    fixed: bool = False,
    replications: int = 200,
    seed: int = 0,
) -> Verdict:
    """Judge a state, as a live experiment or a simulation holds it. The state is not changed."""
    spec = compile_spec(problem, procedure)
    state = _copied(state)
    cells, weight = (
        judge_fixed(problem, spec, state) if fixed else (judge_cells(spec, state), weigh(spec, state))
    )
    ahead = None
    if replications > 0 and not fixed:
        ahead = (
            _nothing_more(problem) if weight.decided else forecast(problem, spec, state, replications, seed)
        )
    return Verdict(
        problem=problem,
        procedure=procedure,
        cells=_cell_rows(problem, spec, state, cells, weight),
        policies=_policy_rows(problem, spec, state, cells, weight),
        decided=weight.decided,
        leader=None if weight.leader == NONE else problem.policies[weight.leader],
        evidence=weight.evidence,
        needed=weight.needed,
        weakest=piece_in_words(problem, weight.leader, weight.piece),
        coverage=_coverage(spec),
        fixed=fixed,
        forecast=ahead,
        delta_needed=_delta_needed(spec, weight),
        alternatives=_alternatives(problem, procedure, state, cells, fixed),
    )


def _cell_rows(
    problem: Problem, spec: Spec, state: State, cells: Cells, weight: Weight
) -> tuple[CellVerdict, ...]:
    family, region = problem.family, spec.region
    own = region.kind in (BOX, QUOTA, PENALTY)

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
            verdict=WORDS[cells.verdict[g, k] if own else weight.policies[k]],
            floor=user(region.lo[g, k]),
            cap=user(region.hi[g, k]),
        )
        for k in range(len(problem.policies))
        for g in range(len(problem.groups))
    )


def _policy_rows(
    problem: Problem, spec: Spec, state: State, cells: Cells, weight: Weight
) -> tuple[PolicyVerdict, ...]:
    family = problem.family
    means = np.where(state.n > 0, state.s / np.maximum(state.n, 1.0), 0.0)
    scores = problem.scores((family.low + family.width * means).T)
    known = ((state.n > 0) | (spec.shares[:, None] == 0)).all(axis=0)
    order = sorted(range(len(scores)), key=lambda k: (not known[k], -scores[k], k))
    soft = spec.region.kind == PENALTY
    rows = []
    for k, name in enumerate(problem.policies):
        stands = _softly(cells, k) if soft else int(weight.policies[k])
        rows.append(
            PolicyVerdict(name, float(scores[k]) if known[k] else None, WORDS[stands], order.index(k) + 1)
        )
    return tuple(rows)


def _softly(cells: Cells, k: int) -> int:
    """A penalty keeps nobody out; the verdict then says how the policy stands to its floors."""
    mine = cells.verdict[:, k]
    if (mine == WORDS.index("failed")).any():
        return WORDS.index("failed")
    return WORDS.index("met") if (mine == WORDS.index("met")).all() else WORDS.index("undecided")


def _coverage(spec: Spec) -> float:
    """What the levels of the ends (see `procedure.verdicts`) leave: nominal unless certified."""
    each = math.exp(-threshold(spec))  # the chance that an end at the threshold itself ever misses
    bounds = (np.isfinite(spec.region.lo).sum(axis=0) + np.isfinite(spec.region.hi).sum(axis=0)).min()
    one_sided = np.isfinite(spec.region.lo).all() != np.isfinite(spec.region.hi).all()
    return float(1.0 - each * (1.0 + 1.0 / bounds if one_sided and bounds else 2.0))


def _delta_needed(spec: Spec, weight: Weight) -> float | None:
    """The risk at which the evidence would just do, where it is a risk anybody may ask for."""
    risk = spec.delta * math.exp(weight.needed - weight.evidence) if weight.evidence > 0 else math.inf
    return risk if risk < 0.5 else None


def _nothing_more(problem: Problem) -> Forecast:
    none = tuple(tuple(0.0 for _ in problem.groups) for _ in problem.policies)
    return Forecast(dict.fromkeys((0.5, 0.7, 0.8, 0.9), 0), 0.0, none, 0)


def _alternatives(
    problem: Problem, procedure: Procedure, state: State, cells: Cells, fixed: bool
) -> tuple[Alternative, ...]:
    """The decision under other bounds, for requirements that are one number."""
    found = []
    for bound, constraint in _other_bounds(problem, cells, state):
        other = Problem(
            problem.policies,
            problem.groups,
            problem.family,
            constraint,
            problem.mode,
            problem.arrivals,
            problem.costs,
        )
        spec = compile_spec(other, procedure)
        copy = _copied(state)
        weight = judge_fixed(other, spec, copy)[1] if fixed else weigh(spec, copy)
        named = weight.decided and weight.leader != NONE
        found.append(Alternative(bound, problem.policies[weight.leader] if named else None, weight.decided))
    return tuple(found)


def _other_bounds(problem: Problem, cells: Cells, state: State) -> list[tuple[float, Constraint]]:
    """A few bounds around the one asked for, where data can tell them apart."""
    constraint, family = problem.constraint, problem.family
    seen = np.isfinite(cells.low) & np.isfinite(cells.high) & (state.n > 0)
    if not seen.any():
        return []
    if isinstance(constraint, (Floors, Caps)):
        asked = constraint.at_least if isinstance(constraint, Floors) else constraint.at_most
        ends = family.low + family.width * np.array([cells.low[seen].min(), cells.high[seen].max()])
        make: type[Constraint] = type(constraint)
        low, high = family.domain
    elif isinstance(constraint, (Gap, Ratio)):
        asked = constraint.at_most if isinstance(constraint, Gap) else constraint.at_least
        ends = np.array([0.5 * asked, 2.0 * asked])
        make, low, high = type(constraint), 0.0, 1.0 if isinstance(constraint, Ratio) else math.inf
    else:
        return []
    if not isinstance(asked, float):
        return []
    grid = [float(f"{x:.3g}") for x in np.linspace(ends[0], ends[1], OTHER_BOUNDS)]
    return [(x, make(x)) for x in dict.fromkeys(grid) if low < x < high]  # type: ignore[call-arg]


def _copied(state: State) -> State:
    tables: list[Any] = [np.array(part) for part in state]
    copy = State(*tables)
    copy.clock[TOLD] = int(copy.n.sum())
    return copy
