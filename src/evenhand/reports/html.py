"""The page as HTML, from templates; everything is escaped except our own figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from evenhand import __version__
from evenhand.reports.figures.save import svg
from evenhand.reports.figures.style import TOKENS
from evenhand.reports.page_parts import Picture, field_text, is_number

if TYPE_CHECKING:
    from evenhand.reports.document import Report


def render(report: Report) -> str:
    """Return one HTML file with style, figures and numbers inside; it loads nothing from elsewhere."""
    from evenhand.reports.document import GLOSSARY

    environment = _environment()
    css = environment.get_template("page.css").render(tokens=_tokens())
    page = environment.get_template("page.html.j2").render(
        version=__version__, title=report.title, brand=report.brand, asked=_asked(report), css=Markup(css),
        opening=report.opening, sections=report.sections, methods=report.methods, glossary=GLOSSARY.items(),
        sources=report.sources, facts=report.facts, protocols=report.protocols, code=report.code,
        download=report.download(), file_name="report", recipe=_inert(report.recipe),
    )  # fmt: skip
    return str(page)


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("evenhand.reports", "templates"),
        autoescape=lambda name: name is None or not name.endswith(".css"),
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    made.globals.update(field_text=field_text, is_number=is_number, svg=_svg)
    made.tests["same_as"] = lambda one, other: one is other
    return made


def _svg(picture: Picture, name: str, width: int) -> Markup:
    # names inside our own figure were escaped when it was written
    return Markup(svg(picture.draw(width), name, themed=True))


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
