"""Faults 7 and 10: everything is derived again, from a journal or from an export alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evenhand.errors import BadInput, IntegrityFailed
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.export import Export, write_export
from tests.live.world import coin, create, play, problem


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


def test_every_single_byte_of_an_export_matters(whole: Path, tmp_path: Path) -> None:
    path = export(whole, tmp_path)
    content = path.read_bytes()
    for place in range(0, len(content), max(len(content) // 150, 1)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        try:
            assert not audit(str(path)).identical, place
        except BadInput:
            assert place < content.index(b"\n")  # the first line no longer says that it is an export


@pytest.mark.parametrize("content", [b"", b"hello\n", b"{}\n", b"\xff\xfe\x00"])
def test_what_is_neither_journal_nor_export_is_bad_input_or_no_journal(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises((BadInput, IntegrityFailed)):
        audit(str(path))


def test_a_head_must_look_like_one(whole: Path) -> None:
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
    with Experiment.open(str(journal), write=False) as trial, path.open("wb") as file:
        write_export(trial._journal, "main", file)
    return path
