"""Runs of the procedure on shared items, continued from existing outcomes, for forecasts.

Outcomes are 0 or 1 and depend on each other by the difficulty of their item (`simulation.agreement`), so
that policies agree as often as in the data. One decision assigns a block of items, about a twentieth of the
further ones (`_block_size`), with the tilts before it: a forecast is a few percent too long at most. Items of
small blocks are drawn one by one. In larger ones the numbers of outcomes 1 are normal, rounded, with the
covariances of outcomes on an item, and the items on which two policies differ are as many as expected.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes, kernel
from evenhand.procedure.evidence.item_bets import differing_items, record_block_on_pairs
from evenhand.procedure.item_steps import ask_item, check_after_item, next_item, record_item
from evenhand.procedure.randomness import OUTCOMES, standard_normal
from evenhand.procedure.spec import ACTIVE, Spec
from evenhand.procedure.state import ITEMS, RUNNING, STOPPED, TOLD, State, Work, mark_outcomes_changed
from evenhand.simulation.agreement import likely_share, quadrature, right_given
from evenhand.simulation.item_engine import ItemLaw, draw_item
from evenhand.simulation.streams import Source, arrival

Array = NDArray[np.float64]

OF_FURTHER, OF_ALL = 20, 25  # a block is this part of the further items, and of all, whichever is less,
STRIDE = 200  # and at least this part of all
AT_ONCE = 64  # from this many items on a block is drawn at once
INSIDE = 1e-12  # means are at least this far from 0 and 1: quantiles must be finite


class Shared(NamedTuple):
    """What the outcomes say about the dependence on shared items."""

    rho: float  # the share of the latent variance that is the item's difficulty
    correlations: Array  # (L, K, K) of the means that the data leave possible


class BlockLaw(NamedTuple):
    """The law of the outcomes on a block of items at one table of means; and scratch for one block."""

    sd: Annotated[Array, Axes("L", "K")]  # of an outcome
    root: Annotated[Array, Axes("L", "K", "K")]  # of the correlations of the outcomes on an item
    differ: Annotated[Array, Axes("L", "K", "K")]  # probability that two outcomes on an item differ
    carried: Annotated[Array, Axes("L", "K")]  # what rounding left for the next block
    z: Annotated[Array, Axes("K")]
    right: Annotated[Array, Axes("K")]
    differing: Annotated[Array, Axes("K", "K")]


def shared_by(spec: Spec, state: State, means: Array | None = None, agreement: float | None = None) -> Shared:
    """Return the dependence on shared items at these means, (L, K).

    Means, and how often two policies agree, are estimated if None.
    """
    together, differing = _pairs(spec, state)
    if means is None:
        means = (state.s + 0.5) / (state.n + 1.0)
    means = np.clip(means, INSIDE, 1.0 - INSIDE)
    if agreement is None:
        agreement = _agreement(spec, state, means, together, differing)
    rho = likely_share(np.ascontiguousarray(means.T), spec.shares, agreement)
    sizes = np.sqrt(np.maximum(state.n[:, :, None] * state.n[:, None, :], 1.0))
    overlap = np.eye(means.shape[1]) + together / sizes
    return Shared(rho, _outcomes_on_an_item(means, rho)[1] * overlap)


def _pairs(spec: Spec, state: State) -> tuple[Array, Array]:
    """Return the numbers of items that two policies answered, and on which they differ, (L, K, K)."""
    groups, policies = spec.phi.shape
    found = np.zeros((2, groups, policies, policies))
    for g in range(groups):
        for i in range(policies):
            for k in range(i):
                counts = differing_items(state.bets, groups, spec.bounded, i, k, g)
                found[:, g, i, k], found[:, g, k, i] = counts, counts
    return found[0], found[1]


def _agreement(spec: Spec, state: State, means: Array, together: Array, differing: Array) -> float:
    """Return the share of items on which two policies agree at these means, on average over pairs.

    They differ on the same part of the items on which independent outcomes would differ, as in the data. Each
    pair has one item more, with independent outcomes: few items do not show how often policies agree.
    """
    if means.shape[1] == 1:
        return 1.0
    here, seen = _differing_alone(means), _differing_alone(state.s / np.maximum(state.n, 1.0))
    part = (differing.sum() + here.sum()) / ((together * seen).sum() + here.sum())
    i, k = np.triu_indices(means.shape[1], 1)
    return 1.0 - float(part * np.mean(spec.shares @ here[:, i, k]))


def _differing_alone(means: Array) -> Array:
    """Return the probability that two independent outcomes differ, (L, K, K); 0 for those of one policy."""
    wrong = 1.0 - means
    found = means[:, :, None] * wrong[:, None, :] + means[:, None, :] * wrong[:, :, None]
    return np.asarray(found * (1.0 - np.eye(means.shape[1])))


def dependent(uniforms: Array, shared: Shared) -> Array:
    """Return uniforms (L, K) that depend on each other as the means that the data leave possible."""
    from scipy.special import ndtr, ndtri

    return np.asarray(ndtr(np.einsum("gik,gk->gi", _root(shared.correlations), ndtri(uniforms))))


def laws_at(means: Array, rho: float) -> tuple[ItemLaw, BlockLaw]:
    """Return the laws of single items and of blocks at these means, (L, K)."""
    from scipy.special import ndtri

    groups, policies = means.shape
    inside = np.clip(means, INSIDE, 1.0 - INSIDE)
    quantiles = np.ascontiguousarray(ndtri(inside))
    sd, correlations, differ = _outcomes_on_an_item(inside, rho)
    item = ItemLaw(True, rho, quantiles, np.zeros(policies, dtype=np.bool_), np.zeros(policies))
    scratch = np.zeros((groups, policies)), np.zeros(policies), np.zeros(policies), np.zeros((policies,) * 2)
    return item, BlockLaw(sd, _root(correlations), differ, *scratch)


def _outcomes_on_an_item(means: Array, rho: float) -> tuple[Array, Array, Array]:
    """Return sd (L, K) and correlations of outcomes, and the probability that two differ, (L, K, K)."""
    nodes, weights = quadrature()
    right = right_given(means, rho, nodes[:, None, None])
    weighted = right * weights[:, None, None]
    # of the quadrature, whose means are not exactly those that are given: so that correlations are possible
    seen = weighted.sum(axis=0)
    both = np.einsum("ngi,ngk->gik", weighted, right)
    differ = np.maximum(seen[:, :, None] + seen[:, None, :] - 2.0 * both, 0.0)
    spread = np.sqrt(np.maximum(seen * (1.0 - seen), INSIDE))
    found = (both - seen[:, :, None] * seen[:, None, :]) / (spread[:, :, None] * spread[:, None, :])
    diagonal = np.arange(means.shape[1])
    found[:, diagonal, diagonal], differ[:, diagonal, diagonal] = 1.0, 0.0
    return np.sqrt(means * (1.0 - means)), found, differ


def _root(correlations: Array) -> Array:
    """Return lower triangles whose squares are these correlations, (L, K, K)."""
    slack = 1e-9 * np.eye(correlations.shape[1])  # for policies whose outcomes are always the same
    return np.ascontiguousarray(np.linalg.cholesky(correlations + slack))


@kernel
def continue_on_items(
    spec: Spec, law: ItemLaw, blocks: BlockLaw, source: Source, mean: Array, state: State, work: Work,
    seed: int, replication: int,
) -> None:  # fmt: skip
    """Add blocks of items until the rule stops or the cap of outcomes is reached; `mean` is (L, K)."""
    number, begun = 0, state.clock[ITEMS]
    while state.clock[STOPPED] == RUNNING and state.clock[TOLD] < spec.cap:
        came = arrival(spec.arrivals, number, seed, replication) if spec.mode != ACTIVE else -1
        g = next_item(spec, state, work, came, law.answers)
        count = _block_size(spec, state, law, begun)
        if count == 1:
            ask_item(state, work, g, law.answers)
            draw_item(law, source, mean, g, number, number, seed, replication)
            record_item(spec, state, work, g, law.answers, law.outcomes, True)
        else:
            if count < AT_ONCE:
                _draw_one_by_one(law, blocks, source, mean, g, number, count, seed, replication)
            else:
                _draw_at_once(law, blocks, mean, g, number, count, seed, replication)
            _record_block(spec, law, blocks, state, work, g, count)
        number += count
        check_after_item(spec, state, work)


@kernel
def _block_size(spec: Spec, state: State, law: ItemLaw, begun: int) -> int:
    """Return the number of items before the next decision, within the cap of outcomes."""
    answering = 0
    for k in range(law.answers.size):
        answering += law.answers[k]
    room = (spec.cap - state.clock[TOLD] + answering - 1) // answering
    items = state.clock[ITEMS]
    wanted = max(items // STRIDE, min(items // OF_ALL, (items - begun) // OF_FURTHER))
    return int(max(1, min(wanted, room)))


@kernel
def _draw_one_by_one(
    law: ItemLaw, blocks: BlockLaw, source: Source, mean: Array, g: int, number: int, count: int, seed: int,
    replication: int,
) -> None:  # fmt: skip
    """Draw the items of a block, and count outcomes 1 and the items on which two policies differ."""
    blocks.right[:] = 0.0
    blocks.differing[:] = 0.0
    for item in range(number, number + count):
        draw_item(law, source, mean, g, item, item, seed, replication)
        for i in range(law.answers.size):
            if not law.answers[i]:
                continue
            blocks.right[i] += law.outcomes[i]
            for k in range(i):
                if law.answers[k] and law.outcomes[i] != law.outcomes[k]:
                    blocks.differing[i, k] += 1.0
                    blocks.differing[k, i] += 1.0


@kernel
def _draw_at_once(
    law: ItemLaw, blocks: BlockLaw, mean: Array, g: int, number: int, count: int, seed: int, replication: int
) -> None:
    """Draw the number of outcomes 1 of every policy, and the expected number of items where two differ."""
    groups, policies = mean.shape
    for i in range(policies):
        address = groups * policies + groups + i  # after those of single items
        blocks.z[i] = standard_normal(seed, number, address, replication, OUTCOMES)
        if not law.answers[i]:
            continue
        z = 0.0
        for j in range(i + 1):
            z += blocks.root[g, i, j] * blocks.z[j]
        wanted = blocks.carried[g, i] + count * mean[g, i] + math.sqrt(float(count)) * blocks.sd[g, i] * z
        blocks.right[i] = min(max(math.floor(wanted + 0.5), 0.0), float(count))
        blocks.carried[g, i] = wanted - blocks.right[i]
        for k in range(i):
            if law.answers[k]:
                total = blocks.right[i] + blocks.right[k]
                least, most = abs(blocks.right[i] - blocks.right[k]), min(total, 2.0 * count - total)
                found = min(max(count * blocks.differ[g, i, k], least), most)
                blocks.differing[i, k], blocks.differing[k, i] = found, found


@kernel
def _record_block(
    spec: Spec, law: ItemLaw, blocks: BlockLaw, state: State, work: Work, g: int, count: int
) -> None:
    """Record a block of items, as `record_item` does one by one."""
    record_block_on_pairs(
        state.bets, spec.shares, g, law.answers, float(count), blocks.right, blocks.differing, work.scratch
    )
    for k in range(law.answers.size):
        if law.answers[k]:
            state.n[g, k] += count
            state.s[g, k] += blocks.right[k]
            state.ss[g, k] += blocks.right[k]
            state.clock[TOLD] += count
            mark_outcomes_changed(work, k)
    state.clock[ITEMS] += count
