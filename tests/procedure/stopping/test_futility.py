"""The futility rule: a run that has little chance to decide ends without a verdict, and says so."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.estimates import refresh
from evenhand.procedure.state import DECIDED, FUTILE, new_state, new_work
from evenhand.procedure.stopping.futility import chance_to_decide
from evenhand.verdicts.counts import ready
from tests.live.example_experiments import SetClock

PROBLEM = eh.Problem(["a", "b"], {"x": 1.0}, eh.Gaussian(1.0))
PROCEDURE = eh.Procedure(delta=0.1, stopping="stylised", max_samples=400, futility=0.05)


def state_of(lead: float, n: int) -> Any:
    spec = compile_spec(PROBLEM, PROCEDURE)
    state = new_state(spec)
    state.n[:] = n
    state.s[:] = [[n * lead, 0.0]]
    return spec, ready(spec, state)


def test_the_chance_is_that_of_a_random_walk_with_an_unknown_drift() -> None:
    """100 outcomes each, of 400 in all: c = 2; z is the lead's z-score, b the boundary at the cap."""
    spec, state = state_of(0.15, 100)
    work = new_work(spec)
    leader = refresh(spec, state, work, False)
    z = 0.15 / math.sqrt(2 / 100)
    needed = 6.0
    chance = chance_to_decide(spec, state, work, leader, 0.5 * z * z, needed, 1)
    assert chance == pytest.approx(stats.norm.cdf(z * math.sqrt(2) - math.sqrt(2 * needed)))
    draws = np.random.default_rng(1).normal(z * math.sqrt(2), 1.0, 200_000)  # the predictive law at the cap
    assert chance == pytest.approx(np.mean(draws >= math.sqrt(2 * needed)), abs=0.005)


def test_a_tie_ends_before_the_cap_and_a_clear_lead_is_decided() -> None:
    tied = eh.simulate(PROBLEM, [[0.01], [0.0]], PROCEDURE, replications=60, seed=1)
    assert (~tied.stopped).mean() > 0.8
    assert tied.samples[~tied.stopped].mean() < 380  # most of them end before the cap
    clear = eh.simulate(PROBLEM, [[1.0], [0.0]], PROCEDURE, replications=60, seed=1)
    assert clear.stopped.all()


def test_a_live_experiment_ends_without_a_verdict_and_is_audited(tmp_path: Any) -> None:
    address = str(tmp_path / "trial.db")
    with Experiment.create(address, PROBLEM, PROCEDURE, seed=3, clock=SetClock()) as trial:
        asked = {"a": 0, "b": 0}
        while ask := trial.ask():
            asked[ask.policy] += 1
            trial.tell(ask, (-1.0) ** asked[ask.policy])  # both means are 0
        status = trial.status()
        assert (status.state, status.decided, status.answer) == ("futile", False, None)
        assert status.is_over
        assert status.samples < 400
        assert status.sentence.startswith("Ended without a verdict after ")
        assert "chance of a decision within 400 samples fell below 5%" in status.sentence
    assert audit(address).identical


@pytest.mark.parametrize("futility", [0, 1, -0.1, math.nan, "0.1", True])
def test_a_wrong_futility_is_refused(futility: Any) -> None:
    with pytest.raises(eh.BadInput, match="futility must lie strictly between 0 and 1"):
        eh.Procedure(futility=futility)


def test_a_budget_needs_no_futility() -> None:
    with pytest.raises(eh.BadInput, match="a budget always ends with an answer"):
        eh.Procedure(stopping=eh.Budget(100), futility=0.1)
    assert {DECIDED, FUTILE} == {1, 3}
