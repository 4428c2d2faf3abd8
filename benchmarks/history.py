"""Keep the results of benchmark runs in a file and draw charts of them."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import Row
from evenhand.reports.figures.canvas import (
    BLUE,
    DASHES,
    GREY,
    INK,
    ORANGE,
    RULE,
    SERIES,
    SMALL,
    VERMILLION,
    WIDE,
    Canvas,
    Scale,
    svg,
)
from evenhand.reports.figures.canvas import number as written

FOLDER = Path(__file__).parent / "history"
RUNS = FOLDER / "runs.jsonl"
LINE, TOP, FOOT, NAME, VALUE = 22.0, 30.0, 44.0, 380.0, 90.0


def keep(rows: Sequence[Row]) -> list[Path]:
    """Append a run to the history, redraw the charts and return the files written."""
    FOLDER.mkdir(exist_ok=True)
    run = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        # the JSON line of the row, and the points of its curve
        "rows": [json.loads(row.line()) | ({"curve": row.curve} if row.curve else {}) for row in rows],
    }
    with RUNS.open("a") as file:
        file.write(json.dumps(run) + "\n")
    files = [RUNS]
    runs = [json.loads(line) for line in RUNS.read_text().splitlines()]
    for name, canvas in (("promises", promises(runs)), ("growth", growth(runs))):
        if canvas is not None:
            (FOLDER / f"{name}.svg").write_text(svg(canvas, name))
            files.append(FOLDER / f"{name}.svg")
    return files


def promises(runs: Sequence[dict[str, Any]]) -> Canvas | None:
    """Draw a line per target: ratio to the target, newest run in colour, earlier runs in grey."""
    latest = {row["name"]: row for run in runs for row in run["rows"] if row["least"]}
    if not latest:
        return None
    found = {
        name: [_margin(row) for run in runs for row in run["rows"] if row["name"] == name] for name in latest
    }
    canvas = Canvas(WIDE, TOP + LINE * len(latest) + FOOT)
    every = [margin for margins in found.values() for margin in margins]
    across = Scale(min(*every, -0.5), max(*every, 0.5), NAME + 16.0, WIDE - VALUE - 16.0)
    bottom = TOP + LINE * (len(latest) - 0.5)
    canvas.text(across.at(0.0), 12, "target", colour=GREY, size=SMALL, anchor="center")
    canvas.line([across.at(0.0)] * 2, [TOP - LINE / 2, bottom], ORANGE, 1.4)
    for power in range(math.ceil(across.low), math.floor(across.high) + 1):
        label = f"{10.0**power:,g}x"
        canvas.text(across.at(power), bottom + 14, label, colour=GREY, size=SMALL, anchor="center")
    for line, (name, margins) in enumerate(found.items()):
        y = TOP + LINE * line
        canvas.line([NAME, WIDE - VALUE], [y, y], RULE, 0.8)
        canvas.text(8, y, name, size=SMALL, room=NAME - 16)
        for margin in margins[:-1]:
            canvas.dot(across.at(margin), y, GREY, size=4, alpha=0.6)
        kept = margins[-1] >= 0.0
        canvas.dot(across.at(margins[-1]), y, BLUE if kept else VERMILLION, size=8, hollow=not kept)
        words = f"{written(latest[name]['ours'])} {latest[name]['unit']}"
        canvas.text(WIDE - 6, y, words, colour=INK, size=SMALL, anchor="right", room=VALUE - 8)
    return canvas


def growth(runs: Sequence[dict[str, Any]]) -> Canvas | None:
    """Draw time against size for the latest curves on log scales, with fitted exponents."""
    drawn = list({row["name"]: row for run in runs for row in run["rows"] if row.get("curve")}.values())
    if not drawn:
        return None
    top, bottom, left = 14.0 + LINE * len(drawn), 14.0 + LINE * len(drawn) + 280.0, 70.0
    canvas = Canvas(WIDE, bottom + FOOT)
    sizes, times = (np.log10([point[axis] for row in drawn for point in row["curve"]]) for axis in (0, 1))
    across = Scale(float(sizes.min()), float(sizes.max()), left + 10.0, WIDE - 30.0)
    up = Scale(float(times.min()), float(times.max()), bottom - 8.0, top + 8.0)
    for power in range(math.ceil(up.low), math.floor(up.high) + 1):
        canvas.line([left, WIDE - 30.0], [up.at(power)] * 2, RULE, 0.8)
        label = f"{10.0**power:g} s"
        canvas.text(left - 8, up.at(power), label, colour=GREY, size=SMALL, anchor="right")
    for power in range(math.ceil(across.low), math.floor(across.high) + 1):
        label = f"{10.0**power:,g}"
        canvas.text(across.at(power), bottom + 14, label, colour=GREY, size=SMALL, anchor="center")
    canvas.text((left + WIDE) / 2, bottom + 34, "size", colour=GREY, size=SMALL, anchor="center")
    for number, row in enumerate(drawn):
        colour, dashes, y = SERIES[number % len(SERIES)], DASHES[number % len(DASHES)], 12.0 + LINE * number
        xs, ys = zip(
            *((across.at(math.log10(x)), up.at(math.log10(t))) for x, t in row["curve"]), strict=True
        )
        canvas.line(xs, ys, colour, 2.0, dashes)
        canvas.line([left, left + 26], [y, y], colour, 2.2, dashes)
        canvas.text(left + 34, y, f"{row['name']}: exponent {row['ours']:.2f}", size=SMALL)
    return canvas


def _margin(row: dict[str, Any]) -> float:
    return math.log10(row["ratio"] / row["least"])


def _commit() -> str | None:
    """Return the commit of the checkout, or None."""
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=FOLDER.parent,
        check=False,
    )
    return found.stdout.strip() or None
