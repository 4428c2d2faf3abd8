"""The cache on disk: used by later processes, rebuilt where it is damaged, done without where it must be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evenhand.compile import cache
from evenhand.compile.cache import (
    CLUSTERS,
    PROGRAMS,
    CacheWarning,
    damaged_files,
    files,
    lookup,
    store,
)

ROOT = Path(__file__).parents[2]
# what one kernel gives, and whether it had to be specialised and compiled for it
PROGRAM = """
import json
from evenhand.compile import build_program, workers
did = []
for module, name in ((build_program, "specialised"), (workers, "ask_all")):
    def noted(*arguments, plain=getattr(module, name), name=name):
        did.append(name)
        return plain(*arguments)
    setattr(module, name, noted)
from tests.compile import kernels
given = kernels.whole()
print(json.dumps([kernels.order_of_evaluation(given, 1), given.part.values.tolist(), sorted(set(did))]))
"""
FRESH = ["ask_all", "specialised"]


def run(folder: Path, program: str = PROGRAM, **settings: str) -> tuple[list[object], str]:
    """What a process of its own prints, with this cache, and what it says on standard error."""
    environment = os.environ | {"EVENHAND_CACHE": str(folder), "PYTHONPATH": str(ROOT)} | settings
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[object]]:
    """A cache with one program in it, and what the program gives."""
    folder = tmp_path_factory.mktemp("cache")
    found, _ = run(folder)
    assert found[2:] == [FRESH]
    return folder, found[:2]


def compiled(folder: Path, kind: str) -> list[Path]:
    return sorted((folder / "compiled" / kind).iterdir())


def test_a_later_process_neither_specialises_nor_compiles(
    made: tuple[Path, list[object]],
) -> None:
    folder, values = made
    assert run(folder)[0] == [*values, []]


@pytest.mark.parametrize("kind", [PROGRAMS, CLUSTERS])
@pytest.mark.parametrize("damage", ["truncated", "zeroed", "flipped", "empty"])
def test_a_damaged_file_is_noticed_and_made_again(
    made: tuple[Path, list[object]], kind: str, damage: str
) -> None:
    folder, values = made
    for path in compiled(folder, kind):
        data = path.read_bytes()
        at = len(data) // 2
        path.write_bytes(
            {
                "truncated": data[:at],
                "zeroed": bytes(len(data)),
                "flipped": data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :],
                "empty": b"",
            }[damage]
        )
    found, said = run(folder)
    assert (found[:2], said) == (values, "")
    assert "specialised" in found[2]
    assert run(folder)[0] == [*values, []]


def test_another_processor_or_compiler_uses_code_of_its_own(made: tuple[Path, list[object]]) -> None:
    folder, values = made
    before = len(compiled(folder, PROGRAMS))
    assert run(folder, EVENHAND_CPU_NAME="generic", EVENHAND_CPU_FEATURES="")[0][:3] == [*values, FRESH]
    assert len(compiled(folder, PROGRAMS)) == before + 1
    assert run(folder)[0] == [*values, []]


def test_without_a_place_to_write_it_compiles_for_itself_and_warns_once(
    tmp_path: Path, made: tuple[Path, list[object]]
) -> None:
    (tmp_path / "file").touch()
    found, said = run(tmp_path / "file" / "cache")
    assert found == [*made[1], FRESH]
    assert said.count("CacheWarning") == 1
    assert "cannot be written (Not a directory), so what is compiled is not kept." in said


def test_two_processes_at_once_compile_once_and_agree(tmp_path: Path) -> None:
    environment = os.environ | {"EVENHAND_CACHE": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) for _ in "12"
    ]
    found = [json.loads(process.communicate()[0]) for process in both]
    assert found[0][:2] == found[1][:2]
    assert sorted(len(did) for _, _, did in found) == [0, 2]


def test_every_process_finds_the_same_fingerprint() -> None:
    program = """
import sys
if len(sys.argv) > 1:  # other objects in memory, and other modules
    import evenhand.verdicts.forecast, evenhand.live.experiment
    kept = [object() for _ in range(int(sys.argv[1]))]
from evenhand.compile.fingerprint import fingerprint
from evenhand.simulation.engine import run_block
print(fingerprint(run_block))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", program, *more], check=True, capture_output=True, text=True, cwd=ROOT
        ).stdout
        for more in ([], ["1"], ["1001"], ["100003"])
    }
    assert len(found) == 1


def test_what_is_stored_is_what_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path))
    assert lookup(PROGRAMS, "key") is None
    store(PROGRAMS, "key", b"content")
    assert lookup(PROGRAMS, "key") == b"content"
    (path,) = files()
    assert not damaged_files()
    path.write_bytes(path.read_bytes()[:-1])
    assert damaged_files() == [path]
    assert lookup(PROGRAMS, "key") is None
    assert not path.exists()


def test_a_full_disk_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_warned", set())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(CacheWarning, match="No space left on device"):
        store(PROGRAMS, "key", b"content")
    store(PROGRAMS, "other", b"content")  # no second warning
    assert not list(tmp_path.rglob(".part*"))
