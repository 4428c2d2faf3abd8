"""Lower bounds on the mean number of samples at a given risk.

With one acceptable answer: T* kl(delta, 1 - delta). With several, let p_i be the probability that a procedure
of risk delta returns the acceptable answer i. Wherever i is not acceptable the procedure may return i with
probability at most delta, so by the data-processing inequality the mean number of samples is at least
T*_i kl(p_i, delta) for every i with p_i > delta; and the probabilities sum to at least 1 - delta. So it is at
least

    min over p, sum p_i = 1 - delta, of max over i of T*_i kl+(p_i, delta),      kl+ = 0 up to p_i = delta.

The bound x is the root of sum_i p_i(x) = 1 - delta, p_i(x) the largest p with T*_i kl+(p, delta) <= x.
With so many acceptable answers that p_i = delta for each is enough, it is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from evenhand.errors import BadInput

TURNS = 200  # of each bisection: double precision is exhausted before


def samples_needed(times: Sequence[float], delta: float) -> float:
    """Return the least mean number of samples at this risk, given T*_i of acceptable answers."""
    if len(times) == 1:
        return times[0] * risk_in_nats(delta)
    finite = [time for time in times if math.isfinite(time)]
    risk_in_nats(delta)  # refuses an invalid risk
    if not finite or len(times) * delta >= 1.0 - delta:
        return 0.0 if finite else math.inf
    low, high = 0.0, min(finite) * kl(1.0 - delta, delta)
    for _ in range(TURNS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if sum(_largest(middle / time, delta) for time in times) < 1.0 - delta:
            low = middle
        else:
            high = middle
    return low


def risk_in_nats(delta: float) -> float:
    """Return kl(delta, 1 - delta), the evidence that a risk of delta requires."""
    if not 0.0 < delta < 0.5:
        raise BadInput(f"delta must lie strictly between 0 and 0.5; it is {delta}.")
    return (1.0 - 2.0 * delta) * (math.log1p(-delta) - math.log(delta))


def kl(p: float, q: float) -> float:
    """Return the divergence between two probabilities, 0 < q < 1."""
    first = p * math.log(p / q) if p > 0.0 else 0.0
    return first + ((1.0 - p) * math.log((1.0 - p) / (1.0 - q)) if p < 1.0 else 0.0)


def _largest(nats: float, delta: float) -> float:
    """Return the largest p in [delta, 1] with kl(p, delta) <= nats."""
    if nats >= -math.log(delta):
        return 1.0
    low, high = delta, 1.0
    for _ in range(TURNS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if kl(middle, delta) <= nats:
            low = middle
        else:
            high = middle
    return low
