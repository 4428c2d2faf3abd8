"""Judge data that are already collected: which policies meet the requirement, and is one the answer?

    verdict = judge(problem, frame, delta=0.05)
    verdict.answer, verdict.decided, verdict.cells, verdict.more

A verdict is met, failed or undecided. Verdicts, intervals and the decision compare the evidence of the
stopping rule with its thresholds, so they never contradict it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, shown
from evenhand.model.argument_checks import flag, optional, whole_number
from evenhand.model.frozen_dict import FrozenDict
from evenhand.model.problem import Problem
from evenhand.model.requirements import Floors, Penalty
from evenhand.model.result_rows import CellRow, Classes, GuardrailRows, PolicyRow, classes_of
from evenhand.model.study_like import problem_of
from evenhand.procedure.compile_spec import compile_spec, with_linear_bets, with_mixture
from evenhand.procedure.guardrail_rows import guardrail_problem, guardrail_rows
from evenhand.procedure.intervals import spent_on
from evenhand.procedure.outcome_order import (
    LINEAR,
    ORDER_FREE,
    PAIRED,
    depends_on_order,
    evidence_method,
    refuse_sorted,
)
from evenhand.procedure.spec import Procedure, Spec, is_unproven
from evenhand.procedure.state import NONE, State
from evenhand.result import Result
from evenhand.study import Study
from evenhand.verdicts.apply_rule import (
    CellVerdicts,
    RuleResult,
    apply_stopping_rule,
    copied,
    coverage,
    judge_cells,
    result_rows,
)
from evenhand.verdicts.counts import Data, ready
from evenhand.verdicts.exhausted_pool import exact_guardrails, exact_verdict
from evenhand.verdicts.fixed_sample import apply_fixed_rule, judge_fixed, judge_fixed_guardrails
from evenhand.verdicts.forecast import forecast, nothing_more
from evenhand.verdicts.forecast_statement import NOT_ASKED, NOT_PAIRED, RUNS, SEED, Forecast
from evenhand.verdicts.item_guardrails import rows_of_guardrails
from evenhand.verdicts.items import Items
from evenhand.verdicts.ordered_rows import folded
from evenhand.verdicts.pools import checked_pool, is_exhausted, refuse_what_has_no_pool
from evenhand.verdicts.read_data import DataSource, read, source_of
from evenhand.verdicts.shared_items import (
    POOLED,
    Comparisons,
    judge_items,
    needs_pairs,
    refuse_sorted_items,
    refuse_what_cannot_be_paired,
)
from evenhand.verdicts.verdict_sentences import alternative_in_words, sentences
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
    """The verdict on data: the decision, the verdict on every cell and policy, and the evidence.

    `judge` returns one; so do evaluations, in `verdict`.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.5))
    >>> verdict = eh.judge(problem, {"a": {"x": [1] * 60}, "b": {"x": [0] * 60}}, replications=0)
    >>> verdict.answer, [policy.verdict for policy in verdict.policies]
    ('a', ['met', 'failed'])
    """

    problem: Problem
    procedure: Procedure
    cells: tuple[CellRow, ...]
    policies: tuple[PolicyRow, ...]
    decided: bool
    leader: str | None  # the answer if decided; otherwise the best by the estimates
    evidence: float
    needed: float
    weakest: str
    coverage: float  # the probability that an interval holds its true mean, at any number of looks
    fixed: bool = False  # judged as data of a size fixed beforehand, looked at once
    exact: bool = False  # everything was evaluated: the means are known, not estimated
    forecast: Forecast = field(default_factory=lambda: Forecast(0, why_none=NOT_ASKED))
    delta_needed: float | None = None  # the risk at which these data would just have decided
    alternatives: tuple[Alternative, ...] = ()
    rows: int = 0
    missing: int = 0
    ordered: bool | str = False  # the rows are in the order of the outcomes, or sorted by this column
    method: str = ORDER_FREE  # the evidence that was used
    items: int | None = None  # number of items, where the data name them
    shared_items: int | None = None  # number of items that at least two policies answered
    repeated: int = 0  # rows that repeat an outcome of the same policy on the same item
    pool: Mapping[str, int] | None = None  # items of each group, where the verdict is about a pool
    spent: float | None = None  # what the samples have cost; None without costs
    guardrails: tuple[GuardrailRows, ...] = ()
    source: DataSource | None = field(default=None, compare=False)  # None if a procedure chose the samples

    def __post_init__(self) -> None:
        if self.pool is not None:
            object.__setattr__(self, "pool", FrozenDict(self.pool))

    @property
    def screens(self) -> bool:
        """Return whether every policy is classified, so that none is chosen."""
        return self.problem.goal == "screen"

    @property
    def classes(self) -> Classes:
        """Return the policies that are shown to meet the requirement, shown to fail it, and open."""
        excludes = bool(self.problem.guardrails) or not isinstance(self.problem.constraint, Penalty)
        return classes_of(self.policies, excludes=excludes)

    @property
    def allowed(self) -> tuple[str, ...]:
        """Return the policies that are shown to meet the requirement."""
        return self.classes.allowed

    @property
    def failed(self) -> tuple[str, ...]:
        """Return the policies that are shown not to meet the requirement."""
        return self.classes.failed

    @property
    def open(self) -> tuple[str, ...]:
        """Return the policies of which neither is shown."""
        return self.classes.open

    @property
    def answer(self) -> str | None:
        """Return the chosen policy; None while undecided and for "none of them": see `decided`.

        None with the goal "screen", which chooses none: see `allowed`.
        """
        return self.leader if self.decided else None

    @property
    def samples(self) -> int:
        """Return the number of outcomes in all cells."""
        return sum(cell.n for cell in self.cells)

    @property
    def progress(self) -> float:
        """Return the evidence as a share of what is needed, between 0 and 1."""
        return min(max(self.evidence / self.needed, 0.0), 1.0)

    @property
    def more(self) -> Mapping[float, int | None]:
        """Return the further samples until the decision, by probability; None where that is not known."""
        return self.forecast.more

    @property
    def next(self) -> Array | None:
        """Return the shares of further samples, K x L; zeros when decided, None where they are not known."""
        return None if self.forecast.next is None else np.array(self.forecast.next)

    @property
    def claim(self) -> str:
        """Return what is claimed of the decision, and at which risk."""
        if self.exact:
            return "everything was evaluated"
        claim = "as one look at a fixed sample" if self.fixed else CLAIMS[self.procedure.stopping_name]
        if not self.fixed and is_unproven(self.problem, self.procedure):
            return WITHOUT_PROOF
        return claim if claim == CLAIMS["budget"] else f"{claim} at risk {100 * self.procedure.delta:g}%"

    @property
    def floor_met(self) -> tuple[str, float] | None:
        """Return the policy certified for the largest floor in every group, and that floor."""
        found: list[tuple[float, str]] = []
        for policy in self.policies:
            lows = [cell.low for cell in self.cells if cell.policy == policy.policy]
            if all(low is not None for low in lows):
                found.append((min(low for low in lows if low is not None), policy.policy))
        if not isinstance(self.problem.constraint, Floors) or self.problem.control or not found:
            return None
        floor, name = max(found)
        return name, floor

    def words(self) -> list[str]:
        """Return the verdict in sentences, the most important first."""
        return sentences(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain names and numbers, as `evenhand judge --json` prints them."""
        return {
            "answer": self.answer,
            "decided": self.decided,
            "leader": self.leader,
            "allowed": list(self.allowed),
            "failed": list(self.failed),
            "open": list(self.open),
            "cells": [cell.to_dict() for cell in self.cells],
            "policies": [policy.to_dict() for policy in self.policies],
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
            "method": self.method,
            "ordered": self.ordered,
            "items": self.items,
            "shared_items": self.shared_items,
            "pool": None if self.pool is None else dict(self.pool),
            "samples": self.samples,
            "spent": self.spent,
            "rows": self.rows,
            "missing": self.missing,
            "words": self.words(),
            **({"guardrails": [rows.to_dict() for rows in self.guardrails]} if self.guardrails else {}),
        }


