"""A compiling process, and the messages between it and the requesting process.

It is started by `workers`, handles one message at a time, and ends after a time without messages.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import queue
import signal
import sys
import threading
import traceback
from typing import IO, Any

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
