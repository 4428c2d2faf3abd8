"""The server process: told to stop, it says so to open dashboards, which would else keep it waiting."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack, suppress
from types import FrameType

import uvicorn
from litestar import Litestar

from evenhand.errors import BadInput

FINISHING_SECONDS = 10  # what requests in flight may still take
NOT_STARTED = 3  # exit code, the same as uvicorn's own


class Server(uvicorn.Server):
    """uvicorn, with a word to the application when a signal comes."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        first = not self.should_exit
        super().handle_exit(sig, frame)
        if first:  # a second signal may come while this one is in `set`, which waits for itself
            self.config.app.state.stopping.set()  # type: ignore[union-attr]


def listen_at(host: str, port: int) -> socket.socket:
    """A place to serve at, before anything else is begun; port 0 takes a free one."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as on_failure:
            door = on_failure.enter_context(socket.socket(family, kind))
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind(address)
            on_failure.pop_all()
    except OSError as problem:
        raise BadInput(
            f"{host}:{port} cannot be served at: {problem.strerror}; try another --port."
        ) from None
    return door


def run(app: Litestar, door: socket.socket) -> None:
    """Serve until told to stop; requests in flight are finished first."""
    server = Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=FINISHING_SECONDS,
        )
    )
    with suppress(KeyboardInterrupt):  # raised again by uvicorn, after it has stopped as asked
        server.run(sockets=[door])
    if not server.started:
        sys.exit(NOT_STARTED)