def judge(
    problem: Problem | Study,
    data: Any,
    delta: float | None = None,
    procedure: Procedure | None = None,
    *,
    missing: str = "fail",
    columns: dict[str, str] | None = None,
    table: str | None = None,
    pool: Mapping[str, int] | str | None = None,
    ordered: bool | str = False,
    fixed: bool = False,
    replications: int = RUNS,
    seed: int = SEED,
) -> Verdict:
    """Judge data that are already collected.

    Parameters
    ----------
    problem : Problem or Study
        The question; a study's own procedure is taken unless another is given.
    data : path, address, frame or dict
        CSV, Parquet or JSON lines (a file, a folder, or a pattern such as "outcomes/*.parquet"), the address
        of a database, a pandas, polars or arrow frame, or outcomes by policy and group. Rows are single
        outcomes (policy, group, outcome) or counts (policy, group, n, and mean or successes).
        True and False are outcomes. With a column `item`, policies are compared on the items that both
        answered; who answers an item must have been decided before any outcome on it was seen.
    delta : float, optional
        The risk of a wrong answer; that of the procedure unless given.
    procedure : Procedure, optional
        The stopping rule to judge by; the default procedure unless given.
    missing : {"fail", "drop"}
        Refuse rows that miss a value, or leave them out and count them.
    columns : dict, optional
        The names of columns in the data, by ours: {"group": "age class"}.
    table : str, optional
        The table or view that holds the outcomes, where the data are the address of a database.
    pool : dict or "data", optional
        The number of items of each group, {"young": 800, "old": 400}, or "data" for all items that the data
        name: the verdict is then about the means of this pool, from which items were drawn at random, each at
        most once. Without it the verdict is about the population from which the items come.
    ordered : bool or str
        Whether rows are in the order in which their outcomes came; or the name of a column that gives this
        order, numbers or times: rows are sorted by it, and those with equal values keep their order. Policies
        are then compared by linear bets, as in a live experiment, where the family and the requirement allow.
    fixed : bool
        Whether the size of every cell was fixed before any outcome was seen, and this is the only look.
    replications : int
        Runs continued from the data to forecast further samples; 0 leaves the forecast out.
    seed : int
        The seed of these runs.

    Returns
    -------
    Verdict
        The decision, the verdict on every cell and policy, the evidence and the forecast.

    Raises
    ------
    BadInput
        If the data cannot be read, or a row does not fit the problem; the message names the row.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.5))
    >>> verdict = eh.judge(problem, {"a": {"x": [1] * 60}, "b": {"x": [0] * 60}}, replications=0)
    >>> verdict.words()[0]
    'a is the answer (certified at risk 5%): it has the best overall mean of all that meet the requirement.'
    """
    given = optional(procedure, Procedure, "procedure")
    chosen = given or (problem.procedure if isinstance(problem, Study) else Procedure())
    flag(fixed, "fixed")
    whole_number(replications, "replications", 0)
    whole_number(seed, "seed", 0)
    if delta is not None:
        chosen = replace(chosen, delta=delta)
    names = (problem.title, problem.file) if isinstance(problem, Study) else ("", "")
    problem = problem_of(problem)
    asked, by_order = _checked_order(ordered, fixed), chosen
    # without an order of observation bets that use the order do not serve
    chosen = with_mixture(problem, replace(chosen, items=None))
    spec = compile_spec(problem, chosen, recorded=fixed)  # a fixed sample does not use the stopping rule
    found = read(problem, data, missing, columns, optional(table, str, "table"), asked)
    items = found.items
    sizes = None if pool is None else checked_pool(problem, pool, items)
    if sizes is not None:
        refuse_what_has_no_pool(problem, spec)
    if items is not None and (sizes is not None or needs_pairs(problem, items)):
        _refuse_sorted(problem, chosen, found, fixed)
        refuse_what_cannot_be_paired(problem, chosen, fixed, sizes is not None)
        verdict = judge_pairs(problem, chosen, spec, ready(spec, found.state), items, sizes)
    else:
        state = found.state
        if found.in_order is not None:
            chosen = with_linear_bets(problem, by_order)
            spec = compile_spec(problem, chosen)
            state = folded(spec, found.in_order)
        _refuse_sorted(problem, chosen, found, fixed)
        state = ready(spec, state)
        verdict = judge_state(problem, chosen, state, fixed=fixed, replications=replications, seed=seed)
    if items is not None:
        verdict = replace(verdict, items=items.group.size, shared_items=items.shared, repeated=items.repeated)
    source = source_of(data, *names)
    return replace(verdict, rows=found.rows, missing=found.missing, ordered=asked, source=source)


