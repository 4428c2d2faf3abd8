"""Colours, fonts and a canvas for figures; canvases as SVG text or PNG bytes.

Pictures are drawn in pixels on one full-size axes, the origin at the top left, so that a layout reads as it
looks. Every colour is a token with a light and a dark value; a themed SVG names the token, and the page's
colour scheme decides.
"""

from __future__ import annotations

import io
import math
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any, Final, Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextToPath
from matplotlib.ticker import MaxNLocator

WIDE, NARROW = 720, 350

# token: (light, dark). The light values all differ, so that an SVG's colours can be traced back to tokens.
TOKENS: Final[dict[str, tuple[str, str]]] = {
    "ink": ("#1f2933", "#e7ebf0"),
    "grey": ("#6b7280", "#a3abb8"),
    "rule": ("#d8dce2", "#39414d"),
    "band": ("#eef5fa", "#16242f"),
    "paper": ("#fffffe", "#12161c"),
    "blue": ("#0072b2", "#56b4e8"),
    "vermillion": ("#d55e00", "#f0793a"),
    "orange": ("#e69f00", "#e69f01"),
    "green": ("#009e73", "#2cc295"),
    "sky": ("#56b4e9", "#8fd0f5"),
    "purple": ("#cc79a7", "#dd9fc2"),
}
INK, GREY, RULE, BAND, PAPER, BLUE, VERMILLION, ORANGE, GREEN, SKY, PURPLE = (
    light for light, _ in TOKENS.values()
)
SERIES = (BLUE, GREEN, PURPLE, VERMILLION, SKY, GREY)  # for alternatives side by side
DASHES: Final[tuple[tuple[float, ...] | None, ...]] = (None, (5, 2), (1.5, 1.5), (7, 2, 1.5, 2), (3, 1), None)
VERDICT_COLOUR = {"met": BLUE, "failed": VERMILLION, "undecided": GREY}

TEXT, SMALL = 13.0, 11.5
FONT = "DejaVu Sans"
SETTINGS: Final[Any] = {
    "font.family": FONT,
    "svg.fonttype": "none",  # text stays text: selectable, searchable, in the font of the reader
    "path.simplify": False,
}

Anchor = Literal["left", "center", "right"]


_AXES: ContextVar[Axes | None] = ContextVar("axes", default=None)


@contextmanager
def drawing_on(axes: Axes) -> Iterator[None]:
    """Let canvases made inside the block draw on these axes instead of figures of their own."""
    token = _AXES.set(axes)
    try:
        yield
    finally:
        _AXES.reset(token)


def layout_width(axes: Axes) -> int:
    """Return the width in pixels of a layout that fits these axes, between narrow and wide."""
    return round(min(max(_size_in_points(axes)[0], NARROW), WIDE))


def _size_in_points(axes: Axes) -> tuple[float, float]:
    box, dpi = axes.get_window_extent(), axes.figure.dpi
    return 72 * box.width / dpi, 72 * box.height / dpi


