"""Fault 3: the power fails. The writes of a real writer are recorded and cut at every flush."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from evenhand.live.audit import audit
from evenhand.live.events import Asked, Told
from evenhand.live.experiment import Experiment
from evenhand.live.tickets import ticket_number
from tests.live.example_experiments import create, endless

SECTOR = 512


class Step(NamedTuple):
    kind: str  # w(rite), t(runcate), s(ync)
    name: str
    offset: int
    data: bytes


class Disk:
    """What is on the platter for sure, and what the system still holds in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.safe = {name: bytearray(content) for name, content in files.items()}
        self.waiting: list[Step] = []

    def do(self, step: Step) -> None:
        if step.kind == "s":
            mine = [other for other in self.waiting if other.name == step.name]
            self.waiting = [other for other in self.waiting if other.name != step.name]
            for other in mine:
                _apply(self.safe, other)
        else:
            self.waiting.append(step)

    def after_power_loss(self, luck: random.Random) -> dict[str, bytearray]:
        """Of what was not flushed some sectors have reached the platter, in no order."""
        found = {name: bytearray(content) for name, content in self.safe.items()}
        for step in self.waiting:
            if step.kind == "t" or luck.random() < 0.5:
                _apply(found, step if step.kind == "t" else _torn(step, luck))
        return found


def _torn(step: Step, luck: random.Random) -> Step:
    sectors = -(-len(step.data) // SECTOR)
    return step._replace(data=step.data[: SECTOR * luck.randint(0, sectors)])


def _apply(files: dict[str, bytearray], step: Step) -> None:
    content = files.setdefault(step.name, bytearray())
    if step.kind == "t":
        del content[step.offset :]
        return
    content.extend(bytes(max(step.offset + len(step.data) - len(content), 0)))
    content[step.offset : step.offset + len(step.data)] = step.data


def steps(record: Path) -> Iterator[Step]:
    content, place = record.read_bytes(), 0
    while place < len(content):
        kind, name_length, offset, length = struct.unpack_from("<cIqI", content, place)
        place += struct.calcsize("<cIqI")
        name = content[place : place + name_length].decode()
        place += name_length
        yield Step(kind.decode(), Path(name).name, offset, content[place : place + length])
        place += length


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("recording writes needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("recorder") / "flight_recorder.so"
    source = Path(__file__).with_name("flight_recorder.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def record(recorder: Path, folder: Path, pairs: int) -> tuple[dict[str, bytes], list[Step]]:
    """The files before, and all steps of a writer's life."""
    disk = folder / "disk"
    disk.mkdir()
    create(str(disk / "t.db"), study=endless()).close()
    before = {path.name: path.read_bytes() for path in disk.iterdir()}
    settings = {"LD_PRELOAD": str(recorder), "RECORD_UNDER": str(disk), "RECORD_TO": str(folder / "record")}
    command = [
        sys.executable,
        "-m",
        "tests.faults.recorded_process",
        disk / "t.db",
        disk / "acks",
        str(pairs),
    ]
    subprocess.run(command, check=True, env=os.environ | settings, timeout=300)
    return before, list(steps(folder / "record"))


def check(files: dict[str, bytearray], folder: Path, acks: list[tuple[str, str]]) -> None:
    """After the power is back: the log is whole, and holds everything that was acknowledged."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        if name not in ("acks", "t.db-shm"):  # the shared memory does not survive a power loss
            (folder / name).write_bytes(content)
    with Experiment.open(str(folder / "t.db")) as trial:
        there = {
            (type(event), event.ticket)
            for entry in trial.events()
            if isinstance(event := entry.event, (Asked, Told))
        }
        for kind, ticket in acks:
            assert ({"asked": Asked, "told": Told}[kind], ticket_number(trial.protocol.hash, ticket)) in there
        trial.ask(1)
    assert audit(str(folder / "t.db")).identical


def cut_everywhere(recorder: Path, folder: Path, pairs: int, cuts: int) -> None:
    before, all_steps = record(recorder, folder, pairs)
    disk, luck, acks = Disk(before), random.Random(5), []
    syncs = [number for number, step in enumerate(all_steps) if step.kind == "s"]
    assert len(syncs) >= 2 * pairs  # every ask and every tell is flushed before it is answered
    chosen = set(luck.sample(range(len(all_steps)), min(cuts, len(all_steps))))
    for number, step in enumerate(all_steps):
        if number in chosen:
            check(disk.after_power_loss(luck), folder / "after", acks)
        disk.do(step)
        if step.name == "acks":
            kind, ticket = step.data.decode().split()
            acks.append((kind, ticket))
    check(disk.after_power_loss(luck), folder / "after", acks)
    counts = f"{len(all_steps)} steps, {len(syncs)} flushes, {len(acks)} acks"
    print(f"fault 3: {len(chosen) + 1} cuts in {counts}; 0 lost")


def test_what_was_acknowledged_survives_a_power_loss(recorder: Path, tmp_path: Path) -> None:
    cut_everywhere(recorder, tmp_path, 15, 25)


@pytest.mark.slow
def test_what_was_acknowledged_survives_a_power_loss_at_hundreds_of_places(
    recorder: Path, tmp_path: Path
) -> None:
    cut_everywhere(recorder, tmp_path, 400, 300)


def test_the_simulated_disk_would_lose_what_was_never_flushed(tmp_path: Path) -> None:
    """The test can fail: without the flushes of the record, outcomes are gone."""
    disk = Disk({"a": b"old"})
    disk.do(Step("w", "a", 0, b"new"))
    assert any(disk.after_power_loss(random.Random(seed))["a"] == b"old" for seed in range(20))
    disk.do(Step("s", "a", 0, b""))
    assert all(disk.after_power_loss(random.Random(seed))["a"] == b"new" for seed in range(20))
