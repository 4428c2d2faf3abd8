"""Scans over a box of means: the numbers of `simulate`, exact intervals, refusals, pictures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import beta, binom

import evenhand as eh
from evenhand.errors import BadInput
from evenhand.simulation.box import box_of, grid_of, parse_box
from evenhand.simulation.outcome_laws import DrawnTruth, MeansByPoint, MeansByReplication
from evenhand.simulation.scan import MOST_RUNS
from evenhand.study import dumps
from tests.cli.conftest import Run, run  # noqa: F401
from tests.simulation.studies import coins

BOX = {"p1": {"g2": (0.2, 0.7)}}
RUNS = 60


@pytest.fixture(scope="module")
def found() -> eh.Scan:
    return eh.scan(coins(), BOX, points=3, replications=RUNS, seed=4, worst="error", workers=2)


def test_every_point_has_the_runs_of_simulate(found: eh.Scan) -> None:
    """The same means drawn one by one for each replication give the same counts."""
    study = coins()
    tables = np.repeat(np.array([study.means()] * 3), RUNS, axis=0)
    tables[:, 0, 1] = np.repeat([0.2, 0.45, 0.7], RUNS)
    runs = eh.simulate(
        study, DrawnTruth(MeansByReplication(tables)), replications=3 * RUNS, seed=4, workers=2
    )
    for place, point in enumerate(found.points):
        here = slice(place * RUNS, (place + 1) * RUNS)
        assert point.samples.mean == runs.samples[here].mean()
        assert point.error.rate == np.mean(runs.wrong[here])
        assert point.power.rate == np.mean(runs.stopped[here] & runs.correct[here])
    assert [point.answer for point in found.points] == ["p2", "p1", "p1"]


def test_chances_sum_to_one_and_have_clopper_pearson_intervals(found: eh.Scan) -> None:
    for point in found.points:
        assert point.error.rate + point.power.rate + point.undecided.rate == pytest.approx(1.0)
        assert sum(rate.rate for rate in point.answers.values()) + point.undecided.rate == pytest.approx(1.0)
        hits = round(point.power.rate * RUNS)
        low = beta.ppf(0.025, hits, RUNS - hits + 1) if hits else 0.0
        high = beta.ppf(0.975, hits + 1, RUNS - hits) if hits < RUNS else 1.0
        assert (point.power.low, point.power.high) == pytest.approx((low, high))


def test_the_worst_point_is_simulated_again(found: eh.Scan) -> None:
    assert found.found is not None
    assert 0.2 <= found.found.means[0] <= 0.7
    # far from a floor the procedure is right: the search ends near 0.3, the floor of p1
    assert abs(found.found.means[0] - 0.3) < 0.2


def test_the_error_of_a_certified_scan_is_at_most_delta() -> None:
    study = coins(stopping="certified", delta=0.1, max_samples=300)
    scanned = eh.scan(study, {"p1": {"g2": (0.28, 0.32)}}, points=2, replications=200, seed=1, workers=2)
    for point in scanned.points:
        assert binom.sf(round(point.error.rate * 200) - 1, 200, 0.1) > 1e-6


def test_a_grid_has_every_combination_and_exact_ends() -> None:
    problem = coins().problem
    box = box_of(problem, {"p1": {"g1": (-0.0, 0.3, 4)}, "p2": {"g2": (0.5, 0.5)}})
    assert grid_of(box).tolist() == [[0.0, 0.5], [0.1, 0.5], [0.2, 0.5], [0.3, 0.5]]


def test_ranges_are_read_from_text() -> None:
    problem = coins().problem
    assert parse_box(problem, ["p1/g2=0.2:0.7:3", "p2/g1=0.4"]) == {
        "p1": {"g2": (0.2, 0.7, 3)},
        "p2": {"g1": (0.4, 0.4)},
    }


@pytest.mark.parametrize(
    ("box", "points", "words"),
    [
        ({"p1": {"g2": (0.2, 1.2)}}, None, "domain of the bernoulli family, 0 to 1; it is 0.2 to 1.2"),
        ({"p1": {"g2": (0.7, 0.2)}}, None, "it goes from 0.7 to 0.2"),
        ({"p1": {"g2": (0.2, 0.7)}}, 0, "points must be a whole number, at least 1; it is 0"),
        ({"p1": {"g2": (0.2, 0.7)}}, 1, "at least 2 points"),
        ({"p1": {"g2": (0.2, 0.7)}}, 20_000, "can have 10,000 points; this one has 20,000. Give fewer"),
        ({"p9": {"g2": (0.2, 0.7)}}, None, "there is no policy 'p9'; known are 'p1', 'p2'"),
        ({"p1": {"g9": (0.2, 0.7)}}, None, "there is no group 'g9'; known are 'g1', 'g2'"),
        ({"p1": {"g2": 0.2}}, None, "a range must be two numbers"),
        ({}, None, "a box must be ranges by name"),
    ],
)
def test_a_wrong_box_is_refused_in_one_sentence(box: Any, points: int | None, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        eh.scan(coins(), box, points=points, replications=10)


def test_too_many_runs_and_files_of_outcomes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Give fewer replications or points"):
        eh.scan(coins(), BOX, points=100, replications=MOST_RUNS)
    data = replace(coins(), truth=eh.Truth(data="outcomes.csv", folder=tmp_path))
    (tmp_path / "outcomes.csv").write_text(
        "policy,group,outcome\n" + "".join(f"p{k},g{g},{x}\n" for k in (1, 2) for g in (1, 2) for x in (0, 1))
    )
    with pytest.raises(BadInput, match="draws from a file of outcomes"):
        eh.scan(data, BOX, replications=10)
    with pytest.raises(BadInput, match="needs the means"):
        eh.scan(coins().problem, BOX)


def test_means_of_points_are_checked_and_repeated() -> None:
    draw = MeansByPoint(np.arange(12.0).reshape(3, 2, 2), 5)
    assert [draw(0, number)[0, 0] for number in (0, 4, 5, 14)] == [0.0, 0.0, 4.0, 8.0]


def test_a_scan_shows_itself(found: eh.Scan) -> None:
    assert repr(found).startswith("Scan: p1, g2 from 0.2 to 0.7: 3 points, 60 runs each")
    assert max(map(len, repr(found).splitlines())) <= 100
    assert "<svg" in found._repr_html_()
    frame = found.to_frame()
    assert list(frame["p1, g2"]) == [0.2, 0.45, 0.7]
    assert isinstance(found.plot(), Figure)


def test_two_and_three_means_are_drawn_as_maps() -> None:
    from evenhand.reports.figures.scan import MEASURES, worst_over_others

    box = {"p1": {"g1": (0.7, 0.9, 2), "g2": (0.5, 0.7, 3)}, "p2": {"g1": (0.4, 0.5, 2)}}
    scanned = eh.scan(coins(max_samples=60), box, replications=4, seed=1, workers=1)
    table = worst_over_others(scanned, MEASURES["samples"], np.max)
    assert table.shape == (2, 3)
    # high means of the first range come first; the worst over the third
    corner = [p.samples.mean for p in scanned.points if p.means[:2] == (0.9, 0.5)]
    assert table[0, 0] == max(corner)
    assert isinstance(scanned.plot(), Figure)


def test_the_command_prints_and_saves(run: Run, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "coins.toml"
    path.write_text(dumps(coins()))
    common = ("scan", str(path), "--box", "p1/g2=0.2:0.7:2", "--replications", "20", "--max-samples", "200")
    for suffix in ("json", "csv", "png", "svg", "html"):
        target = tmp_path / f"scan.{suffix}"
        code, out, err = run(*common, "--save", str(target))
        assert (code, err) == (0, "")
        assert "p1, g2 from 0.2 to 0.7: 2 points, 20 runs each, of up to 200 samples." in out
        assert target.stat().st_size > 100
    saved = json.loads((tmp_path / "scan.json").read_text())
    printed = json.loads(run(*common, "--json")[1])
    assert saved | {"seconds": 0} == printed | {"seconds": 0}
    assert {"box", "points", "worst", "delta", "replications", "seed"} <= set(printed)
    assert {"error", "power", "samples", "answers", "means", "answer"} <= set(printed["points"][0])


def test_the_command_refuses_in_one_sentence(run: Run, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "coins.toml"
    path.write_text(dumps(coins()))
    for option, words in (
        ("p1/g2", "POLICY/GROUP=LOW:HIGH"),
        ("p1/g7=0.1:0.2", "there is no cell 'p1/g7'"),
        ("p1/g2=a:b", "LOW:HIGH or LOW:HIGH:POINTS"),
        ("p1/g2=0.9:0.1", "from 0.9 to 0.1"),
    ):
        code, out, err = run("scan", str(path), "--box", option)
        assert (code, out) == (2, "")
        assert words in err
        assert err.count("\n") == 1
    code, _, err = run("scan", str(path), "--save", str(tmp_path / "scan.txt"))
    assert code == 2
    assert "saved as" in err
