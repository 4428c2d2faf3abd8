"""Tiles of a box of means, divided into parts in which one answer is right.

Floors and caps are edges of tiles, so inside a tile the same policies meet their requirement. Overall means
are linear, so the part of a tile in which a policy is best is a polytope.

The tilt bound: how much larger an error can be near a point where it is known.

Let theta be the natural parameters of the cells, A the log-partition function of one sample, n the largest
number of samples of a run, and f(theta) the probability of an event that the data of the run decide. For
every q > 1 and v, with g(q, v) = A(theta + q v) - A(theta) - q (A(theta + v) - A(theta)) of each cell,

    f(theta + v) <= f(theta)^(1 - 1/q) exp(n max_cells g(q, v) / q).

It is Hoelder's inequality for f(theta + v) = E_theta[1_event L(v)]. The likelihood ratio L of an adaptive run
is the product over its samples, whatever the rule that chose their cells. L(v)^q is the likelihood ratio
L(q v), whose mean is 1, times exp(sum_cells N g(q, v)), where the numbers of samples N of the cells sum to at
most n. g is not negative since A is convex, so the worst allocation has all samples in the cell with the
largest g. g grows with |v| on either side of 0, so its maximum over a tile is at an end of one of its edges.
The derivation is in docs/decisions/box-calibration.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput
from evenhand.model import region as regions
from evenhand.model.families import Bernoulli, Binomial, Family, Gaussian, Poisson
from evenhand.model.problem import Problem
from evenhand.simulation.box import Box, MeanRange, tables_of
from evenhand.study import Study

Array = NDArray[np.float64]

MOST_TILES = 20_000
SPARE = 3.0  # tiles are so small that the error allowed at a point is at least delta divided by this
LEAST_MARGIN = 1e-12  # a part that is smaller than this is a tie

# the bound holds for each of these exponents; the best one is taken
EXPONENTS: Array = 1.0 + np.geomspace(1e-2, 1e4, 400)
ROUNDING = 1e-9  # the cost of a tile is increased by this part of itself, for errors of rounding
COVERED = (Bernoulli, Binomial, Gaussian, Poisson)


@dataclass(frozen=True)
class Part:
    """A part of a tile in which one answer is right, its point, and the error allowed there."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    point: tuple[float, ...]
    answer: str | None
    allowed: float = 0.0


def parts_of(study: Study, box: Box, horizon: int, tiles: int | None = None) -> list[Part]:
    """Return the parts of all tiles; the error allowed at each point makes the bound hold in its part."""
    edges = [_edges(study, one, horizon, tiles) for one in box]
    count = math.prod(len(one) - 1 for one in edges)
    if count > MOST_TILES:
        raise BadInput(
            f"a box can have {MOST_TILES:,} tiles; this one needs {count:,}. Give a smaller box or a smaller "
            "horizon, or larger tiles: a smaller number of them per mean."
        )
    found = [part for low, high in _tiles(edges) for part in _parts_of_tile(study, box, low, high)]
    costs = np.zeros(())
    for place, one in enumerate(box):
        scale = natural_scale(study.problem, *one.cell(study.problem))
        ends = [np.array([getattr(part, name)[place] for part in found]) for name in ("point", "low", "high")]
        costs = np.maximum(costs, 0.0 if one.low == one.high else tilt_cost(scale, *ends))
    delta = study.procedure.delta
    if costs.ndim == 0:  # a single point
        return [replace(part, allowed=delta) for part in found]
    allowed = allowed_at_point(costs, horizon, delta)
    return [replace(part, allowed=float(value)) for part, value in zip(found, allowed, strict=True)]


def _edges(study: Study, one: MeanRange, horizon: int, tiles: int | None) -> list[float]:
    """Return the edges of tiles along one range: floors and caps of the cell are among them."""
    if one.low == one.high:
        return [one.low, one.high]
    problem = study.problem
    k, g = one.cell(problem)
    standard, family = problem.standard, problem.family
    bounds = [
        family.low + family.width * float(side[g, k]) for side in (standard.region.lo, standard.region.hi)
    ]
    stops = [one.low, *sorted({bound for bound in bounds if one.low < bound < one.high}), one.high]
    scale = natural_scale(problem, k, g)
    number = tiles or _fewest(lambda count: _is_fine(study, scale, _cut(scale, stops, count), horizon))
    edges = _cut(scale, stops, number)
    if one.high == bounds[0]:  # means on the floor meet it: a tile of one point
        edges.append(one.high)
    if one.low == bounds[1]:
        edges.insert(0, one.low)
    return edges


def _cut(scale: NaturalScale, stops: list[float], number: int) -> list[float]:
    """Return the edges of at least this number of tiles of about equal cost; the stops are among them."""
    width = scale.stabilised(stops[-1]) - scale.stabilised(stops[0])
    edges = [stops[0]]
    for low, high in itertools.pairwise(stops):
        start, end = scale.stabilised(low), scale.stabilised(high)
        cut = max(1, math.ceil(number * (end - start) / width - 1e-9))
        edges += [*scale.from_stabilised(np.linspace(start, end, cut + 1)[1:-1]).tolist(), high]
    return edges


