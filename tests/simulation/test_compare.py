"""Simulate and compare: what the verbs take, and differences on common random numbers."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from evenhand.errors import BadInput
from evenhand.procedure.spec import Budget
from evenhand.simulation.simulate import compare, simulate
from evenhand.study import Truth
from tests.simulation.studies import coins, same_rows, scaling


def test_simulate_takes_means_or_a_truth_alike() -> None:
    study = coins()
    from_means = simulate(study.problem, study.means(), study.procedure, 30, 4, workers=2)
    from_truth = simulate(study.problem, Truth(means=study.means()), study.procedure, 30, 4, workers=1)
    assert same_rows(from_means, from_truth)
    assert from_means.study == study


def test_simulate_takes_a_table_or_a_function_for_each_replication() -> None:
    study = coins()
    means = np.array(study.means())
    fixed = simulate(study.problem, means, study.procedure, 20, 4, workers=1)
    tables = simulate(study.problem, np.array([means] * 20), study.procedure, 20, 4, workers=1)
    drawn = simulate(study.problem, lambda seed, replication: means, study.procedure, 20, 4, workers=1)
    assert same_rows(fixed, tables)
    assert same_rows(fixed, drawn)


def test_too_few_tables_are_refused() -> None:
    study = coins()
    with pytest.raises(BadInput, match="a table for each of 3 replications"):
        simulate(study.problem, np.array([study.means()] * 3), study.procedure, 20, 4, workers=1)


def test_progress_counts_up_to_all_replications() -> None:
    study, seen = coins(), []
    simulate(
        study.problem, study.means(), study.procedure, 50, 4, workers=2, progress=lambda *at: seen.append(at)
    )
    assert [total for _, total in seen] == [50] * len(seen)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (50, 50)


def test_differences_are_taken_run_by_run() -> None:
    found = compare({"ours": coins(), "uniform": coins(sampling="uniform")}, 60, 4, workers=1)
    gaps = found.runs["uniform"].samples - found.runs["ours"].samples
    difference = found.samples("uniform")
    assert difference.mean == pytest.approx(gaps.mean())
    assert difference.se == pytest.approx(gaps.std(ddof=1) / 60**0.5)
    first, second = found.to_list()
    assert first["difference"] is None
    assert second["difference"]["against"] == "ours"
    assert second["difference"]["samples"]["mean"] == pytest.approx(gaps.mean())


def test_a_procedure_compared_with_itself_differs_by_nothing() -> None:
    found = compare({"one": coins(), "same": coins()}, 40, 4, workers=1)
    assert found.samples("same") == (0, 0, 0, 0)


def test_common_random_numbers_make_differences_sharper() -> None:
    """A tighter risk on the same runs: every run only continues, so pairs differ little."""
    found = compare({"loose": scaling(delta=0.2), "tight": scaling(delta=0.1)}, 100, 4, workers=2)
    loose, tight = (runs.samples for runs in found.runs.values())
    assert np.all(tight >= loose)
    assert found.samples("tight").se < 0.7 * np.sqrt((loose.var() + tight.var()) / 100)


def test_one_study_is_nothing_to_compare() -> None:
    with pytest.raises(BadInput, match="at least two studies"):
        compare({"one": coins()}, 10, 1)


def test_memory_grows_by_the_rows_and_nothing_else() -> None:
    """A row is seven 8-byte numbers and two flags; shards and bookkeeping do not grow with the runs."""
    study = coins(stopping=Budget(20))
    simulate(study.problem, study.means(), study.procedure, 10, 1, workers=1)  # compile
    peaks = []
    for replications in (2_000, 32_000):
        tracemalloc.start()
        simulate(study.problem, study.means(), study.procedure, replications, 1, workers=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / 30_000 < 7 * 8 + 2 + 8
