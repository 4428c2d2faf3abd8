"""Verdict: may we commit to one of these policies, by the data we already have?

    verdict = judge(problem, frame, delta=0.05)
    verdict.answer, verdict.decided, verdict.cells, verdict.more

Three states everywhere: met, failed, undecided. Nothing here contradicts the stopping rule: the verdicts, the
intervals and the decision are the rule's own evidence against the rule's own levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.model.problem import Problem
from evenhand.model.requirements import Floors
from evenhand.procedure.outcome_order import depends_on_order, refuse_sorted
from evenhand.procedure.spec import Procedure, Spec, compile_spec, is_unproven
from evenhand.procedure.state import NONE, State
from evenhand.result import Result
from evenhand.verdicts.apply_rule import copied, judge_cells, weigh
from evenhand.verdicts.counts import ready
from evenhand.verdicts.fixed_sample import judge_fixed
from evenhand.verdicts.forecast import forecast, nothing_more
from evenhand.verdicts.forecast_statement import NOT_ASKED, RUNS, SEED, Forecast
from evenhand.verdicts.read_data import read
from evenhand.verdicts.rows import CellVerdict, PolicyVerdict, cell_rows, coverage, policy_rows
from evenhand.verdicts.sentences import piece_in_words, sentences
from evenhand.verdicts.what_if import Alternative, alternatives, delta_needed, fixed_delta_needed

Array = NDArray[np.float64]

WITHOUT_PROOF = "by kaufmann-koolen, which proves nothing where the variance is unknown"
CLAIMS = {
    "certified": "certified",
    "kaufmann-koolen": "certified",
    "stylised": "by a heuristic",
    "calibrated": "calibrated by simulation",
    "budget": "the best estimate at the budget, without a guarantee",
}


@dataclass(frozen=True, repr=False)
class Verdict(Result):
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
    exact: bool = False  # all there is was looked at: the means are known, not estimated
    forecast: Forecast = field(default_factory=lambda: Forecast(0, why_none=NOT_ASKED))
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
    def more(self) -> Mapping[float, int | None]:
        """Further samples by which the decision is made with this chance; None where that is not known."""
        return self.forecast.more

    @property
    def next(self) -> Array | None:
        """Where to take further samples, K x L shares; zeros when decided, None where it is not known."""
        return None if self.forecast.next is None else np.array(self.forecast.next)

    @property
    def claim(self) -> str:
        """What may be said of the decision, and at which risk."""
        if self.exact:
            return "everything was evaluated"
        said = "as one look at a fixed sample" if self.fixed else CLAIMS[self.procedure.stopping_name]
        if not self.fixed and is_unproven(self.problem, self.procedure):
            return WITHOUT_PROOF
        return said if said == CLAIMS["budget"] else f"{said} at risk {100 * self.procedure.delta:g}%"

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
            **self.forecast.to_dict(),
            "next": None if self.forecast.next is None else [list(row) for row in self.forecast.next],
            "delta": self.procedure.delta,
            "delta_needed": self.delta_needed,
            "alternatives": [vars(alternative) for alternative in self.alternatives],
            "stopping": self.procedure.stopping_name,
            "fixed_sample": self.fixed,
            "exact": self.exact,
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
    replications: int = RUNS,
    seed: int = SEED,
) -> Verdict:
    """Judge data already collected: a CSV or Parquet file, or a frame, of outcomes or of counts.

    `fixed` treats them as a sample whose size in every cell was fixed before any outcome was seen, looked at
    once. `replications` continued runs make the forecast of further samples; 0 leaves it out.
    """
    chosen = procedure or Procedure()
    if delta is not None:
        chosen = replace(chosen, delta=delta)
    spec = compile_spec(problem, chosen, recorded=fixed)  # a fixed sample asks nothing of the stopping rule
    found = read(problem, data, missing, columns)
    if depends_on_order(problem, chosen) and not fixed:
        refuse_sorted(problem, found.order)
    state = ready(spec, found.state)
    verdict = judge_state(problem, chosen, state, fixed=fixed, replications=replications, seed=seed)
    return replace(verdict, rows=found.rows, missing=found.missing)


def judge_state(
    problem: Problem,
    procedure: Procedure,
    state: State,
    *,
    fixed: bool = False,
    replications: int = RUNS,
    seed: int = SEED,
    ahead: Forecast | None = None,
) -> Verdict:
    """Judge a state, as a live experiment or a simulation holds it. The state is not changed.

    `ahead` is the forecast where there is one already. An experiment that was begun with a pair of rule and
    family that is refused today is judged, and said to have no guarantee.
    """
    spec = compile_spec(problem, procedure, recorded=True)
    state = copied(state)
    cells, weight = (
        judge_fixed(problem, spec, state) if fixed else (judge_cells(spec, state), weigh(spec, state))
    )
    if ahead is None:
        ahead = _forecast(problem, spec, state, weight.decided, fixed, replications, seed)
    return Verdict(
        problem=problem,
        procedure=procedure,
        cells=cell_rows(problem, spec, state, cells, weight),
        policies=policy_rows(problem, spec, state, cells, weight),
        decided=weight.decided,
        leader=None if weight.leader == NONE else problem.policies[weight.leader],
        evidence=weight.evidence,
        needed=weight.needed,
        weakest=piece_in_words(problem, weight.leader, weight.piece),
        coverage=coverage(spec),
        fixed=fixed,
        forecast=ahead,
        delta_needed=fixed_delta_needed(problem, spec, state, weight)
        if fixed
        else delta_needed(spec, weight),
        alternatives=alternatives(problem, procedure, state, cells, fixed),
    )


def _forecast(
    problem: Problem, spec: Spec, state: State, decided: bool, fixed: bool, replications: int, seed: int
) -> Forecast:
    """The forecast, or why there is none."""
    samples = int(state.n.sum())
    if decided:
        return nothing_more(problem, samples)
    if fixed:
        return Forecast(samples, why_none="one look at a fixed sample is not continued")
    if replications == 0:
        return Forecast(samples, why_none=NOT_ASKED)
    return forecast(problem, spec, state, replications, seed)
