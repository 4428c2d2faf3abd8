"""`stylised`: the threshold of Garivier and Kaufmann (2016) as used in practice. A heuristic: no proof."""

from __future__ import annotations

import math

from evenhand.compile import kernel


@kernel
def patience(told: int) -> float:
    """ln(1 + ln t): what looking again and again costs."""
    return math.log1p(math.log(float(max(told, 1))))


@kernel
def threshold(told: int, delta: float) -> float:
    """ln((1 + ln t) / delta) for the likelihood ratio after t outcomes."""
    return patience(told) - math.log(delta)
