"""Exports appear whole or not at all, and what a killed one leaves is removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evenhand.cli.main import main
from evenhand.files import EXPORT, remove_unfinished, whole_file
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from tests.live.example_experiments import create, endless, even, play

# an export that says when it has begun, and waits there to be killed
KILLED = """
import sys, time
from pathlib import Path
from evenhand.live import export
from evenhand.files import whole_file
with whole_file(Path(sys.argv[1])) as file:
    file.write(b'{"evenhand":"export","experiment":"main","format":1}\\n' if sys.argv[2] == "begun" else b"")
    file.flush()
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def journal(tmp_path: Path) -> str:
    address = str(tmp_path / "t.db")
    with create(address, study=endless()) as trial:
        play(trial, 5, even)
    return address


def parts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(".part"))


def begin(target: Path, how: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, target, how], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize(
    "next_step", ["write", *(pytest.param(step, marks=pytest.mark.slow) for step in ("read", "export"))]
)
def test_what_killed_exports_leave_is_removed_by_the_next_open(
    journal: str, tmp_path: Path, next_step: str
) -> None:
    ways = enumerate(("begun", "empty", "begun"))
    for process in [begin(tmp_path / f"out{number}.jsonl", how) for number, how in ways]:
        end(process)
    assert len(parts(tmp_path)) == 3
    (tmp_path / "old.jsonl.part").write_bytes(
        EXPORT + b',"experiment":"main","format":1}\n'
    )  # of version 0.1
    (tmp_path / "mine.part").write_text("somebody else's")
    (tmp_path / "mine too.part").touch()
    if next_step == "export":
        assert main(["export", journal, "-o", str(tmp_path / "out.jsonl")]) == 0
    else:
        Experiment.open(journal, write=next_step == "write").close()
    assert parts(tmp_path) == ["mine too.part", "mine.part"]


def test_an_export_at_work_is_left_alone(journal: str, tmp_path: Path) -> None:
    process = begin(tmp_path / "out.jsonl", "begun")
    remove_unfinished(tmp_path)
    Experiment.open(journal).close()
    assert len(parts(tmp_path)) == 1
    end(process)
    remove_unfinished(tmp_path)
    assert parts(tmp_path) == []


def test_two_exports_to_one_file_do_not_mix(journal: str, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    with whole_file(target) as slow:
        slow.write(EXPORT)
        assert main(["export", journal, "-o", str(target)]) == 0
        assert audit(str(target)).identical
        slow.write(b"\n")
    assert target.read_bytes() == EXPORT + b"\n"  # the one that ended last
    assert parts(tmp_path) == []


def test_a_failed_export_leaves_nothing_and_the_earlier_one_stays(journal: str, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    assert main(["export", journal, "-o", str(target)]) == 0
    with pytest.raises(RuntimeError, match="halfway"), whole_file(target) as file:  # noqa: PT012
        file.write(EXPORT)
        raise RuntimeError("halfway")
    assert audit(str(target)).identical
    assert parts(tmp_path) == []


def test_a_journal_that_is_called_part_is_not_touched(tmp_path: Path) -> None:
    """Opening and closing its file would drop the locks that this process holds on it."""
    address = tmp_path / "odd.part"
    with create(str(address), study=endless()) as trial:
        remove_unfinished(tmp_path)
        play(trial, 3, even)
    assert audit(str(address)).identical


@pytest.mark.parametrize("moves_open_files", [True, False])
def test_a_file_is_closed_before_it_is_moved_where_open_files_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves_open_files: bool
) -> None:
    monkeypatch.setattr("evenhand.files.MOVES_OPEN_FILES", moves_open_files)
    moved, replace = [], os.replace

    def moving(part: Path, target: Path) -> None:
        moved.append(not file.closed)
        replace(part, target)

    monkeypatch.setattr(os, "replace", moving)
    with whole_file(tmp_path / "a.jsonl") as file:
        file.write(EXPORT)
    assert (tmp_path / "a.jsonl").read_bytes() == EXPORT
    assert moved == [moves_open_files]
    with pytest.raises(ValueError, match="no"), whole_file(tmp_path / "b.jsonl") as file:
        raise ValueError("no")
    left = tmp_path / "c.jsonl.0123456789abcdef.part"
    left.write_bytes(EXPORT)
    remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
