"""Write a canvas as SVG text or PNG bytes; the same rows give the same bytes."""

from __future__ import annotations

import io
import re
import warnings

from matplotlib import rc_context

from evenhand.reports.figures.style import SETTINGS, TOKENS, Canvas

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
    spoken = 'aria-hidden="true" focusable="false" ' if themed else 'role="img" '
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
