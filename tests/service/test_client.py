"""The Python client: what is lost on the way is sent again, and carried out once."""

from __future__ import annotations

import http.client
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import evenhand as eh
from evenhand.errors import BadInput, Conflict, NameTaken, NotFound, StorageFailed
from evenhand.live.experiment import Experiment
from evenhand.service.client import RemoteExperiment
from evenhand.service.keys import Keys
from evenhand.study import Study
from tests.service import service_process as running_service
from tests.service.service_process import Running

STUDY = Study.from_dict(running_service.STUDY)


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
    eh.connect(service.url).create(STUDY, eh.Procedure(delta=1e-9), seed=3, name="lossy")
    with forgetful(service.port, every=5) as (url, lost):
        trial = RemoteExperiment(eh.connect(url)._connection, "lossy")
        for number in range(20):
            ask = trial.ask()
            assert ask is not None
            trial.tell(ask, number % 2)
    assert len(lost) >= 8
    counts = eh.connect(service.url).open("lossy").status().counts
    assert (counts["asked"], counts["told"], counts["refused"]) == (20, 20, 0)


def test_an_experiment_runs_to_its_decision(service: Running) -> None:
    trial = eh.connect(service.url).create(STUDY, seed=7, name="run")
    while ask := trial.ask(worker="w1"):
        trial.tell(ask, 1 if ask.policy == "plain" else 0)
    status = trial.status()
    assert status.decided
    assert status.answer == "plain"


def test_refusals_are_the_errors_that_an_experiment_of_ones_own_raises(service: Running) -> None:
    found = eh.connect(service.url)
    trial = found.create(STUDY, seed=7, name="errors")
    ask = trial.ask()
    assert ask is not None
    trial.tell(ask, 1)
    with pytest.raises(Conflict):
        trial.tell(ask, 0)
    with pytest.raises(BadInput):
        trial.tell(ask, 0.5)
    with pytest.raises(NotFound):
        found.open("nobody")
    with pytest.raises(NameTaken):
        found.create(STUDY, seed=8, name="errors")


def test_a_name_is_taken_once(service: Running) -> None:
    found = eh.connect(service.url)
    found.create(STUDY, seed=7, name="twice", key="twice")
    found.create(STUDY, seed=7, name="twice", key="twice")  # the same request
    with pytest.raises(NameTaken):
        found.create(STUDY, seed=7, name="twice")
    with pytest.raises(NameTaken):
        found.create(STUDY, eh.Procedure(delta=0.2), seed=7, name="twice")


def test_a_service_that_is_away_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.service.connection.PATIENCE", 0.2)
    with pytest.raises(StorageFailed, match="cannot be reached"):
        eh.connect("http://127.0.0.1:9").experiments()


def test_a_graceful_stop_ends_with_success_and_leaves_a_good_journal(tmp_path: Path) -> None:
    from evenhand.live.audit import audit

    with Running(str(tmp_path / "journal.db"), tmp_path / "log") as running:
        trial = eh.connect(running.url).create(STUDY, seed=7)
        ask = trial.ask()
        assert ask is not None
        trial.tell(ask, 1)
        assert running.stop() == 0
    assert audit(str(tmp_path / "journal.db")).identical


def test_an_operator_gets_a_status_without_outcomes(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    with Experiment.create(journal, STUDY, eh.Procedure(delta=1e-9), seed=7) as trial:
        asks = trial.ask(3)
        trial.tell_all([(ask, 1, None) for ask in asks])
    admin, operator = (Keys(journal).create(role, role) for role in ("admin", "operator"))
    with Running(journal, tmp_path / "log") as running:
        blind = eh.connect(running.url, operator).open("main")
        status = blind.status()
        assert (status.samples, status.evidence, status.cells, status.leader) == (3, None, (), None)
        with pytest.raises(Conflict, match="row 1: the ticket has an outcome already; nothing"):
            blind.tell_all([(asks[0], 0, None)])
        with pytest.raises(BadInput, match="role"):
            blind.finish("no right to")
        assert len(eh.connect(running.url, admin).open("main").status().cells) == 4
        with pytest.raises(BadInput, match="key"):
            eh.connect(running.url).open("main")


@pytest.mark.parametrize("key", [3, "", b"eh_1"])
def test_a_key_that_is_no_text_is_refused_and_not_shown(key: Any) -> None:
    with pytest.raises(BadInput, match="a key must be text, as `evenhand keys create` printed it"):
        eh.connect("http://127.0.0.1:8000", key)
