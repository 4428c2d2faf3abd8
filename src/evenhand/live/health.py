"""Is the experiment run as it was meant to be? Allocation against intention, cells left behind, tickets
forgotten.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evenhand.live.clock import seconds_of
from evenhand.live.kernels import Tally
from evenhand.live.tickets import ticket_code
from evenhand.live.view import View

ALERT = 0.001  # a sample-ratio p-value below this is no accident
_LEAST_SPREAD = 5.0  # below, a cell's draws are too few for the normal law
_LONG = 30 * 86_400.0  # seconds a ticket without a lease may be out before somebody should look


def health_of(view: View, now: float) -> dict[str, Any]:
    """Each finding as a number; `well` when none needs attention."""
    ratio = sample_ratio_p_value(view.tally)
    starved = _starved(view)
    limit = view.protocol.lease or _LONG
    ticket, at = view.oldest or (None, None)
    age = None if at is None else max(now - seconds_of(at), 0.0)
    too_long = age is not None and age > limit
    return {
        "well": ratio >= ALERT and not starved and not too_long and not view.counts["clock_back"],
        "sample_ratio_p": ratio,
        "starved": starved,
        "oldest_pending": None if ticket is None else ticket_code(view.protocol.hash, ticket),
        "oldest_pending_seconds": age,
        "pending_too_long": too_long,
        "clock_back": view.counts["clock_back"],
    }


def sample_ratio_p_value(tally: Tally) -> float:
    """How surprising the counts are under the probabilities that cells were drawn with.

    A draw minus its probability has mean zero given the past, whatever the rule, and variance p (1 - p). The
    largest deviation counts, times the number of cells looked at.
    """
    away = np.abs(tally.drawn - tally.expected)
    if np.any(away[tally.spread == 0.0] > 1e-6 * (1.0 + tally.drawn[tally.spread == 0.0])):
        return 0.0  # a cell without chance, and yet not drawn as it should be
    enough = tally.spread >= _LEAST_SPREAD
    if not enough.any():
        return 1.0
    largest = float(np.max(away[enough] / np.sqrt(tally.spread[enough])))
    return min(1.0, int(enough.sum()) * math.erfc(largest / math.sqrt(2.0)))


def _starved(view: View) -> list[dict[str, Any]]:
    """Cells short of their initial samples when twice as many tickets as those need were handed out."""
    problem, initial = view.protocol.problem, view.protocol.procedure.initial
    groups, policies = view.state.n.shape
    if view.counts["asked"] < 2 * initial * groups * policies:
        return []
    short = np.argwhere((view.state.n + view.state.out).T - initial < 0)
    return [
        {"policy": problem.policies[k], "group": problem.group_names[g], "samples": int(view.state.n[g, k])}
        for k, g in short.tolist()
    ]