class Canvas:
    """A drawing area in pixels: a figure of its own, or the axes of `drawing_on`."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = float(width), float(height)
        self.points = 1.0  # in a pixel of the layout
        given = _AXES.get()
        if given is not None:
            self._fit_into(given)
            return
        with rc_context(SETTINGS):
            # 72 units an inch: one pixel of the layout is one unit of the SVG
            self.figure = Figure(figsize=(width / 72, height / 72), dpi=72)
            self.axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
            self.axes.set_xlim(0, width)
            self.axes.set_ylim(height, 0)
            self.axes.set_axis_off()

    def _fit_into(self, axes: Axes) -> None:
        """Map the pixels to these axes from the top left, all scaled by one factor."""
        self.axes, self.figure = axes, axes.figure  # type: ignore[assignment]
        width, height = _size_in_points(axes)
        self.points = min(width / self.width, height / self.height)
        axes.set_xlim(0, width / self.points)
        axes.set_ylim(height / self.points, 0)
        axes.set_autoscale_on(False)
        axes.set_axis_off()

    def text(
        self, x: float, y: float, words: str, *, colour: str = INK, size: float = TEXT, bold: bool = False,
        anchor: Anchor = "left", room: float | None = None, rotation: float = 0.0,
    ) -> None:  # fmt: skip
        """Draw text centred vertically on y, shortened with an ellipsis to fit into `room`."""
        shown = printable(words) if room is None else shortened(printable(words), room, size, bold)
        self.axes.text(
            x, y, shown, color=colour, fontsize=size * self.points, fontweight="bold" if bold else "normal",
            ha=anchor, va="center_baseline", rotation=rotation, fontfamily=FONT,
            parse_math=False,  # a name may contain two dollar signs
        )  # fmt: skip

    def paragraph(
        self, x: float, y: float, lines: Sequence[str], *, colour: str = INK, size: float = TEXT,
        bold: bool = False, anchor: Anchor = "left",
    ) -> None:  # fmt: skip
        """Draw lines of text below each other, the whole centred vertically on y."""
        first = y - (len(lines) - 1) * line_height(size) / 2
        for number, words in enumerate(lines):
            self.text(
                x,
                first + number * line_height(size),
                words,
                colour=colour,
                size=size,
                bold=bold,
                anchor=anchor,
            )

    def line(
        self, xs: Sequence[float], ys: Sequence[float], colour: str, width: float = 1.0,
        dashes: tuple[float, ...] | None = None, alpha: float = 1.0,
    ) -> None:  # fmt: skip
        (drawn,) = self.axes.plot(
            xs, ys, color=colour, lw=width * self.points, alpha=alpha, solid_capstyle="round"
        )
        if dashes is not None:
            drawn.set_dashes(dashes)

    def box(self, x: float, y: float, width: float, height: float, colour: str, alpha: float = 1.0) -> None:
        self.axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="none", alpha=alpha))

    def area(
        self,
        xs: Sequence[float],
        ys: Sequence[float],
        base: float | Sequence[float],
        colour: str,
        alpha: float,
    ) -> None:
        self.axes.fill_between(xs, ys, base, color=colour, alpha=alpha, lw=0)

    def dot(
        self, x: float, y: float, colour: str, size: float = 8.0, hollow: bool = False, alpha: float = 1.0
    ) -> None:
        self._mark("o", x, y, colour, size, hollow, alpha)

    def cross(self, x: float, y: float, colour: str, size: float = 7.0, alpha: float = 1.0) -> None:
        self.axes.plot(
            [x], [y], marker="x", ms=size * self.points, mew=2.2 * self.points, mec=colour, ls="", alpha=alpha
        )

    def diamond(self, x: float, y: float, colour: str, size: float = 8.0, alpha: float = 1.0) -> None:
        self._mark("D", x, y, colour, size * 0.8, False, alpha)

    def verdict(self, x: float, y: float, verdict: str, size: float = 8.0, alpha: float = 1.0) -> None:
        """Draw the symbol of a verdict in its colour: a full dot, a cross, an empty dot."""
        colour = VERDICT_COLOUR[verdict]
        if verdict == "failed":
            self.cross(x, y, colour, size - 1.0, alpha)
        else:
            self.dot(x, y, colour, size, hollow=verdict == "undecided", alpha=alpha)

    def _mark(
        self, marker: str, x: float, y: float, colour: str, size: float, hollow: bool, alpha: float
    ) -> None:
        face = PAPER if hollow else colour
        ms, mew = size * self.points, 1.8 * self.points
        self.axes.plot([x], [y], marker=marker, ms=ms, mfc=face, mec=colour, mew=mew, ls="", alpha=alpha)


class Scale:
    """A linear map from numbers between low and high to pixels between start and end."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        if high <= low:
            low, high = low - 0.5, high + 0.5
        self.low, self.high, self.start, self.end = low, high, start, end

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def clipped(self, value: float) -> float:
        return self.at(min(max(value, self.low), self.high))

    def ticks(self, at_most: int) -> list[tuple[float, str]]:
        """Return round numbers inside the scale, each with its label."""
        found = MaxNLocator(nbins=at_most, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.high)
        slack = (self.high - self.low) * 1e-9
        values = [float(v) for v in found if self.low - slack <= v <= self.high + slack]
        step = values[1] - values[0] if len(values) > 1 else self.high - self.low
        return [(value, tick_label(value, step)) for value in values]


def tick_label(value: float, step: float) -> str:
    """Return a label with as many decimals as the step needs, thousands separated."""
    if step < 1e-6:
        return f"{value + 0.0:.4g}"
    decimals = max(0, min(6, next(d for d in range(8) if d == 7 or abs(round(step, d) - step) < step * 1e-6)))
    return f"{value + 0.0:,.{decimals}f}"  # + 0.0 turns -0 into 0