def _fewest(is_enough: Callable[[int], bool]) -> int:
    """Return the smallest number that is enough; a number above MOST_TILES is not searched for."""
    low, high = 0, 1
    while high <= MOST_TILES and not is_enough(high):
        low, high = high, 2 * high
    if high > MOST_TILES:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _is_fine(study: Study, scale: NaturalScale, edges: list[float], horizon: int) -> bool:
    """Return whether tiles between these edges lose no more than the error divided by SPARE."""
    ends = np.array(edges)
    middle = scale.from_stabilised(
        np.array([sum(map(scale.stabilised, pair)) / 2 for pair in itertools.pairwise(edges)])
    )
    allowed = allowed_at_point(tilt_cost(scale, middle, ends[:-1], ends[1:]), horizon, study.procedure.delta)
    return bool(np.min(allowed) >= study.procedure.delta / SPARE)


def _tiles(edges: list[list[float]]) -> Iterator[tuple[Array, Array]]:
    """Yield low and high ends of all tiles."""
    for pairs in itertools.product(*(list(itertools.pairwise(one)) for one in edges)):
        yield np.array([low for low, _ in pairs]), np.array([high for _, high in pairs])


def _parts_of_tile(study: Study, box: Box, low: Array, high: Array) -> list[Part]:
    """Return the parts of a tile, each with the answer that is right in it.

    Inside the tile the same policies meet the requirement, and overall means are linear. At a tie each of the
    tied policies is right, so a part without an interior needs no point: it lies in the parts beside it.
    """
    problem = study.problem
    scales = [natural_scale(problem, *one.cell(problem)) for one in box]
    ranged = low < high
    middle = np.array([
        float(s.from_stabilised(np.array((s.stabilised(a) + s.stabilised(b)) / 2))) if far else a
        for s, a, b, far in zip(scales, low, high, ranged, strict=True)
    ])  # fmt: skip
    means = tables_of(study, box, middle[np.newaxis])[0]
    feasible = _meeting(study, means)
    if not feasible:
        return [Part(tuple(low.tolist()), tuple(high.tolist()), tuple(middle.tolist()), None)]
    constant, slopes = _overall(study, box)
    found = []
    for r in feasible:
        offset = constant[r] - constant[feasible]
        slope = slopes[r] - slopes[feasible]
        most = offset + np.maximum(slope * low, slope * high).sum(axis=1)
        least = offset + np.minimum(slope * low, slope * high).sum(axis=1)
        if np.all(least >= 0.0):  # right in all of the tile
            return [
                Part(tuple(low.tolist()), tuple(high.tolist()), tuple(middle.tolist()), problem.policies[r])
            ]
        # policies that tie with r in all of the tile: the first of them stands for all, which counts the
        # others as wrong, although they are right
        tied = (most <= LEAST_MARGIN) & (least >= -LEAST_MARGIN)
        if feasible[int(np.argmax(tied))] != r:
            continue
        others = ~tied
        if np.all(most[others] > LEAST_MARGIN):
            part = _part(low, high, offset[others], slope[others])
            if part is not None:
                found.append(Part(*part, problem.policies[r]))
    return found


def _part(low: Array, high: Array, offset: Array, slope: Array) -> tuple[Any, Any, Any] | None:
    """Return low, high and a point of {x in the tile: offset + slope x >= 0}; None without an interior.

    The mean of the points at which each coordinate is least and largest, and of the one that is farthest
    inside, lies in the part, which is convex. The point is as near to the middle of low and high as possible.
    """
    from scipy.optimize import linprog

    size = len(low)
    bounds = [*zip(low, high, strict=True)]
    inside = linprog(
        [*np.zeros(size), -1.0], A_ub=np.column_stack([-slope, np.ones(len(offset))]), b_ub=offset,
        bounds=[*bounds, (None, None)], method="highs",
    )  # fmt: skip
    if not inside.success or -inside.fun <= LEAST_MARGIN:
        return None
    ends = [inside.x[:size]]
    for sign in (1.0, -1.0):
        for place in range(size):
            aim = np.zeros(size)
            aim[place] = sign
            solved = linprog(aim, A_ub=-slope, b_ub=offset, bounds=bounds, method="highs")
            if not solved.success:  # an infeasible problem would contradict the first; the tile is used
                return tuple(low.tolist()), tuple(high.tolist()), tuple(inside.x[:size].tolist())
            ends.append(solved.x)
    points = np.array(ends)
    slack = 1e-7 * (high - low)  # the solver's tolerance
    least = np.maximum(points.min(axis=0) - slack, low)
    most = np.minimum(points.max(axis=0) + slack, high)
    centre, middle = points.mean(axis=0), (least + most) / 2
    steps = (centre + weight * (middle - centre) for weight in (1.0, 0.75, 0.5, 0.25))
    near = next((x for x in steps if np.all(offset + slope @ x > LEAST_MARGIN)), centre)
    return tuple(least.tolist()), tuple(most.tolist()), tuple(near.tolist())


