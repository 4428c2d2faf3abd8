"""Experiments under boundary nulls, sampling in favour of high estimates: how often does an e-value cross?"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from evenhand.compile import kernel
from evenhand.model import families as f
from evenhand.model import requirements as c
from evenhand.model.problem import Problem
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.evidence import certified
from evenhand.procedure.spec import Procedure, Spec
from evenhand.procedure.state import State, Work, new_state, new_work, record, remove_outcomes

Array = NDArray[np.float64]

ALPHA = 0.1  # an e-value may ever exceed 1/ALPHA with at most this probability
FALSE_ALARM = 1e-6
BLOCK = 50  # runs whose outcomes are drawn at once
NORMAL, TWO_POINT, COUNTS, WAITING, UNIFORM = range(5)

# family, how its outcomes are drawn (unit scale), and a number for the draw: sd, trials, shape, half-width
FAMILIES = {
    "gaussian": (f.Gaussian(0.5), NORMAL, 0.5),
    "gaussian-unknown": (f.GaussianUnknown(), NORMAL, 0.5),
    "bernoulli": (f.Bernoulli(), TWO_POINT, 1.0),
    "binomial": (f.Binomial(3), TWO_POINT, 3.0),
    "poisson": (f.Poisson(), COUNTS, 1.0),
    "exponential": (f.Exponential(), WAITING, 1.0),
    "gamma": (f.Gamma(2.5), WAITING, 2.5),
    "bounded": (f.Bounded(0.0, 1.0), UNIFORM, 0.2),
}
BY_MIXTURE = "bounded by the mixture"  # the evidence that is not the default of bounded outcomes

# requirement, and means on its boundary: they meet it by nothing, they violate it by nothing
REQUIREMENTS = {
    "none": (c.NoConstraint(), (0.4, 0.6)),
    "floors": (c.Floors(0.4), (0.4, 0.6)),
    "floors, all on the boundary": (c.Floors((0.4, 0.6)), (0.4, 0.6)),
    "caps": (c.Caps(0.6), (0.4, 0.6)),
    "gap": (c.Gap(0.2), (0.4, 0.6)),
    "ratio": (c.Ratio(0.4 / 0.6), (0.4, 0.6)),
    "quota": (c.Quota(0.5, groups=2), (0.5, 0.5, 0.3)),
    "dispersion": (c.Dispersion(0.02), (0.4, 0.6)),
    "polyhedron": (c.Polyhedron([[1.0, -1.0], [2.0, 1.0]], [-0.2, 1.4]), (0.4, 0.6)),
    "all": (c.All((c.Floors(0.4), c.Gap(0.2), c.Quota(0.6, groups=1))), (0.4, 0.6)),
    "all with dispersion": (c.All((c.Caps(0.6), c.Dispersion(0.02))), (0.4, 0.6)),
    "penalty": (c.Penalty(0.5, 2.0), (0.4, 0.6)),
}

# the same beside a control, which has the same means: both lie on the boundary
BESIDE_CONTROL = {
    f"{kind}, the control is {name}": (bounds(relative_to=name, margin=0.0), (0.4, 0.6))
    for kind, bounds in (("floors", c.Floors), ("caps", c.Caps))
    for name in ("a", "b")
}
BESIDE_CONTROL["a ratio of the control"] = (c.Floors(relative_to="b", ratio=1.0), (0.4, 0.6))
BESIDE_CONTROL["floors and floors beside a control"] = (
    c.All((c.Floors(0.4), c.Floors(relative_to="a", margin=0.0))),
    (0.4, 0.6),
)


class Crossings(NamedTuple):
    """In how many runs the e-value ever exceeded 1/ALPHA, and of how many runs."""

    ahead: int
    fails: int
    meets: int
    runs: int


def crossings(family: str, requirement: str, runs: int, horizon: int, seed: int) -> Crossings:
    """Two policies with the same means, on the boundary: so no e-value has anything to go by."""
    outcome, how, number = FAMILIES["bounded" if family == BY_MIXTURE else family]
    constraint, means = (REQUIREMENTS | BESIDE_CONTROL)[requirement]
    if family == "binomial":  # its means count successes
        constraint, means = scaled(constraint, number), tuple(number * m for m in means)
    groups = {f"group {g}": 1.0 / len(means) for g in range(len(means))}
    procedure = Procedure(evidence="mixture") if family == BY_MIXTURE else Procedure()
    spec = compile_spec(Problem(["a", "b"], groups, outcome, constraint), procedure)
    unit = np.repeat(outcome.to_unit(means)[:, None], 2, axis=1)
    counts, state, work = np.zeros(3, dtype=np.int64), new_state(spec), new_work(spec)
    random = np.random.default_rng(seed)
    for first in range(0, runs, BLOCK):
        size = min(BLOCK, runs - first)
        outcomes = drawn(random, how, number, unit, (size, horizon + 2))
        simulate(spec, state, work, unit, outcomes, random.random((size, horizon, 3)), counts)
    return Crossings(*counts.tolist(), runs)


def is_too_often(count: int, runs: int) -> bool:
    """Would so many crossings be next to impossible (FALSE_ALARM) if their probability were ALPHA?"""
    return bool(stats.binom.sf(count - 1, runs, ALPHA) < FALSE_ALARM)


def scaled(constraint: c.Constraint, by: float) -> c.Constraint:
    if isinstance(constraint, (c.Floors, c.Caps)) and constraint.relative_to is not None:
        return constraint
    if isinstance(constraint, c.Floors):
        return c.Floors(np.multiply(constraint.at_least, by))
    if isinstance(constraint, c.Caps):
        return c.Caps(np.multiply(constraint.at_most, by))
    if isinstance(constraint, c.Gap):
        return c.Gap(constraint.at_most * by)
    if isinstance(constraint, c.Quota):
        return c.Quota(np.multiply(constraint.at_least, by), groups=constraint.groups)
    if isinstance(constraint, c.Dispersion):
        return c.Dispersion(constraint.at_most * by**2)
    if isinstance(constraint, c.Polyhedron):
        return c.Polyhedron(constraint.A, np.multiply(constraint.b, by))
    if isinstance(constraint, c.All):
        return c.All(tuple(scaled(part, by) for part in constraint.of))
    if isinstance(constraint, c.Penalty):
        return c.Penalty(np.multiply(constraint.floor, by), constraint.gamma)
    return constraint


def drawn(
    random: np.random.Generator, how: int, number: float, means: Array, shape: tuple[int, int]
) -> Array:
    """Outcomes in unit scale: (run, number of the outcome, group, policy)."""
    full = (*shape, *means.shape)
    if how == NORMAL:
        return random.normal(means, number, full)
    if how == TWO_POINT:
        return random.binomial(int(number), means, full) / number
    if how == COUNTS:
        return random.poisson(means, full).astype(float)
    if how == WAITING:
        return random.gamma(number, means / number, full)
    return random.uniform(means - number, means + number, full)


@kernel
def simulate(
    spec: Spec, state: State, work: Work, means: Array, outcomes: Array, coins: Array,
    counts: NDArray[np.int64],
) -> None:  # fmt: skip
    runs, horizon = coins.shape[0], coins.shape[1]
    groups, policies = means.shape
    level = math.log(1.0 / ALPHA)
    for run in range(runs):
        state.bets[:] = 0.0  # those of linear bets are not of one cell
        for k in range(policies):
            for g in range(groups):
                remove_outcomes(state, k, g)
                for first in range(2):
                    record(spec, state, work, k, g, outcomes[run, first, g, k], False)
        ahead, fails, meets = False, False, False
        for step in range(horizon):
            k, g = _chosen(state, means, coins[run, step])
            record(spec, state, work, k, g, outcomes[run, int(state.n[g, k]), g, k], False)
            ahead = ahead or certified.ahead(spec, state, work, 0, 1, math.inf) >= level
            fails = fails or certified.fails(spec, state, work, 1) >= level
            least, _ = certified.meets(spec, state, work, 0)
            meets = meets or level <= least < math.inf
        counts[0] += ahead
        counts[1] += fails
        counts[2] += meets


@kernel
def _chosen(state: State, means: Array, coins: Array) -> tuple[int, int]:
    """A third of the time any cell, a third the least sampled, a third the one that has been luckiest."""
    groups, policies = means.shape
    if coins[0] < 1.0 / 3.0:
        return int(coins[1] * policies), int(coins[2] * groups)
    best, k, g = -math.inf, 0, 0
    for j in range(policies):
        for h in range(groups):
            luck = (state.s[h, j] - state.n[h, j] * means[h, j]) / math.sqrt(state.n[h, j])
            score = -state.n[h, j] if coins[0] < 2.0 / 3.0 else (luck if j == 0 else -luck)
            if score > best:
                best, k, g = score, j, h
    return k, g
