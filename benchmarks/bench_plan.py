"""Inner problems against general solvers, and whole plans against time limits.

    python -m benchmarks plan

The inner problem is the alternative in which a rival meets its requirement and beats the best policy, at
K = 100 and L = 3. evenhand is timed for all rivals at once, with the certificate. The other solver gets
derivatives and everything that can be prepared once; for SCIP only the solve is timed. Every value of the
other solver is compared with evenhand's.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

import evenhand as eh
from benchmarks.rows import Row, less, seconds
from evenhand.compile import kernel
from evenhand.model import region as regions
from evenhand.model.region import Region
from evenhand.model.unit_families import BERNOULLI, GAUSSIAN
from evenhand.theory import inner
from evenhand.theory.beat_bulk import beat_all
from tests.oracles import Cells, beaten, conic_value, divergence, scip_model

Array = NDArray[np.float64]

POLICIES, GROUPS = 100, 3
EXAMPLES = Path(__file__).parents[1] / "examples"
KS, LS = (10, 30, 100, 300, 1000, 3000), (2, 4, 8, 16, 32)
SEEDS = range(3)


def rows() -> Iterator[Row]:
    yield against_daqp()
    yield against_numpy()
    yield against_slsqp()
    yield against_scip()
    yield against_cvxpy()
    yield from relative_floors()
    yield from plans()
    yield wider_plan()
    yield growth("plan time over K (L = 3)", {k: (k, GROUPS) for k in KS})
    yield growth("plan time over L (K = 20)", {l: (20, l) for l in LS})


class Setting(NamedTuple):
    """Policy 0 (the best) and its rivals, in the form of the kernels."""

    code: int
    r: Region
    q: Array
    v: Array  # (L, K)
    mu: Array

    def cells(self, rival: int) -> Cells:
        return Cells(self.code, self.v[:, [0, rival]].T.ravel(), self.mu[:, [0, rival]].T.ravel())


def setting(code: int, kind: int, **parts: Any) -> Setting:
    """Return means and weights drawn with a fixed seed, the best policy first."""
    rng = np.random.default_rng(1)
    shape = (GROUPS, POLICIES)
    mu = rng.normal(size=shape) if code == GAUSSIAN else rng.uniform(0.05, 0.95, shape)
    q = np.full(GROUPS, 1.0 / GROUPS)
    mu = mu[:, np.argsort(-(q @ mu))]
    return Setting(
        code, regions.region(kind, GROUPS, POLICIES, **parts), q, rng.uniform(0.1, 1.0, shape), mu.copy()
    )


def against_daqp() -> Row:
    """Compare Gaussian floors with DAQP, an active-set QP solver, called per rival."""
    import daqp

    one = setting(GAUSSIAN, regions.BOX, lo=np.zeros((GROUPS, POLICIES)))

    def prepared(rival: int) -> Callable[[], Any]:
        cells = one.cells(rival)
        (piece,) = beaten(one.r, one.q, 0, rival)
        hessian, linear = np.eye(cells.v.size), np.zeros(cells.v.size)
        high, sense = np.full(piece.rhs.size, 1e30), np.zeros(piece.rhs.size, dtype=np.int32)

        def solve() -> Any:
            # in y = sqrt(v) (lam - mu) the Hessian is the identity; means and weights are new at every step
            rows, low = piece.rows / np.sqrt(cells.v), piece.rhs - piece.rows @ cells.mu
            return daqp.solve(hessian, linear, rows, high, low, sense)

        return solve

    solves = [prepared(rival) for rival in range(1, POLICIES)]
    found = [float(np.sum(solve()[0] ** 2)) / 2 for solve in solves]
    theirs = seconds(lambda: [solve() for solve in solves], 50) / len(solves)
    return compared("gaussian floors, per rival, against DAQP", one, found, theirs, 500.0)


def against_numpy() -> Row:
    """Compare Gaussian floors with NumPy, which solves all rivals by sorting breakpoints."""
    one = setting(GAUSSIAN, regions.BOX, lo=np.zeros((GROUPS, POLICIES)))
    found = vectorised(one)
    theirs = seconds(lambda: vectorised(one), 200) / (POLICIES - 1)
    return compared("gaussian floors, per rival, against vectorised NumPy", one, found, theirs)


def vectorised(one: Setting) -> Array:
    """Return the values of all rivals: find eta from breakpoint to breakpoint, vectorised."""
    q, lo, mu, v = one.q[:, None], one.r.lo[:, 1:], one.mu[:, 1:], one.v[:, 1:]
    own = float((one.q**2 / one.v[:, 0]).sum())
    departs = np.maximum((lo - mu) * v / q, 0.0)
    order = np.argsort(departs, axis=0)
    at = np.take_along_axis(departs, order, axis=0)
    slope = own + np.cumsum(np.take_along_axis(q**2 / v, order, axis=0), axis=0)
    # surplus(eta) at each breakpoint: the increase up to there minus the gap at eta = 0
    start = one.q @ np.maximum(mu, lo) - float(one.q @ one.mu[:, 0])
    steps = np.diff(at, axis=0, prepend=0.0)
    before = np.vstack([np.full((1, at.shape[1]), own), slope[:-1]])
    surplus = start + np.cumsum(before * steps, axis=0)
    passed = np.maximum((surplus < 0.0).sum(axis=0) - 1, 0)[None]
    level, begun = (np.take_along_axis(part, passed, axis=0)[0] for part in (surplus, at))
    steep = np.take_along_axis(slope, passed, axis=0)[0]
    early = surplus[0] >= 0.0  # the root lies before the first breakpoint
    eta = np.where(early, np.maximum(-start, 0.0) / own, begun - level / steep)
    moves = np.maximum(eta * q / v, lo - mu)
    return np.asarray(0.5 * eta**2 * own + 0.5 * (v * moves**2).sum(axis=0))


def against_slsqp() -> Row:
    """Compare Bernoulli floors with SciPy's SLSQP from one start, with derivatives."""
    one = setting(BERNOULLI, regions.BOX, lo=np.full((GROUPS, POLICIES), 0.3))
    rivals = range(1, POLICIES, 5)

    def solve(rival: int) -> float:
        code, v, mu = one.cells(rival)
        rows, rhs, *_ = beaten(one.r, one.q, 0, rival)[0]
        met = {"type": "ineq", "fun": lambda lam: rows @ lam - rhs, "jac": lambda _: rows}
        found = minimize(
            lambda lam: float(v @ divergence(code, mu, lam)), mu,
            jac=lambda lam: v * (lam - mu) / (lam * (1 - lam)), bounds=[(1e-9, 1 - 1e-9)] * mu.size,
            constraints=[met], method="SLSQP", options={"ftol": 1e-10},
        )  # fmt: skip
        return float(found.fun)

    found = scattered(rivals, map(solve, rivals))
    theirs = seconds(lambda: [solve(rival) for rival in rivals], 3) / len(rivals)
    return compared("bernoulli floors, per rival, against SciPy's SLSQP", one, found, theirs, 1000.0)


