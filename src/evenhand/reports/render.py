"""The page as HTML, from templates, and as Markdown."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from evenhand import __version__
from evenhand.reports.figures.canvas import NARROW, TOKENS, WIDE, svg
from evenhand.reports.page_parts import (
    AT_THE_BEGINNING,
    GUARDRAIL,
    Picture,
    Section,
    Strong,
    Table,
    Words,
    field_text,
    is_number,
    text,
)

if TYPE_CHECKING:
    from evenhand.reports.document import Report

PRINTED_HEIGHT = 900  # pixels of a printed page
# The summary on paper, in pixels of A4; `tests/reports/test_in_browser.py` prints it.
SUMMARY_SPACE = 650  # without what is always there: title, highlights, headings, lines to sign
SUMMARY_WIDTH = 600  # of its figure
LINE_LENGTH, LINE_HEIGHT = 88, 19  # characters of a line, which is larger in the lead and smaller elsewhere
FACT_HEIGHT, ROW_HEIGHT, HEAD_HEIGHT = 17, 22, 60
SUMMARY_ROWS = 8  # policies
_PROGRAMS = ("python", "numpy", "llvmlite", "scipy")


def render_html(report: Report) -> str:
    """Return one HTML file with style, figures and numbers inside; it loads nothing from elsewhere."""
    from evenhand.reports.document import GLOSSARY

    environment = _environment()
    css = environment.get_template("page.css").render(tokens=_tokens())
    page = environment.get_template("page.html.j2").render(
        version=__version__, title=report.title, brand=report.brand, asked=_asked(report), css=Markup(css),
        opening=report.opening, sections=report.sections, methods=report.methods, glossary=GLOSSARY.items(),
        covered_by=report.covered_by,
        sources=report.sources, facts=report.facts, protocols=report.protocols, code=report.code,
        download=report.download(), file_name="report", recipe=_inert(report.recipe),
    )  # fmt: skip
    return str(page)


def render_summary(report: Report) -> str:
    """Return one printed page as HTML: question, result, guarantee, assumptions, sources of the data."""
    environment = _environment()
    css = environment.get_template("page.css").render(tokens=_tokens())
    opening = report.opening
    method = opening.methods or report.methods[0]
    facts = [(name, value) for name, value in report.facts if _is_on_summary(name)]
    guardrails = [picture for picture in opening.pictures if picture.name.startswith(GUARDRAIL)]
    paragraphs = [text(opening.lead), _asked(report), method.guarantee, *method.assumptions]
    paragraphs += [f"{rail.title}. {rail.says}" for rail in guardrails]
    space = SUMMARY_SPACE - sum(map(_printed_height, paragraphs)) - FACT_HEIGHT * len(facts)
    page = environment.get_template("summary.html.j2").render(
        version=__version__, title=report.title, asked=_asked(report), css=Markup(css), opening=opening,
        picture=_small_picture(opening, space), table=_policy_table(opening, space), guardrails=guardrails,
        method=method, facts=facts,
    )  # fmt: skip
    return str(page)


def _is_on_summary(fact: str) -> bool:
    """Return whether a summary states this fact; the head of a log covers the versions at its beginning."""
    return fact not in _PROGRAMS and not fact.endswith(AT_THE_BEGINNING)


def _printed_height(paragraph: str) -> int:
    """Return about how many pixels a paragraph takes on the printed summary."""
    return LINE_HEIGHT * math.ceil(len(paragraph) / LINE_LENGTH)


def _small_picture(section: Section, space: int) -> Picture | None:
    """Return the main figure if its printed height fits the space."""
    if not section.pictures:
        return None
    first = section.pictures[0]
    return first if first.draw(WIDE).height * SUMMARY_WIDTH / WIDE <= space else None


def _policy_table(section: Section, space: int) -> Table | None:
    """Return the policies with overall mean and class, for a page without its figure; the first rows."""
    found = next((table for table in section.tables if table.columns[:1] == ("policy",)), None)
    most = min(max((space - HEAD_HEIGHT) // ROW_HEIGHT, 1), SUMMARY_ROWS)
    if found is None or len(found.rows) <= most:
        return found
    left = len(found.rows) - most
    caption = f"{found.caption} (the first {most}; {left} more in the whole report)"
    return Table(caption, found.columns, found.rows[:most])


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("evenhand.reports", "templates"),
        autoescape=lambda name: name is None or not name.endswith(".css"),
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    made.globals.update(
        field_text=field_text, is_number=is_number, svg=_svg, wide_width=WIDE, narrow_width=NARROW
    )
    made.tests["same_as"] = lambda one, other: one is other
    return made


def _svg(picture: Picture, name: str, width: int) -> Markup:
    """Return the figure in an element for this width; one taller than a printed page may be divided."""
    canvas = picture.draw(width)
    kind = "wide" if width == WIDE else "narrow"
    tall = " tall" if canvas.height > PRINTED_HEIGHT else ""
    # names inside our own figure were escaped when it was written
    return Markup('<div class="{}">{}</div>').format(kind + tall, Markup(svg(canvas, name, themed=True)))


def _asked(report: Report) -> str:
    """Return the question, for the line under the title; empty where there is no study."""
    if not report.studies:
        return ""
    problem = report.studies[0].problem
    return (
        f"{len(problem.policies)} policies, {len(problem.groups)} groups. "
        f"The chosen policy must {problem.describe_requirement()}."
    )


def _tokens() -> dict[str, str]:
    return {
        theme: " ".join(f"--{name}: {pair[place]};" for name, pair in TOKENS.items())
        for place, theme in enumerate(("light", "dark"))
    }


def _inert(recipe: str) -> Any:
    """Return JSON for a script element, with the characters escaped that could end it."""
    escaped = recipe.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(escaped)


_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|<>~&-])")


def render_markdown(report: Report) -> str:
    """Return the page as Markdown."""
    blocks = [f"# {escape(report.title)}", _say(report.opening.lead), _highlights(report.opening)]
    for section in report.sections:
        blocks += _section(section, is_opening=section is report.opening)
    blocks += ["## What is guaranteed, and how"]
    for method in report.methods:
        if len(report.methods) > 1:
            blocks += [f"### {escape(title)}" for title in [report.covered_by(method)] if title]
        blocks += [f"> {escape(method.guarantee)}", *map(escape, method.text.split("\n\n"))]
        blocks += ["### What this assumes", "\n".join(f"- {escape(said)}" for said in method.assumptions)]
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
