"""Requirements across groups in the main figure; large figures with long names."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import evenhand as eh
from evenhand.model.problem import Problem
from evenhand.model.requirements import Constraint
from evenhand.model.result_rows import CellRow, PolicyRow
from evenhand.reports.figure_rows import Share
from evenhand.reports.figures.allocation import allocation
from evenhand.reports.figures.canvas import NARROW, WIDE, Canvas, svg
from evenhand.reports.figures.floors import LEGEND_LINE, floors
from evenhand.reports.requirement_marks import nearest_policy, requirement_marks

GROUPS = {"young": 0.5, "middle": 0.3, "old": 0.2}
TEXT = "{http://www.w3.org/2000/svg}text"


def problem(rule: Constraint, policies: int = 8) -> Problem:
    return Problem([f"policy {k}" for k in range(policies)], GROUPS, eh.Gaussian(1.0), rule)


def cells(asked: Problem, means: np.ndarray, floor: float | None = None) -> list[CellRow]:
    return [
        CellRow(policy, group, 9, float(means[k, g]), None, None, "undecided", floor)
        for k, policy in enumerate(asked.policies)
        for g, group in enumerate(GROUPS)
    ]


def words_of(canvas: Canvas) -> str:
    root = ET.fromstring(svg(canvas, "x"))
    return " ".join(text.text or "" for text in root.iter(TEXT))


@pytest.mark.parametrize(
    "rule", [eh.Gap(0.3), eh.Ratio(0.7), eh.Dispersion(0.05), eh.Dispersion(0.02, weighted=True)]
)
def test_a_policy_exceeds_what_is_allowed_exactly_when_it_is_not_feasible(rule: Constraint) -> None:
    asked = problem(rule, 50)
    means = np.random.default_rng(5).uniform(0.4, 1.0, (50, 3))
    marks = requirement_marks(asked, cells(asked, means))
    exceeds = [mark.excess is not None and mark.excess > 0 for mark in marks]
    assert 0 < sum(exceeds) < 50
    assert exceeds == [not met for met in asked.feasible(means)]  # the model's own test of the region


def test_the_limit_of_a_gap_and_of_a_ratio_is_where_the_smallest_mean_may_be() -> None:
    means = np.array([[0.8, 0.7, 0.5], [0.4, 0.4, 0.4]])
    gap, _ = requirement_marks(problem(eh.Gap(0.25), 2), cells(problem(eh.Gap(0.25), 2), means))
    assert gap.limit == pytest.approx(0.8 - 0.25)
    assert gap.words == "gap 0.300, at most 0.250"
    ratio, _ = requirement_marks(problem(eh.Ratio(0.5), 2), cells(problem(eh.Ratio(0.5), 2), means))
    assert ratio.limit == pytest.approx(0.5 * 0.8)


def test_a_quota_names_the_groups_that_count() -> None:
    asked = problem(eh.Quota(0.6, groups=2), 2)
    rows = cells(asked, np.array([[0.8, 0.7, 0.5], [0.1, 0.1, 0.1]]), floor=0.6)
    mark, other = requirement_marks(asked, rows)
    assert other.counted == ()
    assert mark.counted == ("young", "middle")
    drawn = words_of(floors(rows, [PolicyRow("policy 0", 0.7, "undecided", 1)], marks=[mark]))
    assert "young (counts)" in drawn
    assert "old (counts)" not in drawn
    assert "2 of 3 groups reach the floor, 2 needed" in drawn


def test_the_nearest_policy_is_named_by_what_it_would_meet() -> None:
    means = np.array([[0.8, 0.3, 0.5], [0.6, 0.5, 0.55]])
    asked = problem(eh.Floors(0.9), 2)
    assert "is 0.5, by policy 1" in nearest_policy(asked, cells(asked, means, floor=0.9))
    asked = problem(eh.Gap(0.05), 2)
    assert "policy 1 is nearest: gap 0.100, at most 0.050" in nearest_policy(asked, cells(asked, means))


LONG = [f"A policy whose name has forty characters {k:02}" for k in range(12)]
LONG_GROUPS = [f"People of the group with a long name {g}" for g in range(6)]


def large() -> tuple[list[CellRow], list[PolicyRow]]:
    verdicts = ["met" if k == 0 else "undecided" if k < 3 else "failed" for k in range(12)]
    rows = [
        CellRow(p, g, 40, 0.9 - 0.05 * k, 0.3, 0.95, verdicts[k], 0.5)
        for k, p in enumerate(LONG)
        for g in LONG_GROUPS
    ]
    return rows, [PolicyRow(p, 0.9 - 0.05 * k, verdicts[k], k + 1, leads=k == 0) for k, p in enumerate(LONG)]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_name_is_cut_with_twelve_policies_and_six_groups(width: int) -> None:
    rows, standings = large()
    shares = [Share(row.policy, row.group, 1 / 72, 1 / 72, 40) for row in rows]
    for canvas in (floors(rows, standings, width), allocation(shares, standings, width)):
        drawn = words_of(canvas)
        assert "…" not in drawn
        joined = re.sub(r"\s", "", drawn)
        for name in (*LONG, *LONG_GROUPS):
            assert name.replace(" ", "") in joined, (width, name)
    assert words_of(allocation(shares, standings, width)).count("aim 1.4%") == 72


def test_a_refuted_policy_takes_one_line_of_a_large_figure() -> None:
    rows, standings = large()
    drawn = words_of(floors(rows, standings))
    assert drawn.count("People of") == 3 * len(LONG_GROUPS)  # of the three that are not refuted
    few = [row for row in rows if row.policy in LONG[:4]]
    assert words_of(floors(few[:24], standings[:4])).count("People of") == 4 * len(LONG_GROUPS)


def test_black_text_stays_black_on_a_page_that_colours_its_drawings() -> None:
    drawn = svg(allocation([Share("a", "g", 1.0)]), "x", themed=True)
    root = ET.fromstring(drawn)
    assert "fill: #000" in root.attrib["style"]  # matplotlib writes black text without a fill


def test_the_figure_of_a_guard_rail_shows_the_overall_means_of_the_guard_rail() -> None:
    from evenhand.reports.figure_rows import standings_by

    asked = problem(eh.NoConstraint(), 2)
    rows = cells(asked, np.array([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]]))
    main = [PolicyRow("policy 0", 0.9, "met", 1, leads=True), PolicyRow("policy 1", 0.3, "met", 2)]
    found = standings_by(asked, main, rows)
    assert found[0].mean == pytest.approx(0.5 * 1.0 + 0.3 * 2.0 + 0.2 * 3.0)
    assert found[1].mean == pytest.approx(4.0)
    assert [row.place for row in found] == [1, 2]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_overall_means_within_the_indifference_of_the_best_are_marked(width: int) -> None:
    asked = problem(eh.Floors(0.0), 3)
    means = np.array([[0.8, 0.8, 0.8], [0.75, 0.75, 0.75], [2.0, -1.0, 0.0]])
    verdicts = ("met", "undecided", "failed")  # the last has the best mean, and is no answer
    standings = [
        PolicyRow(name, float(mean), verdict, place, place == 2)
        for name, mean, verdict, place in zip(
            asked.policies, (0.8, 0.75, 1.0), verdicts, (2, 3, 1), strict=True
        )
    ]
    drawn = floors(cells(asked, means, 0.0), standings, width, indifference=0.1)
    assert "within 0.1 of the best" in words_of(drawn)
    plain = floors(cells(asked, means, 0.0), standings, width)
    assert "within" not in words_of(plain)
    marked = [box for box in boxes(drawn) if box not in boxes(plain)]
    assert len(marked) == 4  # a band for each policy, and the legend
    # a narrow figure has the legend of the band in a line of its own, above the words of the floor
    assert drawn.height == plain.height + (LEGEND_LINE if width == NARROW else 0.0)
    assert len(set(marked[:3])) == 1
    # at the scale of the figure: from the best policy that is not refuted, 0.8, a tenth to the left
    wider = boxes(floors(cells(asked, means, 0.0), standings, width, indifference=0.2))
    assert marked[0][1] in {right for _, right in wider}


def boxes(canvas: Canvas) -> list[tuple[float, float]]:
    """Left and right end of every filled box."""
    found = re.findall(r'd="M ([-0-9.]+) [-0-9.]+ \nL ([-0-9.]+) [-0-9.]+ \nL ', svg(canvas, "x"))
    return [(round(float(left), 2), round(float(right), 2)) for left, right in found if left != right]
