"""The evidence over time: checks of the stopping rule, computed again from the outcomes in their order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.decide import check
from evenhand.procedure.item_steps import read_answers, record_item
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import (
    ANSWER,
    EMPTY,
    EVIDENCE,
    NEEDED,
    RUNNING,
    STOPPED,
    TOLD,
    WEAKEST,
    State,
    Work,
    new_state,
    new_work,
    record,
    record_guardrails,
)

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]


class OrderedOutcomes(NamedTuple):
    """Outcomes in their order, in unit scale."""

    policy: Ints
    group: Ints
    outcome: Array
    rails: Array  # (outcomes, M) of the guard-rails, NaN where one is missing


class AnsweredItems(NamedTuple):
    """The outcomes on shared items, in their order."""

    group: Ints
    outcome: (
        Array  # (items, K) in unit scale; NaN where a policy was not asked, infinity where one is missing
    )


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


def rule_checks(spec: Spec, told: OrderedOutcomes | AnsweredItems, at_most: int) -> list[RuleCheck]:
    """Return evenly spaced checks, the last after the last outcome; none while some cell is empty."""
    total = len(told.group)
    every = max(1, -(-total // most_checks(spec, at_most)))
    looks = -(-total // every)
    levels, counts = new_levels(looks)
    if isinstance(told, AnsweredItems):
        check_items(spec, new_state(spec), new_work(spec), told, every, levels, counts)
    else:
        check_again(spec, new_state(spec), new_work(spec), *told, every, levels, counts)
    return checks_of(levels, counts)


def new_levels(looks: int) -> tuple[Array, Ints]:
    """Return the tables of a number of checks, which `check_again` and `check_items` fill."""
    return np.full((looks, 3), np.nan), np.zeros((looks, 2), dtype=np.int64)


def checks_of(levels: Array, counts: Ints) -> list[RuleCheck]:
    """Return the checks in the tables; without those that were not made because a cell was empty."""
    return [
        RuleCheck(samples, float(evidence), float(needed), leader, int(alternative))
        for (evidence, needed, alternative), (leader, samples) in zip(levels, counts.tolist(), strict=True)
        if np.isfinite(evidence) and np.isfinite(needed)
    ]


def check_items(
    spec: Spec, state: State, work: Work, items: AnsweredItems, every: int, levels: Array, counts: Ints
) -> None:
    """Record the outcomes on items again; check whenever the number left is a multiple of `every`."""
    answers, outcome = np.zeros(spec.phi.shape[1], dtype=np.bool_), items.outcome.copy()
    check_items_again(spec, state, work, items.group, outcome, answers, every, levels, counts)


@kernel
def check_again(
    spec: Spec, state: State, work: Work, policy: Ints, group: Ints, outcome: Array, rails: Array,
    every: int, levels: Array, counts: Ints,
) -> None:  # fmt: skip
    """Record the outcomes again; check whenever the number of those left is a multiple of `every`."""
    total, look = policy.shape[0], 0
    for i in range(total):
        record_guardrails(spec, state, policy[i], group[i], rails[i])
        record(spec, state, work, policy[i], group[i], outcome[i], False)
        if (total - i - 1) % every == 0:
            _check(spec, state, work, levels[look], counts[look])
            look += 1


@kernel
def check_items_again(
    spec: Spec, state: State, work: Work, group: Ints, outcome: Array, answers: Flags, every: int,
    levels: Array, counts: Ints,
) -> None:  # fmt: skip
    """Record the outcomes on items again; check whenever the number left is a multiple of `every`."""
    total, look = group.shape[0], 0
    for i in range(total):
        read_answers(outcome[i], answers)
        record_item(spec, state, work, group[i], answers, outcome[i], False)
        if (total - i - 1) % every == 0:
            _check(spec, state, work, levels[look], counts[look])
            look += 1


@kernel
def _check(spec: Spec, state: State, work: Work, level: Array, counts: Ints) -> None:
    """Check the rule if every cell has an outcome, and write evidence, threshold, leader and samples."""
    if state.clock[EMPTY] > 0:
        return
    check(spec, state, work)
    state.clock[STOPPED] = RUNNING
    level[0], level[1], level[2] = state.level[EVIDENCE], state.level[NEEDED], state.level[WEAKEST]
    counts[0], counts[1] = state.clock[ANSWER], state.clock[TOLD]
