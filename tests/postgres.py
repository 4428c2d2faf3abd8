"""A throw-away PostgreSQL server that tests may start, stop and kill."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
from psycopg import sql


class PostgresServer:
    """One cluster in a temporary directory, on a free local port that it keeps over restarts."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        # PostgreSQL refuses to run as root, so root hands the cluster to the user that Debian's package made
        self._user = "postgres" if os.geteuid() == 0 else None
        self._directory = Path(tempfile.mkdtemp(prefix="evenhand-postgres-"))
        if self._user:
            shutil.chown(self._directory, self._user)
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "--auth=trust", "--username=evenhand", "--encoding=UTF8", "--locale=C")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://evenhand@127.0.0.1:{self._port}/{database}"

    def create_database(self, name: str) -> str:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Remove a database; after an immediate stop the server reads every file that it still has."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )

    def start(self) -> None:
        """Start and wait until connections are accepted."""
        command = [self._binaries / "postgres", "-D", self._data, "-h", "127.0.0.1", "-p", str(self._port)]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "-k", self._directory], user=self._user, stdout=log, stderr=log, cwd="/"
            )
        for _ in range(1200):  # a recovery takes more than a minute on a busy disk
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.1)
        raise TimeoutError(f"PostgreSQL did not start: {(self._directory / 'log').read_text()[-2000:]}")

    def stop(self) -> None:
        """Stop at once, without a last checkpoint (``pg_ctl stop -m immediate``)."""
        self._signal(signal.SIGQUIT)

    def kill(self) -> None:
        """``kill -9`` the postmaster."""
        self._signal(signal.SIGKILL)

    def remove(self) -> None:
        if self._process is not None:
            self.stop()
        shutil.rmtree(self._directory)

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("the server is not running")
        self._process.send_signal(number)
        self._process.wait()
        self._process = None

    def _run(self, program: str, *arguments: str) -> None:
        command = [self._binaries / program, "-D", self._data, *arguments]
        subprocess.run(command, user=self._user, check=True, stdout=subprocess.DEVNULL, cwd="/")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
