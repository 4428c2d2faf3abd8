"""Experiments that an earlier version began with evidence or rules that are others today."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import evenhand as eh
from evenhand.live import status_sentences
from evenhand.live.audit import audit
from evenhand.live.compute_status import status_of
from evenhand.live.experiment import Experiment
from evenhand.live.protocol import new_protocol
from evenhand.procedure.outcome_order import LINEAR, ORDER_FREE
from evenhand.procedure.spec import EVIDENCE_VERSION, FIRST_EVIDENCE
from evenhand.procedure.state import EVIDENCE
from evenhand.service.experiments import _as_begun
from evenhand.study import dumps, loads
from evenhand.verdicts.judge import judge_state
from tests.live.example_experiments import SetClock, create, play

HOME = Path(__file__).with_name("begun_before")
HEADS = {
    "bounded": "9da5587655b93332c9e484b98337248181145254c74ecf87226c7641c6b138bd",
    "collapsed": "12b523c20e5361a6a7600a5632396232d12abeea2af38551a47d936fc077ed88",
    "unproven": "f2df19b74f8c6f56b46f896acd9473066746a4282113319d3ce873f17a37d630",
}


@pytest.fixture
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(shutil.copy(HOME / f"{request.param}.journal", tmp_path / "t.db"))


@pytest.mark.parametrize("name", HEADS)
def test_every_event_is_derived_again(name: str, tmp_path: Path) -> None:
    journal = str(shutil.copy(HOME / f"{name}.journal", tmp_path / "t.db"))
    for source in (journal, str(HOME / f"{name}.jsonl")):
        found = audit(source, head=HEADS[name])
        assert found.identical, found.first_difference


@pytest.mark.parametrize("copy", ["collapsed"], indirect=True)
def test_an_experiment_continues_by_the_evidence_it_was_begun_with_and_says_so(copy: str) -> None:
    with Experiment.open(copy, clock=SetClock()) as trial:
        assert trial.protocol.spec.evidence == FIRST_EVIDENCE
        status = trial.status()
        assert status.evidence == pytest.approx(-8.317766166719343, rel=1e-12)
        assert status.sentence.endswith(status_sentences.OLDER_EVIDENCE)
        view = trial.present()
        verdict = judge_state(view.protocol.problem, view.protocol.procedure, view.state, replications=0)
        assert (verdict.decided, verdict.answer) == (True, "a")
        assert verdict.evidence > 1000.0
        trial.tell(trial.ask(1)[0], 600_000.0)
    assert audit(copy, head=HEADS["collapsed"]).identical


def test_a_new_experiment_is_begun_with_the_present_evidence(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    with create(address, clock=SetClock()) as trial:
        assert trial.protocol.evidence == EVIDENCE_VERSION == trial.protocol.spec.evidence
        play(trial, 12)
        assert status_sentences.OLDER_EVIDENCE not in trial.status().sentence
    with Experiment.open(address, write=False) as trial:
        assert trial.protocol.spec.evidence == EVIDENCE_VERSION
    assert audit(address).identical


@pytest.mark.parametrize("copy", ["bounded"], indirect=True)
def test_bounded_outcomes_keep_the_mixture_that_they_were_begun_with(copy: str) -> None:
    with Experiment.open(copy, clock=SetClock()) as trial:
        status = trial.status()
        assert (status.method, status.decided) == (ORDER_FREE, False)
        assert status.evidence == pytest.approx(0.2072638535140453, rel=1e-12)
        trial.tell(trial.ask(1)[0], 5.5)
        text = next(iter(trial.events())).event.study
        assert "evidence" not in text
    assert audit(copy, head=HEADS["bounded"]).identical
    with Experiment.create(":memory:", loads(text), seed=7) as again:  # the same study, begun today
        assert 'evidence = "linear-bets"' in next(iter(again.events())).event.study
        assert again.status().method == LINEAR


@pytest.mark.parametrize("copy", ["bounded"], indirect=True)
def test_the_study_of_a_bounded_experiment_may_be_sent_again(copy: str) -> None:
    with Experiment.open(copy, write=False) as trial:
        found = trial.protocol
        study = loads(next(iter(trial.events())).event.study)
    asked = new_protocol("main", study, found.seed, None, "", None)
    assert _as_begun(asked, study, found) == dumps(found.study)
    mixture = replace(study, procedure=replace(study.procedure, evidence="mixture"))
    asked = new_protocol("main", mixture, found.seed, None, "", None)
    assert _as_begun(asked, mixture, found) == dumps(found.study)
    linear = replace(study, procedure=replace(study.procedure, evidence="linear-bets"))
    asked = new_protocol("main", linear, found.seed, None, "", None)
    assert _as_begun(asked, linear, found) != dumps(found.study)


@pytest.mark.parametrize("copy", ["unproven"], indirect=True)
def test_an_unproven_experiment_is_read_and_told_but_asks_no_more(copy: str) -> None:
    with Experiment.open(copy, clock=SetClock()) as trial:
        sentence = trial.status().sentence
        assert status_sentences.UNPROVEN in sentence
        assert "certified for" not in sentence
        [held] = trial.ask(1, worker="w")  # it has this one already
        with pytest.raises(eh.Closed, match="guarantee of this experiment does not hold"):
            trial.ask(1, worker="another")
        assert trial.tell(held, 0.3).counted
        with pytest.raises(eh.Closed, match="certified"):
            trial.ask(1, worker="w")
        page = eh.report(trial)
    assert "No guarantee" in page.html()
    assert "Certified:" not in page.html()
    assert audit(copy, head=HEADS["unproven"]).identical


@pytest.mark.parametrize("copy", ["collapsed"], indirect=True)
def test_a_status_says_where_evidence_could_not_be_computed(copy: str) -> None:
    with Experiment.open(copy, write=False) as trial:
        view = trial.present()
    assert status_sentences.NOT_COMPUTED not in status_of(view, 0.0).sentence
    view.state.level[EVIDENCE] = float("-inf")
    status = status_of(view, 0.0)
    assert status.sentence.count(status_sentences.NOT_COMPUTED) == 1
    assert status.evidence is None
    view.state.s[0, 0] = float("nan")
    view.state.level[EVIDENCE] = 0.0
    assert status_sentences.NOT_COMPUTED in status_of(view, 0.0).sentence
