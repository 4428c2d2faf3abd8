"""Allocation heat maps, a picture per contestant, in one order of policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from evenhand.model.problem import Problem
from evenhand.report.pictures import allocation_picture
from evenhand.report.rows import Share, Standing
from evenhand.report.sections import Picture
from evenhand.sim.runs import Runs
from evenhand.theory.plan import plan


def allocation_pictures(
    problem: Problem, means: ArrayLike, runs: Mapping[str, Runs], when: str
) -> tuple[Picture, ...]:
    """Where each contestant's samples went, beside the optimal share of every cell."""
    best = plan(problem, means)
    scores = problem.scores(means)
    feasible = problem.feasible(means)
    places = np.argsort(np.argsort(-scores, kind="stable"))
    standings = [
        Standing(
            name, float(scores[k]), "met" if feasible[k] else "failed", int(places[k]), name == best.answer
        )
        for k, name in enumerate(problem.policies)
    ]
    pictures = []
    for name, found in runs.items():
        shares = [
            Share(policy, group, float(found.allocation[k, g]), float(best.allocation[k, g]))
            for k, policy in enumerate(problem.policies)
            for g, group in enumerate(problem.group_names)
        ]
        drawn = allocation_picture(shares, standings, f"Where samples go {when}: {name}")
        pictures.append(replace(drawn, name=f"allocation-{_slug(when)}-{_slug(name)}"))
    return tuple(pictures)


def _slug(words: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in words.lower()).split())
