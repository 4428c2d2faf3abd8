"""Figures of large problems: the policies ranked first, the groups that matter, and a sentence about it."""

from __future__ import annotations

import numpy as np

import evenhand as eh
from evenhand.model.result_rows import CellRow, PolicyRow
from evenhand.reports.captioned_figures import allocation_picture, floors_picture
from evenhand.reports.figure_rows import MOST_CELLS, drawn_cells, drawn_estimates, shares
from evenhand.reports.figures.canvas import WIDE, svg
from evenhand.reports.requirement_marks import with_bounds


def table(policies: int, groups: int) -> tuple[list[CellRow], list[PolicyRow]]:
    """Policy 0 leads; its mean falls with the group."""
    cells = [
        CellRow(f"p{k}", f"g{g}", 10, 0.9 - 0.001 * g - 0.002 * k, 0.1, 1.0, "undecided", 0.5)
        for k in range(policies)
        for g in range(groups)
    ]
    rows = [PolicyRow(f"p{k}", 0.9 - 0.002 * k, "undecided", k + 1, k == 0) for k in range(policies)]
    return cells, rows


def test_a_problem_that_fits_is_drawn_whole() -> None:
    found = drawn_estimates(*table(12, 6))
    assert (len(found.policies), len(found.groups), found.note) == (12, 6, "")


def test_of_a_large_problem_the_leader_and_the_groups_nearest_to_their_bounds_are_drawn() -> None:
    cells, rows = table(100, 100)
    found = drawn_estimates(cells, rows)
    assert len(found.policies) * len(found.groups) <= MOST_CELLS
    assert "p0" in found.policies
    assert {"g99", "g98", "g0"} <= found.groups  # the lowest, and the highest for gaps and ratios
    assert found.note == (
        " Drawn are the 10 policies ranked first of 100 and 8 of 100 groups, those nearest to their bounds; "
        "the numbers have all cells."
    )


def test_every_shape_keeps_the_limit_and_a_few_of_both() -> None:
    for k in (1, 2, 3, 50, 1_000):
        for g in (1, 2, 7, 50, 1_000):
            found = drawn_cells([f"p{n}" for n in range(k)], [f"g{n}" for n in range(g)], "")
            assert len(found.policies) * len(found.groups) <= max(MOST_CELLS, 1), (k, g)
            assert len(found.policies) >= min(k, 3)
            assert len(found.groups) >= min(g, 8)
            assert bool(found.note) == (k * g > MOST_CELLS)


def test_the_table_of_a_large_figure_has_every_cell_and_its_drawing_few() -> None:
    cells, rows = table(60, 20)
    picture = floors_picture(cells, rows)
    assert len(picture.table.rows) == 1_200
    text = svg(picture.draw(WIDE), "x")
    assert "p0" in text
    assert "p59" not in text
    problem = eh.Problem([f"p{k}" for k in range(60)], {f"g{g}": 0.05 for g in range(20)}, eh.Bernoulli())
    spread = np.full((60, 20), 1 / 1_200)
    where = allocation_picture(shares(problem, spread), rows)
    assert len(where.table.rows) == 1_200
    assert "those with the most samples" in where.says


def test_floors_that_are_combined_with_a_gap_are_drawn() -> None:
    rule = eh.All([eh.Floors([0.5, 0.4]), eh.Caps(0.9), eh.Gap(0.2)])
    problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), rule)
    cells = [CellRow(k, g, 5, 0.6, 0.2, 0.9, "undecided") for k in "ab" for g in "xy"]
    found = with_bounds(problem, cells)
    assert [(cell.floor, cell.cap) for cell in found] == [(0.5, 0.9), (0.4, 0.9)] * 2
    plain = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Gap(0.2))
    assert with_bounds(plain, cells) == cells


def test_of_long_names_fewer_are_drawn() -> None:
    policies, groups = [f"p{k}" for k in range(100)], [f"g{k}" for k in range(100)]
    short = drawn_cells(policies, groups, "in this order")
    long = drawn_cells([f"{'name ' * 30}{policy}" for policy in policies], groups, "in this order")
    assert 4 * len(long.policies) * len(long.groups) <= len(short.policies) * len(short.groups)
    assert "the 5 policies ranked first of 100 and 4 of 100 groups" in long.note
