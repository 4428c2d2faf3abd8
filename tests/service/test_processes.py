"""Several service processes on one PostgreSQL give the answers of one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import evenhand as eh
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
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
