"""Small studies of the questions beyond the best policy under fixed floors, one of each kind."""

from __future__ import annotations

from dataclasses import replace

import evenhand as eh
from evenhand.study import Study
from evenhand.study.truth import Truth

GROUPS = {"x": 0.6, "y": 0.4}


def _study(problem: eh.Problem, procedure: eh.Procedure, means: list[list[float]]) -> Study:
    # the order of a new live experiment, so that simulations take the same one
    procedure = replace(procedure, initial_order="random")
    return Study(problem, procedure, Truth.from_dict({"means": means}, problem))


# the last three have the same structure as kernels see it, so few programs are compiled
STUDIES: dict[str, Study] = {
    "indifference": _study(
        eh.Problem(["a", "b", "c"], GROUPS, eh.Bernoulli(), eh.Floors(0.3)),
        eh.Procedure(delta=0.1, indifference=0.2, tolerance=0.05, max_samples=800),
        [[0.8, 0.7], [0.78, 0.72], [0.2, 0.1]],
    ),
    "relative": _study(
        eh.Problem(["a", "b", "c"], GROUPS, eh.Bernoulli(), eh.Floors(relative_to="a", margin=0.1)),
        eh.Procedure(delta=0.1, max_samples=900),
        [[0.5, 0.5], [0.9, 0.8], [0.9, 0.1]],
    ),
    "screen": _study(
        eh.Problem(["a", "b", "c"], GROUPS, eh.Bernoulli(), eh.Floors(0.5), goal="screen"),
        eh.Procedure(delta=0.1, max_samples=900),
        [[0.9, 0.8], [0.85, 0.95], [0.9, 0.1]],
    ),
    "screen one": _study(
        eh.Problem(["model"], GROUPS, eh.Bernoulli(), eh.Floors(0.5), goal="screen"),
        eh.Procedure(delta=0.1, max_samples=900),
        [[0.9, 0.8]],
    ),
    "costs": _study(
        eh.Problem(
            ["a", "b", "c"], GROUPS, eh.Bernoulli(), eh.Floors(0.3), costs={"a": 1.0, "b": 2.5, "c": 4.0}
        ),
        eh.Procedure(delta=0.1, max_samples=900),
        [[0.9, 0.8], [0.5, 0.4], [0.2, 0.1]],
    ),
}
