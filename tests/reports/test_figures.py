"""Pictures are functions of rows: the same rows give the same bytes, and whatever rows come are drawn."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest
from matplotlib.colors import to_rgb

from evenhand.model.result_rows import CellRow, PolicyRow
from evenhand.reports.figure_rows import Bar, Duration, Evidence, Share, Success
from evenhand.reports.figures.allocation import allocation, shares_over_time
from evenhand.reports.figures.canvas import TOKENS, Canvas, Scale, percent, png, shortened, svg, text_width
from evenhand.reports.figures.evidence import evidence
from evenhand.reports.figures.floors import floors
from evenhand.reports.figures.simulation import duration, success
from tests.reports import example_rows

DRAW: dict[str, Callable[[int], Canvas]] = {
    "floors": lambda width: floors(example_rows.estimates(), example_rows.standings(), width),
    "allocation": lambda width: allocation(example_rows.shares(), example_rows.standings(), width),
    "evidence": lambda width: evidence(example_rows.evidences(), width),
    "shares by interval": lambda width: shares_over_time(
        example_rows.interval_shares(), example_rows.POLICIES, example_rows.GROUPS, width
    ),
    "duration": lambda width: duration(example_rows.durations(), width),
    "success": lambda width: success(example_rows.successes(), width),
}


@pytest.mark.parametrize("name", DRAW)
@pytest.mark.parametrize("width", [720, 350])
def test_the_same_rows_give_the_same_bytes(name: str, width: int) -> None:
    assert svg(DRAW[name](width), name) == svg(DRAW[name](width), name)
    assert png(DRAW[name](width)) == png(DRAW[name](width))


@pytest.mark.parametrize("name", DRAW)
def test_a_saved_picture_is_a_whole_svg_with_its_words_as_text(name: str) -> None:
    root = ET.fromstring(svg(DRAW[name](720), name))
    assert root.tag.endswith("svg")
    assert root.get("width") == "720"
    assert len([text for text in root.iter("{http://www.w3.org/2000/svg}text") if text.text]) >= 5


@pytest.mark.parametrize("name", DRAW)
def test_a_themed_picture_takes_its_colours_from_the_page(name: str) -> None:
    drawn = svg(DRAW[name](350), name, themed=True)
    assert "var(--ink)" in drawn
    tags = "".join(re.findall(r"<[^>]+>", drawn))
    assert not any(light in tags for light, _ in TOKENS.values())
    assert 'aria-hidden="true"' in drawn


def test_ids_of_two_pictures_on_one_page_do_not_meet() -> None:
    ids = [
        set(re.findall(r'\bid="([^"]+)"', svg(DRAW["floors"](720), name, themed=True)))
        for name in ("one", "two")
    ]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_a_saved_picture_has_a_white_background_wherever_it_is_shown() -> None:
    from io import BytesIO

    from matplotlib.image import imread

    assert imread(BytesIO(png(DRAW["allocation"](720))))[2, 2].tolist() == [1.0, 1.0, 1.0, 1.0]
    saved, themed = (svg(DRAW["evidence"](720), "x", themed) for themed in (False, True))
    assert "fill: #ffffff" in saved
    assert "fill: #ffffff" not in themed


@pytest.mark.parametrize(
    "name",
    ["<script>x</script>", 'a" onload="x', "$\\frac{1}{2}$", "#0072b2", 'id="q"', "x\x00y\x1b", "样本🙂"],
)
def test_a_name_is_drawn_as_text_whatever_it_is(name: str) -> None:
    names = (name, "b", "c", "d")
    drawn = svg(floors(example_rows.estimates(names), example_rows.standings(names)), "floors")
    root = ET.fromstring(drawn)
    words = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    shown = name.replace("\x00", "\ufffd").replace("\x1b", "\ufffd")
    assert shown in words
    assert png(floors(example_rows.estimates(names), example_rows.standings(names)))
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


def test_every_cell_is_drawn_however_little_is_known_of_it() -> None:
    empty = [CellRow("a", g, 0, None, None, None, "undecided", 0.5) for g in ("x", "y")]
    canvas = floors(empty, [PolicyRow("a", None, "undecided", 1)])
    assert "undecided" in svg(canvas, "f")
    wide = [
        CellRow("a", "x", 1, 0.5, 0.0, 1.0, "undecided"),
        CellRow("a", "y", 9999, 0.5, 0.499, 0.501, "met"),
    ]
    assert svg(floors(wide, [PolicyRow("a", 0.5, "met", 1)]), "f").count("undecided") >= 2


def test_extreme_rows_do_not_break_a_picture() -> None:
    assert svg(allocation([Share("a", "g", 0.0)]), "a")
    assert svg(allocation([Share("p", f"g{i}", 1 / 40) for i in range(40)]), "a")
    assert svg(evidence([Evidence(1, -3.0, 2.0, "a")]), "e")
    assert svg(duration([Duration("a", (Bar(5.0, 6.0, 1),), ((0.5, 5.0),))]), "d")
    assert svg(success([Success("a", 10, 1.0, 0.9, 1.0)]), "s")
    many = [CellRow(f"policy {k}", "g", 1, 0.1, 0.0, 0.2, "met") for k in range(150)]
    assert svg(floors(many, [PolicyRow(f"policy {k}", 0.1, "met", k + 1) for k in range(150)]), "f")


def test_a_flicker_of_the_weakest_comparison_does_not_chop_the_strip() -> None:
    rows = [Evidence(t, 0.1, 4.0, "odd one out" if t == 500 else "the usual") for t in range(1, 1001)]
    assert "odd one" not in svg(evidence(rows), "e")


@pytest.mark.parametrize("width", [720, 350])
def test_comparisons_whose_names_do_not_fit_are_numbered_below_and_never_cut(width: int) -> None:
    names = [f"the policy number {n} with a long name against the control" for n in range(3)]
    rows = [Evidence(t, 0.001 * t, 4.0, names[t // 250 % 3]) for t in range(1, 1000)]
    drawn = svg(evidence(rows, width), "e")
    assert "…" not in drawn
    words = " ".join(" ".join(re.findall(r">([^<>]+)<", drawn)).split())
    for number, name in enumerate(names, start=1):
        now = " (now)" if name == rows[-1].weakest else ""
        assert f"{number}{now}: {name}" in words


def test_a_comparison_whose_name_fits_is_named_in_the_strip() -> None:
    rows = [Evidence(t, 0.001 * t, 4.0, "a against b") for t in range(1, 1000)]
    words = re.findall(r">([^<>]+)<", svg(evidence(rows), "e"))
    assert "a against b" in words
    assert not any("(now)" in word for word in words)


def test_long_names_are_shortened_to_their_room() -> None:
    words = shortened("a policy with a name that goes on and on", 100, 13)
    assert words.endswith("…")
    assert text_width(words, 13) <= 100
    assert shortened("short", 100, 13) == "short"


def test_shares_never_round_to_nothing() -> None:
    assert [percent(x) for x in (0.0, 0.0002, 0.026, 0.0999, 0.41, 1.0)] == [
        "0%",
        "<0.1%",
        "2.6%",
        "10%",
        "41%",
        "100%",
    ]


def test_ticks_are_round_and_inside() -> None:
    assert [label for _, label in Scale(0.742, 0.913, 0, 700).ticks(6)] == ["0.75", "0.80", "0.85", "0.90"]
    assert [label for _, label in Scale(0, 61_000, 0, 700).ticks(4)] == ["0", "20,000", "40,000", "60,000"]


def test_text_and_marks_stand_out_from_the_page_in_light_and_dark() -> None:
    for theme in (0, 1):
        paper = TOKENS["paper"][theme]
        for name in ("ink", "grey", "blue"):
            assert _contrast(TOKENS[name][theme], paper) >= 4.5, name
        for name in ("vermillion", "green"):
            assert _contrast(TOKENS[name][theme], paper) >= 3.0, name


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
