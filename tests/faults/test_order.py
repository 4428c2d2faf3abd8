"""Faults 14 and 18: one order of asks, tells and the stop for all callers, and outcomes in any order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binom

import evenhand as eh
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.study.truth import Truth
from tests.faults.processes import Process, busy
from tests.faults.test_kills import out_of_order
from tests.live.example_experiments import create, endless, even, log, ticket

# ---------------------------------------------------------------- 14: one order


def histories_with_kills(folder: Path, count: int, pairs: int, kills: int) -> None:
    """Whole runs by four workers, killed now and then, each to its stop; every history has one order."""
    luck, operations = random.Random(3), 0
    for number in range(count):
        address = str(folder / f"{number}.db")
        budget = eh.Procedure(initial=1, stopping=eh.Budget(pairs))
        create(address, study=endless(), clock=None, procedure=budget).close()
        heard: list[tuple[Any, ...]] = []
        for life in range(kills):
            heard += live_until(address, f"life {life} worker ", luck.randint(1, 2 * pairs // kills))
            give_up_the_dead(address)
        heard += live_until(address, "last worker ", 10**9)
        assert violations(address, heard) == 0
        assert any(word[0] == "stopped" for word in heard)
        assert audit(address).identical
        operations += len(heard)
    print(f"fault 14: {count} histories, {operations} operations, {count * kills} kills; 0 violations")


def live_until(address: str, prefix: str, words: int) -> list[tuple[Any, ...]]:
    """Return the answers to four workers, which are killed after this many answers or run to the stop."""
    life = Process(busy, address, 4, prefix)
    heard = []
    for word in life.heard():
        heard.append(word)
        if len(heard) == words:
            life.kill()
    life.end()
    return heard


def give_up_the_dead(address: str) -> None:
    """Their tickets would keep the budget from being used."""
    with Experiment.open(address) as trial:
        out = set()
        for event in log(trial):
            if isinstance(event, ev.Asked):
                out.add(event.ticket)
            elif isinstance(event, (ev.Told, ev.Dropped)):
                out.remove(event.ticket)
        for number in sorted(out):
            trial.drop(ticket(trial, number), "its worker is dead")


def violations(address: str, heard: list[tuple[Any, ...]]) -> int:
    """Answers that no single order of the calls explains: the log's is the only one it could be."""
    places: dict[tuple[str, int], int] = {}
    with Experiment.open(address, write=False) as trial:
        for entry in trial.events():
            event = entry.event
            if isinstance(event, (ev.Asked, ev.Told)):
                places[type(event).__name__.lower(), event.ticket] = entry.seq
            elif isinstance(event, ev.Stopped):
                places["stopped", 0] = entry.seq
    spans, missing = [], 0
    for kind, called, returned, *ask in (word for word in heard if word[0] != "waiting"):
        number = int(ask[0].ticket[1:].partition("-")[0]) if ask else 0
        place = places.get((kind, number))
        missing += place is None
        # a worker was told of the stop after it was written, at any time after
        spans.append((called if ask else returned, returned, place or 0))
    return missing + out_of_order(spans)


def test_asks_tells_and_the_stop_have_one_order_through_kills(tmp_path: Path) -> None:
    histories_with_kills(tmp_path, 2, 100, 2)


@pytest.mark.slow
def test_a_hundred_histories_of_a_thousand_operations_have_one_order(tmp_path: Path) -> None:
    histories_with_kills(tmp_path, 100, 500, 5)


# ---------------------------------------------------------------- 18: any order


def test_estimates_depend_on_the_outcomes_told_and_not_on_their_order() -> None:
    """Hundreds of asks out at once, outcomes in any order and late: the sums are the same."""
    cells = []
    for shuffle in range(3):
        trial = create(study=endless())
        asks = trial.ask(300)
        random.Random(shuffle).shuffle(asks)
        trial.tell_all([(ask, even(ask), None) for ask in asks])
        cells.append([(cell.n, cell.mean) for cell in trial.status().cells])
    assert cells[0] == cells[1] == cells[2]


def errors_with_delay(replications: int, most: int) -> None:
    """Outcomes that come after up to `most` further asks, in any order: the risk stays what was promised."""
    delta = 0.1
    problem = eh.Problem(["a", "b", "c"], {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.3))
    truth = Truth(((0.6, 0.5), (0.55, 0.45), (0.7, 0.25)), lag=(0, most))
    runs = eh.simulate(problem, truth, eh.Procedure(delta=delta), replications=replications, seed=18)
    errors = int(runs.wrong.sum())
    # P(Binomial(n, delta) > bound) <= 1e-6
    assert errors <= binom.isf(1e-6, replications, delta)
    print(
        f"fault 18: {replications} runs, delays up to {most} asks: {errors} errors at risk {delta}, "
        f"{runs.stopped.mean():.1%} decided"
    )


@pytest.mark.slow
def test_the_risk_holds_with_outcomes_out_of_order() -> None:
    errors_with_delay(200, 300)


@pytest.mark.slow
def test_the_risk_holds_over_ten_thousand_runs_with_delays_up_to_ten_thousand_asks() -> None:
    errors_with_delay(10_000, 10_000)
