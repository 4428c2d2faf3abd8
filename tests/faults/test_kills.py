"""Faults 1, 2 and 14: kill -9 at every step and at random, and one order that all callers agree on."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import evenhand as eh
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.protocol import Protocol
from evenhand.live.tickets import Ask
from tests.faults.processes import SNAPSHOT_EVERY, Process, answer, busy, hold, serve
from tests.live.example_experiments import MEANS, SetClock, coin, create, endless, problem

TRUE = {**MEANS, "d": 0.4}

PLACES = (
    6  # a writing call reaches no more: before and after write and commit, twice with a lookup, the reply
)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "trial.db")
    return str(request.getfixturevalue("postgres_url"))


# ---------------------------------------------------------------- at every step


def plan(most: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """A client's calls, all kinds of them; each is sent the answer to the one before."""
    yield "import_data", {"rows": [("a", "x", 1.0), ("c", "y", 0.0)], "key": "import"}
    told = []
    for number in range(most):
        ask = yield "ask", {"worker": f"w{number}"}
        if ask is None:
            break
        if number % 9 == 4:
            yield "drop", {"ticket": ask, "reason": "lost"}
            continue
        yield "tell", {"ticket": ask, "outcome": coin(ask, TRUE)}
        told.append(ask)
        if number % 9 == 6:
            yield "tell", {"ticket": ask, "outcome": 1 - coin(ask, TRUE)}  # refused and written down
            yield (
                "amend",
                {"ticket": told[0], "outcome": number % 2, "reason": "r", "by": "b", "key": f"k{number}"},
            )
        if number == 2:
            yield "add_policy", {"policy": "d", "reason": "new", "by": "b", "key": "in"}
        if number == 5:
            yield "withdraw", {"policy": "c", "reason": "weak", "by": "b", "key": "out"}
    yield "finish", {"reason": "the end"}


def begun(address: str) -> Experiment:
    """An experiment that a policy can join."""
    study, procedure = replace(problem(), max_policies=4), eh.Procedure(initial=1)
    return create(address, study=study, clock=SetClock(step=0.0), procedure=procedure)


def uninterrupted(address: str, most: int) -> tuple[list[Any], str]:
    """The answers and the head of a run that nothing disturbs."""
    answers, steps = [], plan(most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Protocol, "snapshot_every", SNAPSHOT_EVERY)
        with begun(address) as trial:
            call = next(steps)
            while call is not None:
                answers.append(answer(trial, *call))
                call = _next(steps, answers[-1])
            return answers, str(trial.head)


def interrupted(address: str, most: int, place: int) -> tuple[list[Any], int]:
    """The same calls to a process killed at this place of every call, begun again and asked again."""
    begun(address).close()
    answers, steps, kills = [], plan(most), 0
    life = _begin(address)
    call = next(steps)
    while call is not None:
        life.pipe.send(("die", place))
        life.pipe.send(call)
        try:
            answers.append(life.pipe.recv())
        except EOFError:
            assert life.end() == -9
            kills += 1
            life = _begin(address)
            life.pipe.send(call)
            answers.append(life.pipe.recv())
        call = _next(steps, answers[-1])
    life.pipe.send(("leave", None))
    assert life.end() == 0
    return answers, kills


def _begin(address: str) -> Process:
    life = Process(serve, address)
    assert life.pipe.recv() == "ready"
    return life


def _next(steps: Iterator[tuple[str, dict[str, Any]]], last: Any) -> tuple[str, dict[str, Any]] | None:
    try:
        return steps.send(last)  # type: ignore[attr-defined,no-any-return]
    except StopIteration:
        return None


def kill_at_every_step(folder: Path, most: int, places: range) -> int:
    answers, head = uninterrupted(str(folder / "whole.db"), most)
    assert any(answer is None for answer in answers) or most < 100
    kills = 0
    for place in places:
        address = str(folder / f"{place}.db")
        again, count = interrupted(address, most, place)
        kills += count
        assert again == answers
        found = audit(address)
        assert found.identical
        assert found.head == head  # the same bytes, event by event
    return kills


def test_a_writer_killed_at_every_step_continues_as_if_nothing_had_happened(tmp_path: Path) -> None:
    kills = kill_at_every_step(tmp_path, 7, range(1, PLACES + 1))
    print(f"fault 1: {kills} kills at every step of 6 x the plan, 0 differences")
    assert kills > 40


