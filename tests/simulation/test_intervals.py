"""Simulated runs in intervals: the shares and the stop of a live experiment, and what intervals cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.cli.main import main
from evenhand.errors import BadInput
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.interval_steps import next_allocation
from evenhand.procedure.randomness import ARRIVALS, uniform
from evenhand.simulation.outcome_laws import compile_truth
from evenhand.simulation.shards import Shard, prepare, run_shard
from evenhand.simulation.simulate import cost_of
from evenhand.simulation.streams import arrival, outcome
from evenhand.study import Study, Truth, dumps
from evenhand.study.planned_intervals import planned_intervals

PROBLEM = eh.Problem(
    ["a", "b", "c"], {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.6), mode="proportional"
)
MEANS = ((0.8, 0.7), (0.7, 0.66), (0.85, 0.45))


def study(volume: float = 500, truth: dict[str, Any] | None = None, **settings: Any) -> Study:
    evidence = settings.pop("evidence", "mixture")
    procedure = eh.Procedure(delta=0.05, evidence=evidence, interval=eh.Intervals(volume, **settings))
    return Study(PROBLEM, procedure, Truth(**{"means": MEANS} | (truth or {})))


@pytest.mark.parametrize("evidence", ["mixture", "linear-bets"])
def test_a_live_experiment_replays_a_simulated_run(evidence: str) -> None:
    """Units of replication 0 by their addresses, told to a live experiment: the same length and answer."""
    seed, asked = 11, study(300, evidence=evidence)
    job = prepare(asked, seed)
    rows = run_shard(Shard(job, 0, 1))
    spec = compile_spec(asked.problem, asked.procedure)
    source = compile_truth(asked.problem, asked.truth)  # type: ignore[arg-type]
    volumes = np.array([180.0, 120.0])
    trial = eh.Experiment.create(":memory:", asked, seed=seed)
    shares, unit, drawn = np.full((2, 3), 1 / 3), 0, np.zeros((2, 3), dtype=int)
    while not trial.is_over:
        counts: dict[str, dict[str, tuple[int, int]]] = {}
        for _ in range(300):
            g = arrival(volumes / 300, unit, seed, 0)
            u = uniform(seed, unit, 1, 0, ARRIVALS)
            k = min(int(np.searchsorted(np.cumsum(shares[g]), u, side="right")), 2)
            x = int(outcome(source, source.means[0], k, g, int(drawn[g, k]), seed, 0))
            n, s = counts.setdefault("abc"[k], {}).get("xy"[g], (0, 0))
            counts["abc"[k]]["xy"[g]] = (n + 1, s + x)
            unit, drawn[g, k] = unit + 1, drawn[g, k] + 1
        version = trial.shares().version
        trial.tell_counts(version, counts, close=True)
        state = trial.present().state
        shares = next_allocation(spec, state, np.zeros((2, 3)), volumes, 0.02, seed, version + 1)
        if not trial.is_over:  # what is published is this allocation, rounded to points
            published = trial.shares()
            found = np.array([[published.share(g, k) for k in "abc"] for g in "xy"])
            assert np.abs(found - shares).max() < 2e-5
    status = trial.status()
    assert status.samples == rows.samples[0]
    assert status.answer == "abc"[rows.answer[0]]
    assert status.evidence == pytest.approx(rows.evidence[0], rel=1e-12)


def test_runs_in_intervals_are_right_and_take_whole_intervals() -> None:
    runs = eh.simulate(study(), replications=50, seed=1, workers=1)
    assert runs.correct.mean() == 1.0
    assert (runs.samples % 500 == 0).all()
    assert (runs.samples == runs.assigned).all()
    assert runs.intervals is not None
    assert (runs.intervals == runs.samples / 500).all()
    table = runs.to_dict()["intervals"]
    assert table["assigned"]["mean"] == runs.samples.mean()
    again = eh.simulate(study(), replications=50, seed=1, workers=2)
    assert (again.samples == runs.samples).all()


def test_a_delay_costs_the_units_that_are_assigned_before_an_interval_is_final() -> None:
    at_once = eh.simulate(study(length="1h"), replications=40, seed=1, workers=1)
    later = eh.simulate(study(length="1h", delay="3h"), replications=40, seed=1, workers=1)
    assert (later.assigned == later.samples + 3 * 500).all()
    assert at_once.samples.mean() <= later.samples.mean() < 2 * at_once.samples.mean()


def test_outcomes_that_come_too_late_and_lost_ones_are_not_counted() -> None:
    # of 500 units the outcomes of those that come within the interval are counted: half of them on average
    late = eh.simulate(study(truth={"lag": (0, 500)}), replications=20, seed=1, workers=1)
    assert late.samples.sum() / late.assigned.sum() == pytest.approx(0.5, abs=0.03)
    in_time = eh.simulate(
        study(truth={"lag": (0, 500)}, length="1h", delay="1h"), replications=20, seed=1, workers=1
    )
    assert (in_time.samples == in_time.assigned - 500).all()
    lost = eh.simulate(study(truth={"dropout": 0.25}), replications=20, seed=1, workers=1)
    assert lost.samples.sum() / lost.assigned.sum() == pytest.approx(0.75, abs=0.03)
    with pytest.raises(BadInput, match="give interval a longer delay"):
        eh.simulate(study(truth={"lag": 600}), replications=1, workers=1)


def test_shares_follow_the_rule_above_their_floor() -> None:
    runs = eh.simulate(study(200, floor=0.1), replications=60, seed=1, workers=1)
    given = runs.allocation / runs.allocation.sum(axis=0)  # share of each policy in its group
    assert given.min() > 0.08
    assert given[2, 1] < 0.2  # c misses its floor in y, and more samples are not needed
    assert given[0].min() > 0.3


def test_intervals_cost_more_the_larger_they_are() -> None:
    alone = eh.simulate(PROBLEM, MEANS, eh.Procedure(delta=0.05), 60, seed=1, workers=1)
    costs = [
        cost_of(eh.simulate(study(volume), replications=60, seed=1, workers=1), alone)
        for volume in (100, 2_000)
    ]
    assert costs[0].ratio < costs[1].ratio
    assert 0.8 < costs[0].ratio < 1.6
    for cost in costs:
        assert cost.low < cost.ratio < cost.high
    assert "times the units of a run one by one" in costs[0].sentence()


def test_checkpoints_are_passed_at_interval_ends() -> None:
    runs = eh.simulate(study(), replications=30, seed=1, checkpoints=(400, 900), workers=1)
    assert runs.at_checkpoint(1).rate >= 0.5


def test_guardrails_and_costs_go_through_intervals() -> None:
    rail = eh.Guardrail("complaints", eh.Poisson(), eh.Caps(0.5))
    problem = replace(PROBLEM, guardrails=[rail], costs={"a": 2.0})
    truth = Truth(means=MEANS, guardrails={"complaints": ((0.9, 0.9), (0.2, 0.2), (0.2, 0.2))})
    procedure = eh.Procedure(interval=eh.Intervals(1_000))
    runs = eh.simulate(Study(problem, procedure, truth), replications=10, seed=1, workers=1)
    assert set(runs.answer.tolist()) == {1}  # a has too many complaints
    assert runs.cost is not None
    assert (runs.cost > runs.samples).all()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda: eh.simulate(study(), replications=1, device="cuda"), "cpu only|cuda"),
        (
            lambda: eh.simulate(
                Study(
                    replace(PROBLEM, family=eh.Binomial(trials=3), constraint=eh.Floors(1.8)),
                    eh.Procedure(evidence="linear-bets", interval=eh.Intervals(100)),
                    Truth(means=tuple((3 * a, 3 * b) for a, b in MEANS)),
                ),
                replications=1, workers=1,
            ),
            "at the ends of their range",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_simulated_is_refused(asked: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        asked()


def test_the_plan_says_what_intervals_cost() -> None:
    asked = study(1_000, length="6h", delay="1d")
    found = planned_intervals(asked, eh.plan(asked), 0.05)
    assert found is not None
    least = eh.plan(asked).samples_at_least(0.05)
    assert (found.counted, found.lag, found.units_at_least) == (1, 4, 5_000)
    assert found.ratio == pytest.approx(5_000 / least)
    assert found.seconds == 30 * 3_600
    assert "5,000 units are assigned by then" in found.sentence()
    assert planned_intervals(replace(asked, procedure=eh.Procedure()), eh.plan(asked), 0.05) is None


def test_the_commands_know_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "study.toml"
    path.write_text(dumps(study()))
    assert main(["plan", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["intervals"]["units"] == 500
    assert main(["plan", str(path)]) == 0
    assert "In intervals of 500 units" in capsys.readouterr().out
    words = ["simulate", str(path), "--replications", "10", "--workers", "1"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["intervals"]
    assert found["one_by_one"]["replications"] == 10
    assert main([*words, "--intervals-only"]) == 0
    out = capsys.readouterr().out
    assert "intervals on average" in out
    assert "one by one" not in out
    assert main([*words, "--trace", "0"]) == 2
    assert "the study runs in intervals" in capsys.readouterr().err
