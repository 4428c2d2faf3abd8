"""Linear-bet evidence: reference values, certificates, and agreement with independent computations."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from evenhand.procedure.evidence.linear_bets import (
    BOTH,
    FIXED,
    ONLY_I,
    ONLY_K,
    SINGLE,
    SPREAD,
    TILTS,
    new_block,
    place_bets,
    record_draw,
    record_pair,
)
from evenhand.procedure.evidence.linear_minimum import Null, least, scratch
from evenhand.procedure.log_space import NOTHING
from tests.procedure.stopping.linear_nulls import record_draws

REFERENCE = Path(__file__).resolve().parents[4] / "shared/reference/linear_bets.json"
needs_reference = pytest.mark.skipif(not REFERENCE.exists(), reason="the reference values are not here")
POOLS = np.array([300.0, 300.0, 400.0])


def reference():
    return json.loads(REFERENCE.read_text())


def log_mixture(block, means, second=None, weights=(0.05, 0.10, 0.75, 0.10)):
    """ln M by its definition, in NumPy: `means` are differences, or means of i beside `second` of k."""
    groups = len(block.q)
    other = np.zeros(groups) if second is None else second
    arguments = np.concatenate([means - other, means, other])
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    sizes = []
    for j in range(8):
        total = 0.0
        for c in range(3 * groups):
            if block.n[c] > 0:
                bets = logs[1:] + block.w[c, j : j + 3] - block.b[c, j : j + 3] * arguments[c]
                total += logsumexp([logs[0], *bets])
        sizes.append(total)
    return logsumexp(sizes) - math.log(8)


def paired_null(block, bound=0.0, pools=None):
    groups = len(block.q)
    low, high = np.zeros(2 * groups), np.zeros(2 * groups)
    low[:groups], high[:groups] = -1.0, 1.0
    if pools is not None:
        n, s = block.n[:groups], block.s[:groups]
        low[:groups], high[:groups] = (s - (pools - n)) / pools, (s + (pools - n)) / pools
    return Null(block.q, bound, low, high)


def evidence(block, null, multipliers=SPREAD):
    return least(block, null, multipliers, math.inf, scratch(len(block.q)))


@needs_reference
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("pool", [math.inf, 30.0])
def test_one_cell_has_the_reference_values(sign, pool):
    expected = reference()[f"cell sign {sign:+.0f}"]
    w, b, s = np.zeros(TILTS), np.zeros(TILTS), 0.0
    for n, x in enumerate(expected["x"]):
        ahead, behind = (1.0, 0.0) if pool == math.inf else (pool / (pool - n), s / (pool - n))
        estimate = (0.5 + s) / (n + 1)
        reach = estimate if sign > 0 else 1.0 - estimate
        place_bets(w, b, FIXED, min(ahead, 4.0), x, estimate, reach, sign, ahead, behind)
        s += x
    if pool == math.inf:
        np.testing.assert_allclose(w, expected["W"], atol=1e-10)
        np.testing.assert_allclose(b, expected["B"], atol=1e-10)
    names = (
        ("lnE linear bets, C=.7", "lnE linear bets, C=.9")
        if pool == math.inf
        else ("lnE linear bets without replacement n=30, C=.7", "lnE same, C=.9")
    )
    for name, c in zip(names, (0.7, 0.9), strict=True):
        found = logsumexp(w[1:9] - b[1:9] * c) - math.log(8)
        assert found == pytest.approx(expected[name], abs=1e-10)


def fixed_block(groups, differences, q, pools=None):
    """A block of differences whose tilts do not follow the direction (f = 1)."""
    block = new_block(np.array(q))
    for g, x in zip(groups, differences, strict=True):
        n, s = block.n[g], block.s[g]
        ahead, behind = (1.0, 0.0) if pools is None else (pools[g] / (pools[g] - n), s / (pools[g] - n))
        estimate = s / (n + 1)
        place_bets(
            block.w[g], block.b[g], FIXED, min(ahead, 4.0), x, estimate, estimate + 1.0, 1.0, ahead, behind
        )
        block.v[g] += (x - estimate) ** 2
        block.n[g] += 1
        block.s[g] += x
    return block


@needs_reference
@pytest.mark.parametrize("variant", ["fixed", "matched"])
@pytest.mark.parametrize("pools", [None, POOLS])
def test_pairs_have_the_reference_values(variant, pools):
    data = reference()["data"]
    name = f"L=3 paired {variant}" + ("" if pools is None else " without replacement n=(300,300,400)")
    expected = reference()[name]
    if variant == "fixed":
        block = fixed_block(data["groups"], data["D"], data["q"], pools)
    else:
        block = new_block(np.array(data["q"]), pools)
        record_draws(block, np.full(600, BOTH), np.array(data["groups"]), np.array(data["D"]))
    assert block.n[:3].tolist() == expected["N"]
    assert block.s[:3].tolist() == expected["S"]
    assert log_mixture(block, np.zeros(3)) == pytest.approx(expected["lnM at m=0"], abs=1e-8)
    at = np.array([0.02, -0.02, -0.02])
    assert log_mixture(block, at) == pytest.approx(expected["lnM at (.02,-.02,-.02)"], abs=1e-8)
    found = evidence(block, paired_null(block, 0.0, pools))
    assert found == pytest.approx(expected["least lnM over q.m<=0"], abs=1e-8)


@needs_reference
def test_one_group_has_the_reference_value():
    data = reference()["data"]
    block = fixed_block([0] * 600, data["D"], [1.0])
    expected = reference()["L=1 paired, lnE against m<=0 (only multiplier 1)"]
    assert evidence(block, paired_null(block), SINGLE) == pytest.approx(expected, abs=1e-8)


def mixed_block(rng, groups, items, shared, lift=0.06):
    """A block in which some items were answered by both policies and others by one of them."""
    block = new_block(rng.dirichlet(np.full(groups, 3.0)))
    level = rng.random(items)
    x_i, x_k = (level < 0.7 + lift).astype(float), (level < 0.7).astype(float)
    kinds = np.where(rng.random(items) < shared, BOTH, rng.choice([ONLY_I, ONLY_K], items))
    values = np.select([kinds == BOTH, kinds == ONLY_I], [x_i - x_k, x_i], x_k)
    record_draws(block, kinds, rng.integers(groups, size=items), values)
    return block


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shared", [0.0, 0.5, 0.9])
def test_the_bound_is_below_the_minimum_and_close_to_it(groups, shared):
    block = mixed_block(np.random.default_rng(groups), groups, 600, shared)
    null = Null(block.q, -0.01, np.zeros(2 * groups), np.ones(2 * groups))
    found = evidence(block, null)
    best = math.inf
    normal = np.concatenate([block.q, -block.q])
    for start in (0.7, 0.8):
        answer = minimize(
            lambda z: log_mixture(block, z[:groups], z[groups:]),
            np.full(2 * groups, start),
            constraints={"type": "ineq", "fun": lambda z: -0.01 - 1e-8 - normal @ z},
            bounds=[(0, 1)] * (2 * groups),
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        if normal @ answer.x <= -0.01:  # a point of the null
            best = min(best, answer.fun)
    assert found <= best + 1e-9
    assert found == NOTHING or found >= best - 1e-4


def test_no_null_point_has_less_evidence_than_the_bound():
    rng = np.random.default_rng(5)
    block = mixed_block(rng, 3, 900, 0.7, lift=0.2)
    found = evidence(block, Null(block.q, 0.0, np.zeros(6), np.ones(6)))
    assert found > 3
    for _ in range(300):
        means, other = rng.random(3), rng.random(3)
        excess = block.q @ (means - other)
        if excess <= 0:
            assert log_mixture(block, means, other) >= found - 1e-9


def test_an_impossible_null_is_refuted_and_a_likely_one_is_not():
    pools = np.array([100.0])
    block = new_block(np.ones(1), pools)
    record_draws(block, np.full(80, BOTH), np.zeros(80, dtype=np.int64), np.repeat([1.0, 0.0], [60, 20]))
    assert evidence(block, paired_null(block, 0.0, pools), SINGLE) == math.inf  # 60 - 20 > 0 for sure
    assert evidence(block, paired_null(block, 0.9, pools), SINGLE) == NOTHING


def test_items_are_matched_in_order():
    rng = np.random.default_rng(3)
    group_of_item = rng.integers(2, size=200)
    items_i = np.sort(rng.choice(200, 150, replace=False))
    items_k = np.sort(rng.choice(200, 150, replace=False))
    x_i, x_k = rng.random(150), rng.random(150)
    q = np.array([0.4, 0.6])
    by_hand, merged = new_block(q), new_block(q)
    for item in range(200):
        i, k = np.flatnonzero(items_i == item), np.flatnonzero(items_k == item)
        if i.size and k.size:
            record_draw(by_hand, BOTH, group_of_item[item], x_i[i[0]] - x_k[k[0]])
        elif i.size:
            record_draw(by_hand, ONLY_I, group_of_item[item], x_i[i[0]])
        elif k.size:
            record_draw(by_hand, ONLY_K, group_of_item[item], x_k[k[0]])
    record_pair(merged, group_of_item, items_i, x_i, items_k, x_k, False)
    for one, other in zip(by_hand, merged, strict=True):
        np.testing.assert_array_equal(one, other)


def test_paired_items_find_a_difference_that_single_items_do_not():
    rng = np.random.default_rng(1)
    items, groups = 3_000, np.arange(3_000) % 4
    level, other = rng.random((2, items))
    x_i, x_k, apart = ((u < c).astype(float) for u, c in ((level, 0.9), (level, 0.88), (other, 0.88)))
    pairs, singles = new_block(np.full(4, 0.25)), new_block(np.full(4, 0.25))
    record_draws(pairs, np.full(items, BOTH), groups, x_i - x_k)
    twice = np.tile([ONLY_I, ONLY_K], items)
    record_draws(singles, twice, groups.repeat(2), np.stack([x_i, apart], axis=1).ravel())
    box = Null(pairs.q, 0.0, np.zeros(8), np.ones(8))
    assert evidence(pairs, paired_null(pairs)) > 15 > 5 > evidence(singles, box)
