"""A run from its protocol to its end: fault 20, pausing, closing, importing, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import BadInput, Closed, Conflict, KeyReused, NotFound, StorageFailed
from evenhand.live import fault_points
from evenhand.live.group_commit import Call
from evenhand.live.tickets import ticket_code
from tests.live.example_experiments import MEANS, create, kinds, one, play, problem


def test_a_run_ends_by_itself_with_an_answer() -> None:
    trial = create()
    asks = play(trial)
    status = trial.status()
    assert status.decided
    assert status.answer == "a"
    assert status.samples == len(asks)
    assert status.evidence >= status.needed
    assert kinds(trial)[-2:] == ["told", "stopped"]


def test_after_the_stop_no_ticket_is_issued_and_late_outcomes_are_kept_and_marked() -> None:
    trial = create()
    pending = trial.ask(5, worker="slow")
    play(trial)
    before = trial.status()
    assert trial.ask() is None
    assert trial.ask(3) == trial.ask(5, worker="slow") == []
    receipt = trial.tell(pending[0], 1)
    assert (receipt.counted, receipt.why) == (False, "stopped")
    assert trial.tell(pending[0], 1) == receipt
    with pytest.raises(Conflict):
        trial.tell(pending[0], 0)
    trial.drop(pending[1], "gone")
    after = trial.status()
    assert after.late == 1
    assert after.pending == 3
    same = ("answer", "decided", "samples", "evidence")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert [cell.n for cell in after.cells] == [cell.n for cell in before.cells]
    with pytest.raises(Closed):
        trial.import_data([("a", "x", 1)])


def test_a_cap_that_ends_before_the_start_is_over_is_refused() -> None:
    with pytest.raises(BadInput, match="must cover the initial samples of all cells, 12; it is 5"):
        create(procedure=eh.Procedure(stopping=eh.Budget(5), initial=2))


@pytest.mark.parametrize("stopping", ["certified", eh.Budget(9)])
def test_a_group_that_never_comes_does_not_keep_an_experiment_running_for_ever(stopping: object) -> None:
    rule = eh.Procedure(stopping=stopping, initial=1, max_samples=9)
    trial = create(study=problem("proportional"), procedure=rule)
    for _ in range(9):
        ask = one(trial.ask(group="x"))
        trial.tell(ask, 1)
    status = trial.status()
    assert (status.state, status.answer, status.decided) == ("exhausted", None, False)
    assert status.sentence == "All 9 samples are used and nothing is decided; no policy leads."
    assert trial.ask(group="y") is None


def test_an_import_that_uses_all_samples_and_leaves_a_cell_empty_ends_the_experiment() -> None:
    trial = create(procedure=eh.Procedure(initial=1, max_samples=6))
    trial.import_data([("a", "x", 1)] * 6)
    assert trial.status().state == "exhausted"
    assert trial.ask() is None


def test_a_cap_below_the_budget_ends_without_a_decision() -> None:
    trial = create(procedure=eh.Procedure(stopping=eh.Budget(40), initial=1, max_samples=20))
    assert len(play(trial)) == 20
    assert (trial.status().state, trial.status().answer) == ("exhausted", None)


def test_a_paused_experiment_takes_outcomes_and_issues_no_tickets() -> None:
    trial = create()
    ask = one(trial.ask())
    trial.pause("monitoring visit", by="board")
    trial.pause("again")
    with pytest.raises(Closed, match="paused"):
        trial.ask()
    assert trial.tell(ask, 1).counted
    assert trial.status().state == "paused"
    trial.resume()
    assert trial.ask() is not None
    assert kinds(trial) == ["created", "asked", "paused", "told", "resumed", "asked"]


def test_a_closed_experiment_is_over() -> None:
    trial = create()
    ask = one(trial.ask())
    trial.finish("funding ended", by="sponsor")
    trial.finish("again")
    for call in (
        trial.ask,
        lambda: trial.pause("p"),
        trial.resume,
        lambda: trial.import_data([("a", "x", 1)]),
    ):
        with pytest.raises(Closed):
            call()
    assert trial.tell(ask, 1).why == "closed"
    assert trial.status().state == "closed"
    assert not trial.status().decided
    assert kinds(trial) == ["created", "asked", "closed", "late"]


def test_a_run_that_uses_all_its_samples_is_exhausted_and_undecided() -> None:
    trial = create(procedure=eh.Procedure(max_samples=20), study=problem())
    play(trial, outcome=lambda ask: int(ask.ticket[1:].partition("-")[0]) % 2)
    status = trial.status()
    assert (status.state, status.decided, status.answer, status.samples) == (
        "exhausted",
        False,
        None,
        20,
    )


def test_data_collected_before_counts_and_can_decide() -> None:
    trial = create(procedure=eh.Procedure(initial=1))
    rows = [
        (policy, group, float(i < 100 * mean))
        for policy, mean in MEANS.items()
        for group in "xy"
        for i in range(100)
    ]
    assert trial.import_data(rows) == 600
    assert trial.status().decided
    assert trial.status().samples == 600
    with pytest.raises(BadInput, match=r"row 2: there is no policy 'z'"):
        create().import_data([("a", "x", 1), ("z", "x", 1)])
    with pytest.raises(BadInput, match="at least one"):
        create().import_data([])
    with pytest.raises(BadInput, match="row 1 must be"):
        create().import_data([("a", "x")])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "no spaces please"}, "name"),
        ({"name": "../etc"}, "name"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"lease": 0}, "lease"),
        ({"procedure": eh.Procedure(sampling="oracle")}, "oracle"),
        ({"by": "x" * 201}, "200 characters"),
        ({"study": eh.Problem(["a", "b" * 201], {"x": 1.0}, eh.Bernoulli())}, "200 characters"),
    ],
)
def test_what_cannot_be_a_protocol_is_refused_and_no_file_is_made(
    tmp_path: Path, options: dict[str, object], words: str
) -> None:
    address = tmp_path / "t.db"
    with pytest.raises(BadInput, match=words):
        create(str(address), **options)
    assert list(tmp_path.iterdir()) == []


def test_an_unblinded_look_is_an_event() -> None:
    trial = create()
    trial.view("analyst", "estimates")
    assert kinds(trial) == ["created", "viewed"]


def test_writes_that_are_enqueued_need_no_waiting_thread_and_share_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that enqueues continues at once; a thread that it starts writes what is queued until then."""
    with create(str(tmp_path / "trial.db")) as trial:
        begun: list[Callable[[], None]] = []
        done: list[Call] = []
        places: list[str] = []
        monkeypatch.setattr(fault_points, "hook", places.append)
        ask = partial(trial.prepared_ask, 1, group=None, lease=None)
        for number in range(3):
            trial.enqueue(ask(worker=f"w{number}", key=f"k{number}"), begun.append, done.append)
        trial.enqueue(ask(worker="w0", key="k0"), begun.append, done.append)  # a repeat
        trial.enqueue(ask(worker="w9", key="k0"), begun.append, done.append)  # another request
        assert (len(begun), done) == (1, [])
        begun.pop()()
        assert [type(call.error) for call in done] == [type(None)] * 4 + [KeyReused]
        assert [call.value[0].ticket[:2] for call in done[:4]] == ["t1", "t2", "t3", "t1"]
        assert places.count("after commit") == 1
        trial.enqueue(ask(worker="w4", key="k4"), begun.append, done.append)
        begun.pop()()
        assert done[-1].value[0].ticket.startswith("t4")
        assert kinds(trial)[-4:] == ["asked"] * 4


