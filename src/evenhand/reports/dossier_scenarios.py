"""A grid of scenarios for a dossier: the assumed truth, and ways around it in which a procedure could err.

A scenario has a table of means, K x L, and one for every guard-rail. The hard ones are slightly beyond a
boundary: there the true answer changes, and a procedure that stops too early errs most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.model.families import Family
from evenhand.model.problem import Problem, Standard
from evenhand.model.region import BOX, RELATIVE, bounds_at

Array = NDArray[np.float64]

SMALL_STEP = 0.02  # of a standard deviation
STEP = 0.1  # of a standard deviation: a truth a little better or worse than assumed


class Scenario(NamedTuple):
    """Means of the outcome and of every guard-rail, K x L."""

    means: Array
    guardrails: Mapping[str, Array]


def scenario_grid(problem: Problem, assumed: Scenario) -> dict[str, Scenario]:
    """Return every scenario that fits the problem, by name."""
    means, rails = assumed
    sd, answer = _deviations(problem.family, means), problem.answer(means, rails)
    grid = {"as assumed": means}
    grid |= _boundaries(problem, problem.family, problem.standard, means, answer, "")
    grid |= _ties(problem, assumed, sd)
    grid["everyone a little better"] = means + STEP * sd
    grid["everyone a little worse"] = means - STEP * sd
    grid["all policies equal, but one slightly better"] = _alike(means, sd)
    found = {
        name: Scenario(table, rails) for name, table in grid.items() if _is_possible(problem.family, table)
    }
    for rail, standard in zip(problem.guardrails, problem.standards[1:], strict=True):
        beyond = _boundaries(problem, rail.family, standard, rails[rail.name], answer, f" of {rail.name}")
        for name, table in beyond.items():
            if _is_possible(rail.family, table):
                found[name] = Scenario(means, {**rails, rail.name: table})
    return found


def _deviations(family: Family, means: Array) -> Array:
    """Return the standard deviation of one outcome in every cell."""
    sd = np.sqrt(family.variance(means))
    # at the edge of its domain a mean has variance 0: a fraction of the width of the domain instead
    return np.where(sd > 0.0, sd, 1e-6 * family.width)


def _boundaries(
    problem: Problem, family: Family, standard: Standard, means: Array, answer: int | None, metric: str
) -> dict[str, Array]:
    """Return means at which the answer, or every policy, just misses its bound of one metric."""
    region, sd = standard.region, _deviations(family, means)
    if region.kind not in (BOX, RELATIVE):
        return {}
    low, width = family.low, family.width
    # bounds relative to a control as they are at its assumed means
    lo, hi = bounds_at(region, np.ascontiguousarray(family.to_unit(means).T))
    floor, cap = low + width * lo.T, low + width * hi.T
    inside = np.clip(
        means, np.where(np.isfinite(floor), floor, -np.inf), np.where(np.isfinite(cap), cap, np.inf)
    )
    grid = {}
    for g, group in enumerate(problem.group_names):
        bounded = np.isfinite(floor[:, g]) | np.isfinite(cap[:, g])
        if not bounded.any():
            continue
        beyond = np.where(
            np.isfinite(floor[:, g]), floor[:, g] - SMALL_STEP * sd[:, g], cap[:, g] + SMALL_STEP * sd[:, g]
        )
        beyond = np.where(bounded, beyond, means[:, g])  # a control has no bound relative to itself
        if answer is not None and bounded[answer]:
            table = means.copy()
            table[answer, g] = beyond[answer]
            grid[f"{problem.policies[answer]} narrowly misses its bound{metric} in {group}"] = table
        nobody = inside.copy()
        nobody[:, g] = beyond
        grid[f"all policies narrowly miss the bound{metric} in {group}"] = nobody
    return grid


def _ties(problem: Problem, assumed: Scenario, sd: Array) -> dict[str, Array]:
    """Return means at which the second best feasible policy is just below the answer, or just above."""
    means, rails = assumed
    answer, feasible = problem.answer(means, rails), problem.feasible(means, rails)
    scores = problem.scores(means)
    rivals = [k for k in range(len(scores)) if feasible[k] and k != answer]
    if answer is None or not rivals:
        return {}
    second = max(rivals, key=lambda k: float(scores[k]))
    grid = {}
    for word, sign in (("below", -1.0), ("above", 1.0)):
        table = means.copy()
        table[second] += (
            scores[answer] - scores[second] + sign * SMALL_STEP * float(sd[second] @ problem.shares)
        )
        grid[f"{problem.policies[second]} is slightly {word} {problem.policies[answer]}"] = table
    return grid


def _alike(means: Array, sd: Array) -> Array:
    """Return means that are all the average, and those of the first just better."""
    table = np.repeat(means.mean(axis=0, keepdims=True), len(means), axis=0)
    table[0] += SMALL_STEP * sd.mean(axis=0)
    return table


def _is_possible(family: Family, table: Array) -> bool:
    low, high = family.domain
    return bool(np.all(table > low) and np.all(table < high))
