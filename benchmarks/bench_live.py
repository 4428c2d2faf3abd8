"""Ask and tell against Optuna on the same storage, and a journal with a million events.

    python -m benchmarks live

Both sides store every ask and every tell durably before the next call: SQLite with its full flush, PostgreSQL
with its defaults. Optuna draws at random, its cheapest sampler; workers are threads of one process on both
sides. The two alternate, so that changes in disk speed affect both. Opening and audit are measured in
processor time, which does not depend on other load.
"""

from __future__ import annotations

import itertools
import resource
import statistics
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import optuna
import pytest

import evenhand as eh
from benchmarks.rows import Row, less, more
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from tests.conftest import require_postgres
from tests.postgres import PostgresServer

POLICIES, GROUPS = ["a", "b", "c", "d"], {"x": 0.7, "y": 0.3}
WORKERS = (1, 16)
TURNS, SECONDS = 3, 2.0  # number of turns of each side, and seconds per turn
SHORT, LONG = 1_000, 1_000_000  # events
Pair = Callable[[int], None]


def rows() -> Iterator[Row]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for workers in WORKERS:
            ours, theirs = f"{folder}/ours{workers}.db", f"sqlite:///{folder}/theirs{workers}.db"
            yield against_optuna("SQLite", ours, theirs, workers)
        with postgres() as databases:
            for workers, ours, theirs in zip(WORKERS, databases, databases, strict=False):
                theirs = theirs.replace("postgresql://", "postgresql+psycopg://")
                yield against_optuna("PostgreSQL", ours, theirs, workers)
        yield from of_length(f"{folder}/short.db", f"{folder}/long.db")


def against_optuna(storage: str, ours: str, theirs: str, workers: int) -> Row:
    """Compare the pairs of ask and tell per second."""
    study = optuna.create_study(storage=theirs, sampler=optuna.samplers.RandomSampler(seed=1))
    with Experiment.create(ours, problem(), eh.Procedure(delta=1e-9), seed=1) as trial:
        mine, other = alternate(lambda worker: our_pair(trial, worker), lambda _: their_pair(study), workers)
    name = f"ask + tell, {storage}, {workers} worker{'s' if workers > 1 else ''}, against Optuna"
    return more(name, mine, other, "pairs/s", 10.0)


def of_length(short: str, long: str) -> Iterator[Row]:
    """Compare a journal of a million events with one of a thousand."""
    endless = eh.Procedure(delta=1e-9, max_samples=10**9)
    with (
        Experiment.create(short, problem(), endless, seed=1) as few,
        Experiment.create(long, problem(), endless, seed=1) as many,
    ):
        grow(few, SHORT)
        memory = peak_memory()
        grow(many, LONG)
        yield less("peak memory at a million events, against a thousand", peak_memory(), memory, "MB", 0.9)
        late, early = alternate(
            lambda worker: our_pair(many, worker), lambda worker: our_pair(few, worker), 1
        )
        yield more("ask + tell at a million events, against a thousand", late, early, "pairs/s", 0.9)
    yield less(
        "opening a million events, against 10 s", timed(lambda: Experiment.open(long).close()), 10.0, "s", 1.0
    )
    yield less("audit of a million events, against 60 s", timed(lambda: check(long)), 60.0, "s", 1.0)


def alternate(one: Pair, other: Pair, workers: int) -> tuple[float, float]:
    """Return the median rate of each side, after one warm-up turn."""
    rates = [(rate(one, workers), rate(other, workers)) for _ in range(1 + TURNS)][1:]
    first, second = zip(*rates, strict=True)
    return statistics.median(first), statistics.median(second)


def rate(pair: Pair, workers: int) -> float:
    """Return the pairs per second of all workers together."""
    done, over = [0] * workers, time.perf_counter() + SECONDS

    def work(worker: int) -> None:
        while time.perf_counter() < over:
            pair(worker)
            done[worker] += 1

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - begun)


def our_pair(trial: Experiment, worker: int) -> None:
    ask = trial.ask(worker=f"w{worker}")
    assert ask is not None
    trial.tell(ask, outcome(ask.ticket))


def their_pair(study: optuna.Study) -> None:
    space = {
        "policy": optuna.distributions.CategoricalDistribution(POLICIES),
        "group": optuna.distributions.CategoricalDistribution(list(GROUPS)),
    }
    ticket = study.ask(space)
    study.tell(ticket, float(ticket.number % 2))


def grow(trial: Experiment, events: int) -> None:
    while trial.head.seq < events:
        trial.tell_all([(ask, outcome(ask.ticket), None) for ask in trial.ask(200)])


def outcome(ticket: str) -> int:
    """Return 0 or 1 with equal frequency in every cell, so that no run stops."""
    return int(ticket[1:].partition("-")[0]) * 2654435761 >> 7 & 1


def problem() -> eh.Problem:
    return eh.Problem(POLICIES, GROUPS, eh.Bernoulli(), eh.Floors(0.3))


def check(address: str) -> None:
    found = audit(address)
    assert found.identical, found


def timed(action: Callable[[], None]) -> float:
    begun = time.process_time()
    action()
    return time.process_time() - begun


def peak_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def postgres() -> Iterator[Iterator[str]]:
    """Yield addresses of new databases on a temporary server; none if PostgreSQL is missing."""
    try:
        server = PostgresServer(require_postgres())
    except pytest.skip.Exception:
        yield iter(())
        return
    server.start()
    try:
        yield (server.create_database(f"bench{number}") for number in itertools.count())
    finally:
        server.remove()
