"""A lower bound on a programme from any multipliers, however they were found.

For any y >= 0, and the tangent of the quadratic at any point, the Lagrangian falls apart into cells:

    lower = sum min_x [v d(mu, x) - s (x - mu)] + y.(rhs - rows mu),     s = rows' y

It is a bound on the true cost, bends or not. Multipliers that come from rounded arithmetic need mending
first: a cell without weight and with endless room bounds nothing unless its pull s is exactly 0, nor does a
Poisson cell whose pull exceeds its weight. What is treated as 0 is below the rounding error of s itself.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model import unit_families
from evenhand.theory.regions.convex_program import Programme, conditions, entry, tangent
from evenhand.theory.regions.linear_algebra import factor, solve
from evenhand.theory.regions.single_cell import bargain, copy, fill, settle

Array = NDArray[np.float64]

FREE = 1e-14  # of the largest weight: a cell with less is free as far as the bound is concerned
ENDLESS = 1e6  # times the mean: an exponential cell with more room is free to rise
NORMAL, PULL, SHIFT, TOUCH, SPARE = range(5)  # rows of the scratch


@kernel
def bound(
    code: int, p: Programme, span: float, x: Array, y: Array, proof: Array, spare: Array, h: Array
) -> float:
    """The Lagrangian's lower bound from the multipliers at hand, mended where it would be infinite.

    The quadratic's tangent may touch anywhere. Where cells are free, a second place is tried: moved in their
    coordinates so that they feel no pull.
    """
    touch = spare[TOUCH]
    copy(x, touch)
    copy(y, proof)
    best = _bound_at(code, p, span, touch, proof, spare, h)
    if p.limit < math.inf and y[p.rows.shape[0]] > 0.0 and _free(p) > 0:
        copy(y, proof)
        _touch_elsewhere(p, touch, proof, spare[SHIFT], h)
        best = max(best, _bound_at(code, p, span, touch, proof, spare, h))
    return best


@kernel
def _bound_at(code: int, p: Programme, span: float, touch: Array, y: Array, spare: Array, h: Array) -> float:
    """The bound with the tangent that touches here."""
    normal, pull = spare[NORMAL], spare[PULL]
    fill(normal, 0.0)
    tangent(p, touch, normal)
    _pulls(p, normal, y, pull)
    for _ in range(3):  # once, and twice more against rounding
        if _mend_free(code, p, touch, y, spare, h):
            _pulls(p, normal, y, pull)
    _mend_poles(code, p, y, pull)
    total, size = 0.0, 0.0
    for j in range(conditions(p)):
        part = y[j] * _short(p, touch, j)
        total += part
        size += abs(part)
    beyond = total
    for c in range(touch.shape[0]):
        s = pull[c]
        faint = abs(s) * max(span, abs(touch[c] - p.mu[c])) <= 1e-14 * size
        if _endless(code, p, c, s) and (faint or abs(s) <= _noise(p, touch, y, c)):
            continue  # 0 up to rounding
        v = p.v[c] if p.v[c] > FREE else 0.0
        there = settle(code, v, p.mu[c], s, p.lo[c], p.hi[c])
        if math.isinf(there):
            return -math.inf
        total += bargain(code, v, p.mu[c], s, there)
        beyond -= s * ((p.hi[c] if s > 0.0 else p.lo[c]) - p.mu[c])
    # Farkas: if no point between the bounds meets the sum of the conditions, none meets all of them
    return math.inf if beyond > 1e-9 * size else total


@kernel
def _free(p: Programme) -> int:
    """How many of the quadratic's cells are free."""
    many = 0
    for c in range(p.quad.shape[0]):
        many += 1 if p.v[c] <= FREE else 0
    return many


@kernel
def _touch_elsewhere(p: Programme, touch: Array, y: Array, shift: Array, h: Array) -> None:
    """Move the free coordinates of the touching point: 2 kappa (quad touch)_F = (rows' y)_F."""
    n, last = touch.shape[0], p.rows.shape[0]
    for c in range(n):
        shift[c] = 0.0
        loose = c < p.quad.shape[0] and p.v[c] <= FREE
        if loose:
            for j in range(last):
                shift[c] += y[j] * p.rows[j, c] / (2.0 * y[last])
            for d in range(p.quad.shape[0]):
                shift[c] -= p.quad[c, d] * touch[d]
        for d in range(c + 1):
            h[c, d] = p.quad[c, d] if loose and p.v[d] <= FREE else 0.0
    factor(h)
    solve(h, shift)
    for c in range(n):
        touch[c] += shift[c]


