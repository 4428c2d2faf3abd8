"""Pictures as files: SVG, PNG, and the table behind them as CSV."""

from __future__ import annotations

import csv
from pathlib import Path

from evenhand.report.figures.save import png, svg
from evenhand.report.figures.style import WIDE
from evenhand.report.sections import Field, Picture, Table

# what a spreadsheet would take for the start of a formula
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\0")


def save_picture(picture: Picture, folder: Path, name: str) -> list[Path]:
    """The picture as name.svg and name.png, and its table as name.csv."""
    canvas = picture.draw(WIDE)
    drawn, painted, tabled = (folder / f"{name}{suffix}" for suffix in (".svg", ".png", ".csv"))
    drawn.write_text(svg(canvas, name), encoding="utf-8")
    painted.write_bytes(png(canvas))
    write_csv(picture.table, tabled)
    return [drawn, painted, tabled]


def write_csv(table: Table, path: Path) -> None:
    """A table for spreadsheets: text that looks like a formula is marked as text, numbers stay numbers."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        writer.writerows([[_safe(value) for value in row] for row in table.rows])


def _safe(value: Field) -> Field:
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value
