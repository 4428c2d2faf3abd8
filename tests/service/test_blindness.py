"""Operators are blind: two worlds that differ in an outcome look the same. Events name who did what."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient
from scipy.stats import mannwhitneyu

from evenhand.live.audit import audit
from evenhand.live.events import Asked, Told
from evenhand.live.experiment import Experiment
from evenhand.live.tickets import ticket_code
from evenhand.service.app import Settings, create_app
from evenhand.service.keys import Keys
from evenhand.study import Study
from tests.service.peers import seen_from
from tests.service.service_process import ENDLESS, STUDY

PATH = "/api/v1/experiments/main"
ROLES = {"first": "operator", "second": "operator", "analyst": "analyst", "admin": "admin"}


class World:
    """A service with keys for two operators, an analyst and an admin."""

    def __init__(self, client: TestClient[Any], journal: str, keys: dict[str, str]) -> None:
        self.client, self.journal, self.keys = client, journal, keys

    def send(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> Any:
        sent = {"Authorization": f"Bearer {self.keys[who]}"} | headers
        return self.client.request(method, path, json=body, headers=sent, follow_redirects=False)

    def post(self, who: str, verb: str, body: dict[str, Any], **headers: str) -> Any:
        return self.send(who, "POST", f"{PATH}/{verb}", body, **headers)

    def ask(self, who: str, n: int = 1) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.post(who, "ask", {"n": n}).json()
        return found

    def identity(self, who: str) -> str:
        return self.keys[who].split("_")[1]

    def events(self, kind: str) -> list[dict[str, Any]]:
        found = self.send("admin", "GET", f"{PATH}/events").json()
        return [event for event in found if event["kind"] == kind]


@contextmanager
def world(folder: Path, study: dict[str, Any] = STUDY) -> Iterator[World]:
    folder.mkdir(exist_ok=True)
    journal = str(folder / "journal.db")
    made = Keys(journal)
    keys = {who: made.create(role, who) for who, role in ROLES.items()}
    with TestClient(seen_from(create_app(Settings(journal))), base_url="http://127.0.0.1") as client:
        found = World(client, journal, keys)
        body = {"id": "main", "study": study, "seed": 7}
        assert found.send("admin", "POST", "/api/v1/experiments", body).status_code == 201
        yield found


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        yield found


# ---------------------------------------------------------------- two worlds

VARYING = (  # what differs between any two runs: secrets, times, ages
    (re.compile(r"t(\d+)-[0-9a-v]{16}"), r"t\1-CODE"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\dZ]*"), "TIME"),
    (re.compile(r"\d+ \w+ \d{4}, \d\d:\d\d UTC"), "MINUTE"),
    (re.compile(r'"oldest_pending_seconds":[\d.e-]+'), '"oldest_pending_seconds":AGE'),
    (re.compile(r"\d+ s(?= ago)"), "AGE"),
    (re.compile(r"\d+ \w+ \d{4}, \d\d:\d\d UTC"), "MINUTE"),
    (re.compile(r'"id":"[0-9a-f]{16}"'), '"id":"JOB"'),
    (re.compile(r"(first|second) \([0-9a-f]{8}\)"), r"\1 (KEY)"),  # the caller's own key
    (re.compile(r"(_seconds_\w+\S*|_created\S*|^process_\S*|^python_\S*) [\d.e+-]+", re.M), r"\1 NUMBER"),
)


def seen(answer: Any) -> tuple[Any, ...]:
    """What a client learns from an answer, apart from time: status, headers, length and body."""
    text = answer.text
    for form, name in VARYING:
        text = form.sub(name, text)
    headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
    return answer.status_code, headers, len(text), text


def metrics(place: World) -> dict[str, float]:
    lines = place.send("second", "GET", "/metrics").text.splitlines()
    counts = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in counts if "_total" in name and "_seconds" not in name}


def wait_until_drawn(place: World) -> None:
    """Wait until the page of blind keys shows the latest event: that delay depends on no outcome."""
    parts = place.client.app.dependencies
    panels, registry = parts["panels"].dependency(), parts["registry"].dependency()
    while panels.of("main", blind=True).head != registry.get("main").head.seq:
        time.sleep(0.05)


def probes(place: World, tickets: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Everything two operators can send: the owner of the tickets, and another one."""
    app = place.client.app
    for who in ("second", "first"):
        for ticket in [one["ticket"] for one in tickets]:
            for value in (0, 1, 0, 1, 0.5):
                body = {"ticket": ticket, "outcome": value}
                yield f"{who} tells {value}", place.post(who, "tell", body)
                yield (
                    f"{who} tells {value} with a key",
                    place.post(who, "tell", body, **{"Idempotency-Key": f"{ticket}-{value}"}),
                )
                yield f"{who} tells all {value}", place.post(who, "tell-all", {"outcomes": [body]})
            yield f"{who} drops", place.post(who, "drop", {"ticket": ticket, "reason": "?"})
        yield f"{who} asks as the other worker", place.post(who, "ask", {"worker": "nurse"})
        for words in ("", "outcome", "outcome 0", "outcome 1", "plain", "told"):
            yield f"{who} searches {words}", place.send(who, "GET", f"/experiments/main/log?search={words}")
        for route in app.routes:
            path = route.path.replace("{name:str}", "main").replace("{job:str}", "x")
            if path.endswith(("/stream", "/ask", "/tell", "/metrics", "/login", "/logout")):
                continue
            if path.startswith("/docs"):  # open to all, and without a key to any experiment
                continue
            wait_until_drawn(place)
            for method in sorted(route.methods - {"OPTIONS", "HEAD"}):
                yield f"{who} {method} {path}", place.send(who, method, path, None if method == "GET" else {})


