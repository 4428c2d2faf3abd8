"""Experiments in intervals over HTTP: shares, counts, the same refusals, and blind operators."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evenhand as eh
from evenhand.errors import BadInput, Closed, Conflict, NotFound
from evenhand.live.audit import audit
from evenhand.study import Study
from tests.live.interval_experiments import EVEN, counts, paired_counts, play, scores
from tests.service.service_process import Running
from tests.service.test_blindness import PATH, World, seen, world

STUDY: dict[str, Any] = {
    "title": "Three ads, two regions",
    "problem": {
        "policies": ["a", "b", "c"],
        "groups": {"x": 0.6, "y": 0.4},
        "family": {"name": "bernoulli"},
        "constraint": {"kind": "floors", "at_least": 0.6},
        "mode": "proportional",
    },
    "procedure": {"delta": 0.05, "interval": {"volume": 1000, "length": "1h"}},
}


def rows(given: dict[str, dict[str, tuple[int, int]]]) -> list[dict[str, Any]]:
    return [
        {"policy": k, "group": g, "n": n, "sum": s}
        for k, groups in given.items()
        for g, (n, s) in groups.items()
    ]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("intervals")
    with Running(str(folder / "journal.db"), folder / "log") as found:
        yield found


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, STUDY) as found:
        yield found


def test_a_remote_experiment_runs_in_intervals_to_its_decision(service: Running, tmp_path: Path) -> None:
    trial: Any = eh.connect(service.url).create(Study.from_dict(STUDY), seed=7, name="run")
    assert trial.shares().version == 1
    done = play(trial)
    status = trial.status()
    assert (status.answer, status.decided, status.intervals.closed) == ("a", True, done)
    assert trial.export(tmp_path / "run.jsonl")
    assert audit(str(tmp_path / "run.jsonl")).identical
    local = eh.Experiment.create(":memory:", Study.from_dict(STUDY), seed=7, name="run")
    assert local.shares().salt == trial.shares().salt
    assert play(local) == done


def test_remote_refusals_are_those_of_an_experiment_of_ones_own(service: Running) -> None:
    trial: Any = eh.connect(service.url).create(Study.from_dict(STUDY), seed=7, name="errors")
    told = counts(trial.shares())
    first = trial.tell_counts(1, told, key="k")
    assert trial.tell_counts(1, told, key="k") == first
    assert trial.tell_counts(1, told) == first
    other = copy.deepcopy(told)
    other["a"]["x"] = (told["a"]["x"][0], told["a"]["x"][1] - 1)
    with pytest.raises(Conflict, match="one set of counts"):
        trial.tell_counts(1, other)
    assert trial.correct_counts(1, other, reason="typo", by="Ann").outcomes == 1_000
    with pytest.raises(NotFound, match="interval 5 has not begun"):
        trial.tell_counts(5, told)
    with pytest.raises(BadInput, match="more successes than trials"):
        trial.tell_counts(1, {"a": {"x": (1, 2)}})
    with pytest.raises(BadInput, match="whole number from 1"):
        trial.tell_counts("1", told)
    with pytest.raises(BadInput, match="runs in intervals"):
        trial.ask()
    second = trial.publish_shares(after=1)
    with pytest.raises(Conflict, match="not 1"):
        trial.publish_shares(after=1)
    assert trial.close_interval().closed
    assert trial.shares() == second
    with pytest.raises(BadInput, match="linear-bets"):
        trial.bets()
    trial.finish("enough")
    with pytest.raises(Closed):
        trial.publish_shares()


def test_bets_are_served(service: Running) -> None:
    study = copy.deepcopy(STUDY)
    study["problem"] |= {"family": {"name": "bounded", "low": 0, "high": 1}}
    study["procedure"] |= {"evidence": "linear-bets"}
    trial: Any = eh.connect(service.url).create(Study.from_dict(study), seed=7, name="bets")
    local = eh.Experiment.create(":memory:", Study.from_dict(study), seed=7, name="bets")
    assert trial.bets() == local.bets()


def test_pairs_are_told_and_their_bets_are_served(service: Running, tmp_path: Path) -> None:
    study = copy.deepcopy(STUDY)
    study["procedure"] |= {"items": "shared"}
    trial: Any = eh.connect(service.url).create(Study.from_dict(study), seed=7, name="pairs")
    local = eh.Experiment.create(":memory:", Study.from_dict(study), seed=7, name="pairs")
    told = paired_counts(scores(1))
    with pytest.raises(BadInput, match="every policy must serve every unit of an interval"):
        trial.tell_counts(1, told[:-1])
    for number in (1, 2):
        assert trial.bets() == local.bets()
        told = paired_counts(scores(number))
        assert trial.tell_counts(number, told, close=True) == local.tell_counts(number, told, close=True)
    status = trial.status()
    assert (status.evidence, status.leader) == (local.status().evidence, "a")
    assert status.intervals.shared
    assert trial.export(tmp_path / "pairs.jsonl")
    assert audit(str(tmp_path / "pairs.jsonl")).identical


@pytest.mark.parametrize(
    ("verb", "body", "code"),
    [
        ("tell-counts", {"interval": 1, "counts": rows({"a": {"x": (1, 2)}})}, 422),
        ("tell-counts", {"interval": 1, "counts": []}, 422),
        ("tell-counts", {"interval": "1", "counts": rows({"a": {"x": (1, 1)}})}, 422),
        ("tell-counts", {"interval": 1}, 422),
        ("tell-counts", {"interval": 9, "counts": rows({"a": {"x": (1, 1)}})}, 404),
        ("tell-counts", {"interval": 1, "counts": [{"policy": ["a"]}]}, 422),
        ("tell-counts", {"interval": 1, "counts": rows({"a": {"x": (1, 1)}}), "odd": 1}, 422),
        ("tell-counts", {"interval": 1, "counts": [rows({"a": {"x": (1, 1)}})[0] | {"other": "b"}]}, 422),
        ("close-interval", {}, 422),
        ("close-interval", {"interval": 3}, 404),
        ("publish-shares", {"valid_from": "2001-01-01T00:00:00Z"}, 422),
        ("publish-shares", {"after": 3}, 409),
        ("correct-counts", {"interval": 1, "counts": rows({"a": {"x": (1, 1)}}), "reason": "r"}, 422),
        ("ask", {}, 422),
        ("pause", {"reason": "r"}, 422),
    ],
)
def test_bad_requests_are_refused_in_one_sentence_and_nothing_is_written(
    here: World, verb: str, body: dict[str, Any], code: int
) -> None:
    before = here.send("admin", "GET", f"{PATH}").json()["events"]
    answer = here.post("admin", verb, body)
    assert answer.status_code == code, answer.text
    assert answer.json()["error"].count("\n") == 0
    assert here.send("admin", "GET", f"{PATH}").json()["events"] == before


def test_every_event_of_a_request_names_the_key_that_made_it(here: World) -> None:
    shares = eh.Shares.from_dict(here.send("first", "GET", f"{PATH}/shares").json())
    body = {"interval": 1, "counts": rows(counts(shares, means=EVEN)), "close": True}
    assert here.post("first", "tell-counts", body).json()["closed"]
    assert here.post("first", "tell-counts", body).json()["closed"]  # its own counts may be repeated
    for kind in ("counted", "interval_closed", "shares_published"):
        event = here.events(kind)[-1]
        assert event["actor"]["id"] == here.identity("first")
        assert event["salt"]
    assert here.events("shares_published")[0]["actor"]["id"] == here.identity("admin")


def test_operators_have_the_rights_they_need_and_no_others(here: World) -> None:
    body = {"interval": 1, "counts": rows({"a": {"x": (1, 1)}})}
    assert here.post("first", "correct-counts", body | {"reason": "r"}).status_code == 403
    assert here.send("first", "GET", f"{PATH}/bets").status_code == 403
    assert here.post("first", "tell-counts", body).status_code == 200
    assert here.post("admin", "correct-counts", body | {"reason": "r"}).status_code == 200  # what it was


@pytest.mark.slow
def test_two_worlds_that_differ_in_counts_look_the_same_to_operators(tmp_path: Path) -> None:
    """An analyst records the counts of an open interval: one success more in one world."""
    views = []
    for name, successes in (("one", 30), ("two", 31)):
        with world(tmp_path / name, STUDY) as place:
            told = {"interval": 1, "counts": rows({"a": {"x": (50, successes)}})}
            assert place.post("analyst", "tell-counts", told).status_code == 200
            found = []
            for guess in (30, 31, 32):
                body = {"interval": 1, "counts": rows({"a": {"x": (50, guess)}})}
                for who in ("first", "second"):
                    found.append(seen(place.post(who, "tell-counts", body)))
                    found.append(seen(place.post(who, "tell-counts", body | {"close": True})))
            paths = (PATH, f"{PATH}/shares", "/experiments/main", "/experiments/main/log", "/")
            found += [seen(place.send("first", "GET", path)) for path in paths]
            views.append(found)
    assert views[0] == views[1]
    assert views[0][0][0] == 409


def test_a_blind_status_has_shares_and_volumes_and_no_outcomes(here: World) -> None:
    shares = eh.Shares.from_dict(here.send("first", "GET", f"{PATH}/shares").json())
    body = {"interval": 1, "counts": rows(counts(shares, means=EVEN)), "close": True}
    here.post("first", "tell-counts", body)
    status = here.send("first", "GET", PATH).json()
    assert status["intervals"]["closed"] == 1
    assert sum(status["intervals"]["units"].values()) == 1_000
    assert status["intervals"]["sample_ratios"] == {}
    assert "cells" not in status
    listed = here.send("first", "GET", "/api/v1/experiments").json()
    assert listed[0]["intervals"]["number"] == 2
