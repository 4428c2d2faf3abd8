"""Heat maps of the allocation, one per procedure, with the policies in the same order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from numpy.typing import ArrayLike

from evenhand.model.problem import Problem
from evenhand.reports.captioned_figures import allocation_picture
from evenhand.reports.figure_rows import shares, true_standings
from evenhand.reports.page_parts import Picture
from evenhand.simulation.runs import Runs
from evenhand.theory.plan import plan


def allocation_pictures(
    problem: Problem, means: ArrayLike, runs: Mapping[str, Runs], when: str
) -> tuple[Picture, ...]:
    """Return a heat map per procedure: its allocation next to the optimal share of every cell."""
    best = plan(problem, means)
    standings = true_standings(problem, means, best.answer)
    pictures = []
    for name, found in runs.items():
        rows = shares(problem, found.allocation, best.allocation)
        drawn = allocation_picture(rows, standings, f"Where samples go {when}: {name}", "the best allocation")
        pictures.append(replace(drawn, name=f"allocation-{_slug(when)}-{_slug(name)}"))
    return tuple(pictures)


def _slug(words: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in words.lower()).split())
