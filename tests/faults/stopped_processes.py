"""Processes that are stopped inside a turn, or fork while they have a journal open."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection

from evenhand.errors import EvenhandError, StorageFailed
from evenhand.live import fault_points, postgres
from evenhand.live.experiment import Experiment

LEASE, LOCK_WAIT = 2.0, 0.2  # seconds, so that a test need not wait long


def stop_inside_a_turn(pipe: Connection, address: str, place: str, rows: int) -> None:
    """Take a ticket, and stop (SIGSTOP) at this place of the next writing call; then say how it ended."""
    postgres.LEASE, postgres.LOCK_WAIT = LEASE, LOCK_WAIT  # type: ignore[misc]
    with Experiment.open(address) as trial:
        ask = trial.ask(1)[0]
        pipe.send(ask)

        def stop(reached: str) -> None:
            if reached == place:
                fault_points.hook = None
                os.kill(os.getpid(), signal.SIGSTOP)

        fault_points.hook = stop
        try:
            if rows:
                pipe.send(trial.import_data([("a", "x", 1.0)] * rows))
            else:
                pipe.send(trial.tell(ask, 1))
        except StorageFailed as refusal:
            pipe.send(f"fenced: {refusal}")
            pipe.send(trial.tell(ask, 1))  # a caller that is refused can repeat the call


def fork_with_a_journal(pipe: Connection, address: str) -> None:
    """Open a journal and fork; what the child may do, what it may do itself, and then the parent."""
    with Experiment.open(address) as trial:
        ask = trial.ask(1)[0]
        theirs, ours = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(ours, _what_a_child_can_do(trial, address).encode())
            os._exit(0)
        os.waitpid(child, 0)
        pipe.send(os.read(theirs, 4096).decode())
        pipe.send(trial.tell(ask, 1))


def fork_and_leave(pipe: Connection, address: str) -> None:
    """Fork a child that keeps running, and release the journal: others may then open it."""
    trial = Experiment.open(address)
    child = os.fork()
    if child == 0:
        signal.pause()
    trial.close()
    pipe.send(child)
    pipe.recv()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _what_a_child_can_do(trial: Experiment, address: str) -> str:
    found = []
    for call in (trial.ask, trial.status, lambda: list(trial.events()), trial.close):
        try:
            call()
            found.append("done")
        except EvenhandError as refusal:
            found.append(f"{type(refusal).__name__}: {refusal}")
    try:
        Experiment.open(address).close()
        found.append("opened")
    except EvenhandError as refusal:
        found.append(str(refusal))
    return "\n".join(found)
