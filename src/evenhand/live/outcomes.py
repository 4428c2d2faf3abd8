"""Validation of outcomes for the Python API, the command line, files and the service."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, nearest
from evenhand.live.events import Metrics, Sample
from evenhand.model.families import BOOLEANS, Family
from evenhand.model.guardrails import OUTCOME, Guardrail
from evenhand.model.problem import Problem

LARGEST = 1e100  # above this, the sum of squares could overflow
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def checked_outcome(value: Any, family: Family) -> float:
    """Return the outcome as a float; refuse what the family cannot produce.

    True and False are 1 and 0.
    """
    if not isinstance(value, (bool, np.bool_, int, float, np.integer, np.floating)):
        raise BadInput(f"outcomes must be {family.outcomes}; {_shown(value)} is not a number.")
    try:
        outcome = float(value)
    except OverflowError:
        outcome = math.inf
    if not math.isfinite(outcome) or not family.admits(outcome):
        raise BadInput(f"outcomes must be {family.outcomes}; this one is {_shown(value)}.")
    if outcome == 0.0 and math.copysign(1.0, outcome) < 0.0:
        raise BadInput(
            f"outcomes must be {family.outcomes}; this one is -0.0. Write 0 if that is what was seen."
        )
    if abs(outcome) > LARGEST:
        raise BadInput(f"outcomes must not be larger than {LARGEST:g} in size; this one is {_shown(value)}.")
    return outcome


def checked_sample(value: Any, problem: Problem) -> Sample:
    """Return the outcomes of a sample, checked: a number, or a mapping by name where there are guard-rails.

    A guard-rail's outcome of None is missing; every guard-rail must be named.
    """
    if not problem.guardrails:
        return Sample(checked_outcome(value, problem.family))
    names = (OUTCOME, *(rail.name for rail in problem.guardrails))
    if not isinstance(value, Mapping):
        raise BadInput(f"the outcome of a sample must name {', '.join(names)}; it is {_shown(value)}.")
    for name in value:
        if name not in names:
            raise BadInput(f"a sample has no outcome {_shown(name)}{nearest(str(name), names)}")
    lacking = next((name for name in names if name not in value), None)
    if lacking is not None:
        extra = "" if lacking == OUTCOME else " Give it as null (None) if it is missing."
        raise BadInput(
            f"the outcome of a sample must name {', '.join(names)}; {lacking!r} is not there.{extra}"
        )
    metrics = {name: value[name] for name in names[1:]}
    return Sample(checked_outcome(value[OUTCOME], problem.family), checked_metrics(metrics, problem))


def checked_metrics(metrics: Metrics, problem: Problem) -> Metrics:
    """Return the outcomes of all guard-rails by name, checked; None where the problem has none."""
    names = [rail.name for rail in problem.guardrails]
    if sorted(metrics or ()) != sorted(names):
        wanted = ", ".join(names) if names else "nothing"
        raise BadInput(
            f"the outcomes of guard-rails must name {wanted}; they name {', '.join(metrics or ())}."
        )
    return (
        None
        if metrics is None
        else {rail.name: _checked_metric(rail, metrics) for rail in problem.guardrails}
    )


def _checked_metric(rail: Guardrail, metrics: Mapping[str, Any]) -> float | None:
    value = metrics[rail.name]
    if value is None:
        return None
    try:
        return checked_outcome(value, rail.family)
    except BadInput as problem:
        raise BadInput(f"guard-rail {rail.name!r}: {problem}") from None


def unit_metrics(metrics: Metrics, problem: Problem) -> tuple[float, ...]:
    """Return the outcomes of the guard-rails in unit scale, in their order; NaN where one is missing."""
    told = [(rail.family, (metrics or {}).get(rail.name)) for rail in problem.guardrails]
    return tuple(math.nan if x is None else (x - family.low) / family.width for family, x in told)


def parsed_sample(
    text: str, metrics: Mapping[str, str | None], problem: Problem
) -> float | dict[str, float | None]:
    """Return what `tell` takes, from fields of a file or a command line.

    An empty field of a guard-rail is a missing outcome; a guard-rail without a field stays out.
    """
    outcome = parsed_outcome(text, problem.family)
    if not problem.guardrails and not metrics:
        return outcome
    families = {rail.name: rail.family for rail in problem.guardrails}
    found: dict[str, float | None] = {OUTCOME: outcome}
    for name, field in metrics.items():
        if name not in families:
            raise BadInput(f"there is no guard-rail {_shown(name)}{nearest(name, families)}")
        if field is not None:
            found[name] = parsed_number(field, families[name]) if field.strip() else None
    return found


def first_bad(outcomes: NDArray[np.float64], family: Family) -> int | None:
    """Return the index of the first number that `checked_outcome` refuses."""
    minus_zero = (outcomes == 0.0) & np.signbit(outcomes)
    good = np.isfinite(outcomes) & family.admits(outcomes) & (np.abs(outcomes) <= LARGEST) & ~minus_zero
    return None if good.all() else int(np.argmin(good))


def parsed_outcome(text: str, family: Family) -> float:
    """Return the outcome in a field of a file or command line."""
    return checked_outcome(parsed_number(text, family), family)


def parsed_number(text: str, family: Family) -> float:
    """Return the number in a field, whether or not it can be an outcome."""
    stripped = text.strip()
    if stripped.lower() in BOOLEANS:
        return BOOLEANS[stripped.lower()]
    if not _NUMBER.fullmatch(stripped):
        raise BadInput(f"outcomes must be {family.outcomes}; {_shown(text)} is not a number.")
    return float(stripped)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
