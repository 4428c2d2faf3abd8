"""`kaufmann-koolen`: thresholds for likelihood ratios, from the cells of each alternative.

Kaufmann and Koolen (2021, "Mixture martingales revisited") bound the sum over a set S of cells of n d(mean,
truth) - growth(n) uniformly in time: it reaches |S| C(x / |S|) with probability at most e^-x. For a wrong
answer some alternative contains the truth, so x = ln(wrong answers / delta).

    outcomes               growth(n)            C
    gaussian, known sd     2 ln(4 + ln n)       C_gG(x) = min over 1/2 < lam <= 1 of (g_G(lam) + x) / lam
    all other families     3 ln(1 + ln n)       C_exp(x) = 2 h~((h^-1(1 + x) + ln(2 zeta(2))) / 2)

The inequality multiplies martingales of cells, which are never sampled together. The metrics of one sample
are, and may depend on each other, so their ratios are not added. "Rival k meets its requirement and its
guard-rails and is ahead" is refuted when one of its M + 1 metrics refutes its own part. Each has the level
x + ln(M + 1), so that together they do so wrongly with probability at most e^-x. "The leader violates
condition a" concerns one metric, at the level x.
"""

from __future__ import annotations

import math

import numpy as np

from evenhand.compile import kernel
from evenhand.model.region import BOX, RELATIVE, SPREAD, Region
from evenhand.model.unit_families import GAUSSIAN
from evenhand.procedure.evidence.by_family import threshold
from evenhand.procedure.guardrails import enter_guardrail, leave_guardrail
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, State, Work
from evenhand.theory import inner
from evenhand.theory.metrics import METRIC

LOG_TWICE_ZETA_2 = math.log(math.pi**2 / 3.0)
BASE = 1.5  # z of h~
# zeta(s) - 1/(s-1) in powers of s - 1: Stieltjes' constants over factorials, with alternating signs
ZETA = np.array([
    0.5772156649015329, 0.0728158454836767, -0.0096903631928723 / 2, -0.0020538344203033 / 6,
    0.0023253700654673 / 24, -0.0007933238173010 / 120, -0.0002387693454300 / 720, 0.0005272895670578 / 5040,
    -0.0003521233538030 / 40320, 0.0000343947744181 / 362880, 0.0002053328149091 / 3628800,
])  # fmt: skip
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@kernel
def alternative_threshold(spec: Spec, state: State, k: int, other: int) -> float:
    """Return the threshold of an alternative on policy k (and `other`, unless NONE).

    The control's cells count too where bounds are relative to it.
    """
    return threshold_at(spec, state, k, other, threshold(spec))


@kernel
def threshold_at(spec: Spec, state: State, k: int, other: int, x: float) -> float:
    """Return the threshold that such an alternative passes wrongly with probability at most e^-x."""
    groups = spec.phi.shape[0]
    checks, cells = 0.0, groups
    for g in range(groups):
        checks += growth(spec, state.n[g, k])
    if other != NONE:
        cells += groups
        for g in range(groups):
            checks += growth(spec, state.n[g, other])
    if spec.region.kind == RELATIVE and spec.region.control not in (k, other):
        cells += groups
        for g in range(groups):
            checks += growth(spec, state.n[g, spec.region.control])
    return checks + cells * constant(spec, x / cells)


@kernel
def leave_threshold(spec: Spec, state: State, k: int) -> float:
    """Return the threshold of "policy k violates its requirement", for any nearest atom.

    An atom concerns one cell (floors, caps), two (gap, ratio) or any; the most sampled ones have the largest
    threshold.
    """
    groups = spec.phi.shape[0]
    if spec.region.kind not in (BOX, SPREAD):
        return alternative_threshold(spec, state, k, NONE)
    most, second = 0.0, 0.0
    for g in range(groups):
        mine = growth(spec, state.n[g, k])
        if mine > most:
            most, second = mine, most
        else:
            second = max(second, mine)
    if spec.region.kind == BOX:
        return most + constant(spec, threshold(spec))
    return most + second + 2.0 * constant(spec, 0.5 * threshold(spec))


@kernel
def cell_threshold(spec: Spec, state: State, g: int, k: int) -> float:
    """Return the threshold of one cell against a bound."""
    return growth(spec, state.n[g, k]) + constant(spec, threshold(spec))


@kernel
def growth(spec: Spec, n: float) -> float:
    """Return growth(n), the cost of repeated checks of a cell."""
    return growth_of(spec.code, n)


@kernel
def growth_of(code: int, n: float) -> float:
    """Return growth(n) of a family."""
    if code == GAUSSIAN:
        return 2.0 * math.log(4.0 + math.log(max(n, 1.0)))
    return 3.0 * math.log1p(math.log(max(n, 1.0)))


@kernel
def constant(spec: Spec, x: float) -> float:
    """Return C_gG or C_exp."""
    return constant_of(spec.code, x)


@kernel
def constant_of(code: int, x: float) -> float:
    """Return C_gG or C_exp by the family."""
    return c_gaussian(x) if code == GAUSSIAN else c_exp(x)


