"""The package: built twice it is the same to the byte, and its recipe names the same dependencies."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tools.release import NAMES, REPEATED, faults_in

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def copy_to(folder: Path, age: int) -> Path:
    """Copy the tracked files, with other modification times and permissions for each age."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
        mode = 0o700 if os.access(ROOT / name, os.X_OK) else 0o600
        target.chmod(mode if age else mode | 0o044)
        os.utime(target, (1_000_000_000 + age, 1_000_000_000 + age))
    return folder


def build(folder: Path) -> dict[str, str]:
    """Return the hashes of the wheel and the sdist, by name."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder / "dist")]
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "dist").iterdir()}


@pytest.mark.slow
def test_two_builds_are_the_same_to_the_byte(tmp_path: Path) -> None:
    first = build(copy_to(tmp_path / "first", 0))
    second = build(copy_to(tmp_path / "a longer name", 86_400))
    assert len(first) == 2
    assert first == second
    [wheel] = (tmp_path / "first/dist").glob("*.whl")
    [sdist] = (tmp_path / "first/dist").glob("*.tar.gz")
    held = zipfile.ZipFile(wheel).namelist()
    assert "evenhand/reports/templates/summary.html.j2" in held
    assert "evenhand/paper/__init__.py" in held
    assert not any(name.startswith(("tests/", "docs/")) for name in held)
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    for needed in (
        "pyproject.toml",
        "LICENSE",
        "CITATION.cff",
        "paper.md",
        "conda/meta.yaml",
        "tests/conftest.py",
    ):
        assert needed in names


def requirement(text: str) -> tuple[str, str]:
    """Return name and versions of a requirement, without spaces."""
    found = re.match(r"^([A-Za-z0-9-]+)\s*(.*)$", text.strip())
    assert found is not None
    return found[1].lower(), found[2].replace(" ", "")


def test_the_conda_recipe_has_the_dependencies_and_the_version_of_the_project() -> None:
    recipe = (ROOT / "conda/meta.yaml").read_text(encoding="utf-8")
    assert f'version: "{PROJECT["version"]}"' in recipe
    run = recipe.split("  run:\n")[1].split("\n\n")[0]
    wanted = dict(requirement(line.removeprefix("    - ")) for line in run.splitlines())
    names = {"matplotlib-base": "matplotlib"}
    wanted = {names.get(name, name): versions for name, versions in wanted.items()}
    assert wanted.pop("python") == PROJECT["requires-python"]
    assert wanted == dict(requirement(text) for text in PROJECT["dependencies"])


ADDRESS = "https://codehost.dev/owner/evenhand"  # a valid form; nothing connects to it


def checkout(folder: Path, urls: str, address: str) -> Path:
    """Copy the files that a release is checked by; add links and the address where they are repeated."""
    for name in ("pyproject.toml", "CITATION.cff", "conda/meta.yaml", "paper.md", "CHANGELOG.md"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copyfile(ROOT / name, folder / name)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    own = r"\[project\.urls\]\n(?:[^\[\n].*\n)*"
    with (folder / "pyproject.toml").open("w", encoding="utf-8") as file:
        file.write(f"{re.sub(own, '', project)}\n[project.urls]\n{urls}\n")
    for name, form in REPEATED.items():
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(f"\n{form.format(address)}\n")
    version = PROJECT["version"]
    with (folder / "CHANGELOG.md").open("a", encoding="utf-8") as file:
        file.write(f"\n## {version} (today)\n")
    return folder


def links(address: str) -> str:
    return "\n".join(f'{name} = "{address}"' for name in ("Documentation", "Issues", "Source"))


def test_a_release_needs_an_address_that_all_files_repeat(tmp_path: Path) -> None:
    assert faults_in(checkout(tmp_path / "complete", links(ADDRESS), ADDRESS)) == []
    found = faults_in(checkout(tmp_path / "other", links(ADDRESS), "https://codehost.dev/other"))
    assert [fault.split()[0] for fault in found] == ["CITATION.cff", "conda/meta.yaml", "paper.md"]
    assert len(faults_in(checkout(tmp_path / "none", "", ADDRESS))) == 3


@pytest.mark.parametrize(
    "address",
    [
        "",
        "evenhand",
        "http://codehost.dev/evenhand",
        "https://localhost/e",
        "https://example.com",
        "https://a.test",
    ],
)
def test_a_release_is_refused_with_an_address_that_nobody_can_open(address: str, tmp_path: Path) -> None:
    found = faults_in(checkout(tmp_path, links(address), address))
    assert [f"must have {name}," in fault for name, fault in zip(NAMES, found, strict=True)] == [True] * 3


def test_nothing_is_built_without_an_address(tmp_path: Path) -> None:
    folder = checkout(tmp_path, "", ADDRESS)
    (folder / "tools").mkdir()
    shutil.copyfile(ROOT / "tools/release.py", folder / "tools/release.py")
    done = subprocess.run([sys.executable, folder / "tools/release.py"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "must have Source, a public https address" in done.stderr
    assert not (folder / "dist").exists()


def test_the_workflow_tests_every_python_that_the_classifiers_name() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    workflow = (ROOT / ".github/workflows/check.yml").read_text(encoding="utf-8")
    assert len(named) >= 3
    matrix = re.search(r"python: \[(.+)\]", workflow)
    assert matrix is not None
    tested = re.findall(r'"(3\.\d+)"', matrix[1])  # also versions that no classifier names yet
    assert [version for version in named if version not in tested] == []
