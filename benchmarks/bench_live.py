"""Ask and tell against Optuna's, on the same storage in the same run; and how a journal bears its length.

    python -m benchmarks.bench_live [--events 1000000] [--seconds 5]

Both sides store every ask and every tell durably before the next call: SQLite with its full flush, PostgreSQL
with its defaults. Optuna draws at random, its cheapest sampler. Workers are threads of one process on both
sides.
"""

from __future__ import annotations

import argparse
import itertools
import resource
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
Pair = Callable[[int], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000, help="length of the long journal")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each side runs")
    arguments = parser.parse_args()
    for row in rows(arguments.events, arguments.seconds):
        print(row.line(), flush=True)


def rows(events: int = 100_000, seconds: float = 5.0) -> Iterator[Row]:
    """Both sides on every storage, then the long journal."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        for workers in WORKERS:
            theirs = f"sqlite:///{folder}/theirs{workers}.db"
            yield compare("sqlite", f"{folder}/ours{workers}.db", theirs, workers, seconds)
        with postgres() as databases:
            for workers in WORKERS if databases else ():
                theirs = next(databases).replace("postgresql://", "postgresql+psycopg://")
                yield compare("postgresql", next(databases), theirs, workers, seconds)
        yield from bear_length(f"{folder}/long.db", events, seconds)


def compare(storage: str, ours: str, theirs: str, workers: int, seconds: float) -> Row:
    """Pairs per second on both sides."""
    trial = Experiment.create(ours, problem(), eh.Procedure(delta=1e-9), seed=1)
    mine = pairs_per_second(lambda worker: our_pair(trial, worker), workers, seconds)
    trial.leave()
    study = optuna.create_study(storage=theirs, sampler=optuna.samplers.RandomSampler(seed=1))
    other = pairs_per_second(lambda _worker: their_pair(study), workers, seconds)
    name = f"ask+tell, {storage}, {workers} worker{'s' * (workers > 1)}, against Optuna"
    return more(name, mine, other, "pairs/s", 10.0)


def bear_length(address: str, events: int, seconds: float) -> Iterator[Row]:
    """Rates, times and memory of a long journal against those of a short one."""
    trial = Experiment.create(address, problem(), eh.Procedure(delta=1e-9, max_samples=10**9), seed=1)
    grow(trial, 1_000)
    early, memory = pairs_per_second(lambda worker: our_pair(trial, worker), 1, seconds), peak_memory()
    grow(trial, events)
    late = pairs_per_second(lambda worker: our_pair(trial, worker), 1, seconds)
    yield more(f"ask+tell at {events} events, against at 1000", late, early, "pairs/s", 0.9)
    yield less(f"peak memory at {events} events, against at 1000", peak_memory(), memory, "MB", 0.9)
    trial.leave()
    begun = time.perf_counter()
    Experiment.open(address).leave()
    opened = events / (time.perf_counter() - begun)
    yield more(f"open a journal of {events} events (snapshot and tail)", opened, 1e5, "events/s", 1.0)
    begun = time.perf_counter()
    assert audit(address).identical
    audited = events / (time.perf_counter() - begun)
    yield more(f"audit a journal of {events} events", audited, 1e6 / 60, "events/s", 1.0)


def pairs_per_second(pair: Pair, workers: int, seconds: float) -> float:
    """All workers at it for so long, after a run-up."""
    warm = time.perf_counter() + seconds / 2
    while time.perf_counter() < warm:
        pair(0)
    done, over = [0] * workers, time.perf_counter() + seconds

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
    trial.tell(ask, hash(ask.ticket) % 2)


def their_pair(study: optuna.Study) -> None:
    space = {
        "policy": optuna.distributions.CategoricalDistribution(POLICIES),
        "group": optuna.distributions.CategoricalDistribution(list(GROUPS)),
    }
    ticket = study.ask(space)
    study.tell(ticket, float(ticket.number % 2))


def grow(trial: Experiment, events: int) -> None:
    while trial.head.seq < events:
        asks = trial.ask(200)
        trial.tell_all([(ask, hash(ask.ticket) % 2, None) for ask in asks])


def problem() -> eh.Problem:
    return eh.Problem(POLICIES, GROUPS, eh.Bernoulli(), eh.Floors(0.3))


def peak_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def postgres() -> Iterator[Iterator[str]]:
    """Addresses of new databases on a server of our own; none where PostgreSQL is missing."""
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


if __name__ == "__main__":
    main()