def _checked_order(ordered: Any, fixed: bool) -> bool | str:
    """Return what is known of the order of the rows, or raise one sentence."""
    if not isinstance(ordered, (bool, str)) or ordered == "":
        raise BadInput(
            "ordered must be True, for rows in the order in which the outcomes came, or the name of a column "
            f"that gives this order; it is {shown(ordered)}."
        )
    if ordered and fixed:
        raise BadInput("a fixed sample is judged without its order; leave out one of ordered and fixed.")
    return ordered


def _refuse_sorted(problem: Problem, procedure: Procedure, found: Data, fixed: bool) -> None:
    """Refuse rows in which the outcomes of a cell are sorted by size, where the evidence uses their order."""
    if fixed:
        return
    if depends_on_order(problem, procedure):
        linear = evidence_method(problem, procedure) == LINEAR
        refuse_sorted(problem, found.order, "linear bets" if linear else None)
    for j, order in enumerate(found.rail_orders):
        alone = guardrail_problem(problem, j)
        if depends_on_order(alone, procedure):
            refuse_sorted(alone, order)


def judge_pairs(
    problem: Problem,
    procedure: Procedure,
    spec: Spec,
    state: State,
    items: Items,
    pool: Array | None,
    compare: Comparisons | None = None,
) -> Verdict:
    """Judge outcomes on items that several policies answered, by pairs; `pool`: items of each group.

    `compare`: comparisons that were made before, without items.
    """
    complete = pool is not None and is_exhausted(pool, state.n, state.rail_n)
    if not complete and compare is None:
        refuse_sorted_items(problem, items, pool is not None)
    state = copied(state)
    compare = Comparisons(spec, state, items, pool) if compare is None else compare
    cells, rule_result = judge_items(problem, spec, state, compare)
    samples = int(state.n.sum())
    ahead = nothing_more(problem, samples) if rule_result.decided else Forecast(samples, why_none=NOT_PAIRED)

    def decide(other: Problem, with_bound: Spec) -> RuleResult:
        return judge_items(other, with_bound, state, compare)[1]

    found = replace(
        _verdict(problem, procedure, spec, state, cells, rule_result, ahead, compare=compare),
        method=PAIRED if pool is None else POOLED,
        delta_needed=delta_needed(spec, rule_result),
        alternatives=alternatives(problem, procedure, state, cells, decide),
    )
    if pool is not None:
        found = replace(found, pool=dict(zip(problem.group_names, map(int, pool), strict=True)))
    if complete:
        sums = problem.family.low * state.n.T + problem.family.width * state.s.T
        found = exact_verdict(found, sums, np.array(state.n.T), exact_guardrails(problem, state))
    return found


