"""A real `evenhand serve` in a process of its own, to be watched, stopped and killed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil

from evenhand.service.api_examples import STUDY as STUDY

ENDLESS = STUDY | {"procedure": {"delta": 1e-200, "max_samples": 10_000_000}}
PATIENCE = 300.0  # a cold machine compiles first


class Running:
    """The service on a free port of this machine."""

    def __init__(self, journal: str, log: Path, port: int | None = None, *options: str) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self._command = [
            sys.executable, "-m", "evenhand", "serve", "--journal", journal, "--port", str(self.port),
            *options,
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start and wait until it answers."""
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(self._command, stdout=file, stderr=file)
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        self.came_up = time.perf_counter()

    def stop(self) -> int:
        """Ask it to stop, and wait."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def kill(self) -> None:
        """``kill -9``."""
        self.process.kill()
        self.process.wait(60)

    @property
    def memory(self) -> int:
        """Bytes that the serving process holds."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:
                return bool(json.loads(answer.read())["status"] == "ok")
        except (urllib.error.URLError, OSError):
            return False

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def share_of_time(sorted_times: list[float], share: float) -> float:
    """The time that this share of the requests did not exceed."""
    return sorted_times[min(int(share * len(sorted_times)), len(sorted_times) - 1)]
