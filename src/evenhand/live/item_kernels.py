"""Kernels of the fold for tickets on shared items: many events per call, with the simulator's kernels.

A ticket is for one item, which several policies answer. The rows of `replay_kernels` have a table of outcomes
beside them, (rows, K) in unit scale: NaN where a policy does not answer, infinity where its outcome is
missing. In an ask 1 stands for every policy that answers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.live.replay_kernels import (
    ARRIVED,
    ASK_ANY,
    ASK_THIS,
    CHANCE,
    GROUP,
    STATE,
    WHAT,
    DrawTally,
    digest_of_chance,
    digest_of_data,
    remove_all_outcomes,
)
from evenhand.procedure.decide import check
from evenhand.procedure.item_steps import (
    ask_item,
    check_after_item,
    next_item,
    read_answers,
    record_item,
)
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import EMPTY, ITEMS, RUNNING, STOPPED, State, Work

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
Digests = NDArray[np.uint64]


@kernel
def advance_items(
    spec: Spec, state: State, work: Work, tally: DrawTally, rows: Ints, values: Array, digests: Digests,
    outcomes: Array, answers: Flags,
) -> int:  # fmt: skip
    """Compute the rows in order; return how many were computed, as `replay_kernels.advance` does.

    The row of an ask that differs then holds the group and the policies of the rule.
    """
    for i in range(rows.shape[0]):
        if state.clock[STOPPED] != RUNNING:
            return i
        if rows[i, WHAT] in (ASK_ANY, ASK_THIS):
            if not _ask(spec, state, work, tally, rows, values, digests, outcomes[i], answers, i):
                return i
        else:  # told or given up: in both cases an item that was asked for
            read_answers(outcomes[i], answers)
            record_item(spec, state, work, rows[i, GROUP], answers, outcomes[i], True)
            check_after_item(spec, state, work)
    return len(rows)


@kernel
def replace_all_items(
    spec: Spec, state: State, work: Work, groups: Ints, outcomes: Array, answers: Flags
) -> None:
    """Fold the outcomes on all items again, in their order, after a correction.

    Earlier asks stay as they were.
    """
    remove_all_outcomes(state)
    state.clock[ITEMS] -= groups.shape[0]
    for i in range(groups.shape[0]):
        read_answers(outcomes[i], answers)
        record_item(spec, state, work, groups[i], answers, outcomes[i], False)
    if state.clock[STOPPED] == RUNNING and state.clock[EMPTY] == 0:
        check(spec, state, work)


@kernel
def _ask(
    spec: Spec,
    state: State,
    work: Work,
    tally: DrawTally,
    rows: Ints,
    values: Array,
    digests: Digests,
    asked: Array,
    answers: Flags,
    i: int,
) -> bool:
    digests[i, STATE] = digest_of_data(spec, state)
    g = next_item(spec, state, work, rows[i, ARRIVED], answers)
    _write_chances(work, g, answers)
    digests[i, CHANCE] = digest_of_chance(spec, state, work)
    differs = rows[i, GROUP] != g
    for k in range(answers.size):
        differs = differs or answers[k] == math.isnan(asked[k])
        asked[k] = 1.0 if answers[k] else math.nan
    rows[i, GROUP], values[i] = g, 1.0
    if rows[i, WHAT] == ASK_THIS and differs:
        return False
    ask_item(state, work, g, answers)
    for k in range(answers.size):
        if answers[k]:
            tally.drawn[g, k] += 1.0
            tally.expected[g, k] += 1.0
    return True


@kernel
def _write_chances(work: Work, g: int, answers: Flags) -> None:
    """Write the probability of every cell: 1 for those that are asked for, as nothing is drawn at random."""
    for h in range(work.probability.shape[0]):
        for k in range(work.probability.shape[1]):
            work.probability[h, k] = 1.0 if h == g and answers[k] else 0.0