def judge_state(
    problem: Problem,
    procedure: Procedure,
    state: State,
    *,
    fixed: bool = False,
    replications: int = RUNS,
    seed: int = SEED,
    ahead: Forecast | None = None,
    other_bounds: bool = True,
) -> Verdict:
    """Judge the state of a live experiment or a simulation; the state is not changed.

    `ahead` is a forecast that was made before. `other_bounds`: whether to decide under other bounds too,
    which takes up to ten times as long. An experiment that was begun with a pair of rule and family that is
    refused today is judged, and its verdict claims no guarantee.
    """
    spec = compile_spec(problem, procedure, recorded=True)
    state = copied(state)
    cells, rule_result = (
        judge_fixed(problem, spec, state)
        if fixed
        else (judge_cells(spec, state), apply_stopping_rule(spec, state))
    )
    if ahead is None:
        ahead = _forecast(problem, spec, state, rule_result.decided, fixed, replications, seed)
    found = _verdict(problem, procedure, spec, state, cells, rule_result, ahead, fixed)

    def decide(other: Problem, with_bound: Spec) -> RuleResult:
        return (
            apply_fixed_rule(other, with_bound, copied(state))
            if fixed
            else apply_stopping_rule(with_bound, copied(state))
        )

    return replace(
        found,
        fixed=fixed,
        method=evidence_method(problem, procedure),
        delta_needed=fixed_delta_needed(problem, spec, state, rule_result)
        if fixed
        else delta_needed(spec, rule_result),
        alternatives=alternatives(problem, procedure, state, cells, decide) if other_bounds else (),
    )


def _verdict(
    problem: Problem,
    procedure: Procedure,
    spec: Spec,
    state: State,
    cells: CellVerdicts,
    rule_result: RuleResult,
    ahead: Forecast,
    fixed: bool = False,
    compare: Comparisons | None = None,
) -> Verdict:
    """Return the verdict with the rows of all cells and policies."""
    of_cells, of_policies = result_rows(problem, spec, state, cells, rule_result)
    return Verdict(
        problem=problem,
        procedure=procedure,
        cells=of_cells,
        policies=of_policies,
        decided=rule_result.decided,
        leader=None if rule_result.leader == NONE else problem.policies[rule_result.leader],
        evidence=rule_result.evidence,
        needed=rule_result.needed,
        weakest=alternative_in_words(problem, rule_result.leader, rule_result.alternative),
        coverage=coverage(spec),
        forecast=ahead,
        spent=spent_on(problem, state),
        guardrails=_guardrails(problem, spec, state, fixed, compare),
    )


def _guardrails(
    problem: Problem, spec: Spec, state: State, fixed: bool, compare: Comparisons | None
) -> tuple[GuardrailRows, ...]:
    """Return the rows of guard-rails by the evidence that judges them."""
    if compare is not None:
        return rows_of_guardrails(problem, spec, state, compare)
    return (_fixed_guardrails if fixed else guardrail_rows)(problem, spec, state)


def _fixed_guardrails(problem: Problem, spec: Spec, state: State) -> tuple[GuardrailRows, ...]:
    """Return the rows of guard-rails of a fixed sample, from its own tests."""
    judged = judge_fixed_guardrails(problem, spec, state)
    return guardrail_rows(
        problem, spec, state, judged=lambda j: (judged[j].verdict, judged[j].low, judged[j].high)
    )


def _forecast(
    problem: Problem, spec: Spec, state: State, decided: bool, fixed: bool, replications: int, seed: int
) -> Forecast:
    """Return the forecast, or why there is none."""
    samples = int(state.n.sum())
    if decided:
        return nothing_more(problem, samples)
    if fixed:
        return Forecast(samples, why_none="one look at a fixed sample is not continued")
    if replications == 0:
        return Forecast(samples, why_none=NOT_ASKED)
    return forecast(problem, spec, state, replications, seed)
