"""Guard-rails on items that several policies answered.

Their bounds hold for each policy alone, so no pairs of policies are needed. In a pool the outcomes of a
guard-rail are drawn without replacement like those of the outcome, and have bets of their own. A policy fails
by the average over the conditions of all metrics, as in `procedure.evidence.guardrails`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evenhand.model.problem import Problem
from evenhand.model.result_rows import GuardrailRows
from evenhand.procedure.evidence import guardrails as guardrail_evidence
from evenhand.procedure.guardrail_rows import guardrail_rows, metric_spec
from evenhand.procedure.log_space import NOTHING
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, new_work
from evenhand.theory.metrics import METRIC
from evenhand.verdicts.bounded_cells import BoundedCells, PoolCells
from evenhand.verdicts.pools import pool_bets

if TYPE_CHECKING:
    from evenhand.verdicts.shared_items import Comparisons

Ints = NDArray[np.int64]


def bounds_of_guardrails(problem: Problem, without: int | None = None) -> Ints:
    """Return how many bounds every policy has in the guard-rails, but for one of them."""
    total = np.zeros(len(problem.policies), dtype=np.int64)
    for j, standard in enumerate(problem.standards[1:]):
        if j != without:
            region = standard.region
            total += np.isfinite(region.lo).sum(axis=0) + np.isfinite(region.hi).sum(axis=0)
    return total


def pool_guardrails(problem: Problem, spec: Spec, compare: Comparisons) -> tuple[PoolCells, ...]:
    """Return the evidence of every cell of a pool, for each guard-rail."""
    region, found = spec.region, []
    primary = np.isfinite(region.lo).sum(axis=0) + np.isfinite(region.hi).sum(axis=0)
    for j in range(len(problem.guardrails)):
        bets = pool_bets(np.array(compare.pool), compare.items.of_guardrail(j))
        others = primary + bounds_of_guardrails(problem, without=j)
        found.append(PoolCells(metric_spec(problem, spec, j), bets, others))
    return tuple(found)


def conditions_of_all(
    problem: Problem, spec: Spec, state: State, compare: Comparisons, own: BoundedCells
) -> tuple[list[float], list[tuple[float, int]]]:
    """Return, per policy, the evidence that it fails any metric, and that it meets its weakest condition.

    `own` is the evidence of the outcome by bets.
    """
    fails, meets = own.conditions()
    if compare.pool is None:
        return _with_counts(spec, state, own, fails, meets)
    parts: list[BoundedCells] = [own]
    values = [fails]
    for j, cells in enumerate(compare.guardrails(problem, spec)):
        more, kept = cells.conditions()
        meets = [
            min(one, (value, (j + 1) * METRIC + which))
            for one, (value, which) in zip(meets, kept, strict=True)
        ]
        parts.append(cells)
        values.append(more)
    return [_average([v[k] for v in values], [p.bounds(k) for p in parts]) for k in range(len(fails))], meets


def _with_counts(
    spec: Spec, state: State, own: BoundedCells, fails: list[float], meets: list[tuple[float, int]]
) -> tuple[list[float], list[tuple[float, int]]]:
    """Return the same with the evidence of guard-rails from their counts."""
    work = new_work(spec)
    for k in range(len(fails)):
        total, atoms = guardrail_evidence.broken(spec, state, work, k, -math.inf, 0)
        mean = float(total) - math.log(max(int(atoms), 1))
        fails[k] = _average([fails[k], mean], [own.bounds(k), int(atoms)])
        least, which = guardrail_evidence.kept(spec, state, work, k, *meets[k])
        meets[k] = float(least), int(which)
    return fails, meets


def _average(logs: list[float], counts: list[int]) -> float:
    """Return the log of the mean e-value of all conditions, given the log means and sizes of parts."""
    parts = [log + math.log(count) for log, count in zip(logs, counts, strict=True) if count > 0]
    if not parts:
        return NOTHING
    return max(float(np.logaddexp.reduce(parts)) - math.log(sum(counts)), NOTHING)


def rows_of_guardrails(
    problem: Problem, spec: Spec, state: State, compare: Comparisons
) -> tuple[GuardrailRows, ...]:
    """Return the cells of every guard-rail, by bets in a pool and from their counts otherwise."""
    if compare.pool is None:
        return guardrail_rows(problem, spec, state)
    judged = [cells.cells() for cells in compare.guardrails(problem, spec)]
    return guardrail_rows(
        problem, spec, state, judged=lambda j: (judged[j].verdict, judged[j].low, judged[j].high)
    )
