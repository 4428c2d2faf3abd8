"""The `stopped` event: computed from the state and compared with the log's."""

from __future__ import annotations

import math

import numpy as np

from evenhand.live.events import Stopped
from evenhand.live.protocol import Protocol
from evenhand.procedure.guardrails import meets_all
from evenhand.procedure.state import (
    ANSWER,
    DECIDED,
    EVIDENCE,
    EXHAUSTED,
    FUTILE,
    NEEDED,
    NONE,
    STOPPED,
    TOLD,
    WEAKEST,
    State,
)

_WHY = {DECIDED: "decided", EXHAUSTED: "exhausted", FUTILE: "futile"}


def stop_event(protocol: Protocol, state: State, at: str, back: float = 0.0) -> Stopped:
    """Return the `stopped` event for a state in which the rule has fired."""
    decided = state.clock[STOPPED] == DECIDED
    answer = NONE if protocol.spec.screens else int(state.clock[ANSWER])
    return Stopped(
        at=at,
        back=back,
        why=_WHY[int(state.clock[STOPPED])],
        answer=protocol.problem.policies[answer] if decided and answer != NONE else None,
        samples=int(state.clock[TOLD]),
        evidence=finite_or_none(state.level[EVIDENCE]),
        needed=finite_or_none(state.level[NEEDED]),
        weakest=int(state.level[WEAKEST]),
        allowed=_allowed(protocol, state) if decided and protocol.spec.screens else None,
    )


def _allowed(protocol: Protocol, state: State) -> list[str]:
    """Return the policies whose estimates meet the requirement; at a stop their evidence suffices."""
    spec, mean = protocol.spec, np.ascontiguousarray(state.s / state.n)
    with np.errstate(invalid="ignore"):
        rails = np.ascontiguousarray(
            state.rail_s / state.rail_n
        )  # all outcomes of a guard-rail may be missing
    policies = protocol.problem.policies
    return [name for k, name in enumerate(policies) if meets_all(spec, spec.region, k, mean, rails)]


def same_stop(a: Stopped, b: Stopped, same_build: bool) -> bool:
    """Return whether two `stopped` events have the same decision and evidence, except times.

    Two builds may differ in the evidence's last digits, and in which of two equal comparisons is the weakest.
    """
    if (a.why, a.answer, a.allowed, a.samples) != (b.why, b.answer, b.allowed, b.samples):
        return False
    if same_build:
        return (a.evidence, a.needed, a.weakest) == (b.evidence, b.needed, b.weakest)
    return _close(a.evidence, b.evidence) and _close(a.needed, b.needed)


def describe_stop(stop: Stopped) -> str:
    """Return a description for a message about a difference."""
    evidence = f"evidence {stop.evidence} of {stop.needed}"
    return f"{stop.why}, answer {stop.answer!r} after {stop.samples} samples, {evidence}"


def finite_or_none(value: float) -> float | None:
    """Return the number, or None if it is infinite: a log holds finite numbers."""
    return float(value) if math.isfinite(value) else None


def _close(a: float | None, b: float | None) -> bool:
    """Return whether two numbers are equal up to the last digits, which may vary by build."""
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
