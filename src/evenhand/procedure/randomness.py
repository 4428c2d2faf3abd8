"""Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011).

Any draw can be recomputed from its address. The key is the 64-bit seed. The counter's four words are

    word 0   which draw            word 2   replication (0 for a live experiment)
    word 1   which cell, or 0      word 3   stream

    stream 0  outcomes: draw d of cell k L + l
    stream 1  decisions: word 0 is the decision's number, word 1 what is drawn in it
    stream 2  arrivals: the group of the n-th arriving unit
    stream 3  lag and dropout of the n-th ask
    stream 4  the scenario of a replication, where truths are drawn
    stream 5  the order of initial samples: word 0 is the first sample of a round
    stream 6  outcomes of guard-rails: draw d of cell (j K + k) L + l of guard-rail j
    stream 7  decisions: posterior draws of guard-rails, word 1 as in stream 6
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel

OUTCOMES, DECISIONS, ARRIVALS, DELAYS, SCENARIOS, ORDER, RAIL_OUTCOMES, RAIL_DECISIONS = range(8)
ROUNDS = 8  # of the network that permutes places

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_MASK, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
_TO_UNIT_32 = 1.0 / 4294967296.0
_TO_UNIT_53 = 1.0 / 9007199254740992.0
_TWO_PI, _SQRT_2 = 2.0 * math.pi, math.sqrt(2.0)


@kernel(inlined=True)
def philox(seed: int, a: int, b: int, c: int, d: int) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Return the four 32-bit words at counter (a, b, c, d) under the 64-bit key `seed`."""
    x0, x1 = np.uint64(a) & _MASK, np.uint64(b) & _MASK
    x2, x3 = np.uint64(c) & _MASK, np.uint64(d) & _MASK
    k0, k1 = np.uint64(seed) & _MASK, (np.uint64(seed) >> _SHIFT) & _MASK
    for _ in range(10):
        p0, p1 = _M0 * x0, _M1 * x2
        x0, x1, x2, x3 = (p1 >> _SHIFT) ^ x1 ^ k0, p1 & _MASK, (p0 >> _SHIFT) ^ x3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return x0, x1, x2, x3


@kernel
def fill_words(seed: int, a: int, first: int, c: int, d: int, words: NDArray[np.uint64]) -> None:
    """Write the words at counters (a, first + j, c, d), one column each."""
    for j in range(words.shape[1]):
        words[0, j], words[1, j], words[2, j], words[3, j] = philox(seed, a, first + j, c, d)


@kernel
def uniform(seed: int, a: int, b: int, c: int, d: int) -> float:
    """Return a uniform in (0, 1) with 53 random bits."""
    x0, x1, _, _ = philox(seed, a, b, c, d)
    return (float((x0 << np.uint64(21)) ^ (x1 >> np.uint64(11))) + 0.5) * _TO_UNIT_53


@kernel
def two_uniforms(seed: int, a: int, b: int, c: int, d: int) -> tuple[float, float]:
    """Return two independent uniforms in (0, 1) from one block."""
    x0, x1, x2, x3 = philox(seed, a, b, c, d)
    first = (x0 << np.uint64(21)) ^ (x1 >> np.uint64(11))
    second = (x2 << np.uint64(21)) ^ (x3 >> np.uint64(11))
    return (float(first) + 0.5) * _TO_UNIT_53, (float(second) + 0.5) * _TO_UNIT_53


@kernel
def standard_normal(seed: int, a: int, b: int, c: int, d: int) -> float:
    """Return the first of the four standard normals of a block, by the Box-Muller transform."""
    x0, x1, _, _ = philox(seed, a, b, c, d)
    r = math.sqrt(-2.0 * math.log((float(x0) + 0.5) * _TO_UNIT_32))
    return r * math.cos(_TWO_PI * float(x1) * _TO_UNIT_32)


@kernel
def shuffled(seed: int, a: int, c: int, place: int, size: int) -> int:
    """Return where a random permutation of 0, ..., size - 1 takes `place`; (a, c) is its address.

    A Feistel network permutes the numbers below a power of four that is at least `size`; it is applied again
    until the result is below `size`, which permutes these numbers among themselves.
    """
    half = 1
    while half * half < size:
        half *= 2
    found = place
    while True:
        left, right = found // half, found % half
        for turn in range(ROUNDS):
            word, _, _, _ = philox(seed, a, turn * half + right, c, ORDER)
            left, right = right, (left + int(word)) % half
        found = left * half + right
        if found < size:
            return found


@kernel
def normal(word: np.uint64) -> float:
    """Return the standard normal quantile of a 32-bit word; increasing in the word.

    By the polynomials of Giles (2010) for the inverse error function: within 2e-6 up to five standard
    deviations, 0.003 at the last word.
    """
    x = 2.0 * ((float(word) + 0.5) * _TO_UNIT_32) - 1.0
    w = -math.log((1.0 - x) * (1.0 + x))
    if w < 5.0:
        w -= 2.5
        p = 2.81022636e-08
        p = 3.43273939e-07 + p * w
        p = -3.5233877e-06 + p * w
        p = -4.39150654e-06 + p * w
        p = 0.00021858087 + p * w
        p = -0.00125372503 + p * w
        p = -0.00417768164 + p * w
        p = 0.246640727 + p * w
        p = 1.50140941 + p * w
    else:
        w = math.sqrt(w) - 3.0
        p = -0.000200214257
        p = 0.000100950558 + p * w
        p = 0.00134934322 + p * w
        p = -0.00367342844 + p * w
        p = 0.00573950773 + p * w
        p = -0.0076224613 + p * w
        p = 0.00943887047 + p * w
        p = 1.00167406 + p * w
        p = 2.83297682 + p * w
    return _SQRT_2 * p * x