@pytest.mark.slow
def test_a_whole_run_killed_at_every_step_stops_at_the_same_sample_with_the_same_answer(
    tmp_path: Path,
) -> None:
    kills = kill_at_every_step(tmp_path, 10_000, range(1, PLACES + 1))
    print(f"fault 1: {kills} kills over whole runs, snapshots and the stop included, 0 differences")
    assert kills > 400


# ---------------------------------------------------------------- at random


def kill_at_random(address: str, kills: int, workers: int) -> None:
    """What was acknowledged is in the log once, in an order that agrees with the callers' clocks."""
    create(address, study=endless(), clock=None).close()
    start_the_fork_server(address)
    luck, heard, waits = random.Random(11), [], []
    for number in range(kills):
        begun = time.monotonic()
        life = Process(busy, address, workers, f"life {number} worker ")
        words = life.heard()
        heard.append(next(words))
        waits.append(time.monotonic() - begun)
        for word in words:
            heard.append(word)
            if luck.random() < 0.04:
                life.kill()
        assert life.end() == -9
    with Experiment.open(address) as trial:
        lost, doubled, disorder = compare(trial, heard)
    assert (lost, doubled, disorder) == (0, 0, 0)
    assert audit(address).identical
    print(
        f"fault 2: {kills} kills, {len(heard)} acknowledged, 0 lost, 0 doubled, 0 out of order; "
        f"first reply after {statistics.median(waits):.2f} s, at most {max(waits):.2f} s"
    )


def start_the_fork_server(address: str) -> None:
    """Its start is no part of a life's."""
    life = Process(hold, address)
    assert life.pipe.recv() == "ready"
    life.pipe.send("end")
    life.end()


def compare(trial: Experiment, heard: list[tuple[Any, ...]]) -> tuple[int, int, int]:
    """How many were acknowledged and are not in the log, are in it twice, or stand in an impossible order."""
    places: dict[tuple[str, str], list[int]] = {}
    for entry in trial.events():
        event = entry.event
        if isinstance(event, (ev.Asked, ev.Told)):
            key = type(event).__name__.lower(), str(event.ticket)
            places.setdefault(key, []).append(entry.seq)
            if isinstance(event, ev.Asked):
                places.setdefault(("cell", str(event.ticket)), []).append(hash((event.policy, event.group)))
    lost, spans = 0, []
    for kind, called, returned, ask, _ in heard:
        number = ask.ticket[1:].partition("-")[0]
        there = places.get((kind, number), [])
        lost += not there or places["cell", number] != [hash((ask.policy, ask.group))]
        spans.append((called, returned, there[0] if there else 0))
    doubled = sum(len(there) > 1 for there in places.values())
    return lost, doubled, out_of_order(spans)


def out_of_order(spans: list[tuple[float, float, int]]) -> int:
    """Calls that returned before another was made, and stand after it in the log."""
    latest, wrong = 0, 0
    ends = sorted((returned, seq) for _, returned, seq in spans)
    place = 0
    for called, _, seq in sorted(spans):
        while place < len(ends) and ends[place][0] < called:
            latest = max(latest, ends[place][1])
            place += 1
        wrong += seq < latest
    return wrong


def test_a_writer_killed_at_random_loses_and_doubles_nothing(address: str) -> None:
    kill_at_random(address, 12, 4)


@pytest.mark.slow
def test_a_thousand_random_kills_lose_and_double_nothing(address: str) -> None:
    kill_at_random(address, 1000, 4)


def test_the_order_checker_finds_what_is_out_of_order() -> None:
    assert out_of_order([(0.0, 1.0, 1), (2.0, 3.0, 2)]) == 0
    assert out_of_order([(0.0, 1.0, 2), (2.0, 3.0, 1)]) == 1
    assert out_of_order([(0.0, 2.5, 2), (2.0, 3.0, 1)]) == 0  # at the same time: either order will do


def test_a_killed_asker_asking_again_gets_its_ticket_back(address: str) -> None:
    create(address, study=endless()).close()
    life = _begin(address)
    life.pipe.send(("ask", {"worker": "w"}))
    ask = life.pipe.recv()
    life.kill()
    life.end()
    life = _begin(address)
    life.pipe.send(("ask", {"worker": "w"}))
    assert isinstance(ask, Ask)
    assert life.pipe.recv() == ask
    life.pipe.send(("leave", None))
    life.end()