@kernel
def _short(p: Programme, x: Array, j: int) -> float:
    """rhs - row.mu for a linear condition; the same for the tangent at x, without cancellation."""
    if j < p.rows.shape[0]:
        total = p.rhs[j]
        for c in range(x.shape[0]):
            total -= p.rows[j, c] * p.mu[c]
        return total
    total = -p.limit
    for c in range(p.quad.shape[0]):
        for d in range(p.quad.shape[0]):
            total += p.quad[c, d] * (p.mu[c] * p.mu[d] - (x[c] - p.mu[c]) * (x[d] - p.mu[d]))
    return total


@kernel
def _pulls(p: Programme, normal: Array, y: Array, pull: Array) -> None:
    """s = rows' y."""
    for c in range(pull.shape[0]):
        pull[c] = 0.0
        for j in range(conditions(p)):
            pull[c] += y[j] * entry(p, normal, j, c)


@kernel
def _mend_free(code: int, p: Programme, touch: Array, y: Array, spare: Array, h: Array) -> bool:
    """Take the pull from cells with endless room, every multiplier giving way by its own size; was there any?

    y <- y - Y^2 F (F' Y^2 F)^-1 F' y for the columns F of the free cells; small multipliers vanish first.
    """
    normal, pull, shift = spare[NORMAL], spare[PULL], spare[SHIFT]
    n, many = pull.shape[0], 0
    for c in range(n):
        loose = _endless(code, p, c, pull[c]) and abs(pull[c]) > _noise(p, touch, y, c)
        shift[c] = pull[c] if loose else 0.0
        many += 1 if loose else 0
        for d in range(c + 1):
            h[c, d] = 0.0
            if loose and shift[d] != 0.0:
                for j in range(conditions(p)):
                    h[c, d] += y[j] * y[j] * entry(p, normal, j, c) * entry(p, normal, j, d)
    if many == 0:
        return False
    factor(h)
    solve(h, shift)
    for j in range(conditions(p)):
        give = 0.0
        for c in range(n):
            give += entry(p, normal, j, c) * shift[c]
        y[j] = max(y[j] - y[j] * y[j] * give, 0.0)
    return True


@kernel
def _endless(code: int, p: Programme, c: int, s: float) -> bool:
    """Would any pull of this sign carry the cell endlessly far, or as good as?"""
    room = p.hi[c] - p.mu[c] if s > 0.0 else p.mu[c] - p.lo[c]
    if p.v[c] <= FREE:
        return room == math.inf
    return code == unit_families.EXPONENTIAL and s > 0.0 and room > ENDLESS * p.mu[c]


@kernel
def _noise(p: Programme, x: Array, y: Array, c: int) -> float:
    """The rounding error of the pull on cell c."""
    total = 0.0
    for j in range(p.rows.shape[0]):
        total += y[j] * abs(p.rows[j, c])
    if p.limit < math.inf and c < p.quad.shape[0]:
        for d in range(p.quad.shape[0]):
            total += 2.0 * y[p.rows.shape[0]] * abs(p.quad[c, d] * x[d])
    return 1e-13 * total


@kernel
def _mend_poles(code: int, p: Programme, y: Array, pull: Array) -> None:
    """No pull on a Poisson cell may exceed its weight: scale all multipliers down, in the end by a trifle."""
    part = 1.0
    for c in range(pull.shape[0]):
        if code == unit_families.POISSON and p.hi[c] == math.inf and pull[c] >= p.v[c] > FREE:
            keep = 1.0 - (1e-14 if p.mu[c] == 0.0 else 1e-10)
            part = min(part, keep * p.v[c] / pull[c])
    if part < 1.0:
        for j in range(conditions(p)):
            y[j] *= part
        for c in range(pull.shape[0]):
            pull[c] *= part
