"""The content of a status: the sentence, the verdicts, the forecast, the health."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import evenhand as eh
from evenhand.live.compute_status import sample_ratio_p_value
from evenhand.live.replay_kernels import DrawTally
from evenhand.live.status import ShortCell, Status
from evenhand.verdicts.forecast import experiment_forecast
from evenhand.verdicts.forecast_statement import CHANCES, Forecast
from evenhand.verdicts.judge import judge_state
from tests.live.example_experiments import MEANS, START, SetClock, coin, create, endless, even, play, problem


def rows(successes: dict[str, int], of: int) -> list[tuple[str, str, float]]:
    return [
        (policy, group, float(i < n)) for policy, n in successes.items() for group in "xy" for i in range(of)
    ]


def test_the_start_is_said_to_be_under_way() -> None:
    sentence = create().status().sentence
    assert sentence == "The start is under way: 0 outcomes so far, no policy leads yet."


def test_the_leader_and_what_is_certified_and_open_are_named() -> None:
    trial = create(procedure=eh.Procedure(initial=1, delta=1e-30))
    trial.import_data(rows({"a": 60, "b": 50, "c": 20}, 80))
    trial.import_data([("a", "x", float(i < 300)) for i in range(400)])
    ahead = Forecast(880, 200, dict(zip(CHANCES, (900, 2000, 3400, 5000), strict=True)), 0.0, 9000)
    status = trial.status(lambda view: ahead)
    assert status.leader == "a"
    assert status.sentence.startswith("a leads. Its floor is certified for x, still open for y.")
    assert status.sentence.endswith("About 3,400 more samples (80% chance to finish by then).")
    verdicts = {(cell.policy, cell.group): cell.verdict for cell in status.cells}
    assert verdicts["a", "x"] == "met"
    assert verdicts["a", "y"] == "undecided"
    assert status.more["0.9"] == 5000
    assert status.answer is None


def test_a_forecast_that_ran_into_its_horizon_promises_nothing_beyond() -> None:
    """Once "5,000 are enough with a 90% chance" was printed for runs that were cut off at 5,000."""
    trial = create(procedure=eh.Procedure(initial=1, delta=1e-30))
    trial.import_data(rows({"a": 60, "b": 50, "c": 20}, 80))
    half = Forecast(480, 200, dict(zip(CHANCES, (900, None, None, None), strict=True)), 0.4, 5000)
    status = trial.status(lambda view: half)
    assert status.sentence.endswith("About 900 more samples (50% chance to finish by then).")
    assert status.more == {"0.5": 900, "0.7": None, "0.8": None, "0.9": None}
    assert "50% within 900 more samples; 70%, 80%, 90% not within 5,000." in status.forecast["statement"]
    never = trial.status(lambda view: Forecast(480, 200, dict.fromkeys(CHANCES), 0.9, 5000))
    assert never.sentence.endswith("Even 5,000 more samples would probably not decide.")
    assert set(never.more.values()) == {None}


def test_a_forecast_of_earlier_data_says_so() -> None:
    trial = create(procedure=eh.Procedure(initial=1, delta=1e-30))
    trial.import_data(rows({"a": 60, "b": 50, "c": 20}, 80))
    old = Forecast(400, 200, dict(zip(CHANCES, (900, 2000, 3400, 5000), strict=True)), 0.0, 9000)
    status = trial.status(lambda view: old)
    assert "Forecast at 400 samples: About 3,400 more samples" in status.sentence
    assert status.forecast["statement"].startswith("Forecast at 400 samples: Chance to finish: 50%")


def test_without_a_forecast_nothing_is_said_to_be_known_of_further_samples() -> None:
    trial = create(procedure=eh.Procedure(initial=1, delta=1e-30))
    status = trial.status()
    assert status.more == {"0.5": None, "0.7": None, "0.8": None, "0.9": None}
    assert (status.horizon, status.forecast) == (None, None)


@pytest.mark.parametrize("end", ["exhausted", "closed"])
def test_an_experiment_that_ended_undecided_needs_an_unknown_number_of_samples_not_none(end: str) -> None:
    trial = create(procedure=eh.Procedure(initial=1, delta=1e-30, max_samples=12))
    for ask in trial.ask(12 if end == "exhausted" else 8):
        trial.tell(ask, coin(ask))
    if end == "closed":
        trial.finish("no money left")
    status = trial.status(experiment_forecast)
    assert status.state == end
    assert status.more == {"0.5": None, "0.7": None, "0.8": None, "0.9": None}
    why = {
        "exhausted": "all 12 samples are used and nothing is decided",
        "closed": "the experiment was closed without a decision",
    }[end]
    assert status.forecast["why_none"] == why
    assert status.forecast["statement"] == f"No forecast: {why}."


def test_before_every_cell_has_an_outcome_there_is_no_forecast_and_that_is_said() -> None:
    trial = create(procedure=eh.Procedure(initial=1))
    for ask in trial.ask(4):
        trial.tell(ask, coin(ask))
    status = trial.status(experiment_forecast)
    assert set(status.more.values()) == {None}
    assert status.forecast["statement"] == "No forecast: 2 of 6 cells have no outcome yet."


def test_a_refuted_policy_is_failed_and_none_is_an_answer() -> None:
    trial = create(study=eh.Problem(list(MEANS), {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.95)))
    trial.import_data(rows({"a": 30, "b": 20, "c": 10}, 60))
    status = trial.status()
    assert (status.decided, status.answer, status.leader) == (True, None, None)
    assert [policy.verdict for policy in status.policies] == ["failed"] * 3
    words = "None of the policies meets the requirement: certified at risk 5%, after 360 samples."
    assert status.sentence == words
    assert status.more == {"0.5": 0, "0.7": 0, "0.8": 0, "0.9": 0}


def test_a_heuristic_certifies_nothing() -> None:
    words = {}
    for rule in ("certified", "stylised"):
        trial = create(procedure=eh.Procedure(stopping=rule, initial=1, delta=1e-3))
        trial.import_data(rows({"a": 36, "b": 35, "c": 10}, 40))
        words[rule] = trial.status().sentence
    assert "Its floor is certified for x and y." in words["certified"]
    assert "Its floor is met for x and y." in words["stylised"]


@pytest.mark.parametrize(
    "rule",
    ["certified", *(pytest.param(rule, marks=pytest.mark.slow) for rule in ("stylised", "kaufmann-koolen"))],
)
@pytest.mark.parametrize(
    "constraint", [eh.Floors([0.5, 0.6, 0.4, 0.55]), eh.Gap(0.4), eh.Penalty(0.5, 2.0), eh.Quota(0.5, 3)]
)
def test_a_status_says_of_cells_and_policies_what_a_verdict_on_the_same_data_says(
    constraint: eh.Constraint, rule: str
) -> None:
    study = eh.Problem(["a", "b"], dict.fromkeys("wxyz", 0.25), eh.Bernoulli(), constraint)
    procedure = eh.Procedure(stopping=rule, initial=1, delta=1e-4)
    seen = set()
    for n in (1, 10, 20, 30, 40, 50, 60, 90, 600):
        trial = create(study=study, procedure=procedure)
        data = [
            (policy, group, float(i < share * n))
            for policy, shares in (("a", (0.9, 0.8, 0.7, 0.9)), ("b", (0.9, 0.1, 0.6, 0.5)))
            for group, share in zip("wxyz", shares, strict=True)
            for i in range(n)
        ]
        trial.import_data(data)
        status = trial.status()
        verdict = judge_state(study, procedure, trial.present().state, replications=0)
        assert [cell.verdict for cell in status.cells] == [cell.verdict for cell in verdict.cells]
        assert [row.verdict for row in status.policies] == [row.verdict for row in verdict.policies]
        seen |= {row.verdict for row in (*status.policies, *status.cells)}
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (eh.Caps(0.99), "Its cap is"),
        (eh.Gap(0.9), "Its requirement is"),
        (eh.NoConstraint(), "a leads. 2% of the evidence"),
    ],
)
def test_every_requirement_has_its_words(constraint: object, words: str) -> None:
    study = eh.Problem(list(MEANS), {"x": 0.6, "y": 0.4}, eh.Bernoulli(), constraint)  # type: ignore[arg-type]
    trial = create(study=study, procedure=eh.Procedure(initial=1, delta=1e-30))
    trial.import_data(rows({"a": 60, "b": 48, "c": 40}, 80))
    assert words in trial.status().sentence


def test_estimates_are_in_the_users_units() -> None:
    study = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bounded(10.0, 30.0))
    trial = create(study=study, procedure=eh.Procedure(initial=3))
    for ask in trial.ask(4):
        trial.tell(ask, 15.0 if ask.policy == "a" else 25.0)
    assert [cell.mean for cell in trial.status().cells] == [15.0, 25.0]
    assert [policy.mean for policy in trial.status().policies] == [15.0, 25.0]


def test_an_allocation_by_the_rule_is_as_intended_and_a_loaded_die_is_not() -> None:
    trial = create(study=endless())
    play(trial, 400, even)
    assert trial.status().health.well
    p = np.full((1, 2), 500.0)
    fair = DrawTally(np.array([[520.0, 480.0]]), p, np.full((1, 2), 250.0))
    loaded = DrawTally(np.array([[620.0, 380.0]]), p, np.full((1, 2), 250.0))
    impossible = DrawTally(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), np.zeros((1, 2)))
    assert sample_ratio_p_value(fair) > 0.1
    assert sample_ratio_p_value(loaded) < 1e-6
    assert sample_ratio_p_value(impossible) == 0.0


def test_the_sample_ratio_alarm_is_as_rare_as_it_says() -> None:
    """2,000 fair experiments; false alarms stay within an exact binomial bound with a budget of 1e-6."""
    draws = np.random.default_rng(3).binomial(1000, 0.3, size=2000)
    spread = np.full((1, 2), 1000 * 0.3 * 0.7)
    alarms = sum(
        sample_ratio_p_value(DrawTally(np.array([[n, 1000.0 - n]]), np.array([[300.0, 700.0]]), spread))
        < 0.001
        for n in draws.tolist()
    )
    assert alarms <= 14  # P(Binomial(2000, 0.001) > 14) < 1e-6


def test_a_ticket_out_too_long_is_named() -> None:
    clock = SetClock(START)
    trial = create(study=endless(), clock=clock, procedure=eh.Procedure(initial=2))
    [ask] = trial.ask(1)
    assert not trial.status().health.pending_too_long
    clock.wall += 31 * 86_400
    health = trial.status().health
    assert health.pending_too_long
    assert not health.well
    assert health.oldest_pending_seconds > 30 * 86_400
    assert health.oldest_pending == ask.ticket
    lease = create(study=endless(), clock=clock, lease=60)
    lease.ask(1)
    clock.wall += 61
    assert lease.status().health.pending_too_long


def test_a_group_without_arrivals_leaves_its_cells_starved() -> None:
    trial = create(study=problem("proportional"), procedure=eh.Procedure(initial=2))
    for _ in range(24):
        [ask] = trial.ask(1, group="x")
        trial.tell(ask, even(ask))
    health = trial.status().health
    assert not health.well
    assert health.starved == tuple(ShortCell(policy, "y", 0) for policy in "abc")


def test_looking_changes_nothing() -> None:
    trial = create()
    play(trial, 20)
    head = trial.head
    first = trial.status()
    assert trial.status() == replace(first, health=trial.status().health)
    assert trial.head == head
    ask = trial.ask(1)[0]
    assert trial.tell(ask, coin(ask)).counted


def test_after_a_correction_the_decision_holds_and_the_evidence_is_recomputed() -> None:
    trial = create()
    asks = play(trial)
    assert trial.status().sentence.startswith("a is the answer: certified at risk 5%")
    mine = [ask for ask in asks if ask.policy == "a" and coin(ask) == 1]
    trial.amend(mine[0], 0, reason="wrong column", by="me")
    trial.amend(mine[0], 1, reason="it was right", by="me")
    assert trial.status().sentence.endswith("Outcomes were corrected since; the evidence still suffices.")
    for ask in mine[: len(mine) // 2]:
        trial.amend(ask, 0, reason="wrong column", by="me")
    status = trial.status()
    assert (status.answer, status.decided) == ("a", True)
    assert status.evidence >= status.needed  # when it was taken
    now = status.corrected
    assert now.evidence < now.needed
    assert f"the evidence is {now.evidence:.3g} of {now.needed:.3g} needed." in status.sentence


def test_the_json_of_a_status_reads_back_as_the_same_value() -> None:
    trial = create()
    asks = play(trial)
    trial.amend(asks[30], 1 - coin(asks[30]), reason="typo", by="me")
    status = trial.status(experiment_forecast)
    assert status.corrected is not None
    assert Status.from_dict(json.loads(json.dumps(status.to_dict(), allow_nan=False))) == status


def test_a_status_and_a_verdict_on_the_same_data_have_the_same_rows() -> None:
    trial = create()
    play(trial, 100)
    view = trial.present()
    assert view.stop is None
    verdict = judge_state(view.protocol.problem, view.protocol.procedure, view.state, replications=0)
    status = trial.status()
    assert status.policies == verdict.policies
    rows = [replace(cell, low=None, high=None, pending=0.0) for cell in verdict.cells]
    assert list(status.cells) == rows
