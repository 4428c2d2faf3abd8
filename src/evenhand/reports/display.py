"""How a result is shown: as text on a terminal, as HTML in a notebook, as a data frame, as a figure.

`display_content` defines what is shown of each kind of result; this module defines how.
"""

from __future__ import annotations

import hashlib
import html as escaping
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from evenhand.errors import BadInput, EvenhandError, shown
from evenhand.reports.display_content import Content, content_of
from evenhand.reports.page_parts import Strong, Table, Words, field_text, is_number
from evenhand.reports.page_parts import text as plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from evenhand.reports.page_parts import Picture

COLUMNS, LINES = 100, 24  # of a screen
ROWS = 40  # of a table in a notebook
FRAME_LIBRARIES = ("pandas", "polars")  # in the order of preference
STYLES = {
    "div": "max-width:720px;padding:8px 12px;background:#fff;color:#1f2933;font-family:system-ui,sans-serif",
    "table": "border-collapse:collapse;font-size:90%;font-variant-numeric:tabular-nums",
    "cell": "padding:2px 10px;border-bottom:1px solid #d8dce2",
}


def text(result: Any) -> str:
    """Return the answer in words and the table as plain text that fits a screen."""
    kind = type(result).__name__
    try:
        content = content_of(result)
    except EvenhandError as problem:  # a repr must not raise: debuggers and tracebacks call it
        return f"<{kind}: {problem}>"
    lines: list[str] = []
    for number, words in enumerate(content.sentences):
        start = f"{kind}: " if number == 0 else "  "
        lines += textwrap.wrap(
            plain_text(words), COLUMNS, initial_indent=start, subsequent_indent="  ", break_long_words=False
        )
    spare = max(LINES - len(lines) - 3, 3)
    return "\n".join([*lines[: LINES - 6], *_text_table(content.table, spare)])


def html(result: Any) -> str:
    """Return the answer in words, the figure as inline SVG and the table, all names escaped."""
    content = content_of(result)
    first, *rest = content.sentences
    parts = [f"<p><strong>{type(result).__name__}.</strong> {_html_words(first)}</p>"]
    parts += [f"<p>{_html_words(words)}</p>" for words in rest]
    picture = content.picture()
    if picture is not None:
        parts.append(_html_figure(picture, _identifier(content, picture)))
    parts.append(_html_table(content.table))
    return f'<div style="{STYLES["div"]}">{"".join(parts)}</div>'


def frame(result: Any) -> Any:
    """Return the rows as a pandas DataFrame, or a polars one where only polars is installed."""
    found = next((name for name in FRAME_LIBRARIES if find_spec(name) is not None), None)
    if found is None:
        raise BadInput("to_frame() needs pandas or polars, and neither is installed; pip install pandas.")
    rows = content_of(result).frame_rows()
    if found == "pandas":
        import pandas as pd

        return pd.DataFrame(rows)
    import polars as pl

    return pl.DataFrame(rows, infer_schema_length=None)


def figure(result: Any, ax: Axes | None = None) -> Figure:
    """Return the main figure, drawn on these axes or on a figure of its own."""
    from matplotlib.axes import Axes as AnyAxes
    from matplotlib.figure import SubFigure

    from evenhand.reports.figures.canvas import WIDE, drawing_on, layout_width

    if ax is not None and not isinstance(ax, AnyAxes):
        raise BadInput(f"ax must be matplotlib axes; it is {shown(ax)}.")
    picture = content_of(result).picture()
    if picture is None:
        raise BadInput(f"this {type(result).__name__} has nothing to draw; it holds no figure.")
    if ax is None:
        return picture.draw(WIDE).figure
    with drawing_on(ax):
        picture.draw(layout_width(ax))
    found: Any = ax.figure
    drawn: Figure = found.figure if isinstance(found, SubFigure) else found
    return drawn


def _text_table(table: Table, spare: int) -> list[str]:
    """The table in aligned columns, at most this number of rows."""
    if not table.rows:
        return []
    rows = table.rows if len(table.rows) <= spare else table.rows[: spare - 1]
    cells = [
        [field_text(value, title) for value, title in zip(row, table.columns, strict=True)] for row in rows
    ]
    numeric = [is_number(table, i) for i in range(len(table.columns))]
    widths = [max(len(line[i]) for line in (list(table.columns), *cells)) for i in range(len(table.columns))]
    lines = [
        "  " + "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in (list(table.columns), *cells)
    ]  # fmt: skip
    lines = [line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…" for line in lines]
    return ["", *lines, *_more(len(table.rows) - len(rows))]


def _more(hidden: int) -> list[str]:
    return [f"  … and {hidden:,} more rows; to_frame() has all of them"] if hidden else []


def _html_words(words: Words) -> str:
    return "".join(
        f"<strong>{escaping.escape(part.text)}</strong>"
        if isinstance(part, Strong)
        else escaping.escape(part)
        for part in words
    )


def _html_figure(picture: Picture, identifier: str) -> str:
    """Return the figure as inline SVG in two layouts, of which a narrow screen shows the second.

    A program that removes style sheets from outputs shows the first on every screen.
    """
    from evenhand.reports.figures.canvas import NARROW, WIDE, svg

    def inline(width: int, name: str, display: str) -> str:
        drawing = svg(picture.draw(width), name)
        opening = f'<svg class="evenhand-{width}" style="display:{display};max-width:100%;height:auto" '
        return drawing[drawing.index("<svg") :].replace("<svg ", opening, 1)

    caption = escaping.escape(f"{picture.title}. {picture.says}")
    rules = f".evenhand-{WIDE}{{display:none!important}}.evenhand-{NARROW}{{display:block!important}}"
    return (
        f'<figure role="img" aria-label="{caption}" style="margin:8px 0">'
        f"<style>@media (max-width:620px){{{rules}}}</style>"
        f"{inline(WIDE, identifier, 'block')}{inline(NARROW, f'{identifier}-narrow', 'none')}</figure>"
    )


def _html_table(table: Table) -> str:
    if not table.rows:
        return ""
    numeric = [is_number(table, i) for i in range(len(table.columns))]
    head = _html_row("th", table.columns, numeric)
    body = "".join(
        _html_row("td", [field_text(v, title) for v, title in zip(row, table.columns, strict=True)], numeric)
        for row in table.rows[:ROWS]
    )
    caption = f'<caption style="text-align:left">{escaping.escape(table.caption)}</caption>'
    more = "".join(f"<p>{line.strip()}</p>" for line in _more(max(len(table.rows) - ROWS, 0)))
    drawn = f'<table style="{STYLES["table"]}">{caption}{head}{body}</table>'
    return f'<div style="overflow-x:auto">{drawn}</div>{more}'


def _html_row(tag: str, cells: Sequence[str], numeric: Sequence[bool]) -> str:
    return "<tr>" + "".join(
        f'<{tag} style="{STYLES["cell"]};text-align:{"right" if right else "left"}">'
        f"{escaping.escape(cell)}</{tag}>"
        for cell, right in zip(cells, numeric, strict=True)
    ) + "</tr>"  # fmt: skip


def _identifier(content: Content, picture: Picture) -> str:
    """A prefix for the identifiers inside the SVG: those of two outputs of a notebook must differ."""
    content_text = repr((content.sentences, content.table, picture.says))
    return f"{picture.name}-{hashlib.sha256(content_text.encode()).hexdigest()[:8]}"