def against_scip() -> Row:
    """Compare Gaussian penalties with SCIP on the paper's mixed-integer programme."""
    one = setting(GAUSSIAN, regions.PENALTY, lo=np.zeros((GROUPS, POLICIES)), gamma=np.full(GROUPS, 0.5))
    rivals = range(1, POLICIES, 12)
    times, found = [], []
    for rival in rivals:
        cells = one.cells(rival)
        model = scip_model(cells, one.r, one.q, 0, rival)
        begun = time.process_time()
        model.optimize()
        times.append(time.process_time() - begun)
        found.append(float(model.getObjVal()) * cells.v.max())
    name = "gaussian penalties, per rival, against SCIP"
    return compared(name, one, scattered(rivals, found), min(times), 10_000.0)


def against_cvxpy() -> Row:
    """Compare Bernoulli dispersion with cvxpy and Clarabel."""
    centre = np.eye(GROUPS) - np.full((GROUPS, GROUPS), 1.0 / GROUPS)
    one = setting(BERNOULLI, regions.DISPERSION, quad=centre.T @ centre, limit=0.05)
    rivals = range(1, POLICIES, 20)

    def solve(rival: int) -> float:
        return conic_value(one.cells(rival), beaten(one.r, one.q, 0, rival))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it warns when the solution may be inaccurate
        found = scattered(rivals, map(solve, rivals))
        theirs = seconds(lambda: [solve(rival) for rival in rivals], 1) / len(rivals)
    return compared("bernoulli dispersion, per rival, against cvxpy and Clarabel", one, found, theirs)


def scattered(rivals: range, values: Any) -> Array:
    """Return an array over all rivals with NaN for the rivals that were not solved."""
    table = np.full(POLICIES - 1, math.nan)
    table[[rival - 1 for rival in rivals]] = list(values)
    return table


def compared(name: str, one: Setting, found: Any, theirs: float, least: float | None = None) -> Row:
    """Time evenhand on all rivals and compare the values and times with the other solver's."""
    lower, lam = np.empty(POLICIES), np.empty((2, GROUPS))
    work = np.empty(inner.work_size(GROUPS, 0))
    times = 1 if one.r.kind == regions.DISPERSION else 20

    def solve() -> None:
        solve_repeatedly(times, one.code, one.r, one.q, one.v, one.mu, lower, lam[0], lam[1], work)

    ours = seconds(solve, 200) / times / (POLICIES - 1)
    known = np.isfinite(found)
    np.testing.assert_allclose(lower[1:][known], np.asarray(found)[known], rtol=1e-4, atol=1e-6)
    return less(name, ours * 1e9, theirs * 1e9, "ns", least)


@kernel
def solve_repeatedly(
    times: int, code: int, r: Region, q: Array, v: Array, mu: Array,
    lower: Array, lam_i: Array, lam_k: Array, work: Array,
) -> None:  # fmt: skip
    for _ in range(times):
        beat_all(code, r, q, 0.0, 0, v, mu, lower, lam_i, lam_k, lam_k, work)


