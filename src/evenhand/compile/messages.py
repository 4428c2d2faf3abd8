"""Messages between a process and its compiling processes: JSON with a length prefix."""

from __future__ import annotations

import json
from typing import IO, Any


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
