"""Limits before work: headers, slow clients, connections, overload, jobs, exports, proxies, errors."""

from __future__ import annotations

import http.client
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvicorn
from litestar.exceptions import HTTPException
from litestar.testing import TestClient

from evenhand.errors import BadInput, KeyReused, NotFound
from evenhand.live.journal import Journal, open_journal
from evenhand.service import app as app_module
from evenhand.service import jobs as jobs_module
from evenhand.service import limits, pages, worker_processes
from evenhand.service.app import Settings, create_app
from evenhand.service.auth import WRONG_KEYS
from evenhand.service.experiments import Registry
from evenhand.service.jobs import Jobs
from evenhand.service.keys import Key, Keys
from evenhand.service.limits import Proxies
from evenhand.service.request_bodies import SimulateForm
from evenhand.service.server import configured
from evenhand.service.worker_processes import TooManyWait, WorkerProcess
from tests.service.peers import seen_from
from tests.service.service_process import ENDLESS, STUDY, Running

GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST /api/v1/plan HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@contextmanager
def served(journal: Path, *proxies: str) -> Iterator[int]:
    """The application behind a real uvicorn, with the limits of the service, on a port of its own."""
    app = create_app(Settings(str(journal), proxies=proxies))
    server = uvicorn.Server(configured(app, proxies))
    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield door.getsockname()[1]
        finally:
            app.state.stopping.set()
            server.should_exit = True
            thread.join()


def wire(port: int, source: str = "127.0.0.1") -> Any:
    return closing(socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(source, 0)))


def answer(connection: socket.socket) -> bytes:
    """All that the service sends until it closes the connection."""
    found = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            found += part
    return found


def request(
    port: int, path: str, headers: dict[str, str], method: str = "GET", body: Any = None
) -> tuple[int, dict[str, str], str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"} | headers)
        found = connection.getresponse()
        return (
            found.status,
            {name.lower(): value for name, value in found.getheaders()},
            found.read().decode(),
        )


# ---------------------------------------------------------------- headers and slow clients


def test_headers_without_end_are_refused_in_little_memory(tmp_path: Path) -> None:
    with served(tmp_path / "t.db") as port, wire(port) as connection:
        before = psutil.Process().memory_info().rss
        connection.sendall(GET)
        with suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(1_000):
                connection.sendall(b"X-Long: " + b"x" * 100_000)
        told = answer(connection)
        assert b" 431 " in told.splitlines()[0] if told else True
        assert psutil.Process().memory_info().rss - before < 50 * 2**20


@pytest.mark.parametrize("headers", [{f"X-{n}": "1" for n in range(120)}, {"X-Long": "x" * 40_000}])
def test_too_many_or_too_long_headers_are_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    with served(tmp_path / "t.db") as port:
        status, _, text = request(port, "/healthz", headers)
        assert status == 431
        assert json.loads(text)["error"]
        assert request(port, "/healthz", {})[0] == 200


def test_a_client_that_sends_its_headers_slowly_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 0.3)
    with served(tmp_path / "t.db") as port:
        with wire(port) as silent:
            assert b" 408 " in answer(silent).splitlines()[0]
        with wire(port) as slow, suppress(BrokenPipeError, ConnectionResetError):
            slow.sendall(GET)
            for _ in range(600):
                slow.sendall(b"X: y\r\n")  # some bytes all the time do not help
                time.sleep(0.05)
            pytest.fail("the service listened for 30 s")
        with wire(port) as kept:  # the second request of a connection too
            kept.sendall(GET + b"\r\n")
            assert b" 200 " in kept.recv(65_536).splitlines()[0]
            kept.sendall(GET)
            assert b" 408 " in answer(kept).splitlines()[0]


def test_a_client_that_sends_its_body_slowly_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.3)
    with served(tmp_path / "t.db") as port, wire(port) as slow:
        slow.sendall(POST + b"Content-Length: 1000\r\n\r\n{")
        assert answer(slow) == b""


def test_one_address_has_so_many_connections_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PER_PEER", 3)
    with served(tmp_path / "t.db") as port:
        kept = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        for connection in kept:
            connection.sendall(GET + b"\r\n")
            assert b" 200 " in connection.recv(65_536)
        with wire(port) as fourth:
            told = answer(fourth)
            assert b" 503 " in told.splitlines()[0]
            assert b"Retry-After" in told
        with wire(port, "127.0.0.2") as other:
            other.sendall(GET + b"\r\n")
            assert b" 200 " in other.recv(65_536)
        for connection in kept:
            connection.close()
        while request(port, "/healthz", {})[0] != 200:
            time.sleep(0.01)


