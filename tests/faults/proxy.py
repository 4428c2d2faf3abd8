"""A TCP proxy before PostgreSQL that can lose the reply to a commit."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit, urlunsplit


class LossyProxy:
    """Forwards every byte; told to, it forwards the next COMMIT and cuts the line before the reply."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._server = parts.hostname, parts.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        user = f"{parts.username}@" if parts.username else ""
        place = f"{user}127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = urlunsplit(parts._replace(netloc=place))
        self._armed = threading.Event()
        self.lost = 0  # replies cut off so far
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next_commit_reply(self) -> None:
        """Cut the line after the next COMMIT has reached the server and was carried out."""
        self._armed.set()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                losing = threading.Event()
                threading.Thread(target=self._to_server, args=(client, server, losing), daemon=True).start()
                threading.Thread(target=self._to_client, args=(client, server, losing), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if b"COMMIT\0" in data and self._armed.is_set():
                    self._armed.clear()
                    losing.set()
                server.sendall(data)
        _close(client, server)

    def _to_client(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if losing.is_set() and b"COMMIT\0" in data:  # its reply names the command: it is carried out
                    self.lost += 1
                    break
                if not losing.is_set():
                    client.sendall(data)
        _close(client, server)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
