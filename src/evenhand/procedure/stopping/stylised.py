"""`stylised`: the threshold of Garivier and Kaufmann (2016) as used in practice (no proof)."""

from __future__ import annotations

import math

from evenhand.compile import kernel


@kernel
def cost_of_checks(told: int) -> float:
    """Return ln(1 + ln t), the cost of repeated checks."""
    return math.log1p(math.log(float(max(told, 1))))


@kernel
def threshold(told: int, delta: float) -> float:
    """Return the threshold ln((1 + ln t) / delta) of the likelihood ratio after t outcomes."""
    return cost_of_checks(told) - math.log(delta)
