"""evenhand from a plain copy of its source, beside packages without metadata: nothing is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

import evenhand
from evenhand import versions

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run_copy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a function that runs evenhand from a copy of `src` in which no metadata can be found."""
    root = tmp_path_factory.mktemp("copy")
    source = Path(evenhand.__file__).parents[1]
    shutil.copytree(source, root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(source.parent / "paper", root / "paper")
    packages = root / "packages"
    packages.mkdir()
    for folder in {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}:
        for entry in folder.iterdir():
            if entry.suffix not in (".dist-info", ".egg-info", ".pth") and entry.name != "evenhand":
                (packages / entry.name).symlink_to(entry)
    path = [str(root / "src"), str(packages)]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = f"import sys; sys.path[:0] = {path!r}; from evenhand.cli.main import main; sys.exit(main())"
        # without site and the environment, Python finds the standard library and these two folders only
        command = [sys.executable, "-S", "-I", "-c", program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=root)

    return run


def test_the_version_is_the_one_in_the_source(run_copy: Run) -> None:
    done = run_copy("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"version {evenhand.__version__}\n")


def test_doctor_says_that_the_extras_are_not_known(run_copy: Run) -> None:
    done = run_copy("doctor", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["extras"] == {}
    assert any("not installed as a package" in note for note in found["notes"])
    assert found["packages"]["evenhand"] == evenhand.__version__
    assert found["packages"]["llvmlite"] == metadata.version("llvmlite")
    assert run_copy("doctor").returncode == 0


def test_the_page_of_the_paper_states_versions(run_copy: Run, tmp_path: Path) -> None:
    done = run_copy("paper", "--only", "example", "--replications", "2", "--out", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    page = (tmp_path / "index.html").read_text()
    assert evenhand.__version__ in page
    assert metadata.version("scipy") in page


def test_a_package_without_metadata_states_its_own_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    expected = {"numpy": metadata.version("numpy"), "json": json.__version__}
    monkeypatch.setattr(metadata, "version", absent)
    assert {name: versions.version_of(name) for name in expected} == expected
    assert versions.version_of("base64") == "unknown"  # a module that states no version
    assert versions.version_of("no-such-package") is None


def test_the_version_is_that_of_the_source_whatever_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "0.0.1")
    assert versions.version_of("evenhand") == evenhand.__version__