@kernel
def c_exp(x: float) -> float:
    """Return C_exp(x) = 2 h~_{3/2}((h^-1(1 + x) + ln(2 zeta(2))) / 2)."""
    return 2.0 * h_tilde(0.5 * (h_inverse(1.0 + x) + LOG_TWICE_ZETA_2), BASE)


@kernel
def c_gaussian(x: float) -> float:
    """Return C_gG(x), the least (g_G(lam) + x) / lam, by golden section; any lam is valid."""
    low, high = 0.5, 1.0
    a, b = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_a, at_b = (g_gaussian(a) + x) / a, (g_gaussian(b) + x) / b
    for _ in range(32):
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - GOLDEN * (high - low)
            at_a = (g_gaussian(a) + x) / a
        else:
            low, a, at_a = a, b, at_b
            b = low + GOLDEN * (high - low)
            at_b = (g_gaussian(b) + x) / b
    return min(at_a, at_b)


@kernel
def g_gaussian(lam: float) -> float:
    """Return g_G(lam) = 2 lam - 2 lam ln(4 lam) + ln zeta(2 lam) - 1/2 ln(1 - lam)."""
    zeta = math.log(_zeta(2.0 * lam))
    return 2.0 * lam * (1.0 - math.log(4.0 * lam)) + zeta - 0.5 * math.log1p(-lam)


@kernel
def h_inverse(x: float) -> float:
    """Return the u >= 1 with u - ln u = x, for x >= 1."""
    if x <= 1.0:
        return 1.0
    root = math.sqrt(2.0 * (x - 1.0))
    u = x + math.log(x + root)  # below the root, and close to it
    for _ in range(30):
        step = (u - math.log(u) - x) * u / (u - 1.0)
        u -= step
        if abs(step) <= 1e-15 * u:
            break
    return u


@kernel
def h_tilde(x: float, z: float) -> float:
    """Return min over 1 < y <= z of y (x - ln ln y): e^(1/u) u at u = h^-1(x), or at y = z."""
    inner = 1.0 / math.log(z)
    if x >= inner - math.log(inner):
        u = h_inverse(x)
        return math.exp(1.0 / u) * u
    return z * (x - math.log(math.log(z)))


@kernel
def _zeta(s: float) -> float:
    """Return Riemann's zeta function for 1 < s <= 2."""
    y, total = s - 1.0, 0.0
    for j in range(ZETA.size - 1, -1, -1):
        total = total * y + ZETA[j]
    return total + 1.0 / y


@kernel
def strongest_metric(spec: Spec, state: State, work: Work, i: int, k: int) -> tuple[float, float]:
    """Return ratio and threshold of the metric that refutes "k is allowed and ahead of i" best.

    Where i is NONE: "k is allowed".
    """
    rails = spec.guardrails.code.shape[0]
    x = threshold(spec) + math.log(rails + 1.0)
    if i == NONE:
        _, value = inner.enter(
            spec.code, spec.region, k, work.v, work.mean, work.lam_k, work.lam_0, work.scratch
        )
    else:
        _, value = inner.beat(
            spec.code, spec.region, spec.shares, spec.indifference, i, k, work.v, work.mean,
            work.lam_i, work.lam_k, work.lam_0, work.scratch,
        )  # fmt: skip
    needed = threshold_at(spec, state, k, i, x)
    for j in range(rails):
        mine, need = enter_guardrail(spec, work, j, k), metric_threshold(spec, state, j, k, x)
        if mine - need > value - needed:
            value, needed = mine, need
    return value, needed


@kernel
def weakest_metric(spec: Spec, state: State, work: Work, region: Region, i: int) -> tuple[float, float, int]:
    """Return ratio, threshold and number of the condition of policy i that is least secure, of any metric."""
    x = threshold(spec)
    _, value, which = inner.leave(
        spec.code, region, i, work.v, work.mean, work.lam_k, work.lam_0, work.scratch
    )
    needed = threshold_at(spec, state, i, NONE, x)
    for j in range(spec.guardrails.code.shape[0]):
        mine, atom = leave_guardrail(spec, work, j, i)
        need = metric_threshold(spec, state, j, i, x)
        if mine - need < value - needed:
            value, needed, which = mine, need, (j + 1) * METRIC + atom
    return value, needed, which


@kernel
def metric_threshold(spec: Spec, state: State, j: int, k: int, x: float) -> float:
    """Return the threshold of policy k's conditions on guard-rail j; the control's cells count too."""
    rails = spec.guardrails
    groups, code, checks = spec.phi.shape[0], rails.code[j], 0.0
    cells = groups
    for g in range(groups):
        checks += growth_of(code, state.rail_n[j, g, k])
    if rails.kind == RELATIVE and k != rails.control:
        cells += groups
        for g in range(groups):
            checks += growth_of(code, state.rail_n[j, g, rails.control])
    return checks + cells * constant_of(code, x / cells)
