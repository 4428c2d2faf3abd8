"""Throughput, latency and start-up time of the HTTP service on this machine.

    python -m benchmarks service

The service runs in separate processes, as `evenhand serve` does; the sixteen clients are threads of two more
processes. Optuna has sixteen threads on the same storage, without HTTP. The two alternate.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import optuna

import evenhand as eh
from benchmarks.bench_live import postgres, rate, their_pair
from benchmarks.rows import Row, less, more
from tests.service.service_process import ENDLESS, Running, share_of_time

CLIENTS, PROCESSES = 16, 2
TURNS, SECONDS = 3, 4.0  # number of turns of each side, and seconds per turn
PACE, PACED_SECONDS = 100.0, 15.0  # pairs and polls per second when latency is measured
TARGET = 500.0  # pairs per second, on an idle machine with two cores


class Latencies(NamedTuple):
    """Number of pairs and request times of one client process."""

    pairs: int
    asks: list[float]  # seconds
    tells: list[float]


def rows() -> Iterator[Row]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from throughput("SQLite", f"{folder}/ours.db", f"sqlite:///{folder}/theirs.db", folder / "log")
        yield from latency(f"{folder}/latency.db", folder / "log")
        with postgres() as databases:
            for ours, theirs in zip(databases, databases, strict=False):
                theirs = theirs.replace("postgresql://", "postgresql+psycopg://")
                yield from throughput("PostgreSQL", ours, theirs, folder / "log")
                break


def throughput(storage: str, ours: str, theirs: str, log: Path) -> Iterator[Row]:
    """Compare the pairs per second of sixteen clients with Optuna and with the target."""
    study = optuna.create_study(storage=theirs, sampler=optuna.samplers.RandomSampler(seed=1))
    rates = []
    with Running(ours, log) as service, client_pool(service.url) as load:
        for _ in range(TURNS):
            mine = sum(part.pairs for part in load(SECONDS)) / SECONDS
            rates.append((mine, rate(lambda _: their_pair(study), CLIENTS)))
    mine, other = (statistics.median(side) for side in zip(*rates, strict=True))
    name = f"ask + tell over HTTP, {storage}, {CLIENTS} clients"
    yield more(f"{name}, against Optuna without HTTP", mine, other, "pairs/s", 10.0)
    yield more(f"{name}, against {TARGET:g}", mine, TARGET, "pairs/s", 1.0)


def latency(journal: str, log: Path) -> Iterator[Row]:
    """Measure latency at 100 pairs per second, without and with 100 dashboard polls per second."""
    begun = time.perf_counter()
    with Running(journal, log) as service, client_pool(service.url) as load:
        yield less("start-up to the first answer, against 2 s", service.came_up - begun, 2.0, "s", 1.0)
        alone = load(PACED_SECONDS, PACE)
        asks = sorted(seconds for part in alone for seconds in part.asks)
        yield less("ask p99 at 100 pairs/s, against 30 ms", 1e3 * share_of_time(asks, 0.99), 30.0, "ms", 1.0)
        with Polls(service.url, PACE) as polls:
            beside = load(PACED_SECONDS, PACE)
        name = f"write p99 beside {polls.done / PACED_SECONDS:.0f} dashboard polls/s, against none"
        yield less(name, 1e3 * writes_p99(beside), 1e3 * writes_p99(alone), "ms", 1 / 1.3)


Load = Callable[..., list[Latencies]]


@contextmanager
def client_pool(url: str) -> Iterator[Load]:
    """Yield a function that runs sixteen clients in two processes, optionally at a given rate."""
    eh.connect(url).create(eh.Study.from_dict(ENDLESS), seed=1)
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:

        def load(seconds: float, pace: float | None = None) -> list[Latencies]:
            each = None if pace is None else pace / CLIENTS
            started = [pool.apply_async(clients, (url, seconds, each)) for _ in range(PROCESSES)]
            return [part.get() for part in started]

        load(2.0)  # warm-up
        yield load


def clients(url: str, seconds: float, pace: float | None) -> Latencies:
    """Run the clients of this process, one thread and connection each."""
    asks: list[float] = []
    tells: list[float] = []

    def work(number: int) -> None:
        trial = eh.connect(url).open("main")
        begun = time.perf_counter()
        for pair in range(10**9):
            if pace is not None:
                due = begun + (pair + number / CLIENTS) / pace
                time.sleep(max(due - time.perf_counter(), 0.0))
            if time.perf_counter() > begun + seconds:
                return
            first = time.perf_counter()
            ask = trial.ask()
            assert ask is not None
            second = time.perf_counter()
            trial.tell(ask, pair % 2)
            asks.append(second - first)
            tells.append(time.perf_counter() - second)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS // PROCESSES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Latencies(len(tells), asks, tells)


class Polls:
    """Poll the dashboard at a given rate until the end of the block."""

    def __init__(self, url: str, pace: float) -> None:
        self.done = 0
        self._page = f"{url}/experiments/main/panel"
        self._wait = 4 / pace
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._poll) for _ in range(4)]

    def _poll(self) -> None:
        due = time.perf_counter()
        while not self._stop.wait(max(due - time.perf_counter(), 0.0)):
            due += self._wait
            with urllib.request.urlopen(self._page, timeout=60) as answer:
                answer.read()
            self.done += 1

    def __enter__(self) -> Polls:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def writes_p99(parts: list[Latencies]) -> float:
    """Return the 99th percentile of asks and tells together."""
    return share_of_time(sorted(seconds for part in parts for seconds in (*part.asks, *part.tells)), 0.99)
