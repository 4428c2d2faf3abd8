"""Guard-rails in a live experiment: told by name, missing ones said, audited, replayed and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.errors import BadInput, Conflict
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.journal import open_journal
from evenhand.live.load_log import load
from evenhand.live.projection import PlacedSample
from evenhand.live.tickets import Ask
from evenhand.model.families import Bernoulli, Gaussian, Poisson
from evenhand.model.guardrails import Guardrail
from evenhand.model.problem import Problem
from evenhand.model.requirements import Caps, Floors
from evenhand.procedure.spec import Procedure
from evenhand.simulation.shards import prepare, trace_job
from evenhand.simulation.streams import outcome, rail_outcome
from evenhand.study import Study, Truth

PROBLEM = Problem(
    ["old", "new"], {"web": 0.6, "app": 0.4}, Gaussian(0.5), Floors(-1.0),
    guardrails=[Guardrail("errors", Bernoulli(), Caps(0.3)), Guardrail("calls", Poisson(), Caps(3.0))],
)  # fmt: skip
PROCEDURE = Procedure(delta=0.1, initial=2, max_samples=4000, initial_order="declared")
# "new" is better, and has too many errors in the app
TRUTH = Truth(
    ((0.2, 0.3), (0.9, 0.8)),
    guardrails={"errors": ((0.1, 0.1), (0.1, 0.6)), "calls": ((1.0, 1.0), (1.0, 1.0))},
)


@pytest.fixture
def trial(tmp_path: Path) -> Any:
    with Experiment.create(str(tmp_path / "shop.db"), PROBLEM, PROCEDURE, seed=7) as made:
        yield made


def sample(trial: Experiment, number: int, missing: float = 0.0) -> tuple[Ask, dict[str, float | None]]:
    """The next ticket, and outcomes for it."""
    random, ask = np.random.default_rng(number), trial.ask()
    assert ask is not None
    k, g = PROBLEM.policies.index(ask.policy), PROBLEM.group_names.index(ask.group or "")
    assert TRUTH.guardrails is not None
    told: dict[str, float | None] = {"outcome": float(random.normal(TRUTH.means[k][g], 0.5))}  # type: ignore[index,arg-type]
    told["errors"] = float(random.random() < TRUTH.guardrails["errors"][k][g])
    told["calls"] = (
        float(random.poisson(TRUTH.guardrails["calls"][k][g])) if random.random() >= missing else None
    )
    return ask, told


def test_a_live_experiment_with_guard_rails_replays_the_simulation(trial: Experiment) -> None:
    job = prepare(Study(PROBLEM, PROCEDURE, TRUTH), 7)
    rows, trace = trace_job(job, 0)
    drawn: dict[tuple[int, int], int] = {}
    for number in range(int(rows.samples[0])):
        ask = trial.ask()
        assert ask is not None
        k, g = PROBLEM.policies.index(ask.policy), PROBLEM.group_names.index(ask.group or "")
        assert (k, g) == (trace.policy[number], trace.group[number])
        draw = drawn[k, g] = drawn.get((k, g), -1) + 1
        told = {"outcome": float(outcome(job.source, job.source.means[0], k, g, draw, 7, 0))}
        for j, rail in enumerate(PROBLEM.guardrails):
            told[rail.name] = float(rail_outcome(job.source, j, k, g, draw, 7, 0))
        assert told["outcome"] == trace.outcome[number]
        trial.tell(ask, told)
    status = trial.status()
    assert status.decided
    assert status.answer == PROBLEM.policies[rows.answer[0]] == "old"
    assert status.evidence == rows.evidence[0]


def test_what_is_told_is_counted_per_metric_and_reopened_alike(trial: Experiment, tmp_path: Path) -> None:
    told = [sample(trial, number, missing=0.4) for number in range(1)]
    trial.tell(*told[0])
    for number in range(1, 30):
        told.append(sample(trial, number, missing=0.4))
        trial.tell(*told[-1])
    state = trial.present().state
    missing = sum(values["calls"] is None for _, values in told)
    assert missing > 0
    assert state.n.sum() == state.rail_n[0].sum() == 30
    assert state.rail_n[1].sum() == 30 - missing
    again = load(open_journal(str(tmp_path / "shop.db"), write=False), "main")
    for one, other in zip(state, again.replay.state, strict=True):
        assert np.array_equal(one, other, equal_nan=True)
    assert audit(str(tmp_path / "shop.db")).identical


def test_amending_a_metric_recomputes_its_cell(trial: Experiment, tmp_path: Path) -> None:
    for number in range(12):
        ask, values = sample(trial, number)
        trial.tell(ask, values)
    before = trial.present().state
    changed = values | {"calls": None, "errors": 1.0 - float(values["errors"] or 0.0)}
    receipt = trial.amend(ask, changed, reason="miscounted", by="ann")
    assert receipt.outcome == values["outcome"]
    after = trial.present().state
    assert np.array_equal(before.n, after.n)
    assert after.rail_n[1].sum() == before.rail_n[1].sum() - 1
    assert abs(after.rail_s[0].sum() - before.rail_s[0].sum()) == 1.0
    amended = [entry.event for entry in trial.events() if isinstance(entry.event, ev.Amended)]
    assert amended[0].metrics == {"calls": None, "errors": changed["errors"]}
    assert amended[0].old_metrics == {"calls": values["calls"], "errors": values["errors"]}
    assert audit(str(tmp_path / "shop.db")).identical
    trial.amend(ask, changed, reason="again", by="ann")  # nothing changes
    assert sum(isinstance(entry.event, ev.Amended) for entry in trial.events()) == 1


def test_a_second_different_metric_is_refused_and_written_down(trial: Experiment, tmp_path: Path) -> None:
    ask, values = sample(trial, 1)
    trial.tell(ask, values, key="one")
    assert trial.tell(ask, values).counted  # the same again
    other = values | {"errors": 1.0 - float(values["errors"] or 0.0)}
    for _ in range(2):
        with pytest.raises(Conflict, match=r"has the outcome .*, calls .*, errors .* already"):
            trial.tell(ask, other, key="two")
    refused = [entry.event for entry in trial.events() if isinstance(entry.event, ev.Refused)]
    assert len(refused) == 1
    assert refused[0].metrics == {"calls": other["calls"], "errors": other["errors"]}
    assert audit(str(tmp_path / "shop.db")).identical


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (0.5, "the outcome of a sample must name outcome, errors, calls; it is 0.5"),
        ({"outcome": 0.5, "errors": 1.0}, "'calls' is not there. Give it as null"),
        ({"errors": 1.0, "calls": 2.0}, "'outcome' is not there"),
        ({"outcome": 0.5, "errors": 1.0, "calls": 2.0, "cals": 2.0}, "a sample has no outcome 'cals'"),
        ({"outcome": 0.5, "errors": 0.4, "calls": 2.0}, "guard-rail 'errors': outcomes must be 0 or 1"),
        ({"outcome": None, "errors": 1.0, "calls": 2.0}, "None is not a number"),
    ],
)
def test_a_sample_that_lacks_a_metric_is_refused_and_nothing_is_written(
    trial: Experiment, told: Any, message: str
) -> None:
    ask = trial.ask()
    assert ask is not None
    head = trial.head
    with pytest.raises(BadInput, match=message):
        trial.tell(ask, told)
    with pytest.raises(BadInput, match=message):
        trial.tell_all([(ask, told, None)])
    with pytest.raises(BadInput, match=message):
        trial.import_data([("old", "web", told)])
    assert trial.head == head


def test_outcomes_collected_before_are_imported_with_their_metrics(trial: Experiment, tmp_path: Path) -> None:
    rows = [
        (policy, group, {"outcome": 0.1 * n, "errors": float(n % 2), "calls": None if n == 2 else 1.0})
        for policy in PROBLEM.policies for group in PROBLEM.group_names for n in range(4)
    ]  # fmt: skip
    assert trial.import_data(rows) == 16
    state = trial.present().state
    assert state.rail_n[0].sum() == 16
    assert state.rail_n[1].sum() == 12
    assert state.rail_s[0].sum() == 8
    trial.export(tmp_path / "log.jsonl")
    assert audit(str(tmp_path / "log.jsonl")).identical


def test_another_metric_leads_to_other_sums(trial: Experiment) -> None:
    trial.tell(*sample(trial, 1))
    told = next(entry for entry in trial.events() if isinstance(entry.event, ev.Told))
    with trial._writer.reading() as fold:
        fresh = load(trial._journal, "main")
        assert isinstance(told.event, ev.Told)
        assert told.event.metrics is not None
        cell = next(iter(fold.sums))
    assert fresh.sums[cell].digest(told.event.ticket, cell) == told.event.sums
    other = ev.Sample(told.event.outcome, told.event.metrics | {"calls": 40.0})
    assert (
        fresh.sums_from(cell, [PlacedSample(0, other)])[cell].digest(told.event.ticket, cell)
        != told.event.sums
    )


def test_a_snapshot_holds_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.live.protocol.Protocol.snapshot_every", 20)
    path = str(tmp_path / "shop.db")
    with Experiment.create(path, PROBLEM, PROCEDURE, seed=7) as trial:
        for number in range(30):
            trial.tell(*sample(trial, number, missing=0.3))
        state = trial.present().state
        assert any(isinstance(entry.event, ev.Snapshot) for entry in trial.events())
    fold = load(open_journal(path, write=False), "main")
    assert np.array_equal(state.rail_n, fold.replay.state.rail_n)
    assert np.array_equal(state.rail_s, fold.replay.state.rail_s)
    assert audit(path).identical
