"""Several service processes on one PostgreSQL give the answers of one."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import evenhand as eh
from evenhand.errors import BadInput
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.service.auth import WRONG_KEYS
from evenhand.service.jobs import PER_KEY
from evenhand.service.keys import STALE_SECONDS, Keys
from evenhand.service.notifications import WATCH_SECONDS
from tests.service.receiver import Receiver
from tests.service.service_process import ENDLESS, STUDY, Running

SEED = 11


@pytest.fixture
def two(postgres_url: str, tmp_path: Path) -> Any:
    with (
        Running(postgres_url, tmp_path / "log1") as first,
        Running(postgres_url, tmp_path / "log2") as second,
    ):
        yield first, second


def outcome(number: int, policy: str) -> int:
    """Return the outcome of a ticket, the same in every process."""
    return int(number % 10 < (9 if policy == "plain" else 3))


def test_two_processes_issue_the_tickets_that_one_would(two: tuple[Running, Running], tmp_path: Path) -> None:
    """Asking now here, now there, the tickets and the end are those of one process."""
    study = eh.Study.from_dict(STUDY)
    ends = [eh.connect(two[0].url).create(study, seed=SEED), eh.connect(two[1].url).open("main")]
    asked = []
    with Experiment.create(str(tmp_path / "one.db"), study, seed=SEED) as alone:
        while True:
            number = len(asked)
            ticket, own = ends[number % 2].ask(), alone.ask()
            assert (ticket is None) == (own is None)
            if ticket is None or own is None:
                break
            assert (ticket.policy, ticket.group) == (own.policy, own.group)
            told = outcome(number, ticket.policy)
            ends[(number + 1) % 2].tell(ticket, told)
            alone.tell(own, told)
            asked.append(ticket)
        one = alone.status()
    for end in ends:
        status = end.status()
        for name in ("answer", "decided", "samples", "evidence"):
            assert getattr(status, name) == getattr(one, name)


def test_many_clients_of_two_processes_lose_and_double_nothing(
    two: tuple[Running, Running], postgres_url: str
) -> None:
    endless = eh.Study.from_dict(STUDY | {"procedure": {"delta": 1e-200, "max_samples": 1_000_000}})
    eh.connect(two[0].url).create(endless, seed=SEED, name="crowd")
    told: list[str] = []

    def work(number: int) -> None:
        trial = eh.connect(two[number % 2].url).open("crowd")
        for _ in range(15):
            ticket = trial.ask()
            assert ticket is not None
            trial.tell(ticket, outcome(number, ticket.policy))
            told.append(ticket.ticket)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == len(set(told)) == 120
    for service in two:
        counts = eh.connect(service.url).open("crowd").status().counts
        assert (counts["asked"], counts["told"]) == (120, 120)
    assert audit(postgres_url, experiment="crowd").identical


def test_a_key_made_for_one_process_opens_the_other(two: tuple[Running, Running], postgres_url: str) -> None:
    key = Keys(postgres_url).create("operator", "ward")
    time.sleep(1.5 * STALE_SECONDS)
    for service in two:
        assert eh.connect(service.url, key).experiments() == []
        with pytest.raises(BadInput, match="key"):
            eh.connect(service.url).experiments()


@contextmanager
def answered(url: str, method: str, path: str, body: Any = None, **headers: str) -> Iterator[Any]:
    """The answer to a request, to be read inside the block."""
    with closing(http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=300)) as connection:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"} | headers)
        with connection.getresponse() as answer:
            yield answer


def send(url: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """The status of an answer, and its JSON."""
    with answered(url, method, path, body, **headers) as answer:
        return answer.status, json.loads(answer.read())


def test_one_request_sent_to_both_at_once_is_carried_out_once(
    two: tuple[Running, Running], postgres_url: str
) -> None:
    """A proxy repeats a request at another process while the first still works on it."""
    eh.connect(two[0].url).create(eh.Study.from_dict(STUDY), seed=SEED)
    path = "/api/v1/experiments/main"
    with ThreadPoolExecutor(2) as both:
        for number in range(10):
            again = {"Idempotency-Key": f"ask {number}".replace(" ", "-")}
            asked = partial(send, method="POST", path=f"{path}/ask", body={"n": 2}, **again)
            one, other = both.map(asked, [service.url for service in two])
            assert one == other
            assert one[0] == 200
            for ticket in one[1]:
                told = {"ticket": ticket["ticket"], "outcome": outcome(number, ticket["policy"])}
                tell = partial(send, method="POST", path=f"{path}/tell", body=told)
                assert [code for code, _ in both.map(tell, [service.url for service in two])] == [200, 200]
    counts = eh.connect(two[1].url).open("main").status().counts
    assert (counts["asked"], counts["told"], counts["refused"]) == (20, 20, 0)
    assert audit(postgres_url, experiment="main").identical


@pytest.mark.slow
def test_jobs_and_their_limits_are_those_of_all_processes(
    two: tuple[Running, Running], postgres_url: str
) -> None:
    keys = {who: Keys(postgres_url).create("analyst", who) for who in ("ann", "ben")}
    ann, ben = ({"Authorization": f"Bearer {key}"} for key in keys.values())
    time.sleep(1.5 * STALE_SECONDS)
    truth = {"means": [[0.61, 0.6], [0.6, 0.59]]}
    endless = {"study": ENDLESS | {"truth": truth}, "replications": 10_000, "seed": 1}
    once = ann | {"Idempotency-Key": "monday"}
    started = [send(one.url, "POST", "/api/v1/simulate", endless, **once) for one in two]
    assert started[0] == started[1]
    jobs = [started[0][1]["id"]]
    for number in range(2, PER_KEY + 1):
        body = endless | {"seed": number}
        jobs.append(send(two[number % 2].url, "POST", "/api/v1/simulate", body, **ann)[1]["id"])
    for one in two:
        assert send(one.url, "POST", "/api/v1/simulate", endless | {"seed": 99}, **ann)[0] == 429
        assert {job["id"] for job in send(one.url, "GET", "/api/v1/simulate", **ann)[1]} == set(jobs)
        assert send(one.url, "GET", "/api/v1/simulate", **ben)[1] == []
        assert send(one.url, "GET", f"/api/v1/simulate/{jobs[0]}", **ben)[0] == 404
    for number, job in enumerate(jobs):  # each is cancelled at the other process, or at its own
        code, found = send(two[number % 2].url, "POST", f"/api/v1/simulate/{job}/cancel", {}, **ann)
        assert (code, found["state"]) == (200, "cancelled")
    short = {"study": STUDY | {"truth": {"means": [[0.9, 0.8], [0.4, 0.35]]}}, "replications": 20, "seed": 3}
    job = send(two[0].url, "POST", "/api/v1/simulate", short, **ann)[1]["id"]
    found = {"state": "waiting"}
    deadline = time.monotonic() + 300
    while found["state"] in ("waiting", "running") and time.monotonic() < deadline:
        time.sleep(0.2)
        found = send(two[1].url, "GET", f"/api/v1/simulate/{job}", **ann)[1]
    assert found["state"] == "done", found


def test_wrong_keys_are_slowed_down_at_each_process_and_good_ones_are_not(
    two: tuple[Running, Running], postgres_url: str
) -> None:
    key = Keys(postgres_url).create("operator", "ward")
    time.sleep(1.5 * STALE_SECONDS)
    wrong = {"Authorization": f"Bearer eh_00000000_{'a' * 43}"}
    for one in two:
        codes = [send(one.url, "GET", "/api/v1/experiments", **wrong)[0] for _ in range(WRONG_KEYS + 3)]
        assert codes == [401] * WRONG_KEYS + [429] * 3
        good = {"Authorization": f"Bearer {key}"}
        assert send(one.url, "GET", "/api/v1/experiments", **good) == (200, [])


@pytest.mark.slow
def test_two_services_send_one_message_for_each_end(postgres_url: str, tmp_path: Path) -> None:
    receiver = Receiver()
    options = ("--webhook", receiver.origin)
    with (
        Running(postgres_url, tmp_path / "log1", None, *options) as first,
        Running(postgres_url, tmp_path / "log2", None, *options) as second,
    ):
        code, _ = send(first.url, "POST", "/api/v1/webhooks", {"url": f"{receiver.origin}/"})
        assert code == 201
        for number, service in enumerate((first, second, first, second)):
            trial = eh.connect(service.url).create(eh.Study.from_dict(STUDY), seed=7, name=f"t{number}")
            while asks := trial.ask(4):
                trial.tell_all([(ask, int(ask.policy == "plain"), None) for ask in asks])
        deadline = time.monotonic() + 120
        while len(receiver.got) < 4 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(2 * WATCH_SECONDS)  # a second message would come now
    names = [json.loads(body)["data"]["experiment"] for _, body in receiver.got]
    assert sorted(names) == ["t0", "t1", "t2", "t3"]
    assert set(receiver.events()) == {"ended"}
    receiver.close()


def test_a_session_begun_at_one_process_is_known_to_the_other(
    two: tuple[Running, Running], postgres_url: str
) -> None:
    """Fault 55: behind a proxy each request of a browser may reach another process."""
    key = Keys(postgres_url).create("admin", "me")
    with answered(two[0].url, "POST", "/login", {"key": key}) as answer:
        assert answer.status == 200
        cookie = answer.headers["set-cookie"].partition(";")[0]
    for one in two:
        with answered(one.url, "GET", "/planner", Cookie=cookie) as answer:
            assert answer.status == 200
    own = {"Cookie": cookie, "X-Evenhand": "page", "Origin": two[1].url}
    with answered(two[1].url, "POST", "/logout", {}, **own) as answer:
        assert answer.status == 200
    code = 200
    while code == 200:  # the other process finds it within a few seconds
        time.sleep(0.1)
        with answered(two[0].url, "GET", "/planner", Cookie=cookie) as answer:
            code = answer.status
    assert code == 401


def test_revoking_a_key_ends_its_streams_at_every_process(
    two: tuple[Running, Running], postgres_url: str
) -> None:
    keys = Keys(postgres_url)
    admin, operator = keys.create("admin", "me"), keys.create("operator", "you")
    eh.connect(two[0].url, admin).create(eh.Study.from_dict(STUDY), seed=SEED)
    sent = {"Authorization": f"Bearer {operator}"}
    path = "/experiments/main/stream"
    with answered(two[0].url, "GET", path, **sent) as one, answered(two[1].url, "GET", path, **sent) as other:
        for stream in (one, other):
            assert stream.status == 200
            line = stream.readline()
            while line in (b": \r\n", b"\r\n"):  # a sign of life until there is content
                line = stream.readline()
            assert b"drawn" in line
        keys.revoke(operator.split("_")[1])
        for stream in (one, other):
            stream.read()  # returns when the service has ended the stream
