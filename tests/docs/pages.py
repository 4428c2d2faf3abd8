"""The documentation pages, their code blocks, and how a block is run."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from evenhand.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PAGES += [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts]

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.S | re.M)
EXIT_CODE = "echo $?"
CELL = "{code-cell} ipython3"
CAPTION = re.compile(r"\A:caption: (?P<name>\S+)\n\n")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, its line, and the file to write it to."""

    language: str
    text: str
    line: int
    file: str | None = None


def blocks(page: Path) -> list[Block]:
    found = []
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        body, caption = match["body"], CAPTION.match(match["body"])
        if caption is not None:
            found.append(Block("file", body[caption.end() :], line, caption["name"]))
        else:
            found.append(Block(match["info"].strip(), body, line))
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@dataclass
class Reader:
    """Runs the code blocks of a page in a folder with the examples."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__page__"})
    variables: dict[str, str] = field(default_factory=dict)
    code: int = 0

    def __post_init__(self) -> None:
        shutil.copytree(ROOT / "examples", self.folder / "examples")

    def read(self, page: Path) -> None:
        for block in blocks(page):
            if block.file is not None:
                (self.folder / block.file).write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                # compiled with the lines before it, so that an error names the line of the page
                source = compile("\n" * block.line + block.text, str(page), "exec")
                exec(source, self.names)
            elif block.language == CELL:
                self._run_cell(ast.parse("\n" * block.line + block.text, str(page)), str(page))
            elif block.language == "console":
                self._type(block, f"{name_of(page)}:{block.line}")

    def _run_cell(self, cell: ast.Module, page: str) -> None:
        """Run a cell of a notebook, and make the HTML of the value of its last line as a notebook does."""
        last = cell.body.pop() if isinstance(cell.body[-1], ast.Expr) else None
        exec(compile(cell, page, "exec"), self.names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), page, "eval"), self.names)
            if hasattr(value, "_repr_html_"):
                assert value._repr_html_()

    def _type(self, block: Block, where: str) -> None:
        steps = [step.rstrip("\n").split("\n") for step in re.split(r"^\$ ", block.text, flags=re.M)[1:]]
        following = [step[0] for step in steps[1:]] + [""]
        for (command, *expected), then in zip(steps, following, strict=True):
            self.capsys.readouterr()
            printed = self._run(command)
            # if the page prints the exit code next, the code may be non-zero
            assert self.code == 0 or then == EXIT_CODE or command == EXIT_CODE, (
                f"{where}: {command}\n{printed}"
            )
            assert printed_in_order(expected, printed), f"{where}: {command} printed\n{printed}"

    def _run(self, command: str) -> str:
        """Return what a command prints; run evenhand in this process and other commands in a shell."""
        assigned = re.fullmatch(r"(\w+)=\$\((.*)\)", command)
        if assigned is not None:
            self.variables[assigned[1]] = self._shell(assigned[2]).strip()
            return ""
        if command == EXIT_CODE:
            return f"{self.code}\n"
        words = shlex.split(command)
        if words[0] != "evenhand" or "|" in words:
            return self._shell(command)
        words = [self.variables.get(word.removeprefix("$"), word) for word in words]
        target = words[words.index(">") + 1] if ">" in words else None
        self.code = main(words[1 : words.index(">") if target else None])
        out, err = self.capsys.readouterr()
        if target is not None:
            (self.folder / target).write_text(out, encoding="utf-8")
            return err
        return out + err

    def _shell(self, command: str) -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | self.variables | {"PATH": path}
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment)
        self.code = done.returncode
        return done.stdout + done.stderr


def printed_in_order(expected: list[str], printed: str) -> bool:
    """Return whether the lines match in this order; `...` matches any text, no lines match all."""
    if not any(line.strip() for line in expected):
        return True
    parts = [re.escape(line.rstrip()).replace(re.escape("..."), ".*") for line in expected]
    lines = "\n".join(line.rstrip() for line in printed.strip().split("\n"))
    pattern = r"\n".join(parts)
    return re.fullmatch(pattern, lines, re.S) is not None