def number(value: float | None, digits: int = 3) -> str:
    """Return a number as text: thousands separated, a few digits, a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if 0 < abs(value) < 0.5 * 10.0**-digits:
        return f"{value:.2e}"
    if value == int(value) and abs(value) >= 10:
        return f"{value:.0f}"
    return f"{value:.{digits}f}" if abs(value) < 10 else f"{value:.{max(digits - 2, 1)}f}"


def percent(share: float) -> str:
    """Return a share as a percentage: whole from 10% on, one decimal below, <0.1% for less."""
    if share <= 0:
        return "0%"
    if share < 0.0005:
        return "<0.1%"
    return f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}"


def printable(words: str) -> str:
    """Return text on one line without control characters, which SVG does not allow."""
    kept = (
        " " if c in "\n\r\t" else "\ufffd" if unicodedata.category(c) in ("Cc", "Cs") else c for c in words
    )
    return "".join(kept).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")


def shortened(words: str, room: float, size: float, bold: bool = False) -> str:
    """Return the text, or as much of it as fits into `room`, with an ellipsis."""
    if text_width(words, size, bold) <= room:
        return words
    fits = _longest(len(words), lambda n: text_width(words[:n].rstrip() + "…", size, bold) <= room)
    return words[:fits].rstrip() + "…"


def _longest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` that fits, by bisection; 0 if none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def line_height(size: float) -> float:
    """Return the distance between two lines of text of this size."""
    return size + 3.0


def wrapped(words: str, room: float, size: float, bold: bool = False) -> list[str]:
    """Return the text in lines that fit into `room`: broken at spaces, a longer word inside."""
    return list(_lines(words, room, size, bold))


@lru_cache(maxsize=1024)  # a figure has the name of a group once for every policy
def _lines(words: str, room: float, size: float, bold: bool) -> tuple[str, ...]:
    lines: list[str] = []
    line = ""
    for word in printable(words).split():
        if line and text_width(f"{line} {word}", size, bold) <= room:
            line = f"{line} {word}"
            continue
        lines += [line] if line else []
        while text_width(word, size, bold) > room and len(word) > 1:
            fits = max(1, _longest(len(word) - 1, partial(_fits, word, room, size, bold)))
            lines.append(word[:fits])
            word = word[fits:]
        line = word
    return tuple([*lines, line] if line or not lines else lines)


def _fits(words: str, room: float, size: float, bold: bool, n: int) -> bool:
    """Return whether the first n characters fit."""
    return text_width(words[:n], size, bold) <= room


@lru_cache(maxsize=4096)
def text_width(words: str, size: float, bold: bool = False) -> float:
    """Return the width of text in pixels, without drawing it."""
    font = FontProperties(family=FONT, size=size, weight="bold" if bold else "normal")
    with warnings.catch_warnings():
        # a glyph that the measuring font lacks is measured as its box
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        width, _, _ = TextToPath().get_text_width_height_descent(printable(words), font, ismath=False)
    # at least one em for each character outside the alphabets of the measuring font
    wide = sum(ord(c) >= 0x2E80 for c in words)
    return max(float(width), wide * size)


SYSTEM_FONTS = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'DejaVu Sans', sans-serif"
)
_TOKEN_OF = {light: name for name, (light, _) in TOKENS.items()}
_COLOUR = re.compile("|".join(map(re.escape, _TOKEN_OF)), re.IGNORECASE)


def svg(canvas: Canvas, name: str, themed: bool = False) -> str:
    """Return the figure as SVG text on white; themed: transparent, in colours that the page defines."""
    target = io.StringIO()
    with rc_context(SETTINGS | {"svg.hashsalt": name}), warnings.catch_warnings():
        # a glyph that the measuring font lacks is still written as text, in the font of the reader
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        paper = "none" if themed else "white"
        canvas.figure.savefig(target, format="svg", facecolor=paper, metadata={"Date": None, "Creator": None})
    text = target.getvalue()
    body = re.sub(
        r"\s*<metadata>.*?</metadata>|\s*<defs>\s*<style.*?</style>\s*</defs>",
        "",
        text[text.index("<svg") :],
        flags=re.DOTALL,
    )
    body = re.sub(r"<svg [^>]*>", _opening(canvas, themed), body, count=1)
    # only tags are changed: a policy may have the name of a colour or an attribute
    body = re.sub(r"<[^>]+>", lambda tag: _restyled(tag.group(0), name, themed), body)
    return body if themed else '<?xml version="1.0" encoding="utf-8"?>\n' + body


def png(canvas: Canvas, scale: float = 2.0) -> bytes:
    """Return the figure as PNG bytes on white, at twice the pixels of the layout."""
    target = io.BytesIO()
    with rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        canvas.figure.savefig(
            target, format="png", dpi=72 * scale, facecolor="white", metadata={"Software": None}
        )
    return target.getvalue()


def _opening(canvas: Canvas, themed: bool) -> str:
    size = "" if themed else f'width="{canvas.width:g}" height="{canvas.height:g}" '
    # inside a page the figure element has the text alternative, so the drawing is hidden from readers
    # black is written without a fill: it must not take the colour that the page gives to drawings
    spoken = 'aria-hidden="true" focusable="false" style="fill: #000" ' if themed else 'role="img" '
    box = f"0 0 {canvas.width:g} {canvas.height:g}"
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" version="1.1" '
        f'{size}{spoken}viewBox="{box}" stroke-linejoin="round" stroke-linecap="butt">'
    )


def _restyled(tag: str, name: str, themed: bool) -> str:
    """Return a tag with system fonts, ids that only this figure uses, and colours as variables."""
    tag = re.sub(r"font: ((?:bold |700 )?[\d.]+px) [^;\"]*", rf"font: \1 {SYSTEM_FONTS}", tag)
    tag = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\g<1>"', tag)
    tag = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", tag)
    return _COLOUR.sub(lambda found: f"var(--{_TOKEN_OF[found.group(0).lower()]})", tag) if themed else tag
