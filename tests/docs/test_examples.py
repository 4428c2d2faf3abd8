"""Every example runs and finds what it says it finds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
EVALUATIONS = ROOT / "tests/evaluation/test_evaluate.py"  # runs those that choose models


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples.{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # what it defines may travel to other processes
    spec.loader.exec_module(module)
    return module


def test_a_trial_with_arrivals_and_lag_decides_and_keeps_what_comes_late() -> None:
    status = example("clinical_trial").main()
    assert (status.answer, status.decided) == ("new", True)
    assert status.late > 0
    assert status.pending == 0


def test_a_test_whose_traffic_cannot_be_steered_refuses_the_page_that_fails_on_phones() -> None:
    status = example("ab_test").main()
    assert status.answer == "one column"


def test_a_simulator_is_optimised_with_no_kind_of_store_losing_money() -> None:
    status = example("inventory").main()
    assert status.answer == "order up to 22"
    verdicts = {policy.policy: policy.verdict for policy in status.policies}
    assert verdicts["order up to 35"] == "failed"  # the best overall mean


def test_the_four_fifths_rule_is_met_by_one_screening_rule() -> None:
    verdict = example("four_fifths").main()
    assert verdict.answer == "work sample"
    assert [policy.verdict for policy in verdict.policies] == ["failed", "met", "failed"]


def test_a_penalty_prices_what_a_floor_excludes() -> None:
    plans = example("soft_or_hard").main()
    assert plans["hard floor"].answer == plans["penalty 50"].answer == "a1"
    assert plans["penalty 0.5"].answer == "a4"
    assert plans["penalty 5"].time_low > plans["hard floor"].time_high


def test_not_knowing_the_variance_costs_samples() -> None:
    runs = example("unknown_variance").main()
    means = {name: found.samples.mean() for name, found in runs.items()}
    assert means["assumed too small"] < means["known"] < means["unknown"]
    assert runs["unknown"].wrong.mean() <= 0.05


def test_a_sweep_gives_the_same_numbers_without_a_cluster_and_computes_nothing_twice(tmp_path: Path) -> None:
    module = example("dask_sweep")
    first = module.main(dask=None, store=str(tmp_path))
    again = module.main(dask=None, store=str(tmp_path))
    assert (first.computed, first.reused) == (4, 0)
    assert (again.computed, again.reused) == (0, 4)


@pytest.mark.slow
def test_a_sweep_runs_on_a_cluster(tmp_path: Path) -> None:
    module = example("dask_sweep")
    here = module.main(dask=None, store=str(tmp_path / "here"))
    there = module.main(dask="local", store=str(tmp_path / "there"))
    for name, runs in here.runs.items():
        assert (runs.samples == there.runs[name].samples).all()


def test_a_convex_requirement_of_ones_own_is_planned() -> None:
    plan = example("custom_convex").main()
    assert plan.answer == "a"
    assert plan.feasible == ("a", "c")
    assert plan.time_high <= plan.time_low * 1.011


def test_the_page_with_too_many_complaints_is_not_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    status = example("guardrails").main()
    assert status.answer == "One click"
    assert "Upsell" in status.failed
    assert status.guardrails[1].missing > 0
    assert "missing independently of their values" in capsys.readouterr().out


def test_the_treatment_that_joined_is_found_and_the_one_that_left_is_not() -> None:
    status = example("platform_trial").main()
    assert status.answer == "Combination"
    assert [change.policy for change in (*status.joined, *status.withdrawn)] == ["Combination", "Double dose"]
    assert {cell.policy for cell in status.cells} == {"Standard", "Early dose", "Combination"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_tested_and_says_what_it_is(path: Path) -> None:
    here = Path(__file__).read_text()
    assert f'example("{path.stem}")' in here or f'"{path.stem}"' in EVALUATIONS.read_text()
    assert path.read_text().startswith('"""')
