"""Numbers kept as their logs."""

from __future__ import annotations

import math

from evenhand.compile import kernel

# the log of no evidence at all: finite, so that it can be shown, and lost beside anything it is added to
NOTHING = -700.0
# the log of evidence whose bound could not be computed: below all else, so that nothing is decided by it
NOT_COMPUTED = -math.inf


@kernel
def known(value: float) -> float:
    """The value; what is not a number was not computed, and must not be passed over in a comparison."""
    return NOT_COMPUTED if math.isnan(value) else value


@kernel
def add(a: float, b: float) -> float:
    """ln(e^a + e^b)."""
    high, low = max(a, b), min(a, b)
    if high == -math.inf or high == math.inf:
        return high
    return high + math.log1p(math.exp(low - high))
