"""`evenhand doctor`: what it finds, and what it says about it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evenhand.cli.main import main
from evenhand.cli.tools import check_installation, sqlite_health
from evenhand.compile.cache import PROGRAMS, cache_directory, store


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_json_names_versions_cache_sqlite_threads_and_extras(
    empty_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"python", "packages", "kernels", "sqlite", "threads", "extras", "notes"} <= set(found)
    assert found["packages"]["numpy"]
    assert found["threads"]["cores"] >= 1


def test_an_empty_cache_is_cold_and_the_next_command_warms_it(
    empty_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = check_installation()["kernels"]
    assert (kernels["warm"], kernels["bytes"], kernels["writable"]) == (False, 0, True)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "not compiled yet" in out
    assert out.rstrip().endswith("Next: evenhand warmup")


def test_nothing_is_made_by_looking(empty_cache: Path) -> None:
    check_installation()
    assert not empty_cache.exists()


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.44.5", "3.46.0", "3.50.6", "3.51.2"])
def test_an_sqlite_with_the_wal_reset_bug_is_named(version: str) -> None:
    assert not sqlite_health(version)["wal_reset_fixed"]


@pytest.mark.parametrize("version", ["3.44.6", "3.50.7", "3.50.10", "3.51.3", "3.53.0", "4.0.0"])
def test_an_sqlite_that_fixed_it_is_not(version: str) -> None:
    assert sqlite_health(version)["wal_reset_fixed"]


def test_it_runs_as_a_module(empty_cache: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "evenhand", "doctor"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sqlite" in done.stdout


def test_a_damaged_file_of_the_cache_is_counted_and_said(empty_cache: Path) -> None:
    store(PROGRAMS, "whole", b"content")
    store(PROGRAMS, "damaged", b"content")
    assert check_installation()["kernels"]["damaged"] == 0
    path = cache_directory() / PROGRAMS / "damaged"
    path.write_bytes(path.read_bytes()[:-1])
    found = check_installation()
    assert found["kernels"]["damaged"] == 1
    assert any("1 of the files in" in note and "compiled again" in note for note in found["notes"])
    assert path.exists()  # it looks, and changes nothing
