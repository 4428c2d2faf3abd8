"""Faults 7, 10 and 47: everything is derived again, from a journal or from an export alone."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from evenhand.errors import BadInput, IntegrityFailed
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.export import Export, write_export
from evenhand.live.journal import open_journal
from tests.live.example_experiments import coin, create, play, problem


def test_an_untouched_journal_is_identical(whole: Path) -> None:
    found = audit(str(whole))
    assert found.identical
    assert found.first_difference is None
    with Experiment.open(str(whole), write=False) as trial:
        assert (found.events, found.head) == (trial.head.seq, str(trial.head))
    assert found.other_digits == 0
    assert audit(str(whole), head=found.head).identical


@pytest.mark.parametrize("mode", ["proportional", "agnostic"])
def test_the_other_modes_audit_as_well(tmp_path: Path, mode: str) -> None:
    with create(str(tmp_path / "t.db"), study=problem(mode)) as trial:
        for number in range(60):
            group = "xy"[number % 2]
            ask = trial.ask(group=group if mode == "proportional" else None)
            assert ask is not None
            if number % 7 == 3:
                trial.drop(ask, "lost")
            else:
                trial.tell(ask, coin(ask), group=group)
    assert audit(str(tmp_path / "t.db")).identical


def test_an_export_is_enough_for_an_audit(whole: Path, tmp_path: Path) -> None:
    path = export(whole, tmp_path)
    found, there = audit(str(path)), audit(str(whole))
    assert found.identical
    assert (found.head, found.events) == (there.head, there.events)
    assert Export(path).experiment == "main"


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: lines[:-1],
        lambda lines: lines[:-4] + lines[-1:],
        lambda lines: lines + lines[-2:],
        lambda lines: lines[:5] + lines[6:],
        lambda lines: [*lines[:5], lines[6], lines[5], *lines[7:]],
        lambda lines: [*lines[:5], b"{}\n", *lines[5:]],
        lambda lines: [*lines[:5], lines[5].replace(b'"hash":"', b'"hash":"zz'), *lines[6:]],
        lambda lines: [*lines[:5], lines[5][: len(lines[5]) // 2]],
        lambda lines: [lines[0].replace(b"main", b"mine"), *lines[1:]],
    ],
)
def test_a_damaged_export_is_found(
    whole: Path, tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]]
) -> None:
    path = export(whole, tmp_path)
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    assert not audit(str(path)).identical


def is_noticed(path: Path, content: bytes, bit: int) -> bool:
    """Is an export with this one bit flipped refused?"""
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    try:
        return not audit(str(path)).identical
    except BadInput:
        return bit // 8 < content.index(b"\n")  # the first line no longer says that it is an export


def test_single_bits_flipped_in_an_export_are_all_found(whole: Path, tmp_path: Path) -> None:
    """Every third bit of the first line, every 15th of the last and of one other, and some of the rest."""
    path = export(whole, tmp_path)
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    third, last = sum(map(len, lines[:2])), len(content) - len(lines[-1])
    bits = [*range(0, 8 * len(lines[0]), 3), *range(8 * third, 8 * (third + len(lines[2])), 15)]
    bits += range(8 * last, 8 * len(content), 15)
    bits += random.Random(47).sample(range(8 * len(content)), 100)
    missed = [bit for bit in bits if not is_noticed(path, content, bit)]
    print(f"fault 47: {len(bits)} flips of single bits, {len(missed)} missed")
    assert missed == []


@pytest.mark.slow
def test_every_single_bit_of_an_export_matters(tmp_path: Path) -> None:
    with create(str(tmp_path / "t.db")) as trial:
        play(trial, 3)
    path = export(tmp_path / "t.db", tmp_path)
    content = path.read_bytes()
    missed = [bit for bit in range(8 * len(content)) if not is_noticed(path, content, bit)]
    print(f"fault 47: every bit of an export flipped, {8 * len(content)} flips, {len(missed)} missed")
    assert missed == []


def test_a_damaged_journal_is_not_exported(whole: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copy(whole, tmp_path / "t.db"))
    with closing(sqlite3.connect(damaged)) as database:
        database.execute("UPDATE evenhand_events SET hash = zeroblob(32) WHERE seq = 9")
        database.commit()
    with pytest.raises(IntegrityFailed, match="event 9 was changed"):
        export(damaged, tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello\n", b"{}\n", b"\xff\xfe\x00"])
def test_what_is_neither_journal_nor_export_is_bad_input_or_no_journal(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises((BadInput, IntegrityFailed)):
        audit(str(path))


def test_a_head_must_have_the_form_of_one(whole: Path) -> None:
    with pytest.raises(BadInput, match="64 hexadecimal"):
        audit(str(whole), head="abc")


def test_an_earlier_head_is_still_held_after_the_log_has_grown(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    with create(address) as trial:
        play(trial, 5)
        early = str(trial.head)
        play(trial, 5)
    assert audit(address, head=early).identical


def export(journal: Path, folder: Path) -> Path:
    path = folder / "export.jsonl"
    store = open_journal(str(journal), write=False)
    try:
        with path.open("wb") as file:
            write_export(store, "main", file)
    finally:
        store.close()
    return path
