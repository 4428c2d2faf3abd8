"""Every result shows itself: as text, as HTML for a notebook, as a data frame and as a figure."""

from __future__ import annotations

import ast
import dataclasses
import html
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import evenhand as eh
from evenhand.evaluation.evaluate import Evaluation
from evenhand.reports import display
from evenhand.reports.figures.canvas import VERDICT_COLOUR
from evenhand.reports.simulation_sentences import results
from evenhand.simulation.calibrate import Calibration, Scenario
from evenhand.simulation.runs import exact_rate
from evenhand.simulation.simulate import Comparison
from evenhand.study import Study, Truth

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "results.ipynb"
SHOWN = (
    eh.Plan, eh.Runs, Comparison, Calibration, eh.BoxCalibration, eh.Scan, eh.Verdict, Evaluation,
    eh.Experiment, eh.Status, eh.Report,
)  # fmt: skip
KINDS = [kind.__name__ for kind in SHOWN]
EVIL = "<b onload=alert(1)>&\"'"  # a name that is markup unless it is escaped


def run_notebook(path: Path) -> list[Any]:
    """Run the code cells in one namespace; return the value of each cell that ends in an expression."""
    names: dict[str, Any] = {"__name__": "__notebook__"}
    values = []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]), f"{path.name}, cell {number}")
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            values.append(eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names))
    return values


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the notebook shows, by the name of its class."""
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        values = run_notebook(NOTEBOOK)
    figures = [value for value in values if isinstance(value, Figure)]
    assert len(figures) == 2
    return {type(value).__name__: value for value in values}


def test_the_notebook_shows_every_kind_of_result(shown: dict[str, Any]) -> None:
    assert set(KINDS) <= set(shown)


@pytest.mark.parametrize("kind", KINDS)
def test_a_repr_fits_a_screen_and_begins_with_the_answer(kind: str, shown: dict[str, Any]) -> None:
    lines = repr(shown[kind]).splitlines()
    assert lines[0].startswith(f"{kind}: ")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    assert re.search(r"\S\.$", "\n".join(lines), re.M)  # a whole sentence


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_gets_words_a_drawing_and_a_table(kind: str, shown: dict[str, Any]) -> None:
    page = shown[kind]._repr_html_()
    tree = ET.fromstring(page)  # well formed, so nothing is left open or unescaped
    assert tree.tag == "div"
    assert [len(tree.findall(f".//{tag}")) for tag in ("figure", "table")] == [1, 1]
    drawings = tree.findall(".//{http://www.w3.org/2000/svg}svg")
    assert len(drawings) == 2  # for wide and for narrow screens
    assert float(drawings[1].get("width", "")) <= 350
    identifiers = re.findall(r'\bid="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers))
    assert "".join(tree.find("p").itertext()).startswith(f"{kind}. ")  # type: ignore[union-attr]
    assert "http" not in page.replace("http://www.w3.org/", "")  # nothing is fetched


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_is_drawn_alone_or_on_axes(kind: str, shown: dict[str, Any]) -> None:
    assert isinstance(shown[kind].plot(), Figure)
    figure = Figure(figsize=(6, 3))
    left, right = figure.subplots(1, 2)
    assert shown[kind].plot(ax=right) is figure
    assert len(right.texts) > 0
    assert len(left.texts) == 0
    assert texts_inside(right)


def test_only_computed_intervals_are_drawn(shown: dict[str, Any]) -> None:
    """A status has no intervals: each cell is a point, not a line across the whole figure."""

    def intervals(kind: str) -> int:
        lines = shown[kind].plot().axes[0].lines
        return sum(
            line.get_color() in VERDICT_COLOUR.values() and np.ptp(line.get_xdata()) > 0 for line in lines
        )

    assert intervals("Experiment") >= len(shown["Experiment"].status().cells)
    assert intervals("Status") < len(shown["Status"].cells)
    assert "pending" not in shown["Status"].to_frame() or not shown["Status"].decided


def texts_inside(axes: Axes) -> bool:
    """Does every text of the drawing begin inside the limits of the axes?"""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    places = [text.get_position() for text in axes.texts]
    return all(left <= x <= right and top <= y <= bottom for x, y in places)


def test_figures_are_drawn_on_a_part_of_a_figure(shown: dict[str, Any]) -> None:
    figure = Figure()
    part = figure.subfigures(1, 2)[0]
    assert shown["Plan"].plot(part.subplots()) is figure


@pytest.mark.parametrize("kind", KINDS)
def test_only_axes_are_drawn_on(kind: str, shown: dict[str, Any]) -> None:
    for wrong, words in (("axes", "'axes'"), (Figure(), "<Figure size"), (3, "3\\.")):
        with pytest.raises(eh.BadInput, match=rf"ax must be matplotlib axes; it is {words}"):
            shown[kind].plot(wrong)


def test_frames_hold_the_rows(shown: dict[str, Any]) -> None:
    plan, runs, comparison = shown["Plan"], shown["Runs"], shown["Comparison"]
    frame = plan.to_frame()
    assert list(zip(frame["policy"], frame["group"], strict=True))[:2] == [
        ("standard", "young"),
        ("standard", "old"),
    ]
    assert np.array_equal(frame["share"].to_numpy().reshape(3, 2), plan.allocation)
    assert np.array_equal(frame["mean"].to_numpy().reshape(3, 2), plan.means)
    frame = runs.to_frame()
    assert np.array_equal(frame["samples"], runs.samples)
    assert frame["correct"].mean() == runs.correct.mean()
    assert frame["answer"].value_counts(normalize=True)["new"] == runs.answers()["new"]
    frame = comparison.to_frame()
    for name, part in frame.groupby("procedure"):
        assert np.array_equal(part["samples"], comparison.runs[name].samples)
    frame = shown["Calibration"].to_frame()
    assert list(frame["needs"]) == [scenario.needs for scenario in shown["Calibration"].scenarios]
    for kind in ("Verdict", "Evaluation", "Experiment"):
        assert {"policy", "group", "n", "mean", "low", "high", "verdict"} <= set(shown[kind].to_frame())
    assert list(shown["Verdict"].to_frame()["n"]) == [400] * 6
    assert set(shown["Report"].to_frame()["section"]) == {"The plan", "Simulated runs", "The experiment"}


def test_a_run_without_an_answer_has_none_in_its_row() -> None:
    problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.5))
    runs = eh.simulate(problem, [[0.1], [0.05]], replications=20, seed=3)
    assert set(runs.answer) == {-1}
    assert runs.to_frame()["answer"].isna().all()


def test_undecided_runs_are_described_by_their_rule() -> None:
    problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(0.3))
    runs = eh.simulate(problem, [[0.8, 0.7], [0.5, 0.6]], eh.Procedure(max_samples=30), 20, seed=1)
    undecided = 1 - runs.stopped.mean()
    assert undecided > 0
    for futility, end in (
        (None, "were undecided at 30 samples"),
        (0.1, "ended without a verdict, at 30 samples or when the estimated chance"),
    ):
        procedure = dataclasses.replace(runs.study.procedure, futility=futility)
        found = dataclasses.replace(runs, study=dataclasses.replace(runs.study, procedure=procedure))
        for shown in (repr(found), eh.report(found).markdown(), " ".join(results(found))):
            assert f"{undecided:.1%} {end}" in " ".join(shown.split())


@pytest.mark.parametrize(("installed", "kind"), [("pandas", "pandas"), ("polars", "polars")])
def test_frames_are_of_the_library_that_is_installed(
    installed: str, kind: str, shown: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    others = {"pandas", "polars"} - {installed}
    monkeypatch.setattr(display, "find_spec", lambda name: None if name in others else real(name))
    for result in (shown["Plan"], shown["Verdict"], shown["Runs"]):
        assert type(result.to_frame()).__module__.split(".")[0] == kind


def test_without_a_frame_library_it_says_what_to_install(
    shown: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "find_spec", lambda name: None)
    with pytest.raises(eh.BadInput, match="pip install pandas"):
        shown["Plan"].to_frame()


def test_names_are_escaped_in_notebooks() -> None:
    problem = eh.Problem([EVIL, "b"], {EVIL + "g": 1.0}, eh.Bernoulli(), eh.Floors(0.5))
    page = eh.plan(problem, [[0.9], [0.6]])._repr_html_()
    ET.fromstring(page)
    assert "<b onload" not in page
    assert html.escape(EVIL) in page
    evil = Calibration(1.0, 0.05, 100, 0, 10, (Scenario(EVIL, exact_rate(3, 100), 1.0),))
    assert "<b onload" not in evil._repr_html_()


def test_two_results_in_one_page_share_no_identifiers(shown: dict[str, Any]) -> None:
    pages = [shown[kind]._repr_html_() for kind in KINDS]
    found = [set(re.findall(r'\bid="([^"]+)"', page)) for page in pages]
    assert sum(map(len, found)) == len(set().union(*found))


def test_a_large_result_still_fits_a_screen() -> None:
    groups = {f"group {g} with a long name": 1 / 6 for g in range(6)}
    problem = eh.Problem(
        [f"policy {k} {'x' * 40}" for k in range(12)], groups, eh.Bernoulli(), normalise=True
    )
    means = np.linspace(0.2, 0.8, 72).reshape(12, 6)
    lines = repr(eh.plan(problem, means, gap=0.1)).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    assert "more rows" in lines[-1]


def test_a_repr_loads_no_plotting_library() -> None:
    code = (
        "import evenhand as eh, sys\n"
        "p = eh.Problem(['a', 'b'], {'x': 1.0}, eh.Gaussian(1.0))\n"
        "print(repr(eh.plan(p, [[1.0], [0.0]])).splitlines()[0], 'matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Plan: a would be chosen")
    assert done.stdout.strip().endswith("False")


def test_the_repr_of_an_experiment_that_cannot_be_read_does_not_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli())
    with eh.Experiment.create(str(tmp_path / "t.db"), problem, seed=1) as trial:
        assert repr(trial).startswith("Experiment: ")
        assert str(trial.head) in repr(trial)

        def fail() -> None:
            raise eh.StorageFailed("the journal is gone.")

        monkeypatch.setattr(trial, "present", fail)
        assert repr(trial) == "<Experiment: the journal is gone.>"


def test_a_report_without_figures_says_so() -> None:
    from evenhand.reports.document import Report
    from evenhand.reports.page_parts import Section

    report = Report((Section("plan", "A plan", ("Nothing.",)),), (), "Empty")
    assert "Nothing." in report._repr_html_()
    with pytest.raises(eh.BadInput, match="nothing to draw"):
        report.plot()


def test_an_evaluation_has_its_numbers_as_a_table(shown: dict[str, Any]) -> None:
    table = shown["Evaluation"].to_dict()
    assert table["answer"] == "always right"
    assert table["calls"] == shown["Evaluation"].calls
    json.dumps(table, allow_nan=False)


def test_budget_runs_show_where_the_samples_went() -> None:
    problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli())
    study = Study(problem, eh.Procedure(stopping=eh.Budget(50)), Truth(means=((0.7,), (0.4,))))
    runs = eh.simulate(problem, study.truth, study.procedure, replications=20, seed=1)  # type: ignore[arg-type]
    assert "of 50 samples each" in repr(runs)
    assert isinstance(runs.plot(), Figure)
