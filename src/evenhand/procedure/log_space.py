"""Logs of evidence: addition, and the values for no evidence and for evidence not computed."""

from __future__ import annotations

import math

from evenhand.compile import kernel

# the log of no evidence: finite, so that it can be displayed, and negligible in any sum
NOTHING = -700.0
# the log of evidence that could not be computed: below all other values, so that it decides nothing
NOT_COMPUTED = -math.inf


@kernel
def known(value: float) -> float:
    """Return the value, or NOT_COMPUTED for NaN, which comparisons would ignore."""
    return NOT_COMPUTED if math.isnan(value) else value


@kernel
def added(total: float, value: float) -> float:
    """Return ln(e^total + e^value); NaN if a value was not computed."""
    return math.nan if math.isnan(total) or value == NOT_COMPUTED else add(total, value)


@kernel
def add(a: float, b: float) -> float:
    """Return ln(e^a + e^b)."""
    high, low = max(a, b), min(a, b)
    if high == -math.inf or high == math.inf:
        return high
    return high + math.log1p(math.exp(low - high))