def test_overload_is_shed_with_retry_after_and_health_still_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path / "t.db") as port:
        assert request(port, "/api/v1/experiments", {})[0] == 200
        monkeypatch.setattr(limits, "IN_PROGRESS", 0)
        status, headers, text = request(port, "/api/v1/experiments", {})
        assert status == 503
        assert headers["retry-after"] == "1"
        assert json.loads(text)["error"]
        assert request(port, "/readyz", {})[0] == 503  # it needs the storage, and every client may send it
        assert request(port, "/healthz", {})[0] == 200


@pytest.mark.slow
def test_fifteen_hundred_clients_leave_the_service_alive(tmp_path: Path) -> None:
    """Slow clients of three addresses, and one that asks for the health of the service meanwhile."""
    with Running(str(tmp_path / "t.db"), tmp_path / "log") as service:
        slow = []
        for number in range(1_500):
            source = (f"127.0.0.{2 + number % 3}", 0)
            slow.append(socket.create_connection(("127.0.0.1", service.port), 60, source))
            slow[-1].sendall(POST)
        times = []
        for _ in range(50):
            begun = time.perf_counter()
            assert request(service.port, "/healthz", {})[0] == 200
            times.append(time.perf_counter() - begun)
        print(f"health answered in at most {1e3 * max(times):.1f} ms beside 1,500 clients")
        for connection in slow:
            connection.close()


