"""The weakest alternative: what general solvers find; and what is remembered saves work, changes nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evenhand.model.families import Bernoulli, Family, Gaussian, Poisson
from evenhand.model.problem import Problem
from evenhand.model.region import PENALTY
from evenhand.model.requirements import Constraint, Dispersion, Floors, Penalty
from evenhand.procedure.alternatives import weakest_by_evidence
from evenhand.procedure.decide import check
from evenhand.procedure.estimates import refresh
from evenhand.procedure.evidence import certified
from evenhand.procedure.spec import Procedure
from evenhand.procedure.state import ANSWER, EVIDENCE, NEEDED, NONE, TOLD, new_work
from tests.oracles import Cells, Part, beaten, inside, outside, slsqp_value
from tests.procedure.sampling.rule_run import RuleRun
from tests.theory.regions.instances import conic

MEANS = np.array([[0.7, 0.6], [0.5, 0.6], [0.5, 0.6], [0.2, 0.9], [0.6, 0.5]])
CASES = {
    "bernoulli floors": (Bernoulli(), Floors(0.3)),
    "poisson floors": (Poisson(), Floors(0.3)),
    "gaussian floors": (Gaussian(0.5), Floors(0.3)),
    "gaussian penalties": (Gaussian(0.5), Penalty(0.3, 5.0)),
}


def certified_run(case: str, means: np.ndarray, sampling: str = "ts-ids") -> RuleRun:
    """Zeros and ones as outcomes, whatever the family, so that pieces can tie."""
    family, constraint = CASES[case]
    problem = Problem(tuple("abcde")[: len(means)], {"x": 0.5, "y": 0.5}, family, constraint)
    run = RuleRun(problem, Procedure(sampling=sampling, delta=1e-9, initial=2), means)
    run._bernoulli = True
    run.start()
    return run


def all_pieces(run: RuleRun, leader: int) -> np.ndarray:
    """The evidence against every rival, each weighed to the end."""
    found = np.full(run.means.shape[0], np.inf)
    for k in set(range(found.size)) - {leader}:
        soft = run.spec.region.kind == PENALTY
        found[k] = -math.inf if soft else certified.fails(run.spec, run.state, run.work, k)
        if leader != NONE:
            ahead = certified.ahead(run.spec, run.state, run.work, leader, k, math.inf)
            found[k] = np.logaddexp(ahead, found[k])
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_weakest_piece_of_a_long_run_is_the_one_found_afresh(case: str) -> None:
    run = certified_run(case, MEANS)
    for step in range(300):
        cells = [run.ask() for _ in range(1 + step % 3)]
        for cell in cells:
            run.tell(cell)
        fresh = new_work(run.spec)
        leader = refresh(run.spec, run.state, fresh, True)
        assert refresh(run.spec, run.state, run.work, True) == leader
        found = weakest_by_evidence(run.spec, run.state, run.work, leader)
        assert found == weakest_by_evidence(run.spec, run.state, fresh, leader), step


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_least_of_all(case: str) -> None:
    run = certified_run(case, MEANS)
    for _ in range(150):
        run.tell(run.ask())
        leader = refresh(run.spec, run.state, run.work, True)
        value, piece = weakest_by_evidence(run.spec, run.state, run.work, leader)
        each = all_pieces(run, leader)
        assert value <= each.min()
        if piece < each.size:
            assert (value, piece) == (each.min(), each.argmin())


@pytest.mark.parametrize("case", CASES)
def test_among_equals_it_is_the_first_wherever_the_search_began(case: str) -> None:
    run = certified_run(case, np.array([[1.0, 1.0], [0.5, 0.5], [0.5, 0.5]]), "uniform")
    tied = 0
    for _ in range(20):
        for _ in range(6):
            run.tell(run.ask())
        for table in (run.state.n, run.state.s):
            table[:, 2] = table[:, 1]
        for first in (1, 2):
            work = new_work(run.spec)
            leader = refresh(run.spec, run.state, work, True)
            work.against[first] = -1.0
            value, piece = weakest_by_evidence(run.spec, run.state, work, leader)
            each = all_pieces(run, leader)
            assert each[1] == each[2]
            if piece < 3:
                assert (value, piece) == (each[1], 1)
                tied += 1
    assert tied > 10


LIKELIHOOD: dict[str, tuple[Family, Constraint]] = {
    "gaussian floors": (Gaussian(0.5), Floors(0.3)),
    "bernoulli floors": (Bernoulli(), Floors(0.3)),
    "gaussian dispersion": (Gaussian(0.5), Dispersion(0.1)),
    "gaussian penalties": (Gaussian(0.5), Penalty(0.3, 5.0)),
}
NOBODY = np.array([[0.1, 0.9], [0.9, 0.1], [0.8, 0.1]])


def general_solvers(run: RuleRun, leader: int) -> float:
    """eq:stopping_statistics from the counts and sums, by solvers that know nothing of this project."""
    code, r, q = run.spec.code, run.spec.region, run.spec.shares
    n, mean = run.state.n / run.spec.phi, run.state.s / run.state.n
    policies, groups = range(n.shape[1]), q.size

    def least(cells: list[int], pieces: list[Part]) -> float:
        there = Cells(code, n[:, cells].T.ravel(), mean[:, cells].T.ravel())
        if any(piece.sign < 0 for piece in pieces):
            return slsqp_value(there, pieces, starts=6)
        return conic(there, pieces)

    if leader == NONE:
        return min(least([k], inside(r, k, groups)) for k in policies)
    values = [least([leader, k], beaten(r, q, leader, k)) for k in policies if k != leader]
    if r.kind != PENALTY:
        values.append(least([leader], outside(r, leader, groups)))
    return min(values)


@pytest.mark.parametrize("means", [MEANS[[0, 1, 3]], NOBODY], ids=["somebody feasible", "nobody feasible"])
@pytest.mark.parametrize("case", LIKELIHOOD)
def test_the_stopping_statistic_is_what_general_solvers_find(case: str, means: np.ndarray) -> None:
    family, constraint = LIKELIHOOD[case]
    problem = Problem(("a", "b", "c"), {"x": 0.7, "y": 0.3}, family, constraint)
    run = RuleRun(problem, Procedure(sampling="uniform", stopping="stylised", delta=1e-9, initial=3), means)
    run.start()
    leaders = set()
    for _ in range(12):
        for _ in range(5):
            run.tell(run.ask())
        check(run.spec, run.state, run.work)
        leader, told = int(run.state.clock[ANSWER]), int(run.state.clock[TOLD])
        leaders.add(leader)
        expected = general_solvers(run, leader)
        assert run.state.level[EVIDENCE] == pytest.approx(expected, rel=1e-5, abs=1e-7)
        assert run.state.level[NEEDED] == pytest.approx(math.log((1 + math.log(told)) / 1e-9))
    assert (NONE in leaders) == (means is NOBODY and case != "gaussian penalties")
