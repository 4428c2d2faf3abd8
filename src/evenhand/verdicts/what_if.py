"""What the same data would decide at another risk or under another bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from evenhand.model.problem import Problem
from evenhand.model.requirements import Caps, Constraint, Floors, Gap, Ratio
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.spec import CERTIFIED, STYLISED, Procedure, Spec
from evenhand.procedure.state import NONE, State
from evenhand.verdicts.apply_rule import CellVerdicts, RuleResult
from evenhand.verdicts.fixed_sample import apply_fixed_rule

OTHER_BOUNDS = 9  # number of other floors (caps, gaps, ratios) that are tried
ROUNDS, CLOSE = 20, 1e-3  # of the search for a fixed sample's risk, in nats of evidence
LOWEST = -600.0  # logarithm of the smallest risk that is named


@dataclass(frozen=True)
class Alternative:
    """The decision of the same data under another bound."""

    bound: float
    answer: str | None
    decided: bool


def delta_needed(spec: Spec, rule_result: RuleResult) -> float | None:
    """Return the risk at which the evidence would suffice; None where it is not a valid risk."""
    if spec.stopping not in (CERTIFIED, STYLISED):
        return None  # the threshold does not grow by ln(1 / delta)
    return _risk(spec.delta, rule_result)


def fixed_delta_needed(problem: Problem, spec: Spec, state: State, rule_result: RuleResult) -> float | None:
    """Return the same for a fixed sample that is judged once, whose evidence depends on the risk a little."""
    risk: float | None = spec.delta
    for _ in range(ROUNDS):
        if risk is None or abs(rule_result.needed - rule_result.evidence) < CLOSE:
            break
        risk = _risk(risk, rule_result)
        if risk is not None:
            rule_result = apply_fixed_rule(problem, spec._replace(delta=risk), state)
    return risk


def _risk(delta: float, rule_result: RuleResult) -> float | None:
    """Return the risk at which this evidence would suffice, if it were the same at every risk."""
    if rule_result.evidence <= 0:
        return None
    log_risk = math.log(delta) + rule_result.needed - rule_result.evidence
    return math.exp(max(log_risk, LOWEST)) if log_risk < math.log(0.5) else None


def alternatives(
    problem: Problem,
    procedure: Procedure,
    state: State,
    cells: CellVerdicts,
    decide: Callable[[Problem, Spec], RuleResult],
) -> tuple[Alternative, ...]:
    """Return the decision under this and other bounds, for requirements that are one number."""
    found = []
    for bound, constraint in _other_bounds(problem, cells, state):
        other = replace(problem, constraint=constraint)
        spec = compile_spec(other, procedure, recorded=True)
        rule_result = decide(other, spec)
        named = rule_result.decided and rule_result.leader != NONE
        found.append(
            Alternative(bound, problem.policies[rule_result.leader] if named else None, rule_result.decided)
        )
    return tuple(found)


def _other_bounds(problem: Problem, cells: CellVerdicts, state: State) -> list[tuple[float, Constraint]]:
    """Return the bound and a few others around it, within the range of the intervals."""
    constraint, family = problem.constraint, problem.family
    if problem.goal == "screen" or problem.control is not None:
        return []  # there is no answer to compare, or the bound is not a number
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
    grid = {asked, *(float(f"{x:.3g}") for x in np.linspace(ends[0], ends[1], OTHER_BOUNDS))}
    return [(x, make(x)) for x in sorted(grid) if low < x < high]  # type: ignore[call-arg]
