"""Fault 35: the database carries a commit out, and its reply is lost; whatever was asked for happens once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from evenhand.errors import Conflict
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.journal import open_journal
from evenhand.live.tickets import Ask
from tests.faults.proxy import LossyProxy
from tests.live.example_experiments import create, endless, kinds, log, problem


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[LossyProxy]:
    found = LossyProxy(postgres_url)
    yield found
    found.close()


def ready(trial: Experiment) -> tuple[list[Ask], list[Ask]]:
    """Two tickets that are out, and two that are told."""
    out, told = trial.ask(2), trial.ask(2)
    for ask in told:
        trial.tell(ask, 1)
    return out, told


# what is called, and the events that it must leave behind
CALLS: dict[str, tuple[Callable[[Experiment, list[Ask], list[Ask]], Any], list[str]]] = {
    "import": (lambda t, out, told: t.import_data([("a", "x", 1)] * 10), ["imported"] * 10),
    "view": (lambda t, out, told: t.view("me", "estimates"), ["viewed"]),
    "amend": (lambda t, out, told: t.amend(told[0], 0, reason="r", by="b"), ["amended"]),
    "drop": (lambda t, out, told: t.drop(out[0], "lost"), ["dropped"]),
    "add policy": (lambda t, out, told: t.add_policy("d", reason="r", by="b"), ["policyadded"]),
    "withdraw": (lambda t, out, told: t.withdraw("c", reason="r", by="b"), ["policywithdrawn"]),
    "pause": (lambda t, out, told: t.pause("visit"), ["paused"]),
    "close": (lambda t, out, told: t.finish("done"), ["closed"]),
    "tell": (lambda t, out, told: t.tell(out[0], 1), ["told"]),
    "tell all": (
        lambda t, out, told: t.tell_all([(out[0], 1, None), (told[0], 1, None)]),
        ["told", "answered"],
    ),
    "ask": (lambda t, out, told: t.ask(3), ["asked"] * 3),
    "ask as a worker": (lambda t, out, told: t.ask(3, worker="w"), ["asked"] * 2 + ["answered"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_call_whose_reply_is_lost_is_carried_out_once(
    postgres_url: str, proxy: LossyProxy, name: str
) -> None:
    call, expected = CALLS[name]
    create(postgres_url, study=replace(endless(), max_policies=4)).close()
    with Experiment.open(proxy.url) as trial:
        out, told = ready(trial)
        trial.ask(worker="w")
        before = len(kinds(trial))
        proxy.lose_next_commit_reply()
        answer = call(trial, out, told)
        assert proxy.lost == 1
        assert kinds(trial)[before:] == expected
        if name.startswith("ask"):
            assert len({ask.ticket for ask in answer}) == 3
    found = audit(postgres_url)
    assert found.identical, found.first_difference


def test_a_correction_is_not_applied_again_over_one_that_came_between(
    postgres_url: str, proxy: LossyProxy
) -> None:
    """The reply is lost, another process corrects the correction, and only then the first tries again."""
    create(postgres_url, study=endless()).close()
    with Experiment.open(postgres_url) as other, Experiment.open(proxy.url) as trial:
        _, [first, _] = ready(trial)
        writer = trial._writer
        load = writer._known_fold

        def correct_between(fresh: bool = False) -> Any:
            if writer._fold is None:  # the connection broke, and the log is about to be read again
                other.amend(first, 1, reason="it was right", by="c")
            return load(fresh)

        writer._known_fold = correct_between  # type: ignore[method-assign]
        proxy.lose_next_commit_reply()
        assert trial.amend(first, 0, reason="typo", by="b").outcome == 0.0
        outcomes = [event.outcome for event in log(other) if isinstance(event, ev.Amended)]
        assert outcomes == [0.0, 1.0]
    assert audit(postgres_url).identical


def test_a_second_outcome_is_refused_and_written_down_once(postgres_url: str, proxy: LossyProxy) -> None:
    create(postgres_url, study=endless()).close()
    with Experiment.open(proxy.url) as trial:
        _, told = ready(trial)
        proxy.lose_next_commit_reply()
        with pytest.raises(Conflict, match="written down"):
            trial.tell(told[0], 0)
        assert kinds(trial).count("refused") == 1


def test_an_experiment_whose_creation_got_no_reply_is_there_once(
    postgres_url: str, proxy: LossyProxy
) -> None:
    journal = open_journal(proxy.url, create=True)
    proxy.lose_next_commit_reply()
    with create(journal) as trial:
        assert proxy.lost == 1
        assert trial.head.seq == 1
        assert journal.experiments() == ["main"]
    journal.close()  # the thread that opened it closes it


def test_every_write_to_a_shared_database_carries_a_key_of_its_own(postgres_url: str) -> None:
    with create(postgres_url, study=replace(problem(), max_policies=4)) as trial:
        out, told = ready(trial)
        for call, _ in CALLS.values():
            if call is not CALLS["close"][0]:
                call(trial, out, told)
            trial.resume()
        trial.finish("done")
        parts: dict[str, list[int]] = {}
        for entry in trial.events():
            event = entry.event
            if isinstance(event, ev.Imported) and event.row > 1:
                continue  # the first row stands for the import
            assert event.key is not None, event
            parts.setdefault(event.key, []).append(event.part)
        assert all(numbers == list(range(len(numbers))) for numbers in parts.values())
        assert Counter(map(len, parts.values()))[1] > 10
