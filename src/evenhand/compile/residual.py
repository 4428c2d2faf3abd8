"""The program after evaluation: statements of plain Python over numbers and buffers.

Statements are objects until a function is complete: only then are the results of a return, and the variables
that are read, known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from evenhand.compile.values import Value

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(slots=True)
class Assign:
    """Assignment to a variable; removed if it is never read and has no other effect."""

    target: str
    text: str
    calls: bool = False


@dataclass(slots=True)
class Unpack:
    """Assignment of several results of a call to variables."""

    targets: list[str]
    text: str


@dataclass(slots=True)
class OtherLine:
    """Any other line: a write to a buffer, or a call."""

    text: str


@dataclass(slots=True)
class If:
    test: str
    body: list[Statement]
    orelse: list[Statement]


@dataclass(slots=True)
class Loop:
    """A loop; `head` is its first line."""

    head: str
    body: list[Statement]


@dataclass(slots=True)
class Return:
    """A return; `text` is set when the function's result is known."""

    value: Value | None
    text: str = ""


Statement: TypeAlias = Assign | Unpack | OtherLine | If | Loop | Return
Block: TypeAlias = list[Statement]


@dataclass(slots=True)
class Function:
    """A function of the program: typed parameters, types of results, and body."""

    name: str
    parameters: list[tuple[str, str]]
    results: list[str]
    lines: list[str]
    calls: list[str] = field(default_factory=list)
    inlined: bool = False

    @property
    def source(self) -> str:
        head = f"def {self.name}({', '.join(name for name, _ in self.parameters)}):"
        return "\n".join([head, *self.lines, ""])


def drop_unread(block: Block) -> None:
    """Remove assignments to variables that are never read, repeatedly."""
    while True:
        read: set[str] = set()
        for statement in all_statements(block):
            read.update(_names_read(statement))
        if not _remove(block, read):
            return


def names_in(lines: Iterable[str]) -> set[str]:
    """Return every name in these lines."""
    found: set[str] = set()
    for line in lines:
        found.update(_NAME.findall(line))
    return found


def all_statements(block: Block) -> Iterator[Statement]:
    """Yield every statement, nested ones included."""
    for statement in block:
        yield statement
        if isinstance(statement, If):
            yield from all_statements(statement.body)
            yield from all_statements(statement.orelse)
        elif isinstance(statement, Loop):
            yield from all_statements(statement.body)


def rendered(block: Block, indent: str = "    ") -> list[str]:
    """Return the lines of a block; `pass` where it is empty."""
    lines: list[str] = []
    for statement in block:
        if isinstance(statement, Assign):
            lines.append(f"{indent}{statement.target} = {statement.text}")
        elif isinstance(statement, Unpack):
            lines.append(f"{indent}{', '.join(statement.targets)} = {statement.text}")
        elif isinstance(statement, OtherLine):
            lines.append(indent + statement.text)
        elif isinstance(statement, Return):
            lines.append(f"{indent}return {statement.text}".rstrip())
        elif isinstance(statement, Loop):
            lines += [f"{indent}{statement.head}:", *rendered(statement.body, indent + "    ")]
        else:
            lines += _rendered_if(statement, indent)
    return lines or [f"{indent}pass"]


def _rendered_if(statement: If, indent: str) -> list[str]:
    lines = [f"{indent}if {statement.test}:", *rendered(statement.body, indent + "    ")]
    other = statement.orelse
    if len(other) == 1 and isinstance(other[0], If):
        nested = _rendered_if(other[0], indent)
        return [*lines, f"{indent}el{nested[0].strip()}", *nested[1:]]
    if other:
        lines += [f"{indent}else:", *rendered(other, indent + "    ")]
    return lines


def _names_read(statement: Statement) -> list[str]:
    if isinstance(statement, (Assign, Unpack, OtherLine, Return)):
        return _NAME.findall(statement.text)
    if isinstance(statement, Loop):
        return _NAME.findall(statement.head)
    return _NAME.findall(statement.test)


def _remove(block: Block, read: set[str]) -> bool:
    """Remove assignments to names that are not in `read`; return whether any were."""
    kept: Block = []
    removed = False
    for statement in block:
        if isinstance(statement, Assign) and statement.target not in read:
            removed = True
            if statement.calls:
                kept.append(OtherLine(statement.text))
            continue
        if isinstance(statement, If):
            removed |= _remove(statement.body, read) | _remove(statement.orelse, read)
            if not statement.body and not statement.orelse and "(" not in statement.test:
                removed = True
                continue
        elif isinstance(statement, Loop):
            removed |= _remove(statement.body, read)
        kept.append(statement)
    block[:] = kept
    return removed
