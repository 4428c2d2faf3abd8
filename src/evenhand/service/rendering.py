"""Template rendering with autoescaping and strict undefined values, and its filters."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import MediaType, Response

SYMBOLS = {"met": "●", "failed": "✕", "undecided": "○"}

_environment = Environment(
    loader=PackageLoader("evenhand.service", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(template: str, code: int = 200, **values: Any) -> Response[str]:
    """Return a page as a response."""
    return Response(render(template, **values), media_type=MediaType.HTML, status_code=code)


def render(template: str, **values: Any) -> str:
    """Render a template; user input is escaped."""
    return _environment.get_template(template).render(**values)


def _count(value: float) -> str:
    """Return 1234 as 1,234."""
    return f"{value:,.0f}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2e}" if 0 < abs(value) < 0.001 else f"{value:.4f}"


def _age(seconds: float) -> str:
    """Return the approximate age as text."""
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' * (count > 1)}"
    return f"{int(seconds)} s"


def _clock(at: str) -> str:
    """Return the time of an event to the second, day first."""
    return f"{at[:10]} {at[11:19]}"


_environment.filters.update(count=_count, number=_number, age=_age, clock=_clock)
_environment.globals.update(symbols=SYMBOLS)
