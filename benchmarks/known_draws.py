"""Compare bets that use known draw probabilities with the linear bets on pairs, in items.

    python -m benchmarks.known_draws [--instances 40] [--runs 30]

Two policies answer the same items, whose groups are drawn with known probabilities. With Z the estimate of
the difference of the overall means, corrected by the item of group l that was drawn with probability p_l,

    Z = sum over groups j of q_j d_j + (q_l / p_l) (D - d_l),   E[Z] = q.m,

where d_j = S_j / (N_j + 1) are the estimates before the item, the mean over eight sizes of prod (1 + t Z),
t = min(0.02 * 2^g, 0.9 / b) and -b the least value that Z can take, is an e-process against {q.m <= 0}.
Instance j is drawn by NumPy's default generator with seed FIRST_SEED + j; half of the instances have outcomes
0 and 1, half bounded ones, and every other pair of instances has draws that differ from the shares. Both
kinds of evidence get the same outcomes and are looked at after a fiftieth more items, until they reach ln 80.
"""

from __future__ import annotations

import argparse
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import beta, norm

from evenhand.procedure.evidence.item_evidence import least_over
from evenhand.procedure.evidence.linear_bets import BOTH, new_block, record_draw
from evenhand.procedure.evidence.linear_minimum import Null, scratch

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

FIRST_SEED, CAP = 40_000, 20_000
NEEDED = math.log(80.0)
SIZES = 0.02 * 2.0 ** np.arange(8)


class Instance(NamedTuple):
    """Two policies on shared items."""

    shares: Array
    draws: Array  # probabilities of the groups
    means: Array  # (2, L)
    rho: float  # share of the latent variance that is the difficulty of an item
    coins: bool  # outcomes 0 and 1; otherwise Beta, with parameters of sum 20


