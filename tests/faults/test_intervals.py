"""Intervals survive kill -9 at every step and lost replies: counted once, the same shares, the same stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.protocol import Protocol
from tests.faults.processes import SNAPSHOT_EVERY, answer
from tests.faults.proxy import LossyProxy
from tests.faults.test_kills import PLACES, _begin, _next
from tests.live.example_experiments import SetClock, kinds
from tests.live.interval_experiments import EVEN, counts, create, problem


def plan() -> Iterator[tuple[str, dict[str, Any]]]:
    """A client's calls until the experiment decides; each is sent the answer to the one before."""
    for number in range(1, 5):
        shares = yield "shares", {}
        told = counts(shares, means=EVEN)
        if number == 3:
            wrong = {k: {g: (n, s - 1) for g, (n, s) in groups.items()} for k, groups in told.items()}
            yield "tell_counts", {"interval": number, "counts": wrong}
            yield "correct_counts", {"interval": number, "counts": told, "reason": "r", "by": "b"}
            yield "close_interval", {"interval": number}
        else:
            yield "tell_counts", {"interval": number, "counts": told, "close": True}
    yield "add_policy", {"policy": "d", "reason": "new", "by": "b", "key": "in"}
    yield "withdraw", {"policy": "d", "reason": "none", "by": "b", "key": "out"}
    yield "publish_shares", {"key": "next"}
    clear = {"a": 0.9, "b": 0.7, "c": 0.5}
    last = {k: dict.fromkeys(("x", "y"), (5_000, int(5_000 * mean))) for k, mean in clear.items()}
    for number in range(5, 9):
        yield "tell_counts", {"interval": number, "counts": last, "close": True}


def begun(address: str) -> None:
    create(address, study=problem(max_policies=4), clock=SetClock(step=0.0)).close()


def uninterrupted(address: str) -> tuple[list[Any], str]:
    begun(address)
    answers, steps = [], plan()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Protocol, "snapshot_every", SNAPSHOT_EVERY)
        with Experiment.open(address, clock=SetClock(step=0.0)) as trial:
            call = _next(steps, None)
            while call is not None:
                answers.append(answer(trial, *call))
                call = _next(steps, answers[-1])
            return answers, str(trial.head)


@pytest.mark.slow
def test_a_writer_killed_at_every_step_counts_every_interval_once(tmp_path: Path) -> None:
    answers, head = uninterrupted(str(tmp_path / "whole.db"))
    with Experiment.open(str(tmp_path / "whole.db"), write=False) as whole:
        assert whole.status().answer == "a"
    kills = 0
    for place in range(1, PLACES + 1):
        address = str(tmp_path / f"{place}.db")
        begun(address)
        again, steps, life = [], plan(), _begin(address)
        call = _next(steps, None)
        while call is not None:
            life.pipe.send(("die", place))
            life.pipe.send(call)
            try:
                again.append(life.pipe.recv())
            except EOFError:
                assert life.end() == -9
                kills += 1
                life = _begin(address)
                life.pipe.send(call)
                again.append(life.pipe.recv())
            call = _next(steps, again[-1])
        life.pipe.send(("leave", None))
        assert life.end() == 0
        assert again == answers
        found = audit(address)
        assert found.identical
        assert found.head == head  # the same bytes, event by event
    assert kills > 15


CALLS: dict[str, tuple[Callable[[Experiment], Any], list[str]]] = {
    "tell and close": (
        lambda t: t.tell_counts(1, counts(t.shares(), means=EVEN), close=True),
        ["counted", "intervalclosed", "sharespublished"],
    ),
    "tell": (lambda t: t.tell_counts(1, counts(t.shares(), means=EVEN)), ["counted"]),
    "publish": (lambda t: t.publish_shares(), ["sharespublished"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_whose_reply_is_lost_is_carried_out_once(postgres_url: str, name: str) -> None:
    call, expected = CALLS[name]
    create(postgres_url).close()
    proxy = LossyProxy(postgres_url)
    try:
        with Experiment.open(proxy.url) as trial:
            before = len(kinds(trial))
            proxy.lose_next_commit_reply()
            assert call(trial) is not None
            assert proxy.lost == 1
            assert kinds(trial)[before:] == expected
    finally:
        proxy.close()
    assert audit(postgres_url).identical
