"""Bets on pairs of policies that answer shared items, as a block of items adds to them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evenhand.procedure.evidence.item_bets import (
    differing_items,
    item_rows,
    record_block_on_pairs,
    record_on_pairs,
)
from evenhand.procedure.evidence.linear_bets import BOTH, ONLY_I, ONLY_K, new_block, record_draw, record_draws
from evenhand.procedure.evidence.pair_bets import pair_scratch


@pytest.mark.parametrize("kind", [BOTH, ONLY_I, ONLY_K])
def test_the_bets_on_a_block_are_those_on_its_outcomes_at_the_tilts_before_it(kind: int) -> None:
    before, shares = new_block(np.array([0.6, 0.4])), np.array([0.6, 0.4])
    for x in (1.0, 0.0, 1.0):
        record_draw(before, kind, 1, x)
    record_draw(before, BOTH, 0, -1.0)
    ups, downs, count = 5.0, 2.0 if kind == BOTH else 0.0, 9.0
    block, c = new_block(shares), kind * 2 + 1
    start = [table.copy() for table in before]
    for target, origin in zip(block, start, strict=True):
        target[:] = origin
    record_draws(block, kind, 1, ups, downs, count)
    wanted = {name: getattr(before, name).copy() for name in ("w", "b", "n", "s", "v", "draws")}
    for x, times in ((1.0, ups), (-1.0, downs), (0.0, count - ups - downs)):
        one = new_block(shares)
        for target, origin in zip(one, start, strict=True):
            target[:] = origin
        if times > 0.0:
            record_draw(one, kind, 1, x)
        for name in wanted:
            wanted[name] += times * (getattr(one, name) - getattr(before, name))
    for name in wanted:
        np.testing.assert_allclose(getattr(block, name), wanted[name], rtol=1e-12, atol=1e-12)
    assert block.n[c] == 3.0 + count


def test_a_block_of_one_item_is_recorded_as_the_item() -> None:
    shares, rng = np.array([0.6, 0.4]), np.random.default_rng(2)
    one, block = (np.zeros((item_rows(2, 3, False), 3)) for _ in range(2))
    work = np.zeros(pair_scratch(2))
    for number in range(60):
        answers = np.array([True, True, number % 3 > 0])
        x = (rng.random(3) < 0.8) * 1.0
        differing = (x[:, None] != x[None, :]) * 1.0
        record_on_pairs(one, shares, False, number % 2, np.where(answers, x, math.nan), work)
        record_block_on_pairs(block, shares, number % 2, answers, 1.0, x, differing, work)
    np.testing.assert_allclose(block, one, rtol=1e-10, atol=1e-12)


def test_the_number_of_items_on_which_two_policies_differ_is_found_in_their_bets() -> None:
    """The state has the squared distances to running estimates; here the outcomes themselves are counted."""
    rng = np.random.default_rng(3)
    bets, work = np.zeros((item_rows(2, 3, False), 3)), np.zeros(pair_scratch(2))
    counted, shares = np.zeros((2, 3, 3)), np.array([0.6, 0.4])
    for number in range(600):
        g = number % 2
        # the first and the second policy answer half of the items with one number
        u = rng.random(3)
        u[1] = u[0] if rng.random() < 0.5 else u[1]
        x = (u < np.array([0.95, 0.9, 0.7])) * 1.0
        counted[g] += x[:, None] != x[None, :]
        record_on_pairs(bets, shares, False, g, x, work)
    for g in range(2):
        for i, k in zip(*np.triu_indices(3, 1), strict=True):
            n, differing = differing_items(bets, 2, False, int(i), int(k), g)
            assert n == 300
            assert differing == pytest.approx(counted[g, i, k], abs=2.0)