def test_an_enqueued_write_and_waiting_threads_lead_in_turns(tmp_path: Path) -> None:
    with create(str(tmp_path / "trial.db")) as trial, ThreadPoolExecutor(12) as pool:
        settled: list[Future[Any]] = []

        def enqueue(number: int) -> Any:
            answer: Future[Any] = Future()
            settled.append(answer)
            write = trial.prepared_ask(1, group=None, worker=None, key=f"k{number}", lease=None)
            trial.enqueue(write, pool.submit, lambda call: answer.set_result(call.value))
            return answer.result(30)[0].ticket

        def wait(number: int) -> Any:
            return trial.ask(1, key=f"k{number}")[0].ticket

        with ThreadPoolExecutor(8) as callers:
            found = list(callers.map(lambda n: (wait if n % 2 else enqueue)(n), range(200)))
        assert len(set(found)) == 200
        assert sorted(int(code[1:].partition("-")[0]) for code in found) == list(range(1, 201))


def test_an_enqueued_write_that_fails_says_so(tmp_path: Path) -> None:
    with create(str(tmp_path / "trial.db")) as trial:
        done: list[Call] = []
        write = trial.prepared_tell("t1-" + ticket_code(trial.protocol.hash, 1)[3:], 1, group=None, key="k")
        trial.enqueue(write, lambda lead: lead(), done.append)
        assert isinstance(done[0].error, NotFound)
    with pytest.raises(StorageFailed):
        trial.enqueue(write, lambda lead: lead(), done.append)


def test_numpys_numbers_are_seeds_leases_and_numbers_of_tickets() -> None:
    with eh.Experiment.create(":memory:", problem(), seed=np.int64(3), lease=np.float64(60)) as trial:  # type: ignore[arg-type]
        assert len(trial.ask(np.int64(2))) == 2  # type: ignore[call-overload]
        assert (type(trial.protocol.seed), trial.protocol.lease) == (int, 60.0)


def test_what_is_no_outcome_or_no_file_is_refused_in_one_line() -> None:
    with eh.Experiment.create(":memory:", problem(), seed=3) as trial:
        ask = one(trial.ask())
        with pytest.raises(BadInput, match=r"^outcomes must be 0 or 1; array.* is not a number\.$"):
            trial.tell(ask, np.zeros((3, 3)))  # type: ignore[arg-type]
        for path in ("", "."):
            with pytest.raises(BadInput, match=r"cannot be written to .: it is a folder"):
                trial.export(path)
