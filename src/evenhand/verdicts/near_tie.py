"""A proposal of an indifference for data that would hardly ever decide, because policies are nearly tied."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import EvenhandError, Undecidable
from evenhand.model.families import Gaussian
from evenhand.model.problem import Problem
from evenhand.model.unit_families import BERNOULLI, GAUSSIAN
from evenhand.procedure.estimates import variance
from evenhand.procedure.guardrail_rows import guardrail_problem, metric_spec, metric_state
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State
from evenhand.theory.answers import PROPOSAL_GAP, answers_to, propose, risk_in_nats
from evenhand.theory.modes import mode_of
from evenhand.theory.question import question_of
from evenhand.verdicts.forecast_statement import Suggestion

Array = NDArray[np.float64]

MOST_POLICIES = 200  # with more, solving for T* takes longer than the forecast


def suggest_indifference(problem: Problem, spec: Spec, state: State) -> Suggestion | None:
    """Return an indifference that makes a near tie of the estimates decidable; None if there is none."""
    if spec.screens or spec.several or problem.shape[0] > MOST_POLICIES or np.any(state.n == 0):
        return None
    if np.any(state.rail_n == 0):
        return None
    try:
        rails = {
            rail.name: _estimates(
                guardrail_problem(problem, j), metric_spec(problem, spec, j), metric_state(state, j)
            )
            for j, rail in enumerate(problem.guardrails)
        }
        asked = question_of(
            _with_variances(problem, spec, state), _estimates(problem, spec, state), rails or None, 0, 0
        )
        mode = mode_of(asked.problem)
        mode = replace(mode, cost=np.ones_like(mode.cost))
        try:
            time = answers_to(asked, mode, PROPOSAL_GAP).time.low
        except Undecidable:
            time = math.inf  # an exact tie of the estimates
        found = propose(asked, mode, time)
    except EvenhandError:
        return None  # estimates at which nothing can be planned
    if found is None:
        return None
    return Suggestion(
        found.indifference,
        found.acceptable,
        time if math.isfinite(time) else None,
        found.time_high,
        time * risk_in_nats(spec.delta) if math.isfinite(time) else None,
        found.samples_at_least(spec.delta),
    )


def _estimates(problem: Problem, spec: Spec, state: State) -> Array:
    """Return the estimated means, K x L, in the user's units, half an outcome inside the domain."""
    unit, half = state.s / state.n, 0.5 / state.n
    if spec.code != GAUSSIAN:
        unit = np.maximum(unit, half)
    if spec.code == BERNOULLI:
        unit = np.minimum(unit, 1.0 - half)
    return np.asarray(problem.family.low + problem.family.width * unit.T)


def _with_variances(problem: Problem, spec: Spec, state: State) -> Problem:
    """Return the problem with the estimated variances, where they are unknown."""
    rails = tuple(
        replace(rail, family=_estimated_family(metric_state(state, j)))
        if spec.guardrails.unknown_variance[j]
        else rail
        for j, rail in enumerate(problem.guardrails)
    )
    family = _estimated_family(state) if spec.unknown_variance else problem.family
    return replace(problem, family=family, guardrails=rails)


def _estimated_family(state: State) -> Gaussian:
    """Return the Gaussian family with the variances of the cells."""
    groups, policies = state.n.shape
    return Gaussian(np.sqrt([[float(variance(state, g, k)) for g in range(groups)] for k in range(policies)]))
