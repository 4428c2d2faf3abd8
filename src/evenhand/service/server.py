"""The server process: told to stop, it says so to open dashboards, which would else keep it waiting.

Before the first request needs them: kernels loaded, helpers started. Off the request path.
"""

from __future__ import annotations

import errno
import json
import logging
import socket
import sys
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any

import uvicorn
from litestar import Litestar

from evenhand.errors import BadInput, EvenhandError
from evenhand.service import worker_processes
from evenhand.service.worker_processes import Studio
from evenhand.warm_up import load_live_kernels

FINISHING_SECONDS = 10  # what requests in flight may still take
WAITING = 2048  # connections that may wait to be taken up
NOT_STARTED = 3  # exit code, the same as uvicorn's own


class Server(uvicorn.Server):
    """uvicorn, with a word to the application when a signal comes."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        first = not self.should_exit
        super().handle_exit(sig, frame)
        if first:  # a second signal may come while this one is in `set`, which waits for itself
            self.config.app.state.stopping.set()  # type: ignore[union-attr]


def listen_at(host: str, port: int) -> list[socket.socket]:
    """Where to serve, before anything else is begun: every address of the host; port 0 takes a free one."""
    doors: list[socket.socket] = []
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            number = doors[0].getsockname()[1] if doors else port
            doors += _opened(family, kind, (address[0], number, *address[2:]))
        if not doors:
            raise OSError(errno.EADDRNOTAVAIL, "this machine has no such address")
    except OSError as problem:
        for door in doors:
            door.close()
        raise BadInput(
            f"the service cannot listen at {host}:{port}: {problem.strerror}; try another --port."
        ) from None
    return doors


def _opened(family: int, kind: int, address: tuple[Any, ...]) -> list[socket.socket]:
    """A socket that listens there; none where the machine lacks the address, as many lack ::1."""
    with ExitStack() as on_failure:
        try:
            door = on_failure.enter_context(socket.socket(family, kind))
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            door.bind(address)
            door.listen(WAITING)
        except OSError as problem:
            if problem.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                return []
            raise
        on_failure.pop_all()
        return [door]


def run(app: Litestar, doors: list[socket.socket]) -> None:
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
        server.run(sockets=doors)
    if not server.started:
        sys.exit(NOT_STARTED)


log = logging.getLogger("evenhand.service")


def warm(studio: Studio) -> None:
    """Load what asking, telling and drawing call; a request that comes meanwhile waits for its own part."""
    try:
        drawing = studio.quick.start(worker_processes.warm_drawing)
        load_live_kernels()
        drawing.result()  # however long the compiler takes
    except (EvenhandError, CancelledError, BrokenProcessPool) as problem:
        log.info(json.dumps({"event": "warming ended early", "says": str(problem)}))  # stopped meanwhile
