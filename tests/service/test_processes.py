"""Several service processes on one PostgreSQL give the answers of one."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import evenhand as eh
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.service.keys import Keys
from tests.service.service_process import STUDY, Running

SEED = 11


@pytest.fixture
def two(postgres_url: str, tmp_path: Path) -> Any:
    with (
        Running(postgres_url, tmp_path / "log1") as first,
        Running(postgres_url, tmp_path / "log2") as second,
    ):
        yield first, second


def outcome(number: int, policy: str) -> int:
    """The same for the same ticket, whoever tells it."""
    return int(number % 10 < (9 if policy == "plain" else 3))


def test_two_processes_hand_out_what_one_would(two: tuple[Running, Running], tmp_path: Path) -> None:
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
    import time

    from evenhand.errors import BadInput
    from evenhand.service.keys import STALE_SECONDS, Keys

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
    while code == 200:  # the other notices within a few seconds
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
            assert b"drawn" in stream.readline()
        keys.revoke(operator.split("_")[1])
        for stream in (one, other):
            stream.read()  # returns when the service has ended the stream
