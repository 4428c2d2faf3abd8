"""Requirements that involve several groups at once, at the estimated means: input of the floors figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.model.phrases import listed
from evenhand.model.problem import Problem
from evenhand.model.requirements import (
    All,
    Constraint,
    Dispersion,
    Floors,
    Gap,
    Penalty,
    Polyhedron,
    Quota,
    Ratio,
    bounds_of,
)
from evenhand.model.result_rows import CellRow
from evenhand.reports.figure_rows import RequirementMark
from evenhand.reports.figures.canvas import number

Array = NDArray[np.float64]
LISTED_CONDITIONS = 4


def requirement_marks(problem: Problem, cells: Sequence[CellRow]) -> list[RequirementMark]:
    """Return the marks of every policy with an estimate in every group; none for floors and caps alone."""
    marks: list[RequirementMark] = []
    for policy in problem.policies:
        own = [cell for cell in cells if cell.policy == policy]
        if all(cell.mean is not None for cell in own):
            marks += _marks(problem, problem.constraint, policy, own)
    return marks


def with_bounds(problem: Problem, cells: Sequence[CellRow]) -> list[CellRow]:
    """Return the cells with the floors and caps that a requirement combines with others, for a figure."""
    rule = problem.constraint
    if not isinstance(rule, All):
        return list(cells)
    shape, found = (len(problem.policies), len(problem.groups)), list(cells)
    for part in bounds_of(rule):
        if part.relative_to is not None:
            continue
        name, value = ("floor", part.at_least) if isinstance(part, Floors) else ("cap", part.at_most)
        table = np.broadcast_to(np.asarray(value, dtype=float), shape).ravel()  # policy by policy, as cells
        for at, bound in enumerate(table.tolist()):
            more: dict[str, Any] = {name: bound}
            if getattr(found[at], name) is None:
                found[at] = replace(found[at], **more)
    return found


def nearest_policy(problem: Problem, cells: Sequence[CellRow]) -> str:
    """Return in words which policy is nearest to meeting the requirement, by the estimates; else ""."""
    marks = requirement_marks(problem, cells)
    if marks and all(mark.excess is not None for mark in marks):
        best = min(marks, key=lambda mark: mark.excess or 0.0)
        return f"By the estimates {best.policy} is nearest: {best.words}."
    worst: dict[str, float] = {}
    for cell in cells:
        if cell.floor is None or cell.mean is None or cell.relative_floor is not None:
            return ""
        worst[cell.policy] = min(worst.get(cell.policy, cell.mean), cell.mean)
    if not worst or marks:
        return ""
    name = max(worst, key=lambda policy: worst[policy])
    floor = f"{worst[name]:.4g}"
    return f"By the estimates the largest floor that a policy reaches in every group is {floor}, by {name}."


def _marks(
    problem: Problem, rule: Constraint, policy: str, cells: Sequence[CellRow]
) -> list[RequirementMark]:
    means = np.array([cell.mean for cell in cells], dtype=float)
    low, high = float(means.min()), float(means.max())
    if isinstance(rule, All):
        return [mark for part in rule.of for mark in _marks(problem, part, policy, cells)]
    if isinstance(rule, Gap):
        words = f"gap {number(high - low)}, at most {number(rule.at_most)}"
        return [RequirementMark(policy, words, high - low - rule.at_most, high - rule.at_most, high, low)]
    if isinstance(rule, Ratio):
        share = low / high if high else 1.0
        words = f"ratio {number(share)}, at least {number(rule.at_least)}"
        return [RequirementMark(policy, words, rule.at_least - share, rule.at_least * high, high, low)]
    if isinstance(rule, Dispersion):
        return [_dispersion(problem, rule, policy, means)]
    if isinstance(rule, Quota):
        return [_quota(rule, policy, cells)]
    if isinstance(rule, Polyhedron):
        return [_conditions(rule, policy, means)]
    return _penalty(problem, rule, policy, cells) if isinstance(rule, Penalty) else []


def _dispersion(problem: Problem, rule: Dispersion, policy: str, means: Array) -> RequirementMark:
    centre = float(problem.shares @ means)
    weights = problem.shares if rule.weighted else np.ones(len(means))
    spread = float(weights @ (means - centre) ** 2)
    words = f"squared distances {number(spread)}, at most {number(rule.at_most)}"
    return RequirementMark(policy, words, spread - rule.at_most, centre=centre)


def _quota(rule: Quota, policy: str, cells: Sequence[CellRow]) -> RequirementMark:
    counted = tuple(cell.group for cell in cells if cell.floor is None or (cell.mean or 0.0) >= cell.floor)
    words = f"{len(counted)} of {len(cells)} groups reach the floor, {rule.needed(len(cells))} needed"
    return RequirementMark(policy, words, counted=counted)


def _conditions(rule: Polyhedron, policy: str, means: Array) -> RequirementMark:
    slack = np.asarray(rule.A, dtype=float) @ means - np.asarray(rule.b, dtype=float)
    said = [
        f"condition {place}: {number(abs(float(by)))} {'to spare' if by >= 0 else 'short'}"
        for place, by in enumerate(slack, start=1)
    ]
    more = len(said) - LISTED_CONDITIONS
    words = "; ".join(said[:LISTED_CONDITIONS]) + (f"; {more} more" if more > 0 else "")
    return RequirementMark(policy, words)


def _penalty(problem: Problem, rule: Penalty, policy: str, cells: Sequence[CellRow]) -> list[RequirementMark]:
    short = np.array([max((cell.floor or 0.0) - (cell.mean or 0.0), 0.0) for cell in cells])
    gamma = np.broadcast_to(np.asarray(rule.gamma, dtype=float), short.shape)
    parts = [f"{number(by)} in {c.group}" for c, by in zip(cells, short.tolist(), strict=True) if by > 0]
    if not parts:
        return []
    paid = float(problem.shares @ (gamma * short))
    return [RequirementMark(policy, f"penalty {number(paid)}: below the floor by {listed(parts)}")]
