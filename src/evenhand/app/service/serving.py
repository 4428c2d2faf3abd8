"""The server process: told to stop, it says so to open dashboards, which would else keep it waiting."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import FrameType

import uvicorn
from litestar import Litestar

FINISHING_SECONDS = 10  # what requests in flight may still take
NOT_STARTED = 3  # exit code, the same as uvicorn's own


class Server(uvicorn.Server):
    """uvicorn, with a word to the application when a signal comes."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        first = not self.should_exit
        super().handle_exit(sig, frame)
        if first:  # a second signal may come while this one is in `set`, which waits for itself
            self.config.app.state.stopping.set()  # type: ignore[union-attr]


def run(app: Litestar, host: str, port: int) -> None:
    """Serve until told to stop; requests in flight are finished first."""
    server = Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=FINISHING_SECONDS,
        )
    )
    with suppress(KeyboardInterrupt):  # raised again by uvicorn, after it has stopped as asked
        server.run()
    if not server.started:
        sys.exit(NOT_STARTED)
