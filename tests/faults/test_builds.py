"""Fault 38: an honest log continued on another build is identical, and the change of build is an event."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import evenhand as eh
from evenhand.live import build
from evenhand.live.audit import Audit, audit
from evenhand.live.build import present_build
from evenhand.live.experiment import Experiment
from evenhand.live.protocol import Protocol
from evenhand.live.transfer import transfer
from tests.live.example_experiments import START, SetClock, create, endless, even, kinds, play, records
from tests.live.forgeries import write_chain

ROOT = Path(__file__).parents[2]
# glibc without the code that it has for newer processors: other last digits of logarithms and exponentials
OTHER_LIBRARY = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA"}
# kernels compiled without the newer instructions of this processor
OTHER_CODE = {"EVENHAND_CPU_NAME": "generic", "EVENHAND_CPU_FEATURES": ""}
PROGRAM = """
import sys
from tests.faults import test_builds as t
if sys.argv[1] == "build":
    print(t.present_build()["arithmetic"])
elif sys.argv[1] == "go on":
    t.go_on(sys.argv[2], int(sys.argv[3]))
else:
    found = t.audit(sys.argv[2])
    print(found.identical, found.builds, found.other_digits, found.first_difference)
"""


def in_another_process(settings: dict[str, str], *arguments: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], env=os.environ | settings, cwd=ROOT, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return found.stdout.strip()


@contextmanager
def build_named(version: str) -> Iterator[None]:
    """As if this version of a library were installed; the digits stay the same."""
    with pytest.MonkeyPatch.context() as patch:
        other = present_build() | {"numpy": version}
        patch.setattr(build, "_present", lambda: other)
        yield


def begin(address: str, sampling: str = "exact-tracking") -> None:
    """A run whose weights depend on many logarithms."""
    problem = eh.Problem(list("abcde"), {"x": 0.5, "y": 0.3, "z": 0.2}, eh.Bernoulli(), eh.Floors(0.2))
    create(address, study=problem, procedure=eh.Procedure(sampling, delta=1e-6, initial=2)).close()


def go_on(address: str, seed: int, pairs: int = 60) -> None:
    luck = random.Random(seed)
    with Experiment.open(address, clock=SetClock(START + 100 * seed)) as trial:
        play(trial, pairs, lambda _ask: float(luck.random() < 0.5))


def continued_elsewhere(address: str, settings: dict[str, str]) -> Audit:
    """Begun here, continued there, and here again; audited on both sides."""
    begin(address)
    go_on(address, 1)
    in_another_process(settings, "go on", address, "2")
    go_on(address, 3)
    there = in_another_process(settings, "audit", address)
    assert there.startswith("True 3 "), there
    found = audit(address)
    assert found.identical, found.first_difference
    print(f"fault 38: 3 stretches by 2 builds, identical on both; {found.other_digits} asks in other digits")
    return found


@pytest.mark.slow
def test_a_log_continued_with_another_mathematical_library_is_identical_on_both(tmp_path: Path) -> None:
    if in_another_process(OTHER_LIBRARY, "build") == present_build()["arithmetic"]:
        pytest.skip("this C library has one form of its functions only, or this processor needs no other")
    address = str(tmp_path / "t.db")
    found = continued_elsewhere(address, OTHER_LIBRARY)
    assert found.builds == 3
    assert found.other_digits > 0  # or this shows nothing
    with Experiment.open(address, write=False) as trial:
        assert kinds(trial).count("buildchanged") == 2


@pytest.mark.slow
def test_a_log_continued_by_code_for_another_processor_is_identical_on_both(tmp_path: Path) -> None:
    settings = OTHER_CODE | {"EVENHAND_CACHE": str(tmp_path / "cache")}
    assert continued_elsewhere(str(tmp_path / "t.db"), settings).builds == 3


def test_the_change_of_build_is_written_once_before_the_first_event_of_the_new_one(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    create(address, study=endless(), lease=60).close()
    with build_named("2"):
        with Experiment.open(address, write=False) as trial:
            trial.status()
        with Experiment.open(address, clock=SetClock()) as trial:
            trial.sweep()
            assert kinds(trial) == ["created"]  # who only looks, or has nothing to write, changes nothing
            asks = trial.ask(2, key="k")
            assert trial.ask(2, key="k") == asks
            play(trial, 2, even)
            assert kinds(trial) == ["created", "buildchanged"] + ["asked"] * 2 + ["asked", "told"] * 2
    with Experiment.open(address, clock=SetClock(START + 1)) as trial:
        play(trial, 1, even)
        assert kinds(trial)[-3:] == ["buildchanged", "asked", "told"]
    found = audit(address)
    assert (found.identical, found.builds, found.same_build) == (True, 3, False)
    with build_named("3"):
        assert audit(address).identical


def test_processes_of_different_builds_take_turns_on_one_database(postgres_url: str) -> None:
    create(postgres_url, study=endless()).close()
    with Experiment.open(postgres_url) as one, Experiment.open(postgres_url) as other:
        for _ in range(4):
            play(one, 2, even)
            with build_named("2"):
                play(other, 2, even)
        assert kinds(one).count("buildchanged") == 7
        assert kinds(one).count("told") == 16
    found = audit(postgres_url)
    assert (found.identical, found.builds) == (True, 8)


def test_a_snapshot_is_by_the_build_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where it is the first thing that a new build writes."""
    address = str(tmp_path / "t.db")
    with create(address, study=endless()) as trial:
        play(trial, 20, even)
    monkeypatch.setattr(Protocol, "snapshot_every", 10)
    with build_named("2"), Experiment.open(address, clock=SetClock(START - 100)) as trial:
        trial.sweep()
        assert kinds(trial)[-2:] == ["buildchanged", "snapshot"]
        play(trial, 2, even)
    with Experiment.open(address, clock=SetClock()) as trial:  # from the snapshot on
        play(trial, 2, even)
    assert audit(address).identical


def test_a_continued_experiment_starts_from_the_digits_of_the_snapshot_and_so_does_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot by another build holds its last digits. From there on every chance is equal, bit by bit."""
    monkeypatch.setattr(Protocol, "snapshot_every", 30)
    address = str(tmp_path / "t.db")
    with build_named("2"):
        begin(address)
        go_on(address, 1, pairs=15)
    with Experiment.open(address, write=False) as trial:
        events = [json.loads(record.body) for record in records(trial)]
    assert [event["kind"] for event in events].count("snapshot") == 1
    there = copy.deepcopy(events)
    for event in there:
        if event["kind"] == "snapshot":
            weights = event["fold"]["state"]["w"]
            event["fold"]["state"]["w"] = [[x * (1.0 + 1e-13) for x in row] for row in weights]
    assert there != events
    elsewhere = str(tmp_path / "elsewhere.db")
    transfer(write_chain(tmp_path / "e.jsonl", there), elsewhere)
    go_on(elsewhere, 2)
    found = audit(elsewhere)
    assert found.identical, found.first_difference
    assert found.other_digits > 0
    with build_named("2"):
        assert not audit(
            str(tmp_path / "e.jsonl")
        ).identical  # the build that is named there would not do this


def test_the_build_names_what_digits_depend_on() -> None:
    names = ("evenhand", "python", "numpy", "llvmlite", "machine", "processor", "c library")
    assert set(names) | {"kernels", "arithmetic"} == set(present_build())
    assert all(present_build().values())