def test_one_key_cannot_hold_all_dashboard_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAMS_PER_KEY", 3)
    journal = tmp_path / "t.db"
    mine, theirs = (
        {"Authorization": f"Bearer {Keys(str(journal)).create('admin', who)}"} for who in ("me", "you")
    )
    with served(journal) as port, ExitStack() as open_streams:
        body = {"id": "main", "study": STUDY, "seed": 7}
        assert request(port, "/api/v1/experiments", mine, "POST", body)[0] == 201

        def stream(headers: dict[str, str]) -> http.client.HTTPConnection:
            connection = open_streams.enter_context(
                closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120))
            )
            connection.request("GET", "/experiments/main/stream", headers=headers)
            return connection

        kept = [stream(mine) for _ in range(3)]
        assert [one.getresponse().status for one in kept] == [200] * 3
        for _ in range(5):  # refused requests take nothing away
            status, headers, text = request(port, "/experiments/main/stream", mine)
            assert (status, headers["retry-after"]) == (429, "5")
            assert "3 open dashboards" in json.loads(text)["error"]
        assert stream(theirs).getresponse().status == 200
        kept[0].close()
        deadline = time.monotonic() + 60
        while stream(mine).getresponse().status != 200:  # found when the connection has ended
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_stream_without_news_sends_a_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a client that disappeared is found, and proxies keep the connection."""
    monkeypatch.setattr(pages, "SIGN_SECONDS", 0.1)
    with served(tmp_path / "t.db") as port:
        body = {"id": "main", "study": STUDY, "seed": 7}
        assert request(port, "/api/v1/experiments", {}, "POST", body)[0] == 201
        with wire(port) as stream:
            stream.sendall(b"GET /experiments/main/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            found = b""
            while found.count(b"\n: \r\n") < 2:
                part = stream.recv(65_536)
                assert part
                found += part


# ---------------------------------------------------------------- proxies


def wrong_keys(port: int, **headers: str) -> list[int]:
    """The answers to wrong keys that seem to come from a new address each time."""
    guess = {"Authorization": f"Bearer eh_00000000_{'a' * 43}"}
    return [
        request(port, "/api/v1/experiments", guess | {"X-Forwarded-For": f"10.0.0.{n}"} | headers)[0]
        for n in range(WRONG_KEYS + 5)
    ]


def test_forwarding_headers_are_believed_from_named_proxies_only(tmp_path: Path) -> None:
    """A client on this machine that makes up addresses is still one client."""
    good = Keys(str(tmp_path / "t.db")).create("operator", "me")
    with served(tmp_path / "t.db") as port:
        assert wrong_keys(port)[-5:] == [429] * 5
        sent = {"X-Forwarded-Proto": "https"}
        found = request(port, "/login", sent, "POST", {"key": good})
        assert "secure" not in found[1]["set-cookie"].lower()
    with served(tmp_path / "t.db", "127.0.0.0/8") as port:
        assert set(wrong_keys(port)) == {401}  # 25 clients behind the proxy
        assert "secure" in request(port, "/login", sent, "POST", {"key": good})[1]["set-cookie"].lower()


def test_the_client_behind_named_proxies_is_the_one_that_they_saw() -> None:
    proxies = Proxies(("10.0.0.0/8", "::1"))
    assert proxies.client_of("10.1.1.1", "6.6.6.6, 203.0.113.7") == "203.0.113.7"
    assert proxies.client_of("10.1.1.1", "6.6.6.6, 203.0.113.7, 10.2.2.2") == "203.0.113.7"
    assert proxies.client_of("203.0.113.9", "6.6.6.6") == "203.0.113.9"
    assert proxies.client_of("10.1.1.1", "nonsense") == "10.1.1.1"
    with pytest.raises(BadInput, match="address or a network"):
        Proxies(("trial.example.org",))


# ---------------------------------------------------------------- exports, errors, names


def test_an_export_leaves_no_file_when_the_client_hangs_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(worker_processes, "PER_KEY", 6)
    with served(tmp_path / "t.db") as port:
        made = request(port, "/api/v1/experiments", {}, "POST", {"id": "main", "study": STUDY, "seed": 7})
        assert made[0] == 201
        for _ in range(5):
            with wire(port) as hasty:
                path = b"GET /api/v1/experiments/main/export HTTP/1.1\r\n"
                hasty.sendall(path + b"Host: 127.0.0.1\r\n\r\n")
        status, _, text = request(port, "/api/v1/experiments/main/export", {})  # after those before it
        assert status == 200
        assert text.endswith('"}\n')
    assert not list(folder.iterdir())


def test_errors_of_the_storage_do_not_reach_a_client(tmp_path: Path) -> None:
    journal = tmp_path / "t.db"
    app = create_app(Settings(str(journal)))
    with TestClient(seen_from(app), base_url="http://127.0.0.1") as client:
        body = {"id": "main", "study": STUDY, "seed": 7}
        assert client.post("/api/v1/experiments", json=body).status_code == 201
        journal.rename(tmp_path / "elsewhere.db")
        found = client.post("/api/v1/experiments/main/ask", json={})
        assert found.status_code == 503
        assert found.headers["retry-after"] == "1"
        assert str(tmp_path) not in found.text
        assert "could not be read or written" in found.json()["error"]


@pytest.mark.parametrize(
    "study",
    [
        STUDY | {"title": "x" * 301},
        STUDY | {"title": "two\nlines"},
        STUDY | {"problem": STUDY["problem"] | {"policies": ["plain", "bo\x1bld"]}},
        STUDY | {"problem": STUDY["problem"] | {"groups": {"north\r": 0.5, "south": 0.5}}},
        STUDY
        | {
            "problem": STUDY["problem"]
            | {
                "guardrails": [
                    {
                        "name": "com\x07plaints",
                        "family": {"name": "poisson"},
                        "constraint": {"kind": "caps", "at_most": 1.5},
                    }
                ]
            }
        },
    ],
)
def test_titles_and_names_are_short_and_without_control_characters(
    tmp_path: Path, study: dict[str, Any]
) -> None:
    with TestClient(
        seen_from(create_app(Settings(str(tmp_path / "t.db")))), base_url="http://127.0.0.1"
    ) as client:
        found = client.post("/api/v1/experiments", json={"id": "main", "study": study, "seed": 7})
        assert found.status_code == 422
        assert "control characters" in found.json()["error"]
        named = STUDY["problem"] | {"policies": ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "bold"]}
        body = {"id": "main", "study": STUDY | {"problem": named}, "seed": 7}
        assert client.post("/api/v1/experiments", json=body).status_code == 201


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("ask", {"worker": "ward\n3"}),
        ("pause", {"reason": "\x1b[2J"}),
        ("pause", {"reason": "lunch", "by": "me\u2028you"}),
        ("drop", {"ticket": "t1\t", "reason": "gone"}),
        ("import", {"rows": [], "source": "a\x00b"}),
        ("finish", {"reason": "\x7f"}),
    ],
)
def test_no_text_of_a_request_has_control_characters(tmp_path: Path, verb: str, body: dict[str, Any]) -> None:
    app = create_app(Settings(str(tmp_path / "t.db")))
    with TestClient(seen_from(app), base_url="http://127.0.0.1") as client:
        client.post("/api/v1/experiments", json={"id": "main", "study": STUDY, "seed": 7})
        found = client.post(f"/api/v1/experiments/main/{verb}", json=body)
        assert found.status_code == 422
        assert "must have no control characters" in found.json()["error"]


# ---------------------------------------------------------------- jobs

ANN, BEN, BOSS = (
    Key("0000000a", "operator", "ann"),
    Key("0000000b", "operator", "ben"),
    Key("0", "admin", "b"),
)
FORM = SimulateForm(study={})


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    found = open_journal(str(tmp_path / "t.db"), create=True)
    yield found
    found.close()


@pytest.fixture
def jobs(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setattr(jobs_module, "REPORT_SECONDS", 0.05)
    found = Jobs(journal)
    yield found
    found.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def endless(progress: Callable[[int, int], None]) -> None:
    while True:
        progress(0, 1)
        time.sleep(0.005)


def test_the_queue_takes_turns_between_keys(jobs: Jobs) -> None:
    order: list[str] = []
    gate = threading.Event()

    def named(name: str) -> Callable[[Any], None]:
        return lambda _progress: (gate.wait(60), order.append(name))[1]

    others = [Key(f"{number:08}", "admin", "other") for number in range(jobs_module.AT_ONCE)]
    blocking = [jobs.start(other, 1, lambda _: gate.wait(60), FORM) for other in others]
    until(lambda: all(jobs.look(BOSS, job)["state"] == "running" for job in blocking))
    for number in range(4):
        jobs.start(ANN, 1, named(f"ann {number}"), FORM)
    last = jobs.start(BEN, 1, named("ben"), FORM)
    gate.set()
    until(lambda: jobs.look(BEN, last)["state"] == "done")
    assert "ben" in order[:3]


def test_a_key_has_a_limit_of_unfinished_jobs_and_a_plan_is_never_starved(jobs: Jobs) -> None:
    started = [jobs.start(ANN, 1, endless, FORM) for _ in range(jobs_module.PER_KEY)]
    with pytest.raises(HTTPException, match="unfinished simulations") as refused:
        jobs.start(ANN, 1, endless, FORM)
    assert refused.value.status_code == 429
    assert refused.value.headers == {"Retry-After": "5"}
    assert jobs.within(60, lambda: "planned", ANN) == "planned"
    assert [job["id"] for job in jobs.list(ANN)] == started[::-1]
    assert jobs.list(BEN) == []
    assert len(jobs.list(BOSS)) == len(started)
    with pytest.raises(NotFound):
        jobs.look(BEN, started[0])
    with pytest.raises(NotFound):
        jobs.cancel(BEN, started[0])
    for job in started:
        assert jobs.cancel(ANN, job)["state"] == "cancelled"
    until(lambda: jobs.counts() == {"waiting": 0, "running": 0})
    assert {job["state"] for job in jobs.list(ANN)} == {"cancelled"}


def test_endless_simulations_of_one_key_do_not_run_all_at_once(jobs: Jobs) -> None:
    for _ in range(jobs_module.PER_KEY):
        jobs.start(ANN, 1, endless, FORM)
    until(lambda: jobs.counts()["running"] == 1)
    quick = jobs.start(BEN, 1, lambda _: {"answer": 42}, FORM)
    until(lambda: jobs.look(BEN, quick)["state"] == "done")


def test_a_key_has_so_many_plans_and_others_are_computed(jobs: Jobs) -> None:
    gate = threading.Event()
    waiting = [
        threading.Thread(target=jobs.within, args=(60, lambda: gate.wait(60), ANN))
        for _ in range(jobs_module.PLANS_PER_KEY)
    ]
    for thread in waiting:
        thread.start()
    until(lambda: jobs._planning[ANN.id] == len(waiting))
    with pytest.raises(HTTPException, match="plans of this key") as refused:
        jobs.within(60, lambda: "planned", ANN)
    assert refused.value.status_code == 429
    assert jobs.within(60, lambda: "planned", BEN) == "planned"
    gate.set()
    for thread in waiting:
        thread.join()
    assert jobs.within(60, lambda: "planned", ANN) == "planned"


def test_a_process_whose_task_takes_too_long_is_ended_and_another_takes_its_place() -> None:
    worker = WorkerProcess(0.2, 1)
    with pytest.raises(BadInput, match="takes longer than"):
        worker.do(time.sleep, 1e6)
    worker._seconds = 300.0
    assert worker.do(abs, -1) == 1
    worker.close()


def test_the_process_of_a_cancelled_simulation_is_ended() -> None:
    worker = WorkerProcess(300.0, 1)
    first = worker.do(os.getpid)

    def cancelled(_: int) -> None:
        raise jobs_module.Stopped

    with pytest.raises(jobs_module.Stopped):
        worker.run(time.sleep, 1e6, progress=cancelled, seconds=1e6)
    until(lambda: not psutil.pid_exists(first))
    with pytest.raises(BadInput, match="takes longer than"):
        worker.run(time.sleep, 1e6, progress=lambda _: None, seconds=0.1)
    assert worker.run(abs, -1, progress=lambda _: None, seconds=300.0) == 1
    worker.close()


def test_few_requests_wait_for_a_worker_and_fewer_of_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_processes, "PER_KEY", 1)
    worker, gate = WorkerProcess(300.0, 2), Future[int]()
    with worker._place("ann"):
        with pytest.raises(TooManyWait, match="too many"):
            worker.do(abs, -1, owner="ann")
        with worker._place("ben"):
            assert worker.wait_briefly(gate, 1e6) is None
    assert worker.do(abs, -1, owner="ann") == 1
    worker.close()


def test_health_answers_while_every_thread_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)
    monkeypatch.setattr(app_module, "AT_ONCE", 2)
    monkeypatch.setattr(Registry, "check", lambda _: (begun.release(), gate.wait(60)))
    with served(tmp_path / "t.db") as port:
        busy = [threading.Thread(target=request, args=(port, "/readyz", {})) for _ in range(2)]
        for thread in busy:
            thread.start()
        for _ in busy:
            begun.acquire()
        try:
            assert request(port, "/healthz", {})[0] == 200
            assert not gate.is_set()
        finally:
            gate.set()
        for thread in busy:
            thread.join()


def test_jobs_belong_to_the_journal_and_not_to_one_process(postgres_url: str) -> None:
    """Begun by one process, seen and cancelled by another; one request is one job wherever it arrives."""
    first, second = (Jobs(open_journal(postgres_url, create=True)) for _ in range(2))
    job = first.start(ANN, 1, endless, FORM, "monday")
    assert second.start(ANN, 1, endless, FORM, "monday") == job
    assert second.start(BEN, 1, lambda _: {"answer": 42}, FORM, "monday") != job
    with pytest.raises(KeyReused):
        second.start(ANN, 1, endless, SimulateForm(study={}, seed=2), "monday")
    until(lambda: second.look(ANN, job)["state"] == "running")
    assert second.cancel(ANN, job)["state"] == "cancelled"
    until(lambda: first.counts()["running"] == 0)
    [done] = [one["id"] for one in first.list(BEN)]
    until(lambda: first.look(BEN, done)["state"] == "done")
    assert first.look(BEN, done)["result"] == {"answer": 42}
    for one in (first, second):
        one.close()
        one._journal.close()


def test_a_job_whose_process_ended_does_not_stay_running(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Jobs(journal)
    job = left.start(ANN, 1, lambda _: time.sleep(0.5), FORM)
    monkeypatch.setattr(jobs_module, "LOST_SECONDS", -1.0)
    found = Jobs(journal).look(ANN, job)
    assert found["state"] == "failed"
    assert "has ended" in found["error"]
    left.close()


def test_simulations_are_listed_and_cancelled_over_http(tmp_path: Path) -> None:
    with TestClient(
        seen_from(create_app(Settings(str(tmp_path / "t.db")))), base_url="http://127.0.0.1"
    ) as client:
        study = STUDY | {"truth": {"means": [[0.9, 0.9], [0.1, 0.1]]}}
        body = {"study": study, "replications": 5}
        job = client.post("/api/v1/simulate", json=body).json()["id"]
        assert [one["id"] for one in client.get("/api/v1/simulate").json()] == [job]
        until(lambda: client.get(f"/api/v1/simulate/{job}").json()["state"] == "done")
        assert client.post(f"/api/v1/simulate/{job}/cancel", json={}).json()["state"] == "done"
        assert client.get(f"/api/v1/simulate/{job}").json()["result"]


def test_the_logs_and_texts_of_the_service_show_no_key_or_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = str(tmp_path / "t.db")
    key = Keys(journal).create("admin", "me")
    settings = Settings(journal)
    app = create_app(settings)
    with caplog.at_level(0), TestClient(seen_from(app), base_url="http://127.0.0.1") as client:
        client.post("/login", json={"key": key})
        client.get("/api/v1/experiments", headers={"Authorization": f"Bearer {key}"})
        client.get("/api/v1/experiments", headers={"Authorization": f"Bearer {key}x"})
    secret = key.split("_", 2)[2]
    shown = caplog.text + repr(settings) + repr(app.state.access) + repr(vars(app.state.access))
    assert secret not in shown
    assert ENDLESS["title"] not in caplog.text