def main() -> None:
    """Run the comparison and print a row per instance and a table."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--instances", type=int, default=40)
    asked.add_argument("--runs", type=int, default=30)
    chosen = asked.parse_args()
    found: dict[str, list[tuple[float, float]]] = {}
    for number in range(chosen.instances):
        one = draw(number)
        means = items_needed(one, FIRST_SEED + number, chosen.runs)
        kind = f"{'0 and 1' if one.coins else 'bounded'}, {'other draws' if number % 4 > 1 else 'as shares'}"
        print(f"{number} {kind}: {means[0]:,.0f} {means[1]:,.0f} {means[1] / means[0]:.3f}", flush=True)
        found.setdefault(kind, []).append(means)
    print("| outcomes, draws | instances | items, linear bets | known draws / linear bets | best | worst |")
    for kind, pairs in found.items():
        ratios = np.array([known / linear for linear, known in pairs])
        before = math.exp(np.mean([math.log(linear) for linear, _ in pairs]))
        print(
            f"| {kind} | {len(pairs)} | {before:,.0f} | {math.exp(np.log(ratios).mean()):.3f} "
            f"| {ratios.min():.2f} | {ratios.max():.2f} |"
        )
    for stated in ((0.8, 0.2), (0.7, 0.3), (0.2, 0.8)):
        print(
            f"draws of .8 and .2 stated as {stated}: wrong at 5% in {wrong_answers((0.8, 0.2), stated):.3f}"
        )


def wrong_answers(true: tuple[float, ...], stated: tuple[float, ...], runs: int = 300) -> float:
    """Return how often a tie, with differences of 0.9 and -0.9, is refuted in 2,000 items at a risk of 5%."""
    wrong = 0
    one = Instance(np.array([0.5, 0.5]), np.array(stated), np.zeros((2, 2)), 0.0, True)
    for run in range(runs):
        rng = np.random.default_rng([9, run])
        group = rng.choice(2, 2_000, p=true)
        away = np.where(rng.random(2_000) < 0.9, 1.0 - 2.0 * group, 0.0)
        wrong += bool(evidence_of_known_draws(one, group, away).max() >= math.log(20.0))
    return wrong / runs


def draw(number: int) -> Instance:
    """Draw an instance with 2 to 4 groups and a lead of 0.02 to 0.1."""
    rng = np.random.default_rng(FIRST_SEED + number)
    groups = int(rng.integers(2, 5))
    shares = rng.dirichlet(np.full(groups, 5.0))
    draws = rng.dirichlet(np.full(groups, 5.0)) if number % 4 > 1 else shares
    while True:
        means = rng.uniform(0.6, 0.95) + rng.normal(0.0, 0.02, (2, groups))
        means[0] += rng.uniform(0.02, 0.1) - (means[0] - means[1]) @ shares
        if means.min() > 0.02 and means.max() < 0.99:
            return Instance(shares, draws, means, rng.uniform(0.0, 0.95), number % 2 == 0)


def items_needed(one: Instance, seed: int, runs: int) -> tuple[float, float]:
    """Return the mean number of items with the linear bets, and with known draws."""
    needed = np.zeros((runs, 2))
    for run in range(runs):
        group, away = outcomes(one, np.random.default_rng([seed, run]))
        needed[run] = first_linear(one, group, away), first_known(one, group, away)
    linear, known = needed.mean(axis=0)
    return float(linear), float(known)


def outcomes(one: Instance, rng: np.random.Generator) -> tuple[Ints, Array]:
    """Return the groups of all items, and the differences of the outcomes on them."""
    group = rng.choice(one.shares.size, CAP, p=one.draws)
    latent = math.sqrt(one.rho) * rng.standard_normal(CAP)
    latent = latent + math.sqrt(1.0 - one.rho) * rng.standard_normal((2, CAP))
    means = one.means[:, group]
    x = norm.cdf(latent)
    x = (x < means).astype(float) if one.coins else beta.ppf(1.0 - x, 20 * means, 20 * (1 - means))
    return group, x[0] - x[1]


def looks() -> list[int]:
    """Return the numbers of items after which the evidence is looked at."""
    found = [30]
    while found[-1] < CAP:
        found.append(min(found[-1] + max(1, found[-1] // 50), CAP))
    return found


def first_linear(one: Instance, group: Ints, away: Array) -> int:
    """Return the items after which the linear bets on pairs reach the threshold."""
    block, work, done = new_block(one.shares), scratch(one.shares.size), 0
    null = Null(one.shares, 0.0, np.zeros(2 * one.shares.size), np.zeros(2 * one.shares.size))
    for look in looks():
        for j in range(done, look):
            record_draw(block, BOTH, int(group[j]), float(away[j]))
        done = look
        if least_over(block, null, math.inf, work) >= NEEDED:
            return look
    return CAP


def first_known(one: Instance, group: Ints, away: Array) -> int:
    """Return the items after which the bets with known draws reach the threshold."""
    evidence = evidence_of_known_draws(one, group, away)
    return next((look for look in looks() if evidence[look - 1] >= NEEDED), CAP)


def evidence_of_known_draws(one: Instance, group: Ints, away: Array) -> Array:
    """Return the ln e-value of the bets with known draws after every item."""
    drawn = np.eye(one.shares.size)[group]
    n = np.cumsum(drawn, axis=0) - drawn
    s = np.cumsum(drawn * away[:, None], axis=0) - drawn * away[:, None]
    estimate, weight = s / (n + 1.0), one.shares / one.draws
    centre, rows = estimate @ one.shares, np.arange(group.size)
    z = centre + weight[group] * (away - estimate[rows, group])
    least = (centre[:, None] + weight * (-1.0 - estimate)).min(axis=1)
    sizes = np.minimum(SIZES, 0.9 / np.maximum(-least, 1e-3)[:, None])
    logs = np.cumsum(np.log1p(sizes * z[:, None]), axis=0)
    return np.asarray(logsumexp(logs, axis=1) - math.log(SIZES.size))


if __name__ == "__main__":
    main()
