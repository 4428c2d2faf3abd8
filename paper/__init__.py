"""Reproduce the paper's experiments and compare them with evenhand, one module each.

In a checkout this is the folder `paper`; it is installed as `evenhand.paper`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evenhand.paper import (
    delta_scaling,
    feasibility_gap,
    hard_and_soft,
    operational_scale,
    stroke_trial,
    three_treatments,
    trial_data,
)
from evenhand.paper.methods import Setting, run_times

from evenhand.errors import BadInput, nearest
from evenhand.reports.captioned_figures import save_picture
from evenhand.reports.document import Report
from evenhand.reports.page_parts import Section

EXPERIMENTS: dict[str, Any] = {
    "example": three_treatments,
    "a": delta_scaling,
    "a'": feasibility_gap,
    "b": operational_scale,
    "c": hard_and_soft,
    "ist": stroke_trial,
}
__all__ = ["EXPERIMENTS", "Setting", "chosen", "run", "run_times", "steps", "trial_data"]
TITLE = "The paper compared with evenhand"


def chosen(only: str | None) -> list[str]:
    """Return the names of the experiments to run: all, or those in `only`, such as `a,b,ist`."""
    if only is None:
        return list(EXPERIMENTS)
    names = [name.strip() for name in only.split(",") if name.strip()]
    if not names:
        raise BadInput(f"name an experiment to run: {', '.join(EXPERIMENTS)}.")
    for name in names:
        if name not in EXPERIMENTS:
            raise BadInput(f"there is no experiment {name!r}{nearest(name, EXPERIMENTS)}")
    return [name for name in EXPERIMENTS if name in names]


def steps(names: Sequence[str]) -> int:
    """Return how many times `run` calls `on_done` for these experiments."""
    return sum(EXPERIMENTS[name].STEPS for name in names)


def run(names: Sequence[str], setting: Setting, out: Path, on_done: Callable[[str], None]) -> list[Section]:
    """Run the experiments and write results.json, figures/ and index.html."""
    sections = [EXPERIMENTS[name].section(setting, on_done) for name in names]
    figures = out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for section in sections:
        for picture in section.pictures:
            save_picture(picture, figures, picture.name)
    results = {name: dict(section.numbers) for name, section in zip(names, sections, strict=True)}
    header = {
        "replications": setting.replications,
        "literal": setting.literal,
        "seed": setting.seed,
        "seconds": setting.seconds,
    }
    (out / "results.json").write_text(
        json.dumps(header | results, indent=1, allow_nan=False) + "\n", encoding="utf-8"
    )
    Report(tuple(sections), (), TITLE, brand="paper").save(out / "index.html")
    return sections
