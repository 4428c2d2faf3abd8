"""Boxes of means: the means of some cells range from low to high, all others are those of the truth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, Undecidable, nearest, shown
from evenhand.model.argument_checks import is_number, whole_number
from evenhand.model.problem import Problem
from evenhand.simulation.outcome_laws import DrawnTruth, MeansByPoint
from evenhand.study import Study
from evenhand.theory.plan import plan

Array = NDArray[np.float64]

MOST_POINTS = 10_000  # of a grid
POINTS = {1: 15, 2: 7, 3: 5}  # per mean, by the number of ranges
FEWEST_POINTS = 3  # per mean, with more ranges
SEPARATOR = "/"  # between policy and group on the command line
DEFAULT_WIDTH = 3.0  # standard errors on each side of the mean, where no box is given


@dataclass(frozen=True)
class MeanRange:
    """A cell whose mean ranges from low to high, at this number of equidistant points."""

    policy: str
    group: str
    low: float
    high: float
    points: int

    @property
    def label(self) -> str:
        """Return the names of the cell: policy, group."""
        return f"{self.policy}, {self.group}"

    @property
    def values(self) -> list[float]:
        """Return the points of the grid."""
        if self.points == 1:
            return [self.low]
        digits = 12 - math.floor(math.log10(self.high - self.low))  # 0 is 0 and not 1e-16
        inner = np.linspace(self.low, self.high, self.points)[1:-1]
        return [self.low, *(round(float(value), digits) for value in inner), self.high]

    def cell(self, problem: Problem) -> tuple[int, int]:
        """Return the indices of policy and group."""
        return problem.policies.index(self.policy), problem.group_names.index(self.group)


Box = tuple[MeanRange, ...]


def box_of(problem: Problem, box: Any, points: int | None = None) -> Box:
    """Return the checked ranges: {policy: {group: (low, high)}}, or (low, high, points)."""
    if not isinstance(box, Mapping) or not box or not all(isinstance(row, Mapping) for row in box.values()):
        raise BadInput(
            f"a box must be ranges by name, {{policy: {{group: (low, high)}}}}; it is {shown(box)}."
        )
    if points is not None:
        whole_number(points, "points", 1)
    given = [(policy, group, value) for policy, row in box.items() for group, value in row.items()]
    if not given:
        raise BadInput("a box must have at least one range of a mean; it has none.")
    ranged = sum(_pair(value)[0] < _pair(value)[1] for _, _, value in given)
    default = POINTS.get(ranged, FEWEST_POINTS) if points is None else points
    return tuple(_range_of(problem, policy, group, value, default) for policy, group, value in given)


def parse_box(problem: Problem, texts: Sequence[str]) -> dict[str, dict[str, tuple[float, ...]]]:
    """Return the ranges in texts such as 'Aspirin/80 and over=0.75:0.9' or '...=0.75:0.9:7'."""
    cells = {f"{p}{SEPARATOR}{g}": (p, g) for p in problem.policies for g in problem.group_names}
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    for text in texts:
        name, equals, numbers = text.rpartition("=")
        if not equals:
            raise BadInput(f"a range must be written POLICY{SEPARATOR}GROUP=LOW:HIGH; it is {text!r}.")
        if name.strip() not in cells:
            raise BadInput(f"there is no cell {name.strip()!r}{nearest(name.strip(), cells)}")
        policy, group = cells[name.strip()]
        if group in found.setdefault(policy, {}):
            raise BadInput(f"a cell can have one range; {name.strip()!r} has two.")
        found[policy][group] = _numbers(text, numbers)
    return found


def default_box(study: Study) -> dict[str, dict[str, tuple[float, float]]]:
    """Return a range for the cell that a plan samples most: three standard errors to each side of its mean.

    The standard error is that of the cell's share of the smallest number of samples for this risk.
    """
    try:
        planned = plan(study)
    except Undecidable as problem:
        raise BadInput(f"no box was given, and there is no plan to choose one by: {problem}") from None
    k, g = np.unravel_index(int(np.argmax(planned.allocation)), planned.allocation.shape)
    mean = float(planned.means[k, g])
    variance = float(study.problem.family.variance(planned.means)[k, g])
    samples = planned.samples_at_least(study.procedure.delta) * float(planned.allocation[k, g])
    half = DEFAULT_WIDTH * math.sqrt(max(variance, 1e-12) / samples)
    low, high = study.problem.family.domain
    digits = 1 - math.floor(math.log10(half))
    bottom = max(round(mean - half, digits), low if not study.problem.family.open_below else mean / 10)
    cell = (bottom, min(round(mean + half, digits), high))
    return {study.problem.policies[k]: {study.problem.group_names[g]: cell}}


def grid_of(box: Box) -> Array:
    """Return all points of the grid, (P, ranges); the last range varies fastest."""
    count = math.prod(one.points for one in box)
    if count > MOST_POINTS:
        raise BadInput(
            f"a grid can have {MOST_POINTS:,} points; this one has {count:,}. Give fewer points for each "
            "mean, or vary fewer means."
        )
    return np.array(list(itertools.product(*(one.values for one in box))))


def tables_of(study: Study, box: Box, values: Array) -> Array:
    """Return the means of all cells at every point, (P, K, L)."""
    tables = np.repeat(np.array(study.means())[np.newaxis], len(values), axis=0)
    for place, one in enumerate(box):
        tables[(slice(None), *one.cell(study.problem))] = values[:, place]
    return tables


def drawn_at(study: Study, tables: Array, replications: int) -> DrawnTruth:
    """Return the truth of a simulation with this number of replications at each of these tables of means."""
    truth = study.truth
    assert truth is not None
    if truth.data is not None:
        raise BadInput(
            "a box varies means, and this truth draws from a file of outcomes; give [truth] means instead."
        )
    outcomes = "bernoulli" if truth.cells is not None else truth.outcomes
    return DrawnTruth(
        MeansByPoint(tables, replications), outcomes, truth.sd, truth.lag, truth.dropout, truth.guardrails
    )


def without_truth(study: Study) -> Study:
    """Return the study without its truth, for runs whose means are drawn."""
    return replace(study, truth=None)


def _range_of(problem: Problem, policy: Any, group: Any, value: Any, points: int) -> MeanRange:
    for name, known, what in (
        (policy, problem.policies, "policy"),
        (group, problem.group_names, "group"),
    ):
        if name not in known:
            raise BadInput(f"there is no {what} {name!r}{nearest(str(name), known)}")
    low, high = _pair(value)
    where = f"the range of {policy!r} in {group!r}"
    if low > high:
        raise BadInput(f"{where} must go from a lower to a higher mean; it goes from {low:g} to {high:g}.")
    least, most = problem.family.domain
    if low < least or high > most or (problem.family.open_below and low == least):
        raise BadInput(
            f"{where} must lie in the domain of the {problem.family.name} family, {least:g} to {most:g}; "
            f"it is {low:g} to {high:g}."
        )
    if len(value) == 3:
        points = whole_number(value[2], f"the number of points of {policy!r} in {group!r}", 1)
    if low == high:
        return MeanRange(policy, group, low, high, 1)
    if points < 2:
        raise BadInput(f"{where} must have at least 2 points; it has {points}.")
    return MeanRange(policy, group, low, high, points)


def _pair(value: Any) -> tuple[float, float]:
    """Return low and high of a range."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    sized = isinstance(value, (list, tuple)) and len(value) in (2, 3)
    if not sized or not all(is_number(one) for one in value):
        raise BadInput(
            f"a range must be two numbers, (low, high), or (low, high, points); it is {shown(value)}."
        )
    return float(value[0]), float(value[1])


def _numbers(text: str, numbers: str) -> tuple[float, ...]:
    parts = numbers.split(":")
    try:
        found = [float(part) for part in parts[:2]] + [int(part) for part in parts[2:]]
    except ValueError:
        found = []
    if len(found) not in (1, 2, 3):
        raise BadInput(f"a range must be written LOW:HIGH or LOW:HIGH:POINTS; it is {numbers!r} in {text!r}.")
    return (found[0], found[0]) if len(found) == 1 else tuple(found)
