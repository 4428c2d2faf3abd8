"""Random outcomes, arrivals, delays and scenarios: pure functions of their address.

The address is (seed, replication, cell, draw); `procedure.randomness` lists the streams. So the d-th sample
of a cell is the same outcome for every procedure and worker. An outcome whose distribution needs more than
one block of random bits takes attempt a from stream OUTCOMES + 256 a: the low byte of the stream word stays
the stream.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes, Static, kernel
from evenhand.model.region import PerCell
from evenhand.procedure.guardrail_spec import PerMetric, PerMetricCell
from evenhand.procedure.randomness import (
    ARRIVALS,
    DELAYS,
    OUTCOMES,
    RAIL_OUTCOMES,
    SCENARIOS,
    standard_normal,
    uniform,
)

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

# the distributions of outcomes, in the user's units
NORMAL, COIN, BINOMIAL, POISSON, GAMMA, ENDS, DATA = range(7)
ATTEMPT = 256


class Source(NamedTuple):
    """The distributions of outcomes, for the kernels; tables are (L, K), in the user's units."""

    law: Static[int]
    means: Annotated[
        Array, Axes(None, "L", "K")
    ]  # (1, L, K), or one table per replication of the block, (count, L, K)
    sd: PerCell  # NORMAL only
    trials: int  # BINOMIAL only
    shape: float  # GAMMA only
    low: float  # the procedure takes an outcome x as (x - low) / width
    width: float
    values: Annotated[Array, Axes(None)]  # DATA only: the outcomes of all cells, one cell after the other
    starts: Annotated[Ints, Axes(None)]  # DATA only: (L K + 1,) where the values of cell k L + g begin
    lag_least: int  # an outcome is observed at least this many asks after its own,
    lag_most: int  # and at most this many
    dropout: float  # the probability that it is never observed
    # the distributions of the guard-rails' outcomes: independent of each other and of the outcome, given the
    # policy and the group
    rail_law: Annotated[Ints, Axes("M")]
    rail_means: PerMetricCell
    rail_sd: PerMetricCell
    rail_trials: Annotated[Ints, Axes("M")]
    rail_shape: PerMetric
    rail_low: PerMetric
    rail_width: PerMetric
    # DATA only: the outcomes of the guard-rails that belong to `values`; NaN where one is missing
    rail_values: Annotated[Array, Axes(None, "M")]


class Law(NamedTuple):
    """The distribution of one cell's outcomes."""

    kind: int  # NORMAL, COIN, ...
    mean: float
    sd: float
    trials: int
    shape: float
    low: float
    width: float


@kernel
def outcome(source: Source, mean: Array, k: int, g: int, draw: int, seed: int, replication: int) -> float:
    """Return the draw-th outcome of cell (k, g) in the user's units; `mean` is (L, K)."""
    cell = k * mean.shape[0] + g
    if source.law != DATA:
        law = Law(
            source.law, mean[g, k], source.sd[g, k], source.trials, source.shape, source.low, source.width
        )
        return _drawn(law, draw, cell, seed, replication, OUTCOMES)
    return float(source.values[_drawn_row(source, cell, draw, seed, replication)])


@kernel
def _drawn_row(source: Source, cell: int, draw: int, seed: int, replication: int) -> int:
    """Return the row of the data that is the draw-th sample of a cell."""
    u = uniform(seed, draw, cell, replication, OUTCOMES)
    start, end = source.starts[cell], source.starts[cell + 1]
    return int(start + min(int(u * (end - start)), end - start - 1))


@kernel
def rail_outcome(source: Source, j: int, k: int, g: int, draw: int, seed: int, replication: int) -> float:
    """Return the outcome of guard-rail j that belongs to the draw-th outcome of cell (k, g).

    NaN where it is missing in the data.
    """
    _, groups, policies = source.rail_means.shape
    if source.law == DATA and source.rail_law[j] == DATA:
        return source.rail_values[_drawn_row(source, k * groups + g, draw, seed, replication), j]
    law = Law(
        source.rail_law[j], source.rail_means[j, g, k], source.rail_sd[j, g, k], source.rail_trials[j],
        source.rail_shape[j], source.rail_low[j], source.rail_width[j],
    )  # fmt: skip
    return _drawn(law, draw, (j * policies + k) * groups + g, seed, replication, RAIL_OUTCOMES)


@kernel
def _drawn(law: Law, draw: int, cell: int, seed: int, replication: int, stream: int) -> float:
    """Return a draw from one of the distributions other than DATA."""
    if law.kind == NORMAL:
        z = standard_normal(seed, draw, cell, replication, stream)
        return law.mean + law.sd * z
    if law.kind == GAMMA:
        return law.mean / law.shape * _gamma(law.shape, draw, cell, seed, replication, stream)
    u = uniform(seed, draw, cell, replication, stream)
    if law.kind == COIN:
        return 1.0 if u < law.mean else 0.0
    if law.kind == BINOMIAL:
        return binomial(law.trials, law.mean / law.trials, u)
    if law.kind == POISSON:
        return _poisson(law.mean, u)
    return law.low + law.width if u < (law.mean - law.low) / law.width else law.low


@kernel
def total(
    source: Source, mean: Array, k: int, g: int, draw: int, count: int, seed: int, replication: int
) -> float:
    """Return the sum of `count` outcomes of cell (k, g), drawn at once; for long forecasts."""
    law = Law(source.law, mean[g, k], source.sd[g, k], source.trials, source.shape, source.low, source.width)
    return _sum_drawn(law, count, draw, k * mean.shape[0] + g, seed, replication, OUTCOMES)


