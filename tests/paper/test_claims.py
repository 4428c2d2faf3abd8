"""What the paper states and does not hold as printed, with the numbers that say so; and its printed tables.

The list is in docs/equations.md, under "Statements, proofs and claims".
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.cli.paper import paper_module
from evenhand.model import region as regions
from evenhand.model.unit_families import BERNOULLI, GAUSSIAN, POISSON
from evenhand.study import load
from evenhand.theory import inner
from evenhand.theory.plan import risk_in_nats
from tests.oracles import divergence

ROOT = Path(__file__).parents[2]
PAPER = ROOT.parent / "shared" / "paper.tex"
HALVES = {"x": 0.5, "y": 0.5}


@pytest.fixture(scope="module")
def paper() -> Any:
    return paper_module()


def test_the_printed_lower_bound_is_above_the_cost_of_a_guess_beyond_a_risk_of_one_half() -> None:
    """thm:lower_bound: of K + 1 answers a guess without samples has risk K / (K + 1): 2/3 at two policies."""
    delta = 2 / 3
    kl = delta * math.log(delta / (1 - delta)) + (1 - delta) * math.log((1 - delta) / delta)
    assert kl > 0
    with pytest.raises(eh.BadInput):
        risk_in_nats(delta)


def test_where_variances_differ_the_group_that_shows_failure_is_not_that_of_the_smallest_mean() -> None:
    """lemma:weight_infeas: T* is the sum over policies of 1 / the largest divergence."""
    sd = [[3.0, 0.5], [0.5, 3.0]]
    problem = eh.Problem(["a", "b"], HALVES, eh.Gaussian(sd), eh.Floors(0.0))
    means = np.array([[-1.0, -0.5], [-0.4, -0.2]])  # a's smallest mean is in x, b's too
    found = eh.plan(problem, means)
    d = means**2 / (2 * np.square(sd))
    assert d.argmax(axis=1).tolist() == [1, 0] != means.argmin(axis=1).tolist()
    assert found.time_low == pytest.approx((1 / d.max(axis=1)).sum(), rel=1e-6)
    assert found.allocation.argmax(axis=1).tolist() == [1, 0]


@pytest.mark.parametrize(("code", "bounded"), [(GAUSSIAN, True), (BERNOULLI, False), (POISSON, False)])
def test_supergradients_of_bernoulli_and_poisson_cells_are_unbounded(code: int, bounded: bool) -> None:
    """lemma:optimization_convergence: a cell's divergence at the nearest alternative, its weight near 0."""
    free = regions.region(regions.BOX, 2, 2)
    q, mu, lam = np.array([0.3, 0.7]), np.array([[0.9, 0.2], [0.8, 0.3]]), (np.empty(2), np.empty(2))
    found = []
    for weight in (1e-8, 1e-16, 1e-32):
        v = np.array([[weight, 1.0], [1.0, 1.0]])
        inner.beat(code, free, q, 0.0, 0, 1, v, mu, *lam, lam[0], np.empty(inner.work_size(2, 0)))
        found.append(float(divergence(code, mu[0, 0], lam[0][0])))
    growth = np.diff(found)
    assert (growth < 1e-6).all() if bounded else (growth > 10).all()


def test_the_divergence_of_the_gamma_family_is_concave_beyond_twice_its_mean() -> None:
    """appendix:gaussian_sbfc: a (2 mu - lam) / lam^3, by second differences."""
    family, mu, step = eh.Gamma(2.5), 1.3, 1e-3
    for lam in (1.0, 2.0, 2.5, 2.7, 4.0, 9.0):
        left, here, right = family.divergence(mu, np.array([lam - step, lam, lam + step]))
        assert (left - 2 * here + right) / step**2 == pytest.approx(2.5 * (2 * mu - lam) / lam**3, abs=1e-5)


def test_penalties_without_bound_do_not_recover_the_hard_floors_everywhere() -> None:
    """subsec:second_extension, subsubsec:extension_comparison."""

    def plan(constraint: eh.Constraint, means: list[list[float]]) -> eh.Plan:
        return eh.plan(eh.Problem(["a", "b"], HALVES, eh.Gaussian(1.0), constraint), means, gap=1e-4)

    both, one, none = ([[0.5, 0.5], [0.4, 0.3]], [[0.5, 0.5], [1.0, -0.3]], [[-0.1, 0.5], [1.0, -0.3]])
    hard, soft = eh.Floors(0.0), eh.Penalty(0.0, 1e6)
    # two feasible policies: the same answer and the same time
    assert plan(soft, both).answer == plan(hard, both).answer == "a"
    assert plan(soft, both).time_low == pytest.approx(plan(hard, both).time_high, rel=1e-3)
    # one: the same answer, and a time below that of the hard floors
    assert plan(soft, one).answer == plan(hard, one).answer == "a"
    assert plan(soft, one).time_high < 0.8 * plan(hard, one).time_low
    # none: the hard floors have no answer, the penalty has one
    assert plan(hard, none).answer is None
    assert plan(soft, none).answer == "a"


