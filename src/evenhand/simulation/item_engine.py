"""The compiled loop of runs on shared items: the group of an item, its outcomes, the evidence.

The group and who answers come from `procedure.item_steps`, as in a live experiment: with the same outcomes it
asks for the same items and stops at the same one. Outcomes of the policies on one item depend on each other
by its difficulty (`agreement`), or belong to one item of a file.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes, Static, kernel
from evenhand.errors import BadInput
from evenhand.procedure.item_steps import ask_item, check_after_item, next_item, record_item
from evenhand.procedure.randomness import DELAYS, OUTCOMES, standard_normal, uniform
from evenhand.procedure.spec import ACTIVE, Spec
from evenhand.procedure.state import EMPTY, ITEMS
from evenhand.simulation.agreement import MOST_SHARE, difficulty_share
from evenhand.simulation.buffers import Checkpoints, Rows, RunBuffers
from evenhand.simulation.engine import begin, finish, is_running, note_checkpoints, note_peak
from evenhand.simulation.streams import COIN, Source, arrival, outcome
from evenhand.study import Study

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_SQRT_2 = math.sqrt(2.0)


class ItemLaw(NamedTuple):
    """How the outcomes on one item depend on each other; and scratch for one item."""

    depends: Static[bool]  # whether they depend on the item's difficulty
    rho: float  # the share of the latent variance that is its difficulty
    quantiles: Annotated[Array, Axes("L", "K")]  # Phi^-1 of the means
    answers: Annotated[Flags, Axes("K")]
    outcomes: Annotated[Array, Axes("K")]


def item_law(study: Study, source: Source, one_truth: bool) -> ItemLaw | None:
    """Return the law of shared items, None where the study has none; refuse what cannot be simulated."""
    if study.procedure.items is None:
        return None
    if not one_truth:
        raise BadInput(
            "shared items are simulated at one table of means; give one, and simulate again for others."
        )
    if study.procedure.interval is not None:
        raise BadInput("shared items are simulated one by one; leave interval out of the study.")
    if source.lag_most > 0:
        raise BadInput("the outcomes of shared items are simulated without a lag; leave lag out.")
    agreement = None if study.truth is None else study.truth.agreement
    if agreement is None:
        return _law(source, 0.0)
    if source.law != COIN:
        raise BadInput("agreement is for outcomes 0 or 1; leave it out, or take the family bernoulli.")
    means, shares = np.ascontiguousarray(source.means[0].T), np.array(study.problem.shares)
    return _law(source, min(difficulty_share(means, shares, agreement), MOST_SHARE))


def _law(source: Source, rho: float) -> ItemLaw:
    from scipy.special import ndtri

    means = source.means[0]
    table, policies = ndtri(means) if rho > 0.0 else np.zeros(means.shape), means.shape[1]
    return ItemLaw(
        rho > 0.0, rho, np.ascontiguousarray(table), np.zeros(policies, dtype=np.bool_), np.zeros(policies)
    )


def own_scratch(law: ItemLaw) -> ItemLaw:
    """Return the law with scratch of its own, for one thread."""
    return law._replace(answers=law.answers.copy(), outcomes=law.outcomes.copy())


@kernel
def run_item_block(
    spec: Spec,
    law: ItemLaw,
    source: Source,
    seed: int,
    first: int,
    buffers: RunBuffers,
    checkpoints: Checkpoints,
    rows: Rows,
) -> None:
    """Run replications first, first + 1, ... until the rows are full."""
    state, work = buffers.state, buffers.work
    for row in range(rows.samples.shape[0]):
        mean = source.means[row if source.means.shape[0] > 1 else 0]
        truth = begin(spec, source, mean, buffers)
        while is_running(spec, state):
            number = state.clock[ITEMS]
            came = arrival(spec.arrivals, number, seed, first + row) if spec.mode != ACTIVE else -1
            g = next_item(spec, state, work, came, law.answers)
            ask_item(state, work, g, law.answers)
            draw_item(law, source, mean, g, buffers.pending.drawn[g, 0], number, seed, first + row)
            buffers.pending.drawn[g, 0] += 1
            record_item(spec, state, work, g, law.answers, law.outcomes, True)
            if check_after_item(spec, state, work) and state.clock[EMPTY] == 0:
                note_peak(spec, state, buffers.pending, truth)
            note_checkpoints(spec, buffers, checkpoints, rows, row)
        finish(spec, buffers, truth, rows, row)
        rows.asked[row] = state.clock[ITEMS]


@kernel
def draw_item(
    law: ItemLaw, source: Source, mean: Array, g: int, item: int, number: int, seed: int, replication: int
) -> None:
    """Write the outcomes on an item of a group, in unit scale; NaN where one is lost or not asked."""
    groups, policies = mean.shape
    z = 0.0
    if law.depends:
        z = math.sqrt(law.rho) * standard_normal(seed, item, groups * policies + g, replication, OUTCOMES)
    for k in range(policies):
        law.outcomes[k] = math.nan
        lost = source.dropout > 0.0 and uniform(seed, number, k, replication, DELAYS) < source.dropout
        if not law.answers[k] or lost:
            continue
        if law.depends:
            # Phi((Phi^-1(m) - sqrt(rho) z) / sqrt(1 - rho))
            x = (law.quantiles[g, k] - z) / math.sqrt(1.0 - law.rho)
            u = uniform(seed, item, k * groups + g, replication, OUTCOMES)
            law.outcomes[k] = 1.0 if u < 0.5 * math.erfc(-x / _SQRT_2) else 0.0
        else:
            drawn = outcome(source, mean, k, g, item, seed, replication)
            law.outcomes[k] = (drawn - source.low) / source.width
