"""Processes to be killed: each function is the whole life of one, begun by a fork server.

The server imports everything once and plays a short experiment, so that a life begins within milliseconds.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from evenhand.errors import EvenhandError
from evenhand.live import fault_points
from evenhand.live.experiment import Experiment
from evenhand.live.protocol import Protocol
from evenhand.live.tickets import Ask
from tests.live.example_experiments import SetClock, even

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.faults.preload"])

SNAPSHOT_EVERY = 8  # events, so that processes that are killed early have written snapshots


class Process:
    """One process and the pipe to it."""

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=function, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()

    def heard(self) -> Iterator[Any]:
        """Everything it says, to its end."""
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                yield self.pipe.recv()

    def kill(self) -> None:
        """``kill -9``."""
        self.process.kill()

    def end(self) -> int | None:
        """Wait for its end; the exit code, negative for a signal."""
        self.process.join(60)
        code = self.process.exitcode
        self.process.close()
        self.pipe.close()
        return code


def serve(pipe: Connection, address: str) -> None:
    """Answer calls one by one; ("die", n) means: be killed at the n-th place reached from now on."""
    Protocol.snapshot_every = SNAPSHOT_EVERY  # type: ignore[assignment,method-assign]
    with Experiment.open(address, clock=SetClock(step=0.0)) as trial:
        pipe.send("ready")
        while True:
            name, arguments = pipe.recv()
            if name == "leave":
                break
            if name == "die":
                _die_at(arguments)
                continue
            pipe.send(answer(trial, name, arguments))
    fault_points.hook = None


def answer(trial: Experiment, name: str, arguments: dict[str, Any]) -> Any:
    """What the call returns, or the refusal it raises."""
    try:
        return getattr(trial, name)(**arguments)
    except EvenhandError as refusal:
        return type(refusal).__name__


def busy(pipe: Connection, address: str, workers: int, prefix: str) -> None:
    """Worker threads that ask and tell without end; each reports every answer, and when it called for it."""
    lock = threading.Lock()
    Protocol.snapshot_every = 500  # type: ignore[assignment,method-assign]
    trial = Experiment.open(address)

    def report(*message: Any) -> None:
        with lock:
            pipe.send(message)

    def work(name: str) -> None:
        while True:
            called = time.monotonic()
            ask = trial.ask(worker=name)
            if ask is None:  # stopped, or all samples are in others' hands
                report("stopped" if trial.status().decided else "waiting", called, time.monotonic())
                return
            report("asked", called, time.monotonic(), ask, name)
            called = time.monotonic()
            trial.tell(ask, even(ask))
            report("told", called, time.monotonic(), ask, even(ask))

    threads = [threading.Thread(target=work, args=(f"{prefix}{i}",), daemon=True) for i in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def host(pipe: Connection, address: str, gate: str) -> None:
    """One writing process that many client processes call over a local socket."""
    trial = Experiment.open(address)

    def attend(client: Connection) -> None:
        with client, contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                name, arguments = client.recv()
                client.send(answer(trial, name, arguments))

    with Listener(gate, "AF_UNIX", backlog=128) as listener:
        pipe.send("ready")
        while True:
            threading.Thread(target=attend, args=(listener.accept(),), daemon=True).start()


def caller(pipe: Connection, gate: str, name: str, pairs: int, lose_every: int = 0) -> None:
    """A client of `host`; every so often it loses a reply and calls again."""
    calls = 0
    with Client(gate, "AF_UNIX") as server:

        def call(method: str, **arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            server.send((method, arguments))
            reply = server.recv()
            if lose_every and calls % lose_every == 0:
                server.send((method, arguments))
                again = server.recv()
                assert again == reply, (method, arguments, reply, again)
            return reply

        for number in range(pairs):
            ask = call("ask", key=f"{name}-{number}", n=1)[0]
            pipe.send((ask.ticket, call("tell", ticket=ask.ticket, outcome=even(ask))))
    pipe.send("done")


def pairs_alone(pipe: Connection, address: str, name: str, pairs: int) -> None:
    """A process of its own on a shared database: so many pairs, then the end."""
    with Experiment.open(address) as trial:
        pipe.send("ready")
        pipe.recv()
        for _ in range(pairs):
            ask = trial.ask(worker=name)
            assert isinstance(ask, Ask)
            trial.tell(ask, even(ask))
    pipe.send("done")


def hold(pipe: Connection, address: str) -> None:
    """Keep a journal open for writing."""
    with Experiment.open(address):
        pipe.send("ready")
        pipe.recv()


def migrate(pipe: Connection, address: str, die: bool) -> None:
    """Open a journal with a program that has two newer versions of its tables."""
    from evenhand.live import schema

    first = schema.SCHEMA
    schema.SCHEMA = first + 2  # type: ignore[misc]
    for version, text in enumerate(("CREATE TABLE extra (x INTEGER)", "INSERT INTO extra VALUES (1)"), first):
        schema.MIGRATIONS[version] = partial(_execute, text)
    if die:
        _die_at(2)
    with Experiment.open(address) as trial:
        pipe.send(str(trial.head))


def _execute(text: str, connection: Any) -> None:
    import sqlalchemy as sa

    connection.execute(sa.text(text))


def _die_at(number: int) -> None:
    left = number

    def maybe_die(_place: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    fault_points.hook = maybe_die
