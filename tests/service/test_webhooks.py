"""Webhooks: signed messages about ends and alarms, sent until they are answered, once for all processes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

import evenhand as eh
from evenhand.errors import BadInput
from evenhand.live.journal import Journal
from evenhand.service import notifications
from evenhand.service.app import Settings, create_app
from evenhand.service.experiments import Registry
from evenhand.service.keys import Keys
from evenhand.service.notifications import Sender, Watcher
from evenhand.service.webhooks import MOST, Webhooks, checked_origins
from tests.service.peers import seen_from
from tests.service.receiver import Receiver
from tests.service.service_process import STUDY, Running

BOTH = ("ended", "alarm")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


class Process:
    """What one process of the service has: its journal, experiments, webhooks and their two workers."""

    def __init__(self, address: str, origin: str) -> None:
        self.registry = Registry(address)
        self.journal: Journal = self.registry.journal
        self.webhooks = Webhooks(self.journal, (origin,))
        self.watcher, self.sender = Watcher(self.registry, self.webhooks), Sender(self.journal, self.webhooks)

    def round(self) -> None:
        self.watcher.look()
        while self.sender.send_due():
            pass

    def trial(self, name: str = "main", **more: Any) -> eh.Experiment:
        eh.Experiment.create(self.journal, eh.Study.from_dict(STUDY), seed=7, name=name, **more)
        return self.registry.get(name)


@pytest.fixture
def process(tmp_path: Path, receiver: Receiver) -> Iterator[Process]:
    found = Process(str(tmp_path / "t.db"), receiver.origin)
    yield found
    found.registry.close()


def decide(trial: eh.Experiment) -> None:
    while asks := trial.ask(4):
        trial.tell_all([(ask, int(ask.policy == "plain"), None) for ask in asks])


def test_an_end_is_sent_once_with_its_result_and_a_signature(process: Process, receiver: Receiver) -> None:
    trial = process.trial()
    hook, secret = process.webhooks.create(f"{receiver.origin}/x?y=1", "main", BOTH, "me")
    process.round()
    assert receiver.got == []
    decide(trial)
    for _ in range(3):
        process.round()
    [(headers, body)] = receiver.got
    found = json.loads(body)
    assert (found["type"], found["data"]["answer"], found["data"]["decided"]) == ("ended", "plain", True)
    assert found["data"]["head"] == str(trial.head)
    key = base64.b64decode(secret.removeprefix("whsec_"))
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    signature = base64.b64encode(hmac.digest(key, text, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{signature}"
    [message] = process.webhooks.messages(hook.id)
    assert (message["state"], message["attempts"], message["answer"]) == ("delivered", 1, "status 204")


def test_a_message_is_sent_again_with_the_same_id_until_it_is_answered(
    process: Process, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "PAUSES", (0.0, 0.0, 0.0))
    hook, _ = process.webhooks.create(f"{receiver.origin}/", None, BOTH, "me")
    receiver.answers = [500, 302]  # a redirect is not followed
    process.webhooks.test(hook.id)
    process.round()
    assert [headers["webhook-id"] for headers, _ in receiver.got] == [receiver.got[0][0]["webhook-id"]] * 3
    [message] = process.webhooks.messages(hook.id)
    assert (message["state"], message["attempts"]) == ("delivered", 3)
    receiver.answers = [500] * 10
    process.webhooks.test(hook.id)
    process.round()
    message = process.webhooks.messages(hook.id)[0]
    assert (message["state"], message["attempts"], message["answer"]) == ("failed", 4, "status 500")


def test_a_receiver_that_is_away_gets_the_message_later(
    process: Process, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "PAUSES", (1_000.0,))
    hook, _ = process.webhooks.create(f"{receiver.origin}/", None, BOTH, "me")
    process.webhooks.test(hook.id)
    receiver.server.shutdown()
    receiver.server.server_close()
    process.round()
    [message] = process.webhooks.messages(hook.id)
    assert (message["state"], message["attempts"]) == ("waiting", 1)
    assert message["again"] > message["made"]
    assert "Refused" in message["answer"]


def test_an_alarm_is_sent_when_it_begins_and_when_it_ends(
    process: Process, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = process.trial(lease=0.01)
    process.webhooks.create(f"{receiver.origin}/", None, ("alarm",), "me")
    process.webhooks.create(f"{receiver.origin}/", None, ("ended",), "me")
    ask = trial.ask(lease=1e6)
    assert ask is not None
    time.sleep(0.05)
    for _ in range(2):
        process.round()
    assert receiver.events() == ["alarm"]
    data = json.loads(receiver.got[0][1])["data"]
    assert data["alarm"] == "open-ticket"
    assert "has been open for" in data["says"]
    assert "answer" not in data
    assert "head" not in data  # nothing that outcomes determine
    trial.tell(ask, 1)
    process.round()
    assert receiver.events() == ["alarm", "alarm-ended"]
    trial.finish("enough")
    process.round()
    assert sorted(receiver.events()) == ["alarm", "alarm-ended", "ended"]


def test_a_webhook_is_not_sent_what_ended_before_it_was_made(process: Process, receiver: Receiver) -> None:
    decide(process.trial("old"))
    time.sleep(0.01)
    process.webhooks.create(f"{receiver.origin}/", None, BOTH, "me")
    decide(process.trial("new"))
    process.round()
    assert [json.loads(body)["data"]["experiment"] for _, body in receiver.got] == ["new"]


def test_a_log_that_fails_a_check_is_an_alarm(
    process: Process, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.trial()
    process.webhooks.create(f"{receiver.origin}/", None, BOTH, "me")

    def damaged(_: str) -> Any:
        raise eh.IntegrityFailed("event 3 was changed.")

    monkeypatch.setattr(process.registry, "get", damaged)
    process.round()
    assert json.loads(receiver.got[0][1])["data"]["alarm"] == "integrity"


def test_two_processes_on_one_database_tell_everything_once(postgres_url: str, receiver: Receiver) -> None:
    first, second = (Process(postgres_url, receiver.origin) for _ in range(2))
    trials = [first.trial(f"t{number}") for number in range(6)]
    first.webhooks.create(f"{receiver.origin}/", None, BOTH, "me")
    for trial in trials:
        decide(trial)
    both = [threading.Thread(target=process.round) for process in (first, second) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    names = [json.loads(body)["data"]["experiment"] for _, body in receiver.got]
    assert sorted(names) == [f"t{number}" for number in range(6)]
    for process in (first, second):
        process.registry.close()


def test_a_process_that_ends_leaves_its_messages_to_the_next(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "CLAIM_SECONDS", 0.0)
    before = Process(str(tmp_path / "t.db"), receiver.origin)
    before.webhooks.create(f"{receiver.origin}/", None, BOTH, "me")
    decide(before.trial())
    before.watcher.look()
    assert len(before.sender._claimed()) == 1  # and ends before it is sent
    before.registry.close()
    after = Process(str(tmp_path / "t.db"), receiver.origin)
    after.round()
    assert receiver.events() == ["ended"]
    after.registry.close()


# ---------------------------------------------------------------- what may be called, and by whom


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "https://127.0.0.1:8443/", "http://localhost:5432/", "file:///etc/passwd",
        "https://hooks.example.org.evil.example/", "https://hooks.example.org@evil.example/",
        "https://me:secret@hooks.example.org/", "http://hooks.example.org/", "https://hooks.example.org:8443/",
        "//hooks.example.org/", "gopher://hooks.example.org/", "https://hooks.example.org:x/", "https://[::1/",
    ],
)  # fmt: skip
def test_only_origins_that_the_service_was_started_with_are_called(tmp_path: Path, url: str) -> None:
    registry = Registry(str(tmp_path / "t.db"))
    webhooks = Webhooks(registry.journal, ("https://hooks.example.org",))
    with pytest.raises(BadInput, match="must begin with https://hooks"):
        webhooks.create(url, None, BOTH, "me")
    assert webhooks.all() == []
    with pytest.raises(BadInput, match="calls no addresses"):
        Webhooks(registry.journal).create("https://hooks.example.org/", None, BOTH, "me")
    registry.close()


@pytest.mark.parametrize(
    "origin", ["hooks.example.org", "https://a.example/path", "ftp://a", "https://u@a", ""]
)
def test_an_origin_is_an_origin(origin: str) -> None:
    with pytest.raises(BadInput, match="origin"):
        checked_origins((origin,))


def test_an_origin_that_was_taken_away_is_called_no_more(
    process: Process, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook, _ = process.webhooks.create(f"{receiver.origin}/", None, BOTH, "me")
    process.webhooks.test(hook.id)
    process.webhooks.origins = frozenset({"https://hooks.example.org"})
    process.round()
    assert receiver.got == []
    assert "without --webhook" in process.webhooks.messages(hook.id)[0]["answer"]


def test_a_webhook_whose_answer_was_lost_is_made_once(tmp_path: Path) -> None:
    app = create_app(Settings(str(tmp_path / "t.db"), webhooks=("https://hooks.example.org",)))
    with TestClient(seen_from(app), base_url="http://127.0.0.1") as client:

        def made(path: str) -> Any:
            body, headers = {"url": f"https://hooks.example.org/{path}"}, {"Idempotency-Key": "monday"}
            return client.post("/api/v1/webhooks", json=body, headers=headers)

        first = made("x")
        assert made("x").json() == first.json()
        assert made("y").json()["code"] == "key_reused"
        assert len(client.get("/api/v1/webhooks").json()) == 1


def test_webhooks_are_for_administrators_and_secrets_are_shown_once(tmp_path: Path) -> None:
    journal = str(tmp_path / "t.db")
    keys = {role: Keys(journal).create(role, role) for role in ("operator", "analyst", "admin")}
    app = create_app(Settings(journal, webhooks=("https://hooks.example.org",)))
    with TestClient(seen_from(app), base_url="http://127.0.0.1") as client:

        def send(role: str, method: str, path: str, body: Any = None) -> Any:
            headers = {"Authorization": f"Bearer {keys[role]}"}
            return client.request(method, f"/api/v1/webhooks{path}", json=body, headers=headers)

        body = {"url": "https://hooks.example.org/x"}
        for role in ("operator", "analyst"):
            assert send(role, "GET", "").status_code == 403
            assert send(role, "POST", "", body).status_code == 403
        made = send("admin", "POST", "", body)
        assert made.status_code == 201
        assert made.json()["secret"].startswith("whsec_")
        assert made.json()["by"] == "admin"
        assert made.json()["events"] == list(BOTH)
        assert "secret" not in send("admin", "GET", "").text
        identity = made.json()["id"]
        assert send("admin", "POST", f"/{identity}/test", {}).status_code == 202
        assert len(send("admin", "GET", f"/{identity}/messages").json()) == 1
        assert send("admin", "POST", "", body | {"experiment": "nobody"}).status_code == 404
        assert send("admin", "POST", "", body | {"events": ["told"]}).status_code == 422
        assert send("admin", "POST", f"/{identity}/delete", {}).json() == {"id": identity, "deleted": True}
        assert send("admin", "GET", f"/{identity}/messages").status_code == 404
        for _ in range(MOST):
            assert send("admin", "POST", "", body).status_code == 201
        assert send("admin", "POST", "", body).status_code == 429


def test_the_service_sends_a_webhook_by_itself(tmp_path: Path, receiver: Receiver) -> None:
    options = ("--webhook", receiver.origin)
    with Running(str(tmp_path / "t.db"), tmp_path / "log", None, *options) as service:
        trial = eh.connect(service.url).create(eh.Study.from_dict(STUDY), seed=7)
        request = urllib.request.Request(
            f"{service.url}/api/v1/webhooks", json.dumps({"url": f"{receiver.origin}/"}).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request) as answer:
            secret = json.loads(answer.read())["secret"]
        while asks := trial.ask(4):
            trial.tell_all([(ask, int(ask.policy == "plain"), None) for ask in asks])
        deadline = time.monotonic() + 60
        while not receiver.got and time.monotonic() < deadline:
            time.sleep(0.1)
        assert receiver.events() == ["ended"]
    text = (tmp_path / "log").read_text()
    assert secret not in text
