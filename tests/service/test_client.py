"""The Python client: what is lost on the way is sent again, and carried out once."""

from __future__ import annotations

import http.client
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import evenhand as eh
from evenhand.errors import BadInput, Conflict, NotFound, StorageFailed
from tests.service.running import STUDY, Running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("client")
    with Running(str(folder / "journal.db"), folder / "log") as found:
        yield found


@contextmanager
def forgetful(to: int, every: int) -> Iterator[tuple[str, list[str]]]:
    """A proxy that passes every request on and loses every so many replies; its address, and what it lost."""
    seen, lost = itertools.count(1), []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            far = http.client.HTTPConnection("127.0.0.1", to)
            far.request("POST", self.path, body, dict(self.headers.items()) | {"Host": "127.0.0.1"})
            answer = far.getresponse()
            reply = answer.read()
            far.close()
            if next(seen) % every == 0:
                lost.append(self.path)
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", lost
        server.shutdown()


def test_a_lost_reply_leaves_one_ticket_and_one_outcome(service: Running) -> None:
    eh.connect(service.url).create("lossy", STUDY | {"procedure": {"delta": 1e-9}}, seed=3)
    with forgetful(service.port, every=5) as (url, lost):
        trial = eh.connect(url).experiment("lossy")
        for number in range(20):
            ask = trial.ask()
            assert ask is not None
            trial.tell(ask, number % 2)
    assert len(lost) >= 8
    counts = eh.connect(service.url).experiment("lossy").status()["counts"]
    assert (counts["asked"], counts["told"], counts["refused"]) == (20, 20, 0)


def test_an_experiment_runs_to_its_decision(service: Running) -> None:
    trial = eh.connect(service.url).create("run", STUDY, seed=7)
    while ask := trial.ask(worker="w1"):
        trial.tell(ask, 1 if ask.policy == "plain" else 0)
    status = trial.status()
    assert status["decided"]
    assert status["answer"] == "plain"


def test_refusals_are_the_errors_that_an_experiment_of_ones_own_raises(service: Running) -> None:
    found = eh.connect(service.url)
    trial = found.create("errors", STUDY, seed=7)
    ask = trial.ask()
    assert ask is not None
    trial.tell(ask, 1)
    with pytest.raises(Conflict):
        trial.tell(ask, 0)
    with pytest.raises(BadInput):
        trial.tell(ask, 0.5)
    with pytest.raises(NotFound):
        found.experiment("nobody").status()
    with pytest.raises(Conflict):
        found.create("errors", STUDY, seed=8)


def test_creating_the_same_again_is_no_harm(service: Running) -> None:
    found = eh.connect(service.url)
    found.create("twice", STUDY, seed=7)
    found.create("twice", STUDY, seed=7)
    with pytest.raises(Conflict):
        found.create("twice", STUDY | {"procedure": {"delta": 0.2}}, seed=7)


def test_a_service_that_is_away_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.service.client.PATIENCE", 0.2)
    with pytest.raises(StorageFailed, match="cannot be reached"):
        eh.connect("http://127.0.0.1:9").experiments()


def test_a_graceful_stop_ends_with_success_and_leaves_a_good_journal(tmp_path: Path) -> None:
    from evenhand.live.audit import audit

    with Running(str(tmp_path / "journal.db"), tmp_path / "log") as running:
        trial = eh.connect(running.url).create("main", STUDY, seed=7)
        ask = trial.ask()
        assert ask is not None
        trial.tell(ask, 1)
        assert running.stop() == 0
    assert audit(str(tmp_path / "journal.db")).identical
