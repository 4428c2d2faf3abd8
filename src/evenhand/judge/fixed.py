"""Data collected to a size fixed beforehand and looked at once: p-values in place of e-values.

Each test stands at the level its e-process would: 1 / (wrong answers / delta), and one bound's share of it to
fail a policy. A single cell's p-value is exact (bounded outcomes: Chernoff's bound). Comparisons of overall
means and requirements that tie groups together go by the likelihood ratio's large-sample law, exact for
Gaussian outcomes of known spread. Evidence is -ln p, so that it is read like the sequential one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from evenhand.judge.weigh import Cells, Weight, leader_with_data, new_cells
from evenhand.model.problem import Problem
from evenhand.model.region import BOX, PENALTY, Region, region
from evenhand.model.units import BERNOULLI, GAUSSIAN, POISSON, divergence, edge_high, edge_low
from evenhand.procedure.estimates import refresh, variance
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, State, Work, new_work
from evenhand.procedure.stopping.cells import threshold
from evenhand.procedure.verdicts import FAILED, MET, UNDECIDED
from evenhand.theory import inner

Array = NDArray[np.float64]


class Test(NamedTuple):
    """What a one-cell test needs to know."""

    problem: Problem
    spec: Spec
    state: State


def judge_fixed(problem: Problem, spec: Spec, state: State) -> tuple[Cells, Weight]:
    """Cells and the whole, as if the present look were the only one."""
    test = Test(problem, spec, state)
    cells = _cells(test)
    return cells, _weight(test)


def _cells(test: Test) -> Cells:
    spec, shape = test.spec, test.spec.phi.shape
    found = new_cells(spec)
    level = float(threshold(spec))
    for g, k in np.ndindex(shape):
        floor, cap = float(spec.region.lo[g, k]), float(spec.region.hi[g, k])
        extra = _extra(spec, k)
        one_sided = math.isfinite(floor) != math.isfinite(cap)
        low_level = level + extra if one_sided and math.isfinite(cap) else level
        high_level = level + extra if one_sided and math.isfinite(floor) else level
        found.low[g, k], found.high[g, k] = _end(test, g, k, low_level, 1), _end(test, g, k, high_level, -1)
        met, failed = _cell_meets(test, g, k), _cell_fails(test, g, k)
        found.verdict[g, k] = FAILED if failed >= level + extra else MET if met >= level else UNDECIDED
    return found


def _weight(test: Test) -> Weight:
    """The decision: every piece at its level; a rival is beaten or fails, the better of the two counts."""
    spec, state, work = test.spec, test.state, new_work(test.spec)
    refresh(spec, state, work, False)
    policies, needed = spec.phi.shape[1], float(threshold(spec))
    whole = np.all(state.n > 0, axis=0).tolist()
    leader = leader_with_data(work, whole)
    fails = [_fails(test, work, k) if whole[k] or spec.region.kind == BOX else 0.0 for k in range(policies)]
    meets = [_meets(test, work, k) if whole[k] or spec.region.kind == BOX else 0.0 for k in range(policies)]
    pieces = []
    for k in range(policies):
        if k != leader:
            known = leader != NONE and whole[k]
            pieces.append((max(_ahead(test, work, leader, k) if known else 0.0, fails[k]), k))
    if leader != NONE and spec.region.kind != PENALTY:
        pieces.append((meets[leader], policies + _tightest(test, leader)))
    value, piece = min(pieces)
    stands = np.array(
        [FAILED if fails[k] >= needed else MET if meets[k] >= needed else UNDECIDED for k in range(policies)]
    )
    return Weight(leader, value >= needed, value, needed, piece, stands)


def _fails(test: Test, work: Work, k: int) -> float:
    """-ln p against {k meets its requirement}."""
    spec = test.spec
    if spec.region.kind in (BOX, PENALTY):
        return max(_cell_fails(test, g, k) for g in range(spec.phi.shape[0])) - _extra(spec, k)
    if work.margin[k] >= 0.0:
        return 0.0
    _, lower = inner.enter(spec.code, spec.region, k, work.v, work.mean, work.lam_k, work.scratch)
    # the likelihood ratio against a convex set is at most chi-squared with a degree for each group
    return -float(stats.chi2.logsf(2.0 * lower, spec.phi.shape[0]))


def _meets(test: Test, work: Work, k: int) -> float:
    """-ln p against {k violates its requirement}, the least over its conditions."""
    spec = test.spec
    if spec.region.kind in (BOX, PENALTY):
        return min(_cell_meets(test, g, k) for g in range(spec.phi.shape[0]))
    if work.margin[k] < 0.0:
        return 0.0
    _, lower, _ = inner.leave(spec.code, spec.region, k, work.v, work.mean, work.lam_k, work.scratch)
    return _signed_root(lower)


def _ahead(test: Test, work: Work, i: int, k: int) -> float:
    """-ln p against {k is at least as good as i}."""
    spec = test.spec
    if work.score[k] >= work.score[i]:
        return 0.0
    free: Region = spec.region if spec.region.kind == PENALTY else region(BOX, *spec.phi.shape)
    _, lower = inner.beat(
        spec.code, free, spec.shares, i, k, work.v, work.mean, work.lam_i, work.lam_k, work.scratch
    )
    return _signed_root(lower)


def _signed_root(likelihood: float) -> float:
    return -float(stats.norm.logsf(math.sqrt(2.0 * max(likelihood, 0.0))))


def _extra(spec: Spec, k: int) -> float:
    bounds = np.isfinite(spec.region.lo[:, k]).sum() + np.isfinite(spec.region.hi[:, k]).sum()
    return math.log(max(int(bounds), 1))


def _tightest(test: Test, k: int) -> int:
    """The floor (or, counted on, the cap) with the least evidence."""
    values = []
    for g in range(test.spec.phi.shape[0]):
        floor, cap = float(test.spec.region.lo[g, k]), float(test.spec.region.hi[g, k])
        values.append((_against(test, g, k, floor, 1) if math.isfinite(floor) else math.inf, g))
        values.append(
            (_against(test, g, k, cap, -1) if math.isfinite(cap) else math.inf, g + test.spec.phi.shape[0])
        )
    return min(values)[1]


def _cell_meets(test: Test, g: int, k: int) -> float:
    floor, cap = float(test.spec.region.lo[g, k]), float(test.spec.region.hi[g, k])
    return min(
        _against(test, g, k, floor, 1) if math.isfinite(floor) else math.inf,
        _against(test, g, k, cap, -1) if math.isfinite(cap) else math.inf,
    )


def _cell_fails(test: Test, g: int, k: int) -> float:
    floor, cap = float(test.spec.region.lo[g, k]), float(test.spec.region.hi[g, k])
    return max(
        _against(test, g, k, floor, -1) if math.isfinite(floor) else 0.0,
        _against(test, g, k, cap, 1) if math.isfinite(cap) else 0.0,
    )


def _against(test: Test, g: int, k: int, c: float, sign: int) -> float:
    """-ln p of one cell against {mean <= c} (sign 1) or {mean >= c} (sign -1)."""
    n, s, phi = float(test.state.n[g, k]), float(test.state.s[g, k]), float(test.spec.phi[g, k])
    if n == 0.0:
        return 0.0
    if test.problem.family.name == "bounded":
        ahead = sign * (s / n - c) > 0
        return n * float(divergence(BERNOULLI, s / n, c)) if ahead else 0.0
    if test.spec.code == GAUSSIAN:
        return _gaussian(test, g, k, c, sign)
    return -math.log(max(_exact_p(test.spec.code, n / phi, s / phi, c, sign), 1e-300))


def _gaussian(test: Test, g: int, k: int, c: float, sign: int) -> float:
    n, s = float(test.state.n[g, k]), float(test.state.s[g, k])
    if not test.spec.unknown_variance:
        return -float(stats.norm.logsf(sign * (s - n * c) / math.sqrt(n * test.spec.phi[g, k])))
    if n < 2:
        return 0.0
    spread = max(float(variance(test.state, g, k)), 1e-300)
    return -float(stats.t.logsf(sign * (s / n - c) / math.sqrt(spread / n), n - 1.0))


def _exact_p(code: int, n: float, s: float, c: float, sign: int) -> float:
    """The chance of a sum at least as far out, at mean c, in unit samples."""
    if code == BERNOULLI:
        upper = special.betainc(s, n - s + 1.0, c) if s > 0 else 1.0
        lower = special.betaincc(s + 1.0, n - s, c) if s < n else 1.0
    elif code == POISSON:
        upper = special.gammainc(s, n * c) if s > 0 else 1.0
        lower = special.gammaincc(s + 1.0, n * c)
    else:
        upper, lower = special.gammaincc(n, s / c), special.gammainc(n, s / c)
    return float(upper if sign > 0 else lower)


def _end(test: Test, g: int, k: int, level: float, sign: int) -> float:
    """The last c on this side of the mean that the data exclude; the edge where they exclude none."""
    code = test.spec.code
    edge = float(edge_low(code) if sign > 0 else edge_high(code))
    n = float(test.state.n[g, k])
    if n == 0.0 or (test.spec.unknown_variance and n < 2):
        return edge
    inside = float(test.state.s[g, k]) / n
    outside, step = edge, max(abs(inside), 1.0)
    if math.isinf(edge):
        outside = inside - sign * step
        while _against(test, g, k, outside, sign) < level:
            step *= 2.0
            outside = inside - sign * step
            if step > 1e150:
                return edge
    elif _against(test, g, k, edge + 1e-15 * (inside - edge), sign) < level:
        return edge
    for _ in range(100):
        middle = 0.5 * (inside + outside)
        if middle in (inside, outside):
            break
        if _against(test, g, k, middle, sign) >= level:
            outside = middle
        else:
            inside = middle
    return outside
