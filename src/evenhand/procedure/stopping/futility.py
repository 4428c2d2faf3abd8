"""Futility: the estimated probability that the stopping rule decides before the cap.

Let g be the likelihood ratio of the weakest alternative now, after t samples, and c = cap / t. With z =
sqrt(2 g), the standardised distance to that alternative, and a flat prior on the true one, the distance at
the cap has the predictive law N(z sqrt(c), c - 1) if the allocation stays the same. The rule decides there
when the distance reaches b = sqrt(2 (needed + g - evidence)): the evidence is lower than the likelihood ratio
by the cost of the bets, which is assumed to stay the same. So

    chance = Phi((z sqrt(c) - b) / sqrt(c - 1)).

An estimate, not a bound: an experiment that ends by it ends without a verdict, so no guarantee depends on it.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.procedure.alternatives import weakest_by_likelihood
from evenhand.procedure.guardrails import enter_all, leave_any
from evenhand.procedure.spec import CERTIFIED, Spec
from evenhand.procedure.state import TOLD, State, Work


@kernel
def chance_to_decide(
    spec: Spec, state: State, work: Work, leader: int, value: float, needed: float, alternative: int
) -> float:
    """Return the estimated probability of a decision before the cap; `value` is the evidence now."""
    told = float(state.clock[TOLD])
    glr = value
    if spec.stopping == CERTIFIED:
        glr = _likelihood_ratio(spec, work, leader, alternative)
    glr = max(glr, 0.0)
    times = spec.cap / told
    target = math.sqrt(2.0 * max(needed + max(glr - max(value, 0.0), 0.0), 0.0))
    if times <= 1.0:
        return 0.0
    reach = (math.sqrt(2.0 * glr * times) - target) / math.sqrt(times - 1.0)
    return 0.5 * math.erfc(-reach / math.sqrt(2.0))


@kernel
def _likelihood_ratio(spec: Spec, work: Work, leader: int, alternative: int) -> float:
    """Return the likelihood ratio of the weakest alternative; in screening, of the weakest policy."""
    if not spec.screens:
        value, _ = weakest_by_likelihood(spec, work, leader)
        return value
    if work.margin[alternative] >= 0.0:
        lower, _ = leave_any(spec, work, spec.region, alternative)
        return lower
    return enter_all(spec, work, alternative)
