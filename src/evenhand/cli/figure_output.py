"""Write figures of plans and simulated runs to files, drawn with the report's functions."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.errors import BadInput

if TYPE_CHECKING:
    from evenhand.reports.figure_rows import Evidence
    from evenhand.reports.figures.canvas import Canvas
    from evenhand.simulation.buffers import Trace
    from evenhand.simulation.runs import Runs
    from evenhand.simulation.simulate import Comparison
    from evenhand.study import Study
    from evenhand.theory.plan import Plan


def figure_path(name: str) -> Path:
    """Return the path of a figure, after checking that it can be written."""
    path = Path(name)
    if path.suffix not in (".svg", ".png"):
        raise BadInput(f"a figure's name must end in .svg or .png; it is {name!r}.")
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {path.parent} to write the figure to; create it first.")
    if find_spec("matplotlib") is None:
        raise BadInput("figures need matplotlib; install evenhand[report].")
    return path


def draw_plan(found: Plan, path: Path) -> None:
    """Draw the optimal allocation of a plan as a heat map."""
    from evenhand.reports.figure_rows import shares, true_standings
    from evenhand.reports.figures.allocation import allocation

    standings = true_standings(found.problem, found.means, found.answer, found.guardrails)
    write_figure(allocation(shares(found.problem, found.allocation), standings), "allocation", path)


def draw_runs(source: Runs | Comparison, name: str, path: Path) -> None:
    """Draw a figure of runs by name: duration, success or allocation."""
    from evenhand.reports.figures.canvas import WIDE
    from evenhand.reports.sections.runs import runs_section

    section, _ = runs_section(source)
    picture = next((found for found in section.pictures if found.name == name), None)
    if picture is None:
        raise BadInput(f"there is no {name} figure of these runs; a success curve needs --checkpoints.")
    write_figure(picture.draw(WIDE), name, path)


def draw_evidence(study: Study, trace: Trace, path: Path) -> None:
    """Draw the evidence of one run against its threshold."""
    from evenhand.reports.figures.evidence import evidence

    rows = _evidence(study, trace)
    if not rows:
        raise BadInput("a run with a fixed budget has no threshold, so there is no evidence figure.")
    write_figure(evidence(rows), "evidence", path)


def _evidence(study: Study, trace: Trace) -> list[Evidence]:
    from evenhand.reports.figure_rows import Evidence
    from evenhand.verdicts.verdict_sentences import alternative_in_words

    rows = []
    for number in range(len(trace.policy)):
        value, needed = float(trace.evidence[number]), float(trace.needed[number])
        if needed != 0.0 and math.isfinite(needed) and math.isfinite(value):
            words = alternative_in_words(study.problem, int(trace.answer[number]), int(trace.weakest[number]))
            rows.append(Evidence((number + 1) * trace.every, value, needed, words))
    return rows


def write_figure(canvas: Canvas, name: str, path: Path) -> None:
    """Write a figure as SVG or PNG, by the suffix of its path."""
    from evenhand.reports.figures.canvas import png, svg

    if path.suffix.lower() == ".svg":
        path.write_text(svg(canvas, name), encoding="utf-8")
    else:
        path.write_bytes(png(canvas))
