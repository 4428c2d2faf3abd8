"""Forecasts of evaluations on shared items: labels, calls and money at assumed means."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.cli.main import main
from evenhand.errors import BadInput
from evenhand.evaluation.item_plan import difficulty_share

MEANS = np.array([[0.93, 0.9], [0.75, 0.7]])
SHARES = {"x": 0.6, "y": 0.4}
PROBLEM = eh.Problem(["a", "b"], SHARES, eh.Bernoulli(), eh.Floors(0.5))


@pytest.mark.parametrize("agreement", [0.75, 0.78, 0.8])
def test_outcomes_agree_as_often_as_wanted(agreement: float) -> None:
    rho = difficulty_share(MEANS, np.array([0.6, 0.4]), agreement)
    from scipy.stats import norm

    rng = np.random.default_rng(1)
    common, own = rng.standard_normal(200_000), rng.standard_normal((2, 200_000))
    group = (rng.random(200_000) < 0.4).astype(int)
    right = np.sqrt(rho) * common + np.sqrt(1 - rho) * own < norm.ppf(MEANS)[:, group]
    assert (right[0] == right[1]).mean() == pytest.approx(agreement, abs=0.005)


def test_every_run_decides_for_the_right_policy_and_money_follows_from_labels_and_calls() -> None:
    found = eh.plan_items(PROBLEM, MEANS, agreement=0.8, price={"a": 1.0, "b": 2.0}, label_price=5.0, runs=4)
    assert (found.runs, found.decided, found.right) == (4, 4, 4)
    assert found.label_cost == pytest.approx(5.0 * found.labels)
    assert found.call_cost == pytest.approx(found.calls["a"] + 2.0 * found.calls["b"])
    assert found.cost == pytest.approx((found.call_cost or 0.0) + (found.label_cost or 0.0))
    assert found.low <= found.high


def test_none_is_the_right_answer_where_no_policy_meets_its_floors() -> None:
    problem = eh.Problem(["a", "b"], SHARES, eh.Bernoulli(), eh.Floors(0.97))
    found = eh.plan_items(problem, MEANS, agreement=0.8, runs=2)
    assert (found.decided, found.right) == (2, 2)
    assert found.cost is None


def test_a_forecast_shows_its_sentences_and_the_calls_of_every_policy() -> None:
    found = eh.plan_items(PROBLEM, MEANS, agreement=0.75, runs=4)
    assert " ".join(repr(found).split()).startswith(f"ItemPlan: {found.words()[0]}")
    assert f"<p><strong>ItemPlan.</strong> {found.words()[0]}</p>" in found._repr_html_()
    assert found.to_frame().to_dict("list") == {
        "policy": list(PROBLEM.policies),
        "calls": list(found.calls.values()),
    }
    with pytest.raises(BadInput, match="has nothing to draw"):
        found.plot()


@pytest.mark.parametrize(
    ("agreement", "words"), [(0.5, "between 0.69"), (0.9, "and 0.81"), ("much", "'much'")]
)
def test_an_impossible_agreement_is_refused_with_the_range(agreement: float, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        eh.plan_items(PROBLEM, MEANS, agreement=agreement)


def test_other_outcomes_are_refused() -> None:
    problem = eh.Problem(["a", "b"], SHARES, eh.Gaussian(1.0), eh.Floors(0.5))
    with pytest.raises(BadInput, match="needs Bernoulli outcomes"):
        eh.plan_items(problem, MEANS, agreement=0.8)


def test_the_command_takes_the_prices_of_the_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "models.toml"
    study.write_text(
        """
        [problem]
        policies = ["a", "b"]
        groups = { x = 0.6, y = 0.4 }
        family = { name = "bernoulli" }
        constraint = { kind = "floors", at_least = 0.5 }
        [truth]
        means = [[0.93, 0.9], [0.75, 0.7]]
        [evaluate]
        items = "items.jsonl"
        policies = { a = "models:a", b = "models:b" }
        price = 0.01
        label_price = 0.5
        """
    )
    assert main(["plan", str(study), "--agreement", "0.8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["shared_items"]
    assert found["right"] == found["runs"]
    assert found["label_cost"] == pytest.approx(0.5 * found["labels"]["mean"])
    assert main(["plan", str(study), "--agreement", "0.3"]) == 2
    assert "agreement must be possible" in capsys.readouterr().err
