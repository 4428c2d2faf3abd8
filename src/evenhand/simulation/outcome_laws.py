"""Truths for the kernels: the distribution of a cell's outcomes, their delays and dropout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.errors import BadInput
from evenhand.model.families import Binomial, Gamma, Gaussian
from evenhand.model.mean_checks import refuse_negative_control
from evenhand.model.problem import Problem
from evenhand.simulation import streams
from evenhand.simulation.streams import Source
from evenhand.study import Truth

Array = NDArray[np.float64]

# means K x L of one replication, by its address: (seed, replication) -> table
Draw = Callable[[int, int], ArrayLike]

LAWS = {
    "gaussian": streams.NORMAL,
    "gaussian-unknown": streams.NORMAL,
    "bernoulli": streams.COIN,
    "binomial": streams.BINOMIAL,
    "poisson": streams.POISSON,
    "exponential": streams.GAMMA,
    "gamma": streams.GAMMA,
    # of all distributions on [low, high] with a given mean, the one on the two ends has the largest variance
    "bounded": streams.ENDS,
}


@dataclass(frozen=True, eq=False)
class MeansByReplication:
    """A table of means for each replication, (R, K, L), as a `Draw`."""

    means: Array

    def __call__(self, seed: int, replication: int) -> Array:
        if replication >= len(self.means):
            raise BadInput(
                f"means hold a table for each of {len(self.means)} replications; "
                f"replication {replication} has none."
            )
        return np.asarray(self.means[replication])


@dataclass(frozen=True, eq=False)
class MeansByPoint:
    """A table of means for each block of consecutive replications, (P, K, L), as a `Draw`."""

    means: Array
    replications: int

    def __call__(self, seed: int, replication: int) -> Array:
        return np.asarray(self.means[replication // self.replications])


@dataclass(frozen=True, eq=False)
class DrawnTruth:
    """Means drawn for each replication, with the other parameters of a truth."""

    draw: Draw
    outcomes: str | None = None
    sd: Any = None
    lag: int | tuple[int, int] = 0
    dropout: float = 0.0
    guardrails: Mapping[str, Any] | None = None

    def first(self, problem: Problem, seed: int) -> Truth:
        """Return the truth of replication 0; the others differ in the means only."""
        means = problem.check_means(self.draw(seed, 0))
        table = tuple(map(tuple, means.tolist()))
        truth = Truth(
            table, lag=self.lag, dropout=self.dropout, outcomes=self.outcomes, sd=self.sd,
            guardrails=self.guardrails,
        )  # fmt: skip
        return truth.in_order(problem)


def compile_truth(problem: Problem, truth: Truth) -> Source:
    """Compile the truth of a study after checking it against the problem."""
    means = problem.check_means(truth.cell_means(problem))
    if truth.data is not None:
        rows, starts = _laid_out(truth.cell_outcomes(problem))
        data: dict[str, Any] = {"values": np.ascontiguousarray(rows[:, 0]), "starts": starts}
        if truth.draws_guardrails(problem):
            data["rail_values"] = np.ascontiguousarray(rows[:, 1:])
        return _source(problem, truth, streams.DATA, means, **data)
    coins = truth.cells is not None or truth.outcomes == "bernoulli"
    return _source(problem, truth, streams.COIN if coins else LAWS[problem.family.name], means)


def drawn_means(problem: Problem, source: Source, draw: Draw, seed: int, first: int, count: int) -> Source:
    """Return the same source with the means of replications first, first + 1, ..."""
    numbers = np.arange(first, first + count)
    if isinstance(draw, MeansByPoint):  # each table is checked once, and not for every replication
        points, places = np.unique(numbers // draw.replications, return_inverse=True)
        tables = [_drawn(problem, source.law, draw.means[point]) for point in points]
        return source._replace(means=np.ascontiguousarray(np.array(tables)[places]))
    tables = [_drawn(problem, source.law, draw(seed, int(number))) for number in numbers]
    return source._replace(means=np.ascontiguousarray(np.array(tables)))


def _drawn(problem: Problem, law: int, means: ArrayLike) -> Array:
    """Return a table of drawn means, checked, as (L, K)."""
    table = _checked(problem, law, means)
    refuse_negative_control(problem.constraint, table, problem.policies, problem.group_names)
    return table.T


def _source(problem: Problem, truth: Truth, law: int, means: Array, **data: Any) -> Source:
    family = problem.family
    lag = (truth.lag, truth.lag) if isinstance(truth.lag, int) else truth.lag
    return Source(
        law=law,
        means=np.ascontiguousarray(_checked(problem, law, means).T)[np.newaxis],
        sd=np.ascontiguousarray(_spread(problem, truth).T),
        trials=family.trials if isinstance(family, Binomial) else 1,
        shape=float(family.shape) if isinstance(family, Gamma) else 1.0,
        low=float(family.low),
        width=float(family.width),
        values=data.get("values", np.zeros(0)),
        starts=data.get("starts", np.zeros(means.size + 1, dtype=np.int64)),
        lag_least=int(lag[0]),
        lag_most=int(lag[1]),
        dropout=float(truth.dropout),
        **_guardrail_laws(problem, truth),
        rail_values=data.get("rail_values", np.zeros((0, len(problem.guardrails)))),
    )


def _guardrail_laws(problem: Problem, truth: Truth) -> dict[str, Any]:
    """Return the distributions of the guard-rails' outcomes, by field of a source."""
    families = [rail.family for rail in problem.guardrails]
    policies, groups = problem.shape
    shape = (len(families), groups, policies)
    tables = problem.check_guardrail_means(truth.guardrail_means(problem))
    drawn = truth.draws_guardrails(problem)
    spreads = [
        np.sqrt(one.dispersion(policies, groups)) if isinstance(one, Gaussian) else np.ones(problem.shape)
        for one in families
    ]
    return {
        "rail_law": np.array([streams.DATA if drawn else LAWS[one.name] for one in families], dtype=np.int64),
        "rail_means": np.array([table.T for table in tables], dtype=float).reshape(shape),
        "rail_sd": np.array([table.T for table in spreads], dtype=float).reshape(shape),
        "rail_trials": np.array(
            [one.trials if isinstance(one, Binomial) else 1 for one in families], dtype=np.int64
        ),
        "rail_shape": np.array(
            [one.shape if isinstance(one, Gamma) else 1.0 for one in families], dtype=float
        ),
        "rail_low": np.array([one.low for one in families], dtype=float),
        "rail_width": np.array([one.width for one in families], dtype=float),
    }