def relative_floors() -> Iterator[Row]:
    """Compare floors relative to a control with absolute ones, at most three times as slow, per rival."""
    for name, code, floor in (("gaussian", GAUSSIAN, 0.0), ("bernoulli", BERNOULLI, 0.3)):
        absolute = setting(code, regions.BOX, lo=np.full((GROUPS, POLICIES), floor))
        beside = setting(
            code, regions.RELATIVE, control=POLICIES // 2, floor_ratio=np.ones(GROUPS),
            floor_margin=np.full(GROUPS, 0.1),
        )  # fmt: skip
        ours, theirs = (inner_seconds(one) * 1e9 for one in (beside, absolute))
        yield less(
            f"{name} floors relative to a control, per rival, against absolute ones",
            ours,
            theirs,
            "ns",
            1 / 3,
        )


def inner_seconds(one: Setting) -> float:
    """Return the seconds that evenhand takes for one rival."""
    lower, lam = np.empty(POLICIES), np.empty((2, GROUPS))
    work = np.empty(inner.work_size(GROUPS, 0))
    arguments = (one.code, one.r, one.q, one.v, one.mu, lower, lam[0], lam[1], work)
    return seconds(lambda: solve_repeatedly(20, *arguments), 200) / 20 / (POLICIES - 1)


def wider_plan() -> Row:
    """Time a plan with relative floors, guard-rails and an indifference at K = 100, L = 5."""
    rng, shape = np.random.default_rng(5), (100, 5)
    means, errors = rng.uniform(0.3, 0.9, shape), rng.uniform(0.05, 0.25, shape)
    waits = rng.uniform(0.5, 1.5, shape)
    problem = eh.Problem(
        [f"policy {k}" for k in range(100)],
        {f"group {g}": 0.2 for g in range(5)},
        eh.Bernoulli(),
        eh.Floors(relative_to="policy 0", margin=0.1),
        guardrails=[
            eh.Guardrail("errors", eh.Bernoulli(), eh.Caps(0.3)),
            eh.Guardrail("waiting", eh.Poisson(), eh.Caps(relative_to="policy 0", margin=1.0)),
        ],
    )
    rails = {"errors": errors, "waiting": waits}
    took = seconds(lambda: eh.plan(problem, means, guardrails=rails, indifference=0.02), 1)
    name = "plan with relative floors, guard-rails and an indifference, K = 100, L = 5"
    return less(name, took, 10.0, "s", 1.0)


def plans() -> Iterator[Row]:
    """Time whole plans: the paper's instances as commands with start-up, then larger ones."""
    for name, title in (("scaling", "scaling"), ("hard", "hard floors"), ("soft", "soft floors")):
        command = [sys.executable, "-m", "evenhand", "plan", str(EXAMPLES / f"{name}.toml"), "--json"]
        run = partial(subprocess.run, command, check=True, capture_output=True)
        took = seconds(run, 5, children_seconds)
        yield less(f"the paper's {title} instance, command to plan", took, 2.0, "s", 1.0)
    took = max(seconds(partial(planned, 100, 3, 1e-6, seed), 3) for seed in SEEDS)
    yield less("plan of K = 100, L = 3, bernoulli, gap 1e-6", took, 5.0, "s", 1.0)
    # in a separate process, to measure its peak memory
    large = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_plan"], check=True, capture_output=True, text=True
    )
    took, held = json.loads(large.stdout)
    yield less("plan of K = 1000, L = 5, bernoulli, gap 1e-3", took, 60.0, "s", 1.0)
    yield less("memory of that plan, everything loaded", held, 2.0, "GB", 1.0)


def children_seconds() -> float:
    """Return the processor time of all child processes; a plan has one thread."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def planned(policies: int, groups: int, gap: float, seed: int) -> eh.Plan:
    means = np.random.default_rng(seed).uniform(0.1, 0.95, (policies, groups))
    problem = eh.Problem(
        [f"policy {k}" for k in range(policies)],
        {f"group {g}": 1.0 / groups for g in range(groups)},
        eh.Bernoulli(),
        eh.Floors(0.2),
        normalise=True,
    )
    found = eh.plan(problem, means, gap=gap)
    assert found.time_high <= found.time_low * (1.0 + 1.01 * gap)
    return found


def growth(name: str, shapes: dict[int, tuple[int, int]]) -> Row:
    """Time plans with gap 1e-3 over a size and fit the exponent; linear growth is 1."""
    curve = []
    for size, (policies, groups) in shapes.items():
        times = [seconds(partial(planned, policies, groups, 1e-3, seed), 1) for seed in SEEDS]
        curve.append((float(size), float(np.median(times))))
    size, took = np.log(np.array(curve)).T
    exponent = float(np.polyfit(size, took, 1)[0])
    return Row(name, exponent, 1.0, "exponent", 1.0 / exponent, curve=tuple(curve))


if __name__ == "__main__":
    begun = time.process_time()
    planned(1000, 5, 1e-3, 0)
    took = time.process_time() - begun
    print(json.dumps([took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2]))
