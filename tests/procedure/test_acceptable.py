"""Evidence with an indifference or a tolerance, against identities and a solver of SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from evenhand.model.families import Bernoulli, Family, Gaussian, GaussianUnknown
from evenhand.model.problem import Problem
from evenhand.model.requirements import Floors, Penalty, Quota
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.evidence import certified
from evenhand.procedure.spec import Procedure, Spec
from evenhand.procedure.state import new_work
from tests.procedure.sampling.rule_run import RuleRun, problem, rule_run
from tests.procedure.stopping.counts import counted, recorded
from tests.reference.evidence import block

SHARES = np.array([0.2, 0.3, 0.5])
N = np.array([[40.0, 60], [50, 30], [70, 90]])
MEANS = np.array([[0.7, 0.5], [0.6, 0.5], [0.8, 0.6]])


def spec_of(family: Family, constraint: object = None, **procedure: object) -> Spec:
    groups = dict(zip("abc", SHARES.tolist(), strict=True))
    return compile_spec(
        Problem(["i", "k"], groups, family, constraint),  # type: ignore[arg-type]
        Procedure(**procedure),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("family", [Gaussian(0.5), GaussianUnknown()])
def test_with_gaussian_outcomes_an_indifference_is_a_head_start(family: Family) -> None:
    random, eps = np.random.default_rng(1), 0.2
    outcomes = {(k, g): random.normal(0.5, 0.5, 20) for k in range(2) for g in range(3)}
    ahead = []
    for indifference, start in ((eps, 0.0), (0.0, eps)):
        spec = spec_of(family, indifference=indifference)
        shifted = {cell: x + (start if cell[0] == 0 else 0.0) for cell, x in outcomes.items()}
        state, work = recorded(spec, shifted)
        ahead.append(certified.ahead(spec, state, work, 0, 1, np.inf))
    assert ahead[0] == pytest.approx(ahead[1], rel=1e-9)


def test_with_bernoulli_outcomes_the_null_moves_by_the_indifference() -> None:
    spec = spec_of(Bernoulli(), indifference=0.1)
    state, work = counted(spec, N, MEANS)
    n, s = N.T, (N * MEANS).T

    def value(lam: np.ndarray) -> float:
        return block(n[0], s[0], lam[:3], 1.0)[0] + block(n[1], s[1], lam[3:], -1.0)[0]

    a = np.concatenate([-SHARES, SHARES])
    start = np.concatenate([MEANS[:, 0] - 0.1, MEANS[:, 1] + 0.1])
    least = minimize(
        value, start, method="SLSQP", bounds=[(0, 1)] * 6, options={"maxiter": 500, "ftol": 1e-12},
        constraints=[{"type": "ineq", "fun": lambda lam: a @ lam - 0.1}],
    )  # fmt: skip
    assert certified.ahead(spec, state, work, 0, 1, np.inf) == pytest.approx(least.fun, abs=1e-4)


def test_with_penalties_the_head_start_is_of_the_score() -> None:
    # far above every floor the penalised score is the mean
    spec = spec_of(Gaussian(0.5), Penalty(-9.0, 2.0), indifference=0.2)
    plain = spec_of(Gaussian(0.5), indifference=0.2)
    state, work = counted(spec, N, MEANS)
    assert certified.ahead(spec, state, work, 0, 1, np.inf) == pytest.approx(
        certified.ahead(plain, state, new_work(plain), 0, 1, np.inf), abs=1e-4
    )


@pytest.mark.parametrize("constraint", [Floors, lambda at: Quota(at, groups=2)])
def test_a_tolerance_moves_the_bounds_of_the_answer_and_not_of_its_rivals(constraint: object) -> None:
    loose = spec_of(Gaussian(0.5), constraint(0.6), tolerance=[0.1, 0.0, 0.2])  # type: ignore[operator]
    moved = spec_of(Gaussian(0.5), constraint((0.5, 0.6, 0.4)))  # type: ignore[operator]
    strict = spec_of(Gaussian(0.5), constraint(0.6))  # type: ignore[operator]
    state, work = counted(loose, N, MEANS)
    assert certified.meets(loose, state, work, 0) == certified.meets(moved, state, work, 0)
    assert certified.fails(loose, state, work, 1) == certified.fails(strict, state, work, 1)


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
def test_decisions_do_not_depend_on_what_was_computed_before(mode: str) -> None:
    def run() -> RuleRun:
        return rule_run("ts-ids", mode, indifference=0.3, tolerance=0.1)

    kept, fresh = run(), run()
    for cell in kept.run(100):
        fresh.work = new_work(fresh.spec)
        assert fresh.ask() == cell
        fresh.tell(cell)


def test_beyond_many_policies_the_best_is_followed() -> None:
    means = np.tile(np.linspace(1.0, 0.0, 300)[:, None], (1, 3))
    run = RuleRun(problem(policies=300), Procedure(initial=1, indifference=0.3), means)
    cells = list(run.run(1000))
    assert len({k for k, _ in cells[900:]}) > 5