def _checked(problem: Problem, law: int, means: ArrayLike) -> Array:
    """Return the means, checked against the domain of the family and of the distribution."""
    table = problem.check_means(means)
    if law == streams.COIN:
        if not np.all(problem.family.admits([0.0, 1.0])):
            raise BadInput(
                f"outcomes of the {problem.family.name} family must be {problem.family.outcomes}; "
                "successes and failures, 1 and 0, are not all of that kind."
            )
        if np.any((table < 0.0) | (table > 1.0)):
            raise BadInput(f"means of outcomes 0 or 1 must lie in [0, 1]; one is {_farthest(table):g}.")
    return table


def _farthest(table: Array) -> float:
    return float(table.flat[np.argmax(np.abs(table - 0.5))])


def _spread(problem: Problem, truth: Truth) -> Array:
    """Return the standard deviation of every cell, K x L; 1 where none is given."""
    if truth.sd is not None:
        return np.broadcast_to(np.asarray(truth.sd, dtype=float), problem.shape).copy()
    if isinstance(problem.family, Gaussian):
        return np.sqrt(problem.family.dispersion(*problem.shape))
    return np.ones(problem.shape)


def _laid_out(outcomes: list[list[Array]]) -> tuple[Array, NDArray[np.int64]]:
    """Return the samples of all cells in one table, and where each cell k L + g begins."""
    cells = [cell for row in outcomes for cell in row]
    starts = np.cumsum([0, *(len(cell) for cell in cells)], dtype=np.int64)
    return np.concatenate(cells), starts
