"""States as they are after some outcomes were told."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from evenhand.model.families import Family
from evenhand.model.problem import Problem
from evenhand.model.requirements import Constraint, NoConstraint
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.spec import Procedure, Spec
from evenhand.procedure.state import (
    EMPTY,
    FIRST,
    LEAP,
    LENGTH,
    SHIFTED,
    SQUARES,
    TOLD,
    State,
    Work,
    new_state,
    new_work,
    record,
)


def spec_of(
    family: Family,
    shares: ArrayLike,
    constraint: Constraint | None = None,
    policies: int = 2,
    delta: float = 0.05,
) -> Spec:
    """Some policies, groups with these shares."""
    groups = {f"group {g}": float(share) for g, share in enumerate(np.atleast_1d(shares))}
    names = [f"policy {k}" for k in range(policies)]
    problem = Problem(names, groups, family, constraint or NoConstraint(), normalise=True)
    return compile_spec(problem, Procedure(delta=delta, evidence="mixture"))  # counts have no order


def counted(spec: Spec, n: ArrayLike, means: ArrayLike) -> tuple[State, Work]:
    """So many outcomes per cell (L x K), with these means, unit scale."""
    state = new_state(spec)
    state.n[:] = n
    state.s[:] = state.n * np.asarray(means)
    return state, new_work(spec)


def recorded(spec: Spec, outcomes: dict[tuple[int, int], ArrayLike]) -> tuple[State, Work]:
    """These outcomes (unit scale) of each cell (k, g), in order."""
    state, work = new_state(spec), new_work(spec)
    for (k, g), xs in outcomes.items():
        for x in np.asarray(xs, dtype=float):
            record(spec, state, work, k, g, x, False)
    return state, work


def state_with_counts(spec: Spec, n: ArrayLike, means: ArrayLike, sd: float = 0.5) -> tuple[State, Work]:
    """So many outcomes per cell (L x K) with these means (unit scale), and the memory of the bets.

    A cell's first outcome is its mean; of unknown variance, half of its outcomes are sd below, half above.
    """
    state, work = counted(spec, n, means)
    bets = state.bets.reshape(5, *state.n.shape)
    bets[FIRST] = np.asarray(means) - (sd if spec.unknown_variance else 0.0)
    if spec.unknown_variance:
        bets[LENGTH], bets[LEAP] = 2.0, 2.0 * sd
        bets[SHIFTED], bets[SQUARES] = state.n * sd, 2.0 * state.n * sd**2
    state.clock[EMPTY], state.clock[TOLD] = 0, int(state.n.sum())
    return state, work
