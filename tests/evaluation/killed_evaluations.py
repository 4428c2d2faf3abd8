"""Evaluations that are killed at each of their steps: a process that forks for every life."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import evenhand as eh
from evenhand.evaluation import journal
from evenhand.evaluation.journal import CallJournal

POOL = [{"group": "ab"[n % 2], "id": f"q{n}", "number": n} for n in range(60)]
CALLS = 14


class Halves:
    """A file that reaches the disk half a line at a time, with a step after each half."""

    def __init__(self, file: Any, step: Callable[[], None]) -> None:
        self.file, self.step = file, step

    def write(self, text: bytes) -> None:
        for part in (text[: len(text) // 2], text[len(text) // 2 :]):
            self.file.write(part)
            self.file.flush()
            self.step()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def evaluate(folder: Path, die_at: int, concurrency: int) -> None:
    """Evaluate two candidates; be killed at this step. Write the costs, and at the end the verdict."""
    numbers = itertools.count(1)

    def step() -> None:
        if next(numbers) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def candidate(name: str) -> Callable[[dict[str, Any]], int]:
        def call(item: dict[str, Any]) -> int:
            step()
            with (folder / "paid.txt").open("a") as file:
                file.write(f"{name} {item['id']}\n")
            step()
            return int(name == "good" or item["number"] % 3 == 0)

        return call

    hold, fsync = CallJournal._hold, os.fsync

    def held(self: CallJournal) -> None:
        hold(self)
        self.file = Halves(self.file, step)  # type: ignore[assignment]

    def synced(file: int) -> None:
        fsync(file)
        step()

    CallJournal._hold = held  # type: ignore[method-assign]
    journal.os.fsync = synced  # type: ignore[attr-defined]
    candidates = {name: candidate(name) for name in ("good", "poor")}
    found = eh.evaluate(
        candidates, POOL, lambda output, item: output, item="id", family=eh.Bernoulli(), at_least=0.6, seed=3,
        max_samples=CALLS, journal=folder / "run.jsonl", concurrency=concurrency,
    )  # fmt: skip
    (folder / "verdict.json").write_text(json.dumps(found.verdict.to_dict(), sort_keys=True))


def life(folder: Path, die_at: int, concurrency: int) -> bool:
    """Fork, evaluate in the child, and return whether it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            evaluate(folder, die_at, concurrency)
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def kill_at_every_step(pipe: Connection, folder: Path, concurrency: int, stride: int) -> None:
    """For each step return the journal at the kill, what both processes were charged, and the verdict."""
    evaluate(folder, 0, concurrency)  # loads the kernels before the forks
    for number in itertools.count(1, stride):
        here = folder / str(number)
        here.mkdir()
        killed = life(here, number, concurrency)
        kept = here / "run.jsonl"
        at_kill = kept.read_text() if kept.exists() else ""
        if killed:
            assert not life(here, 0, concurrency)
        paid = here / "paid.txt"
        pipe.send((killed, at_kill, paid.read_text(), kept.read_text(), (here / "verdict.json").read_text()))
        shutil.rmtree(here)
        if not killed:
            return
