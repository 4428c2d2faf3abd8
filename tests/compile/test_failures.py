"""Ctrl-C and failures while compiling: one sentence, an exit code, and no process left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from tests.service.service_process import STUDY, Running

ROOT = Path(__file__).parents[2]
STUDY_FILE = str(ROOT / "examples" / "scaling.toml")
PLAN = [sys.executable, "-m", "evenhand", "plan", STUDY_FILE]
SIMULATE = [sys.executable, "-m", "evenhand", "simulate", STUDY_FILE, "--replications", "10"]
PATIENCE = 120.0


def start(command: list[str], folder: Path, **settings: str) -> subprocess.Popen[str]:
    """A command with an empty cache, in a process group of its own."""
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"EVENHAND_CACHE": str(folder)} | settings,
    )  # fmt: skip


def compiling(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The command's compiling processes, once there are any."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = [
            child for child in psutil.Process(process.pid).children() if "worker" in " ".join(child.cmdline())
        ]
        if found:
            return found
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("nothing was compiled")


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """A place whose start-up file breaks the compiler in compiling processes."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'evenhand.compile.workers' in ' '.join(sys.orig_argv):\n"
        "    import llvmlite.binding\n"
        "    def parse_assembly(text): raise RuntimeError('the compiler is not at hand')\n"
        "    llvmlite.binding.parse_assembly = parse_assembly\n"
    )
    return str(tmp_path)


@pytest.mark.parametrize("command", [PLAN, SIMULATE], ids=["plan", "simulate"])
def test_a_ctrl_c_while_compiling_ends_with_one_sentence(command: list[str], tmp_path: Path) -> None:
    process = start(command, tmp_path)
    workers = compiling(process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it: to all of them
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err.strip()) == (130, "", "evenhand: stopped.")
    psutil.wait_procs(workers, PATIENCE)
    assert not [worker for worker in workers if worker.is_running()]
    # what was half made is not taken for whole
    done = start(command, tmp_path)
    assert done.communicate(timeout=600)[1].count("evenhand:") == 0
    assert done.returncode in (0, 3)


def test_a_failure_to_compile_ends_with_one_sentence(tmp_path: Path, broken: str) -> None:
    process = start(PLAN, tmp_path / "cache", PYTHONPATH=broken)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    assert err == "evenhand: the compiler failed: the compiler is not at hand.\n"


def test_a_compiling_process_that_is_killed_ends_with_one_sentence(tmp_path: Path) -> None:
    process = start(PLAN, tmp_path)
    for worker in compiling(process):
        worker.kill()  # before it was asked anything: another one takes its place
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for worker in psutil.Process(process.pid).children():
                worker.kill()
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("evenhand: the compiler ended unexpectedly")
    assert err.count("\n") == 1


def test_a_cache_that_cannot_be_written_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    process = start(PLAN, tmp_path / "file" / "cache")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0
    assert "a1" in out
    assert err.count("\n") == 1
    assert err.startswith("evenhand: ")
    assert err.endswith("so what is compiled is not kept. Name another place in EVENHAND_CACHE.\n")


def test_a_service_that_cannot_compile_answers_503_and_keeps_running(
    tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", broken)
    with Running(str(tmp_path / "journal.db"), tmp_path / "log") as service:
        made = ask(service, "/api/v1/experiments", {"id": "trial", "study": STUDY, "seed": 1})
        assert made[0] == 201, made
        status, answer = ask(service, "/api/v1/experiments/trial/ask", {"n": 1})
        assert (status, "could not be compiled" in json.dumps(answer)) == (503, True), answer
        with urllib.request.urlopen(f"{service.url}/healthz", timeout=5) as alive:
            assert json.loads(alive.read())["status"] == "ok"


def ask(service: Running, path: str, body: object) -> tuple[int, object]:
    """Status and JSON of a POST."""
    request = urllib.request.Request(
        service.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as problem:
        return problem.code, json.loads(problem.read())
