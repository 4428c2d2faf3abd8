"""The service under load: bodies without end, slow clients, and sixteen clients while it is killed."""

from __future__ import annotations

import random
import socket
import threading
import time
import urllib.request
from pathlib import Path

import pytest

import evenhand as eh
from evenhand.live.audit import audit
from evenhand.live.events import Told
from evenhand.service.client import RemoteExperiment
from tests.service.service_process import ENDLESS, Running, share_of_time

MB = 2**20


def times_of_asks(trial: RemoteExperiment, count: int) -> list[float]:
    """Seconds of so many asks and tells, sorted."""
    times = []
    for number in range(count):
        begun = time.perf_counter()
        ask = trial.ask()
        times.append(time.perf_counter() - begun)
        assert ask is not None
        trial.tell(ask, number % 2)
    return sorted(times)


def send(port: int, head: bytes, part: bytes, most: int) -> bytes:
    """Send a head and then parts until the service has had enough; its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as wire:
        wire.sendall(head)
        sent = 0
        try:
            while sent < most:
                wire.sendall(part)
                sent += len(part)
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            return wire.recv(4096)
        except ConnectionResetError:
            return b""


@pytest.mark.slow
def test_it_stops_quietly_beside_an_open_dashboard(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Running(str(tmp_path / "journal.db"), log) as service:
        eh.connect(service.url).create(eh.Study.from_dict(ENDLESS), seed=7)
        with urllib.request.urlopen(f"{service.url}/experiments/main/stream", timeout=60) as stream:
            assert b"drawn" in stream.readline()
            assert service.stop() == 0
            assert stream.read().endswith(b"\n")
    said = log.read_text()
    assert "Traceback" not in said
    assert "graceful shutdown exceeded" not in said  # the stream ended by itself


def test_bodies_without_end_are_refused_in_little_memory(tmp_path: Path) -> None:
    post = b"POST /api/v1/plan HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with Running(str(tmp_path / "journal.db"), tmp_path / "log") as service:
        trial = eh.connect(service.url).create(eh.Study.from_dict(ENDLESS), seed=7)
        times_of_asks(trial, 5)  # the first ones wait for the kernels
        idle = share_of_time(times_of_asks(trial, 50), 0.99)
        before = service.memory
        part = b'"' + b"x" * 65_536
        told = send(service.port, post + b"Content-Length: 1000000000\r\n\r\n", part, 1_000 * MB)
        assert b" 413 " in told.splitlines()[0] if told else True
        chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        told = send(service.port, post + b"Transfer-Encoding: chunked\r\n\r\n", chunk, 1_000 * MB)
        assert b" 413 " in told.splitlines()[0] if told else True
        slow = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(200)]
        for wire in slow:
            wire.sendall(post[:-20])  # and never the rest
        busy = share_of_time(times_of_asks(trial, 50), 0.99)
        for wire in slow:
            wire.close()
        grown = (service.memory - before) / MB
        print(
            f"memory grew by {grown:.1f} MB; ask p99 {1e3 * idle:.1f} ms, among slow clients "
            f"{1e3 * busy:.1f} ms"
        )
        assert grown <= 50


@pytest.mark.slow
def test_sixteen_clients_for_a_minute_while_the_service_is_killed(tmp_path: Path) -> None:
    """Whatever was acknowledged is in the log once; every client continues by itself."""
    journal, seconds = str(tmp_path / "journal.db"), 60.0
    acknowledged: list[set[tuple[str, int]]] = [set() for _ in range(16)]
    over = threading.Event()
    with Running(journal, tmp_path / "log") as service:
        eh.connect(service.url).create(eh.Study.from_dict(ENDLESS), seed=7)

        def work(number: int) -> None:
            trial = eh.connect(service.url).open("main")
            draw = random.Random(number)
            while not over.is_set():
                ask = trial.ask()
                assert ask is not None
                outcome = draw.randrange(2)
                trial.tell(ask, outcome)
                acknowledged[number].add((ask.ticket, outcome))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        back: list[float] = []
        first = time.monotonic()
        while len(back) < 5 or time.monotonic() - first < seconds:  # a busy machine takes longer to come back
            time.sleep(6)
            service.kill()
            begun = time.monotonic()
            service.start()
            back.append(time.monotonic() - begun)
        over.set()
        for thread in threads:
            thread.join()
        log = [
            (entry.event.ticket, entry.event.outcome)
            for entry in eh.connect(service.url).open("main").events()
            if isinstance(entry.event, Told)
        ]
        code = {ticket: ticket_number(ticket) for part in acknowledged for ticket, _ in part}
    told = dict(log)
    assert len(told) == len(log)  # nothing twice
    for part in acknowledged:
        for ticket, outcome in part:
            assert told[code[ticket]] == outcome  # nothing lost
    found = audit(journal)
    assert found.identical
    total = sum(map(len, acknowledged))
    print(f"{len(back)} kills, {total} pairs acknowledged, back within {max(back):.2f} s")
    assert total > 0


def ticket_number(ticket: str) -> int:
    return int(ticket[1:].split("-")[0])
