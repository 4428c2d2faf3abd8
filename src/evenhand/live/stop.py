"""The event that says the stopping rule has fired: derived from the state, compared with the log's."""

from __future__ import annotations

import math

from evenhand.live.events import Stopped
from evenhand.live.protocol import Protocol
from evenhand.procedure.state import ANSWER, DECIDED, EVIDENCE, NEEDED, NONE, STOPPED, TOLD, WEAKEST, State


def stop_of(protocol: Protocol, state: State, at: str, back: float = 0.0) -> Stopped:
    """The event for a state in which the rule has fired."""
    decided = state.clock[STOPPED] == DECIDED
    answer = int(state.clock[ANSWER])
    return Stopped(
        at=at,
        back=back,
        why="decided" if decided else "exhausted",
        answer=protocol.problem.policies[answer] if decided and answer != NONE else None,
        samples=int(state.clock[TOLD]),
        evidence=finite(state.level[EVIDENCE]),
        needed=finite(state.level[NEEDED]),
        weakest=int(state.level[WEAKEST]),
    )


def same_stop(a: Stopped, b: Stopped, same_build: bool) -> bool:
    """The same decision from the same evidence, whoever's clock wrote it.

    Two builds may differ in the evidence's last digits, and in which of two equal comparisons they call the
    weakest.
    """
    if (a.why, a.answer, a.samples) != (b.why, b.answer, b.samples):
        return False
    if same_build:
        return (a.evidence, a.needed, a.weakest) == (b.evidence, b.needed, b.weakest)
    return _close(a.evidence, b.evidence) and _close(a.needed, b.needed)


def described(stop: Stopped) -> str:
    """For a message that names a difference."""
    evidence = f"evidence {stop.evidence} of {stop.needed}"
    return f"{stop.why}, answer {stop.answer!r} after {stop.samples} samples, {evidence}"


def finite(value: float) -> float | None:
    """The number, or None where it is infinite: a log holds finite numbers."""
    return float(value) if math.isfinite(value) else None


def _close(a: float | None, b: float | None) -> bool:
    """Equal up to the last digits, in which two builds of the numerical libraries may differ."""
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