@kernel
def rail_total(
    source: Source, means: Array, j: int, k: int, g: int, draw: int, count: int, seed: int, replication: int
) -> float:
    """Return the sum of `count` outcomes of guard-rail j in cell (k, g); `means` is (M, L, K)."""
    _, groups, policies = means.shape
    law = Law(
        source.rail_law[j], means[j, g, k], source.rail_sd[j, g, k], source.rail_trials[j],
        source.rail_shape[j], source.rail_low[j], source.rail_width[j],
    )  # fmt: skip
    cell = (j * policies + k) * groups + g
    return _sum_drawn(law, count, draw, cell, seed, replication, RAIL_OUTCOMES)


@kernel
def _sum_drawn(law: Law, count: int, draw: int, cell: int, seed: int, replication: int, stream: int) -> float:
    """Return the sum of `count` draws from one of the distributions other than DATA."""
    if law.kind == NORMAL:
        z = standard_normal(seed, draw, cell, replication, stream)
        return count * law.mean + math.sqrt(float(count)) * law.sd * z
    if law.kind == GAMMA:
        return law.mean / law.shape * _gamma(count * law.shape, draw, cell, seed, replication, stream)
    u = uniform(seed, draw, cell, replication, stream)
    if law.kind == POISSON:
        return _poisson(count * law.mean, u)
    if law.kind == ENDS:
        return count * law.low + law.width * binomial(count, (law.mean - law.low) / law.width, u)
    trials = law.trials if law.kind == BINOMIAL else 1
    return binomial(count * trials, law.mean / trials, u)


@kernel
def arrival(arrivals: Array, ask: int, seed: int, replication: int) -> int:
    """Return the group of the unit that arrives at this ask."""
    u = uniform(seed, ask, 0, replication, ARRIVALS)
    total = 0.0
    for g in range(arrivals.shape[0] - 1):
        total += arrivals[g]
        if u < total:
            return g
    return int(arrivals.shape[0]) - 1


@kernel
def is_lost(source: Source, ask: int, seed: int, replication: int) -> bool:
    """Return whether the outcome of this ask is never observed."""
    return source.dropout > 0.0 and uniform(seed, ask, 0, replication, DELAYS) < source.dropout


@kernel
def lag(source: Source, ask: int, seed: int, replication: int) -> int:
    """Return how many asks later the outcome of this ask is observed (or lost)."""
    span = source.lag_most - source.lag_least + 1
    if span == 1:
        return source.lag_least
    u = uniform(seed, ask, 1, replication, DELAYS)
    return source.lag_least + min(int(u * span), span - 1)


def scenario_uniforms(seed: int, replication: int, count: int) -> Array:
    """Return the first uniforms of a replication's scenario stream, to draw its truth from."""
    drawn = np.zeros(count)
    _fill_scenario(seed, replication, drawn)
    return drawn


@kernel
def _fill_scenario(seed: int, replication: int, drawn: Array) -> None:
    for draw in range(drawn.size):
        drawn[draw] = uniform(seed, draw, 0, replication, SCENARIOS)


@kernel
def _poisson(mean: float, u: float) -> float:
    """Draw by inversion, outwards from the mode: about sqrt(mean) steps."""
    if mean == 0.0:
        return 0.0
    mode = float(math.floor(mean))
    up = math.exp(mode * math.log(mean) - mean - math.lgamma(mode + 1.0))
    high, low, down = mode, mode, up
    u -= up
    # inversion works with any order of the values; this one covers nearly all the probability first
    while u >= 0.0 and (up > 0.0 or down > 0.0):
        high += 1.0
        up *= mean / high
        u -= up
        if u < 0.0:
            return high
        down = down * low / mean
        low -= 1.0
        u -= down
        if u < 0.0:
            return low
    return mode


@kernel
def binomial(trials: int, p: float, u: float) -> float:
    """Draw by inversion, outwards from the mode: about sqrt(trials) steps."""
    if p <= 0.0 or p >= 1.0:
        return 0.0 if p <= 0.0 else float(trials)
    n, odds = float(trials), p / (1.0 - p)
    mode = min(float(math.floor((n + 1.0) * p)), n)
    ways = math.lgamma(n + 1.0) - math.lgamma(mode + 1.0) - math.lgamma(n - mode + 1.0)
    up = math.exp(ways + mode * math.log(p) + (n - mode) * math.log1p(-p))
    high, low, down = mode, mode, up
    u -= up
    while u >= 0.0 and (up > 0.0 or down > 0.0):
        up *= odds * (n - high) / (high + 1.0)
        high += 1.0
        u -= up
        if u < 0.0:
            return high
        down *= low / (odds * (n - low + 1.0))
        low -= 1.0
        u -= down
        if u < 0.0:
            return low
    return mode


@kernel
def _gamma(shape: float, draw: int, cell: int, seed: int, replication: int, stream: int) -> float:
    """Draw a Gamma with scale 1 (Marsaglia and Tsang 2000); shapes below 1 from shape + 1."""
    if shape == 1.0:
        return -math.log(uniform(seed, draw, cell, replication, stream))
    boost = 1.0
    if shape < 1.0:
        boost = uniform(seed, draw, cell, replication, stream) ** (1.0 / shape)
    d = (shape if shape >= 1.0 else shape + 1.0) - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    attempt = 1
    while True:
        z = standard_normal(seed, draw, cell, replication, stream + ATTEMPT * attempt)
        u = uniform(seed, draw, cell, replication, stream + ATTEMPT * (attempt + 1))
        v = (1.0 + c * z) ** 3
        if v > 0.0 and math.log(u) < 0.5 * z * z + d - d * v + d * math.log(v):
            return boost * d * v
        attempt += 2