def _meeting(study: Study, means: Array) -> list[int]:
    """Return the policies whose means lie within floors and caps, and whose guard-rails are met.

    The means of guard-rails are those of the assumed truth, the same in the whole box.
    """
    problem = study.problem
    region, unit = problem.standard.region, problem.family.to_unit(means).T
    slack = regions.ROUNDING
    meets = np.all((unit >= region.lo - slack) & (unit <= region.hi + slack), axis=0)
    if problem.guardrails:
        tables = problem.check_guardrail_means(study.guardrail_means())
        for rail, standard, table in zip(problem.guardrails, problem.standards[1:], tables, strict=True):
            own = np.ascontiguousarray(rail.family.to_unit(table).T)
            meets &= [regions.margin_of(standard.region, k, own) >= 0.0 for k in range(meets.size)]
    found: list[int] = np.flatnonzero(meets).tolist()
    return found


def _overall(study: Study, box: Box) -> tuple[Array, Array]:
    """Return overall means as linear functions of the ranged means: constants (K,) and slopes (K, ranges)."""
    problem = study.problem
    zero = tables_of(study, box, np.zeros((1, len(box))))[0]
    slopes = np.zeros((problem.shape[0], len(box)))
    for place, one in enumerate(box):
        k, g = one.cell(problem)
        slopes[k, place] = problem.shares[g]
    return zero @ problem.shares, slopes


@dataclass(frozen=True)
class NaturalScale:
    """The natural parameter of a cell by its mean, and the log-partition function of one sample."""

    of_mean: Callable[[Array], Array]
    log_partition: Callable[[Array], Array]
    # a scale on which tiles of equal width have about the same cost, and its inverse
    stabilised: Callable[[float], float]
    from_stabilised: Callable[[Array], Array]


def natural_scale(problem: Problem, k: int, g: int) -> NaturalScale:
    """Return the natural parameter and log-partition function of a cell; refuse families without."""
    family = problem.family
    check_family(family)
    if isinstance(family, Gaussian):
        variance = float(family.dispersion(*problem.shape)[k, g])
        return NaturalScale(
            lambda mean: mean / variance, lambda theta: variance * theta**2 / 2, float, lambda x: x
        )
    if isinstance(family, Poisson):
        return NaturalScale(np.log, np.exp, math.sqrt, np.square)
    trials = family.trials if isinstance(family, Binomial) else 1
    return NaturalScale(
        lambda mean: np.log(mean / (trials - mean)),
        lambda theta: trials * np.logaddexp(0.0, theta),
        lambda mean: math.asin(math.sqrt(mean / trials)),
        lambda x: trials * np.sin(x) ** 2,
    )


def check_family(family: Family) -> None:
    """Refuse a family for which the bound is not derived."""
    if not isinstance(family, COVERED):
        names = ", ".join(one.name for one in COVERED)
        raise BadInput(f"a box is proved for the families {names}; this one is {family.name}.")


def check_inside(family: Family, low: float, high: float, where: str) -> None:
    """Refuse a range that touches the end of the domain, where the natural parameter is infinite."""
    least, most = family.domain
    if low <= least or high >= most:
        raise BadInput(
            f"{where} must lie strictly between {least:g} and {most:g} for a proof; "
            f"it is {low:g} to {high:g}."
        )


def tilt_cost(scale: NaturalScale, point: Array, low: Array, high: Array) -> Array:
    """Return max g(q, v) / q over tiles from low to high, around points: one row per exponent q.

    The arguments are means, one per tile.
    """
    theta = scale.of_mean(point)
    costs = np.zeros((len(EXPONENTS), len(point)))
    q = EXPONENTS[:, np.newaxis]
    start = scale.log_partition(theta)
    with np.errstate(over="ignore"):
        for end in (low, high):
            v = scale.of_mean(end) - theta
            rise = scale.log_partition(theta + v) - start
            costs = np.maximum(costs, (scale.log_partition(theta + q * v) - start) / q - rise)
    return costs * (1.0 + ROUNDING)


def allowed_at_point(costs: Array, samples: int, delta: float) -> Array:
    """Return the largest error at each tile's point for which the bound is at most delta on all of the tile.

    f^(1 - 1/q) exp(n c) <= delta is ln f <= (ln delta - n c) q / (q - 1), for any q: the best is taken.
    `costs` has a row per exponent and a column per tile.
    """
    q = EXPONENTS[:, np.newaxis]
    with np.errstate(over="ignore"):  # a cost beyond all numbers allows no error
        logs = (math.log(delta) - samples * costs) * q / (q - 1.0)
    found: Array = np.exp(np.max(logs, axis=0))
    return np.minimum(found, delta)
