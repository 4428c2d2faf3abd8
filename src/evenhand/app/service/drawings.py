"""What the dashboard draws of one experiment, from its status: words, pictures, tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from evenhand.live.experiment import Experiment
from evenhand.model.constraints import Caps, Floors
from evenhand.report.figures.allocation import allocation
from evenhand.report.figures.floors import floors
from evenhand.report.figures.save import svg
from evenhand.report.figures.style import NARROW, TOKENS, WIDE, Canvas
from evenhand.report.rows import Estimate, Share, Standing


@dataclass(frozen=True)
class Picture:
    """A drawing in two widths, with its title and the sentence that says what it shows."""

    title: str
    says: str
    wide: Markup
    narrow: Markup


@dataclass(frozen=True)
class Drawn:
    """An experiment as the page shows it."""

    status: dict[str, Any]
    sentence: str
    progress: float | None
    pictures: tuple[Picture, ...]


def draw(trial: Experiment, status: dict[str, Any], blind: bool) -> Drawn:
    """Words first, then the pictures; a blind page has enrolment only."""
    if blind:
        sentence = f"{status['samples']:,} outcomes told, {status['pending']:,} tickets out."
        return Drawn(status, sentence, None, ())
    evidence, needed = status["evidence"], status["needed"]
    share = None if not needed or evidence is None else min(max(evidence / needed, 0.0), 1.0)
    return Drawn(status, status["sentence"], share, _pictures(trial, status))


def theme() -> str:
    """Colours of the pictures as custom properties, light and dark."""
    light, dark = (" ".join(f"--{name}: {pair[place]};" for name, pair in TOKENS.items()) for place in (0, 1))
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"


def _pictures(trial: Experiment, status: dict[str, Any]) -> tuple[Picture, ...]:
    estimates, standings = _rows(trial, status)
    told = max(status["samples"], 1)
    shares = [Share(c["policy"], c["group"], c["n"] / told, None, c["n"]) for c in status["cells"]]
    verdicts = [e.verdict for e in estimates]
    says = ", ".join(f"{verdicts.count(word)} {word}" for word in ("met", "failed", "undecided"))
    return (
        _picture("floors", "Every group against its bound", f"Of {len(estimates)} cells: {says}.",
                 lambda width: floors(estimates, standings, width)),
        _picture("allocation", "Where samples go", f"{status['samples']:,} samples so far.",
                 lambda width: allocation(shares, standings, width)),
    )  # fmt: skip


def _picture(name: str, title: str, says: str, drawn: Any) -> Picture:
    wide: Canvas = drawn(WIDE)
    narrow: Canvas = drawn(NARROW)
    # our own drawings: names inside them were escaped when they were written
    return Picture(
        title,
        says,
        Markup(svg(wide, f"{name}-wide", themed=True)),
        Markup(svg(narrow, f"{name}-narrow", themed=True)),
    )


def _rows(trial: Experiment, status: dict[str, Any]) -> tuple[list[Estimate], list[Standing]]:
    problem = trial.protocol.problem
    k_of, g_of = trial.protocol.policies, trial.protocol.groups
    region, family = problem.standard.region, problem.family
    bounded = isinstance(problem.constraint, (Floors, Caps))
    estimates = []
    for cell in status["cells"]:
        k, g = k_of[cell["policy"]], g_of[cell["group"]]
        floor, cap = (family.low + family.width * float(bound[g, k]) for bound in (region.lo, region.hi))
        estimates.append(
            Estimate(
                cell["policy"], cell["group"], cell["n"], cell["mean"], cell.get("low"), cell.get("high"),
                cell["verdict"],
                floor if bounded and floor > -1e300 else None, cap if bounded and cap < 1e300 else None,
            )
        )  # fmt: skip
    order = sorted(status["policies"], key=lambda p: -(p["mean"] if p["mean"] is not None else -1e300))
    places = {p["policy"]: place for place, p in enumerate(order)}
    standings = [
        Standing(p["policy"], p["mean"], p["verdict"], places[p["policy"]], p["policy"] == status["leader"])
        for p in status["policies"]
    ]
    return estimates, standings