def test_two_worlds_that_differ_in_an_outcome_look_the_same_to_operators(tmp_path: Path) -> None:
    """An analyst tells the outcome of an operator's ticket: 0 in one world, 1 in the other."""
    found: list[dict[str, Any]] = []
    counted: list[dict[str, float]] = []
    for outcome in (0, 1):
        with world(tmp_path / str(outcome)) as place:
            before = metrics(place)
            tickets = place.post("first", "ask", {"n": 2, "worker": "nurse"}).json()
            told = place.post("analyst", "tell", {"ticket": tickets[0]["ticket"], "outcome": outcome})
            assert told.status_code == 200
            found.append({name: seen(answer) for name, answer in probes(place, tickets)})
            after = metrics(place)
            counted.append({name: after[name] - before.get(name, 0.0) for name in after})
            assert audit(place.journal).identical
    for name, answer in found[0].items():
        assert answer == found[1][name], name
    assert counted[0] == counted[1]
    assert {answer[0] for answer in found[0].values()} >= {200, 403, 404, 409}


@pytest.mark.slow
def test_the_time_of_a_repeated_tell_reveals_nothing_about_the_outcome(tmp_path: Path) -> None:
    """Guesses that are right and guesses that are wrong take the same time."""
    least = []
    with world(tmp_path, ENDLESS) as place:
        for repeat in range(3):
            tickets = place.ask("first", 200)
            luck = random.Random(repeat)
            outcomes = {one["ticket"]: luck.randrange(2) for one in tickets}
            rows = [{"ticket": ticket, "outcome": value} for ticket, value in outcomes.items()]
            assert place.post("analyst", "tell-all", {"outcomes": rows}).status_code == 200
            times: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(3):
                luck.shuffle(tickets)
                for one in tickets:
                    guess = luck.randrange(2)
                    body = {"ticket": one["ticket"], "outcome": guess}
                    begun = time.perf_counter()
                    assert place.post("first", "tell", body).status_code == 409
                    times[guess == outcomes[one["ticket"]]].append(time.perf_counter() - begun)
            least.append(mannwhitneyu(times[True], times[False]).pvalue)
            print("median seconds:", {right: statistics.median(took) for right, took in times.items()})
    print("p-values:", least)
    assert max(least) > 0.01


# ---------------------------------------------------------------- tickets


def test_a_repeated_tell_is_no_oracle(here: World) -> None:
    mine, theirs = here.ask("first")[0], here.ask("first")[0]
    assert here.post("first", "tell", {"ticket": mine["ticket"], "outcome": 1}).status_code == 200
    assert here.post("first", "tell", {"ticket": mine["ticket"], "outcome": 1}).json()["outcome"] == 1
    for value in (0, 1):
        answer = here.post("second", "tell", {"ticket": mine["ticket"], "outcome": value})
        assert answer.status_code == 404
    amended = {"ticket": mine["ticket"], "outcome": 0, "reason": "misread", "by": "me"}
    assert here.post("admin", "amend", amended).status_code == 200
    assert here.post("first", "tell", {"ticket": mine["ticket"], "outcome": 0}).status_code == 409
    assert here.post("first", "tell", {"ticket": mine["ticket"], "outcome": 1}).status_code == 200
    here.post("analyst", "tell", {"ticket": theirs["ticket"], "outcome": 1})
    answers = [here.post("first", "tell", {"ticket": theirs["ticket"], "outcome": x}) for x in (0, 1)]
    assert [answer.status_code for answer in answers] == [409, 409]
    assert answers[0].json() == answers[1].json()
    assert audit(here.journal).identical