@pytest.mark.parametrize(("gamma", "time"), [(None, 128.21), (0.5, 196.77), (1.0, 323.59)])
def test_printed_times_of_the_hard_and_soft_instance_are_too_long(
    paper: Any, gamma: float | None, time: float
) -> None:
    """subsubsec:extension_comparison, and eq:gamma_miqp, whose objective is half of what it should be."""
    found = eh.plan(*paper.instances.hard_and_soft(gamma), gap=1e-4)
    assert found.time_low <= time * (1 + 1e-4)
    assert found.time_high >= time * (1 - 1e-4)
    assert paper.published.SOFT_TIMES[gamma] > 1.3 * found.time_high


def test_the_best_allocation_of_the_scaling_instance_is_not_what_the_heat_map_shows(paper: Any) -> None:
    """subsubsec:asymptotic_optimality."""
    found = eh.plan(*paper.instances.scaling())
    assert found.time_high == pytest.approx(54.139, abs=1e-3)
    assert paper.published.SCALING_TIME / found.time_high > 1.05
    assert found.allocation[2, 0] == pytest.approx(0.026, abs=1e-3)
    assert found.allocation[:2] == pytest.approx(0.154, abs=2e-3)


def test_the_third_policys_overall_mean_moves_with_its_gap(paper: Any) -> None:
    """appendix:instance_sensitivity: at the smallest gap it is the best of all, at the others it is not."""
    for gap in paper.published.FEASIBILITY_GAP:
        problem, means = paper.instances.scaling(gap)
        assert (problem.scores(means).argmax() == 2) == (gap == 0.1)


def test_the_examples_hold_the_papers_instances(paper: Any) -> None:
    for file, (problem, means) in {
        "scaling": paper.instances.scaling(),
        "hard": paper.instances.hard_and_soft(None),
        "soft": paper.instances.hard_and_soft(0.5),
    }.items():
        study = load(ROOT / "examples" / f"{file}.toml")
        assert np.array(study.means()).tolist() == means.tolist()
        assert (study.problem.family, study.problem.constraint) == (problem.family, problem.constraint)


def printed(label: str) -> list[float]:
    """Every number of the paper's table with this label, in order."""
    text = PAPER.read_text(encoding="utf-8")
    body = text[: text.index(f"\\label{{{label}}}")].rsplit("\\midrule", 1)[-1].split("\\bottomrule")[0]
    body = re.sub(r"\\(?:math)?bf\{|\{,\}|[a-z]_\{?\d+\}?", "", body)
    return [float(number) for number in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", body)]


def rows_of(paper: Any) -> dict[str, list[tuple[Any, ...]]]:
    """The numbers kept of each printed table, a row at a time, as far as its columns are kept."""
    kept = paper.published
    return {
        "table:exp_a_results": [(delta, *row[:3], None, row[3]) for delta, row in kept.DELTA_SCALING.items()],
        "table:exp_b_results": [(gap, -gap, *row, None) for gap, row in kept.FEASIBILITY_GAP.items()],
        "table:part_b_pcs": [
            (policies, samples, ours, None, baseline, None, None)
            for policies, (samples, ours, baseline) in kept.OPERATIONAL_SCALE.items()
        ],
        "table:extension_comparison": [
            (*(() if gamma is None else (gamma,)), *row[1:]) for gamma, row in kept.HARD_AND_SOFT.items()
        ],
        "table:ist_pcs": [
            (samples, ours, None, arm, None, even, None)
            for samples, (ours, arm, even) in kept.STROKE_TRIAL.items()
        ],
        "table:asymptotic_instance": [(*row, None) for row in paper.instances.scaling()[1].tolist()],
        "table:extension_instance": [(*row, None) for row in paper.instances.hard_and_soft(None)[1].tolist()],
        "table:ist_cells_appendix": [
            (n, round(well / n, 4), None, m, round(fine / m, 4), None)
            for (n, well), (m, fine) in paper.instances.STROKE_COUNTS.values()
        ],
    }


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not on this machine")
def test_the_numbers_kept_of_the_papers_tables_are_those_printed(paper: Any) -> None:
    for label, rows in rows_of(paper).items():
        wanted = [number for row in rows for number in row]
        found = printed(label)
        assert len(found) == len(wanted), label
        for one, other in zip(found, wanted, strict=True):
            assert other is None or one == other, label
