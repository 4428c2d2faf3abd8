"""The least ln M of the tilt mixture over a half-space, in decimal arithmetic of 60 digits.

Written from the formula alone; no line is shared with the package. Newton's method on the hyperplane, in
stages of growing counts. What is returned is a minimum whatever the way to it: ln M is convex, and at the end
its gradient is checked to be a multiple of the half-space's normal vector to 20 digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext

Vector = list[Decimal]
Matrix = list[Vector]

DIGITS = 60
SIZES = {
    "bernoulli": [Decimal("0.02") * Decimal("1.8") ** g for g in range(8)],
    "poisson": [Decimal("0.01") * Decimal(2) ** g for g in range(8)],
}
WEIGHTS = ((0, Decimal("0.25")), (1, Decimal("0.5")), (2, Decimal("0.25")))


def least(
    family: str, blocks: Sequence[Sequence[int]], a: Sequence[float], n: Sequence[float], s: Sequence[float],
    c: float,
) -> float:  # fmt: skip
    """min ln M over {a.lam >= c}, whose least must lie inside the domain of the means."""
    with localcontext() as context:
        context.prec = DIGITS
        normal, counts, sums = ([Decimal(x) for x in values] for values in (a, n, s))
        means = [total / count for total, count in zip(sums, counts, strict=True)]
        short = Decimal(c) - _dot(normal, means)
        assert short > 0, "the estimates lie in the half-space"
        ease = sum(x * x * m / count for x, m, count in zip(normal, means, counts, strict=True))
        lam = [m + short / ease * x * m / count for x, m, count in zip(normal, means, counts, strict=True)]
        divided = max(short * short / ease / 8, Decimal(1))
        while True:
            part = [x / divided for x in counts], [x / divided for x in sums]
            lam, value, gradient = _minimise(family, blocks, normal, *part, lam)
            if divided == 1:
                break
            divided = max(divided / 3, Decimal(1))
        ratios = [slope / x for slope, x in zip(gradient, normal, strict=True)]
        assert max(ratios) - min(ratios) < Decimal("1e-20") * max(ratios), "not the minimum"
        assert abs(_dot(normal, lam) - Decimal(c)) < Decimal("1e-40")
        return float(value)


def _minimise(
    family: str, blocks: Sequence[Sequence[int]], normal: Vector, n: Vector, s: Vector, lam: Vector
) -> tuple[Vector, Decimal, Vector]:
    value, gradient, hessian = _log_m(family, blocks, normal, n, s, lam)
    damping = Decimal("1e-6")
    for _ in range(400):
        step = _step(gradient, hessian, normal, damping)
        slope = _dot(gradient, step)
        if -slope < Decimal("1e-45"):
            return lam, value, gradient
        reach = Decimal(1)
        while True:
            trial = [x + reach * y for x, y in zip(lam, step, strict=True)]
            if all(x > 0 and (x < 1 or family == "poisson") for x in trial):
                found = _log_m(family, blocks, normal, n, s, trial)
                if found[0] <= value + reach * slope / 10000:
                    break
            reach /= 2
        damping = min(damping / 100 if reach == 1 else damping * 10, -slope)
        lam, (value, gradient, hessian) = trial, found
    raise AssertionError("the reference does not converge")


def _log_m(
    family: str, blocks: Sequence[Sequence[int]], normal: Vector, n: Vector, s: Vector, lam: Vector
) -> tuple[Decimal, Vector, Matrix]:
    """ln M by its definition, its gradient and its Hessian."""
    m = len(lam)
    value, gradient = Decimal(0), [Decimal(0)] * m
    hessian = [[Decimal(0)] * m for _ in range(m)]
    for block in blocks:
        logs, slopes, curves = [], [], []
        for size in SIZES[family]:
            cells = [_log_cell(family, normal[j], n[j], s[j], lam[j], size) for j in block]
            logs.append(sum(cell[0] for cell in cells))
            slopes.append([cell[1] for cell in cells])
            curves.append([cell[2] for cell in cells])
        peak = max(logs)
        shares = [(log - peak).exp() for log in logs]
        total = sum(shares)
        shares = [share / total for share in shares]
        value += peak + (total / len(logs)).ln()
        mean = [_dot(shares, [row[i] for row in slopes]) for i in range(len(block))]
        for i, j in enumerate(block):
            gradient[j] = mean[i]
            for k, l in enumerate(block):
                spread = [(row[i] - mean[i]) * (row[k] - mean[k]) for row in slopes]
                hessian[j][l] = _dot(shares, spread)
            hessian[j][j] += _dot(shares, [row[i] for row in curves])
    return value, gradient, hessian


def _log_cell(
    family: str, normal: Decimal, n: Decimal, s: Decimal, lam: Decimal, size: Decimal
) -> tuple[Decimal, Decimal, Decimal]:
    """ln of 1/4 + 1/2 exp(tau S - n K(tau)) + 1/4 exp(2 tau S - n K(2 tau)), and two derivatives in lam."""
    logs, slopes, curves = [], [], []
    for times, weight in WEIGHTS:
        tau = times * (size if normal < 0 else -size)
        lift = tau.exp() - 1
        if family == "bernoulli":
            logs.append(weight.ln() + tau * s - n * (1 + lam * lift).ln())
            slopes.append(-n * lift / (1 + lam * lift))
            curves.append(n * (lift / (1 + lam * lift)) ** 2)
        else:
            logs.append(weight.ln() + tau * s - n * lam * lift)
            slopes.append(-n * lift)
            curves.append(Decimal(0))
    peak = max(logs)
    shares = [(log - peak).exp() for log in logs]
    total = sum(shares)
    shares = [share / total for share in shares]
    slope = _dot(shares, slopes)
    curve = _dot(shares, [x * x + y for x, y in zip(slopes, curves, strict=True)]) - slope * slope
    return peak + total.ln(), slope, curve


def _step(gradient: Vector, hessian: Matrix, normal: Vector, damping: Decimal) -> Vector:
    """Newton's step within the hyperplane: the solution of the first-order conditions."""
    m = len(gradient)
    largest = max(hessian[j][j] for j in range(m))
    rows = [
        [*(hessian[j][k] + (damping * largest if j == k else 0) for k in range(m)), normal[j], -gradient[j]]
        for j in range(m)
    ]
    rows.append([*normal, Decimal(0), Decimal(0)])
    for i in range(m + 1):
        pivot = max(range(i, m + 1), key=lambda r, i=i: abs(rows[r][i]))  # type: ignore[misc]
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, m + 1):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i], strict=True)]
    solution = [Decimal(0)] * (m + 1)
    for i in range(m, -1, -1):
        known = sum(rows[i][j] * solution[j] for j in range(i + 1, m + 1))
        solution[i] = (rows[i][m + 1] - known) / rows[i][i]
    return solution[:m]


def _dot(x: Sequence[Decimal], y: Sequence[Decimal]) -> Decimal:
    return sum((a * b for a, b in zip(x, y, strict=True)), Decimal(0))