def test_ticket_codes_follow_from_nothing_that_is_public(here: World) -> None:
    """Version 0.1 derived four letters from the hash of event one, which every client could compute."""
    ticket = here.ask("first")[0]["ticket"]
    assert re.fullmatch(r"t1-[0-9a-v]{16}", ticket)
    head = bytes.fromhex(here.events("created")[0]["hash"])
    guess = ticket_code(head, 1)
    assert here.post("second", "tell", {"ticket": guess, "outcome": 1}).status_code == 404
    forged = ticket[:-1] + ("0" if ticket[-1] != "0" else "1")
    assert here.post("first", "tell", {"ticket": forged, "outcome": 1}).status_code == 404
    assert here.post("second", "drop", {"ticket": ticket, "reason": "?"}).status_code == 404
    assert here.post("first", "tell", {"ticket": ticket, "outcome": 1}).status_code == 200


def test_tickets_asked_for_before_there_were_owners_can_still_be_told(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    with Experiment.create(journal, Study.from_dict(STUDY), seed=7) as trial:
        old = trial.ask(worker="nurse")
        assert old is not None
    key = Keys(journal).create("operator", "first")
    with TestClient(seen_from(create_app(Settings(journal))), base_url="http://127.0.0.1") as client:
        place = World(client, journal, {"first": key})
        assert place.post("first", "tell", {"ticket": old.ticket, "outcome": 1}).status_code == 200
        assert place.post("first", "tell", {"ticket": old.ticket, "outcome": 0}).status_code == 409
    assert audit(journal).identical


# ---------------------------------------------------------------- heads


def test_a_head_gives_no_outcome_away(here: World) -> None:
    """With all of an event but its salt, the hash of neither outcome can be computed."""
    ticket = here.ask("first")[0]["ticket"]
    here.post("first", "tell", {"ticket": ticket, "outcome": 1})
    for who in ("first", "second"):
        assert here.send(who, "GET", PATH).json()["head"] == ""
        assert all(one["head"] == "" for one in here.send(who, "GET", "/api/v1/experiments").json())
    log = here.send("admin", "GET", f"{PATH}/events").json()
    salts = [event.pop("salt") for event in log]
    assert len(set(salts)) == len(log)
    assert all(re.fullmatch("[0-9a-f]{32}", salt) for salt in salts)
    before, told = next((a, b) for a, b in itertools.pairwise(log) if b["kind"] == "told")
    body = {name: value for name, value in told.items() if name not in ("seq", "hash")}
    for outcome in (0.0, 1.0):
        known = json.dumps(body | {"outcome": outcome}, sort_keys=True, separators=(",", ":")).encode()
        assert hashlib.sha256(bytes.fromhex(before["hash"]) + known).hexdigest() != told["hash"]
    salted = body | {"salt": salts[told["seq"] - 1]}
    known = json.dumps(salted, sort_keys=True, separators=(",", ":")).encode()
    assert hashlib.sha256(bytes.fromhex(before["hash"]) + known).hexdigest() == told["hash"]


def test_an_export_of_a_salted_log_is_enough_for_an_audit(here: World, tmp_path: Path) -> None:
    for ticket in here.ask("first", 3):
        here.post("first", "tell", {"ticket": ticket["ticket"], "outcome": 1})
    file = tmp_path / "export.jsonl"
    file.write_bytes(here.send("admin", "GET", f"{PATH}/export").content)
    assert audit(str(file)).identical


# ---------------------------------------------------------------- whose keys and workers


def test_idempotency_keys_and_worker_names_belong_to_the_caller(here: World) -> None:
    again = {"Idempotency-Key": "monday"}
    first = here.post("first", "ask", {"worker": "nurse"}, **again).json()
    second = here.post("second", "ask", {"worker": "nurse"}, **again).json()
    assert first != second
    assert here.post("first", "ask", {"worker": "nurse"}, **again).json() == first
    assert here.post("first", "ask", {"worker": "nurse"}).json() == first
    assert here.post("second", "ask", {"worker": "nurse"}).json() == second
    refused = here.post("second", "ask", {"worker": "other"}, **again)
    assert refused.status_code == 409
    assert refused.json()["kind"] == "KeyReused"
    assert "'monday'" in refused.json()["error"]
    long = {"Idempotency-Key": "k" * 200}
    assert here.post("first", "ask", {}, **long).json() == here.post("first", "ask", {}, **long).json()
    assert audit(here.journal).identical


def test_a_created_experiment_is_recognised_by_its_callers_key(here: World) -> None:
    body = {"id": "more", "study": STUDY, "seed": 7}
    once = {"Idempotency-Key": "make"}
    made = [here.send("admin", "POST", "/api/v1/experiments", body, **once).json() for _ in range(2)]
    assert made[0] == made[1]
    assert made[0]["created"]
    other = here.send("admin", "POST", "/api/v1/experiments", body | {"id": "third"}, **once)
    assert other.status_code == 409


def test_open_tickets_keep_their_owner_through_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenhand.live.protocol import Protocol

    monkeypatch.setattr(Protocol, "snapshot_every", property(lambda _: 5))
    with world(tmp_path) as place:
        tickets = place.post("first", "ask", {"n": 8, "worker": "nurse"}).json()
        keys = place.keys
    with TestClient(seen_from(create_app(Settings(place.journal))), base_url="http://127.0.0.1") as client:
        again = World(client, place.journal, keys)
        assert again.events("snapshot")
        assert again.post("second", "tell", {"ticket": tickets[0]["ticket"], "outcome": 1}).status_code == 404
        assert again.post("first", "ask", {"n": 8, "worker": "nurse"}).json() == tickets
    assert audit(place.journal).identical


# ---------------------------------------------------------------- who did it


def test_every_event_of_a_request_names_the_key_that_made_it(here: World) -> None:
    tickets = [one["ticket"] for one in here.ask("first", 2)]
    here.post("first", "tell", {"ticket": tickets[0], "outcome": 1})
    here.post("first", "tell", {"ticket": tickets[0], "outcome": 0})
    here.post("first", "drop", {"ticket": tickets[1], "reason": "moved away"})
    here.post("admin", "amend", {"ticket": tickets[0], "outcome": 0, "reason": "misread", "by": "me"})
    here.post("admin", "pause", {"reason": "lunch"})
    here.post("admin", "resume", {})
    rows = [["plain", "north", 1], ["bold", "south", 0]]
    here.post("admin", "import", {"rows": rows})
    here.send("analyst", "GET", PATH)
    here.post("admin", "finish", {})
    here.send("analyst", "GET", PATH)  # after the end a view is no event
    who = {
        "created": "admin", "asked": "first", "told": "first", "refused": "first", "dropped": "first",
        "amended": "admin", "paused": "admin", "resumed": "admin", "closed": "admin",
    }  # fmt: skip
    for kind, name in who.items():
        found = here.events(kind)
        assert found, kind
        for event in found:
            assert event["actor"] == {"id": here.identity(name), "name": name}, kind
    assert here.events("imported")[0]["actor"]["name"] == "admin"
    assert {event["actor"]["name"] for event in here.events("viewed")} == {"analyst"}
    assert len(here.events("viewed")) == 1
    assert audit(here.journal).identical


def test_policies_that_join_and_leave_name_the_key_and_its_requests_are_its_own(tmp_path: Path) -> None:
    study = STUDY | {"problem": STUDY["problem"] | {"max_policies": 4}}
    with world(tmp_path, study) as place:
        once = {"Idempotency-Key": "join"}
        for name in ("third", "fourth"):  # the same key of another caller is another request
            body = {"policy": name, "reason": "new", "by": "me"}
            who = {"third": "admin", "fourth": "boss"}[name]
            if who == "boss":
                place.keys["boss"] = Keys(place.journal).create("admin", "boss")
                deadline = time.monotonic() + 30
                while place.send("boss", "GET", PATH).status_code == 401 and time.monotonic() < deadline:
                    time.sleep(0.1)
            assert place.post(who, "add-policy", body, **once).status_code == 200
        gone = {"policy": "third", "reason": "withdrawn by its maker"}
        assert place.post("admin", "withdraw", gone).status_code == 200
        assert [event["actor"]["name"] for event in place.events("policy_added")] == ["admin", "boss"]
        assert [event["actor"]["name"] for event in place.events("policy_withdrawn")] == ["admin"]
        assert audit(place.journal).identical


def test_experiments_outside_the_service_have_neither_actors_nor_salts(tmp_path: Path) -> None:
    """Their logs stay as they were: equal requests give equal heads."""
    with Experiment.create(str(tmp_path / "t.db"), Study.from_dict(STUDY), seed=7) as trial:
        ask = trial.ask()
        assert ask is not None
        trial.tell(ask, 1)
        events = [entry.event for entry in trial.events()]
    assert [type(event) for event in events[1:]] == [Asked, Told]
    assert all(event.actor is None and event.salt is None for event in events)
