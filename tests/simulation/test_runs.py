"""Runs: exact intervals, quantiles, the JSON of the contract, saving and loading."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from evenhand.errors import BadInput
from evenhand.simulation.executors import Serial
from evenhand.simulation.runs import Runs, exact_rate
from evenhand.simulation.shards import prepare, run_job
from tests.simulation.studies import coins, same_rows


@pytest.fixture(scope="module")
def runs() -> Runs:
    return run_job(prepare(coins(), 11, (30, 60)), 80, Serial())


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (1, 10), (7, 30), (29, 30), (30, 30)])
def test_the_ends_of_an_interval_leave_a_fortieth_on_each_side(hits: int, trials: int) -> None:
    found = exact_rate(hits, trials)
    assert found.rate == hits / trials
    assert found.low == 0 if hits == 0 else binom.sf(hits - 1, trials, found.low) == pytest.approx(0.025)
    assert found.high == 1 if hits == trials else binom.cdf(hits, trials, found.high) == pytest.approx(0.025)


def test_only_a_run_that_decided_for_another_answer_is_wrong(runs: Runs) -> None:
    wanted = {  # (decided, answer, right answer): wrong?
        (True, 0, 0): False,
        (True, 1, 0): True,
        (True, -1, 0): True,
        (True, 0, -1): True,
        (True, -1, -1): False,
        (False, 1, 0): False,
    }
    stopped, answer, truth = (np.array(part) for part in zip(*wanted, strict=True))
    rows = runs.rows._replace(stopped=stopped, answer=answer, truth=truth, right=answer == truth)
    found = replace(runs, rows=rows)
    assert found.wrong.tolist() == list(wanted.values())
    assert found.correct.tolist() == [True, False, False, False, True, False]


def test_a_quantile_is_a_number_of_samples_that_so_many_runs_took(runs: Runs) -> None:
    for chance in (0.1, 0.5, 0.9):
        value = runs.quantile(chance)
        assert value in runs.samples
        assert np.mean(runs.samples <= value) >= chance > np.mean(runs.samples < value)


def test_the_summary_has_the_keys_of_the_contract_and_finite_numbers(runs: Runs) -> None:
    found = json.loads(json.dumps(runs.to_dict(), allow_nan=False))
    wanted = (
        "replications",
        "seed",
        "correct",
        "stopped",
        "samples",
        "answers",
        "allocation",
        "checkpoints",
        "seconds",
    )
    assert set(wanted) <= set(found)
    assert set(found["correct"]) == {"rate", "low", "high"}
    assert set(found["samples"]) == {"mean", "se", "sd", "quantiles"}
    assert {"0.5", "0.7", "0.8", "0.9"} <= set(found["samples"]["quantiles"])
    assert set(found["answers"]) == {"p1", "p2", "none"}
    assert sum(found["answers"].values()) == pytest.approx(1)
    assert [point["samples"] for point in found["checkpoints"]] == [30, 60]
    assert found["samples"]["mean"] == pytest.approx(runs.samples.mean())
    assert found["correct"]["rate"] == pytest.approx(np.mean(runs.answer == 0))


def test_one_replication_has_a_summary_too() -> None:
    found = run_job(prepare(coins(), 1), 1, Serial()).to_dict()
    assert found["samples"]["sd"] == found["samples"]["se"] == 0.0


def test_saved_runs_come_back_whole_with_their_study(runs: Runs, tmp_path: Path) -> None:
    runs.save(tmp_path / "runs.npz")
    again = Runs.load(tmp_path / "runs.npz")
    assert same_rows(runs, again)
    assert again.study == runs.study
    assert again.to_dict() == runs.to_dict()
    assert [path.name for path in tmp_path.iterdir()] == ["runs.npz"]


def test_a_file_that_holds_no_runs_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.npz"
    other.write_bytes(b"PK not really a zip file")
    with pytest.raises(BadInput, match="must be saved runs of a simulation"):
        Runs.load(other)
    with pytest.raises(BadInput, match="there is no file"):
        Runs.load(tmp_path / "absent.npz")


def test_a_damaged_file_is_refused(runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "runs.npz"
    runs.save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(BadInput, match="must be saved runs of a simulation"):
        Runs.load(path)


def test_runs_are_not_saved_where_there_is_no_folder(runs: Runs, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        runs.save(tmp_path / "absent" / "runs.npz")
