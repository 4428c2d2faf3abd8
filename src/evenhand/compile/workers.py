"""Compiling processes: started when something must be compiled, kept while there is work.

A process runs `main`: it handles one message at a time, and ends after a time without messages.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import gc
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from evenhand.errors import CompilationFailed

IDLE_SECONDS = 20.0  # seconds without a message, after which it ends


def main() -> None:
    """Answer messages from standard input until its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the requesting process
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of a library must not be taken for an answer
    gc.disable()  # it would take a tenth of the time, and the process ends soon
    waiting: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=_listen, args=(waiting,), daemon=True).start()
    while True:
        try:
            message = waiting.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return
        if message is None:
            return
        send(answers, _answer(message))


def _listen(waiting: queue.Queue[Any]) -> None:
    while (message := receive(sys.stdin.buffer)) is not None:
        waiting.put(message)
    waiting.put(None)


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    try:
        from evenhand.compile.linking import machine_code

        return {"object": base64.b64encode(machine_code(message["members"])).decode()}
    except Exception as problem:
        traceback.print_exc()
        words = str(problem).strip().splitlines() or [type(problem).__name__]
        return {"error": words[0]}


def send(stream: IO[bytes], message: Any) -> None:
    data = json.dumps(message).encode()
    stream.write(len(data).to_bytes(4, "big") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Return the next message; None at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    data = stream.read(int.from_bytes(head, "big"))
    return json.loads(data) if len(data) == int.from_bytes(head, "big") else None


MAX_PROCESSES = 4  # maximum number of processes
MESSAGES_PER_PROCESS = 6  # messages that one process answers before another one is ready
_ROOT = Path(__file__).parents[2]
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from evenhand.compile.workers import main; main()"


class Worker:
    """One compiling process."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._used = time.monotonic()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(_ROOT)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a message."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._used = time.monotonic()
        try:
            send(self._process.stdin, message)
            answer = receive(self._process.stdout)
        except OSError:
            answer = None
        if answer is None:
            raise CompilationFailed(f"the compiler ended unexpectedly{self._last_error_line()}.")
        if "error" in answer:
            raise CompilationFailed(f"the compiler failed: {answer['error']}.")
        found: dict[str, Any] = answer
        return found

    @property
    def usable(self) -> bool:
        """Return whether it was started by this process, runs, and is not about to end."""
        recent = time.monotonic() - self._used < IDLE_SECONDS / 2
        return recent and self._owner == os.getpid() and self._process.poll() is None

    def end(self) -> None:
        """Stop the process; a forked process leaves this to its parent."""
        if self._owner != os.getpid():
            self._process.returncode = 0  # it is not a child of this process
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(OSError):  # unsent data is discarded
                    stream.close()

    def _last_error_line(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f" ({lines[-1]})" if lines else ""


_workers: list[Worker] = []


def start(count: int) -> None:
    """Start so many compiling processes; they load the compiler in the background."""
    for worker in [worker for worker in _workers if not worker.usable]:
        worker.end()
        _workers.remove(worker)
    while len(_workers) < count:
        _workers.append(Worker())


def stop() -> None:
    """End all compiling processes."""
    while _workers:
        _workers.pop().end()


atexit.register(stop)


def ask_all(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the answers to all messages; call from one thread at a time."""
    count = max(1, min(MAX_PROCESSES, os.cpu_count() or 1, len(messages) // MESSAGES_PER_PROCESS))
    if not messages:
        return []
    start(count)
    waiting = deque(enumerate(messages))
    answers: dict[int, dict[str, Any]] = {}
    problems: list[Exception] = []

    def serve(worker: Worker) -> None:
        try:
            for place, message in _taken(waiting):
                answers[place] = worker.ask(message)
        except Exception as problem:
            problems.append(problem)
            waiting.clear()

    threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in _workers[:count]]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(0.05)  # so that Ctrl-C is handled
    except BaseException:
        stop()
        raise
    if problems:
        stop()
        raise problems[0]
    return [answers[place] for place in range(len(messages))]


def _taken(waiting: deque[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    while True:
        try:
            yield waiting.popleft()
        except IndexError:
            return
