"""The page as Markdown: the same sentences and tables, figures as their tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from evenhand import __version__
from evenhand.reports.page_parts import Section, Strong, Table, Words, field_text, is_number

if TYPE_CHECKING:
    from evenhand.reports.document import Report

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|<>~&-])")


def render(report: Report) -> str:
    """Return the page as Markdown."""
    blocks = [f"# {escape(report.title)}", _say(report.opening.lead), _highlights(report.opening)]
    for section in report.sections:
        blocks += _section(section, is_opening=section is report.opening)
    blocks += ["## What is guaranteed, and how"]
    for method in report.methods:
        blocks += [f"> {escape(method.guarantee)}", *map(escape, method.text.split("\n\n"))]
    blocks += [
        "### Sources",
        "\n".join(f"{i}. {escape(source)}" for i, source in enumerate(report.sources, start=1)),
    ]
    blocks += ["## Protocol, and how to make this again"]
    blocks += ["\n".join(f"- {escape(name)}: {escape(value)}" for name, value in report.facts)]
    for name, protocol in report.protocols:
        blocks += [f"### {escape(name)}", _fence(protocol, "toml")]
    if report.code:
        blocks += ["### Commands", _fence(report.code, "sh")]
    blocks += [f"Made by evenhand {__version__}."]
    return "\n\n".join(block for block in blocks if block) + "\n"


def escape(words: str) -> str:
    """Return text with all Markdown markup escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(words.split()))


def _section(section: Section, is_opening: bool) -> list[str]:
    blocks = [f"## {escape(section.title)}"]
    if not is_opening:
        blocks.append(_say(section.lead))
    blocks += [_say(words) for words in section.notes]
    for picture in section.pictures:
        blocks += [f"### {escape(picture.title)}", escape(picture.says), _table(picture.table)]
    return blocks + [_table(table) for table in section.tables]


def _say(words: Words) -> str:
    return "".join(
        f"**{escape(part.text)}**" if isinstance(part, Strong) else _inline(part) for part in words
    )


def _inline(words: str) -> str:
    # keep the spaces at both ends, which separate it from its neighbours
    lead, trail = words[: len(words) - len(words.lstrip())], words[len(words.rstrip()) :]
    return f"{lead and ' '}{escape(words)}{trail and ' '}" if words.strip() else " "


def _highlights(section: Section) -> str:
    return "\n".join(f"- {escape(label)}: **{escape(value)}**" for label, value in section.highlights)


def _table(table: Table) -> str:
    rule = ["---:" if is_number(table, i) else "---" for i in range(len(table.columns))]
    rows = [
        [escape(field_text(value, column)) for value, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    lines = [[escape(title) for title in table.columns], rule, *rows]
    return f"{escape(table.caption)}:\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _fence(content: str, language: str) -> str:
    """Return a code block whose fence is longer than any inside it."""
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{content.rstrip()}\n{fence}"
