"""Executors: the same results from everyone, and killed workers cost nothing but time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from evenhand.errors import BadInput, EvenhandError
from evenhand.simulation.executors import Processes, Serial, Threads, open_executor

NUMBERS = list(range(20))


@pytest.mark.parametrize("kind", ["serial", "threads", "processes"])
def test_every_job_is_done_once_and_keeps_its_number(kind: str) -> None:
    executor = {"serial": Serial, "threads": lambda: Threads(3), "processes": lambda: Processes(2)}[kind]()
    with executor:
        found = dict(executor.run(square, NUMBERS))
    assert found == {n: n * n for n in NUMBERS}


def test_one_executor_serves_twice() -> None:
    with Threads(2) as executor:
        assert dict(executor.run(square, [3])) == {0: 9}
        assert dict(executor.run(square, [4])) == {0: 16}


@pytest.mark.parametrize("executor", [Serial(), Threads(2)], ids=["serial", "threads"])
def test_an_error_in_a_job_reaches_whoever_asked(executor: Serial | Threads) -> None:
    with executor, pytest.raises(ZeroDivisionError):
        list(executor.run(inverse, [1, 2, 0, 4]))


def test_a_killed_process_costs_only_what_it_held(tmp_path: Path) -> None:
    marker = tmp_path / "killed"
    with Processes(2) as executor:
        found = dict(executor.run(square_or_die_once, [(n, str(marker)) for n in NUMBERS]))
    assert marker.exists()
    assert found == {n: n * n for n in NUMBERS}


def test_processes_that_always_die_are_given_up_with_a_reason() -> None:
    with Processes(1) as executor, pytest.raises(EvenhandError, match="worker processes died"):
        list(executor.run(die, [1]))


def test_stopping_early_leaves_the_rest_undone(tmp_path: Path) -> None:
    with Threads(1) as executor:
        for _ in executor.run(touch, [str(tmp_path / str(n)) for n in range(100)]):
            break
    assert len(list(tmp_path.iterdir())) < 100


def test_one_worker_is_served_without_threads() -> None:
    assert isinstance(open_executor(1), Serial)
    with open_executor(2) as two:
        assert two.workers == 2


@pytest.mark.parametrize(("workers", "kind"), [(0, "threads"), (2, "fibres")])
def test_executors_that_cannot_be_are_refused(workers: int, kind: str) -> None:
    with pytest.raises(BadInput):
        open_executor(workers, kind)


def square(n: int) -> int:
    return n * n


def inverse(n: int) -> float:
    return 1 / n


def touch(path: str) -> None:
    Path(path).touch()


def square_or_die_once(job: tuple[int, str]) -> int:
    number, marker = job
    if number == 7:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return number * number
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
