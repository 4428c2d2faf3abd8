"""The evidence over time: checks of the stopping rule, computed again from the outcomes in their order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.decide import check
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import (
    ANSWER,
    EMPTY,
    EVIDENCE,
    NEEDED,
    RUNNING,
    STOPPED,
    WEAKEST,
    State,
    Work,
    new_state,
    new_work,
    record,
    record_guardrails,
)

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class OrderedOutcomes(NamedTuple):
    """Outcomes in their order, in unit scale."""

    policy: Ints
    group: Ints
    outcome: Array
    rails: Array  # (outcomes, M) of the guard-rails, NaN where one is missing


class RuleCheck(NamedTuple):
    """The result of one check of the rule, and the number of samples then."""

    samples: int
    evidence: float
    needed: float
    leader: int  # or NONE
    alternative: int  # the code of the weakest comparison, see `procedure.alternatives`


CELL_CHECKS = 50_000  # cells times checks of one figure: about a second
FEWEST = 6


def most_checks(spec: Spec, at_most: int) -> int:
    """Return how many checks a figure may have: one of ten thousand cells takes a fifth of a second."""
    return min(at_most, max(FEWEST, CELL_CHECKS // spec.phi.size))


def rule_checks(spec: Spec, told: OrderedOutcomes, at_most: int) -> list[RuleCheck]:
    """Return evenly spaced checks, the last after the last outcome; none while some cell is empty."""
    total = len(told.policy)
    every = max(1, -(-total // most_checks(spec, at_most)))
    samples = list(range(total, 0, -every))[::-1]
    levels, leaders = np.full((len(samples), 3), np.nan), np.zeros(len(samples), dtype=np.int64)
    check_again(spec, new_state(spec), new_work(spec), *told, every, levels, leaders)
    return [
        RuleCheck(after, float(evidence), float(needed), int(leader), int(alternative))
        for after, (evidence, needed, alternative), leader in zip(samples, levels, leaders, strict=True)
        if np.isfinite(evidence) and np.isfinite(needed)
    ]


@kernel
def check_again(
    spec: Spec, state: State, work: Work, policy: Ints, group: Ints, outcome: Array, rails: Array,
    every: int, levels: Array, leaders: Ints,
) -> None:  # fmt: skip
    """Record the outcomes again; check whenever the number of those left is a multiple of `every`."""
    total, look = policy.shape[0], 0
    for i in range(total):
        record_guardrails(spec, state, policy[i], group[i], rails[i])
        record(spec, state, work, policy[i], group[i], outcome[i], False)
        if (total - i - 1) % every == 0:
            if state.clock[EMPTY] == 0:
                check(spec, state, work)
                state.clock[STOPPED] = RUNNING
                levels[look, 0], levels[look, 1] = state.level[EVIDENCE], state.level[NEEDED]
                levels[look, 2] = state.level[WEAKEST]
                leaders[look] = state.clock[ANSWER]
            look += 1
