"""The server process: sockets, graceful shutdown and preloading.

On a stop signal open dashboard streams are ended, so that they do not delay the shutdown. Kernels are loaded
and worker processes are started outside of requests.
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
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from evenhand.errors import BadInput, EvenhandError
from evenhand.service import worker_processes
from evenhand.service.limits import Proxies, limited_protocol
from evenhand.service.worker_processes import WorkerProcesses
from evenhand.warm_up import load_live_kernels

FINISHING_SECONDS = 10  # time limit for requests in flight at shutdown
WAITING = 2048  # maximum backlog of connections
NOT_STARTED = 3  # exit code, the same as uvicorn's own


class Server(uvicorn.Server):
    """A uvicorn server that notifies the application of a stop signal."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        first = not self.should_exit
        super().handle_exit(sig, frame)
        if first:  # a second signal may interrupt `set`, which would deadlock
            self.config.app.state.stopping.set()  # type: ignore[union-attr]


def listen_at(host: str, port: int) -> list[socket.socket]:
    """Return listening sockets for every address of the host; port 0 takes a free one."""
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
    """Return a listening socket; none if the machine lacks the address, as often ::1."""
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


def run(app: Litestar, doors: list[socket.socket], proxies: tuple[str, ...] = ()) -> None:
    """Serve until a stop signal; requests in flight are finished first."""
    server = Server(configured(app, proxies))
    with suppress(KeyboardInterrupt):  # raised again by uvicorn, after it has stopped as asked
        server.run(sockets=doors)
    if not server.started:
        sys.exit(NOT_STARTED)


def configured(app: Litestar, proxies: tuple[str, ...] = ()) -> uvicorn.Config:
    """Return uvicorn's settings for the service, with its limits on connections."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the service accepts named proxies only
        http=limited_protocol(AutoHTTPProtocol, Proxies(proxies)),
        timeout_graceful_shutdown=FINISHING_SECONDS,
    )


log = logging.getLogger("evenhand.service")


def warm(workers: WorkerProcesses) -> None:
    """Load the code for asking, telling and rendering; requests wait only for their part."""
    try:
        drawing = workers.quick.start(worker_processes.warm_drawing)
        load_live_kernels()
        drawing.result()  # may take as long as compilation
    except (EvenhandError, CancelledError, BrokenProcessPool) as problem:
        log.info(json.dumps({"event": "warming ended early", "says": str(problem)}))  # was stopped
