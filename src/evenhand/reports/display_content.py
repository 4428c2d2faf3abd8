"""What is shown of each kind of result: sentences, a table, the rows of its data frame, a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from evenhand.errors import BadInput
from evenhand.model.phrases import quantity, requirement_words
from evenhand.reports.page_parts import Field, Strong, Table, Words, table

if TYPE_CHECKING:
    from evenhand.evaluation.evaluate import Evaluation
    from evenhand.evaluation.item_plan import ItemPlan
    from evenhand.live.experiment import Experiment
    from evenhand.live.status import Status
    from evenhand.model.result_rows import CellRow
    from evenhand.reports.document import Report
    from evenhand.reports.page_parts import Picture
    from evenhand.simulation.box_calibration import BoxCalibration
    from evenhand.simulation.calibrate import Calibration
    from evenhand.simulation.runs import Runs
    from evenhand.simulation.scan import Scan
    from evenhand.simulation.simulate import Comparison
    from evenhand.theory.plan import Plan
    from evenhand.verdicts.judge import Verdict

Row = dict[str, Any]


@dataclass(frozen=True)
class Content:
    """What is shown of a result; the figure and the rows of the frame are made when they are asked for."""

    sentences: tuple[Words, ...]
    table: Table
    frame_rows: Callable[[], list[Row]]
    picture: Callable[[], Picture | None]


def content_of(result: Any) -> Content:
    """Return what is shown of a result, found by the name of its class."""
    for kind in type(result).__mro__:
        if kind.__name__ in CONTENTS:
            return CONTENTS[kind.__name__](result)
    raise BadInput(f"there is nothing to show of a {type(result).__name__}.")


def _plan(plan: Plan) -> Content:
    from evenhand.procedure.spec import Procedure
    from evenhand.reports import plan_sentences
    from evenhand.reports.figure_rows import true_estimates, true_standings

    standings = true_standings(plan.problem, plan.means, plan.answer, plan.guardrails)
    estimates = true_estimates(plan.problem, plan.means, standings)
    shares = plan.allocation.ravel().tolist()
    rows = [
        {"policy": e.policy, "group": e.group, "mean": e.mean, "floor": e.floor, "cap": e.cap,
         "verdict": e.verdict, "share": share}
        for e, share in zip(estimates, shares, strict=True)
    ]  # fmt: skip

    def picture() -> Picture:
        from evenhand.reports.captioned_figures import allocation_picture
        from evenhand.reports.figure_rows import shares as share_rows

        where = share_rows(plan.problem, plan.allocation)
        return allocation_picture(where, standings, "Where the samples should go")

    said = [
        plan_sentences.headline(plan),
        *plan_sentences.acceptable(plan),
        *plan_sentences.bounds(plan, Procedure().delta),
        *plan.warnings,
        *plan_sentences.suggestion(plan, Procedure().delta),
    ]
    shown = _table("Assumed mean, verdict and share of samples of every cell", rows)
    return Content(tuple((sentence,) for sentence in said), shown, lambda: rows, picture)


def _runs(runs: Runs) -> Content:
    from evenhand.reports.simulation_sentences import label

    return _many({label(runs): runs}, _run_rows(runs))


def _comparison(comparison: Comparison) -> Content:
    def rows() -> list[Row]:
        return [
            {"procedure": name} | row for name, runs in comparison.runs.items() for row in _run_rows(runs)()
        ]

    return _many(comparison.runs, rows)


def _many(many: Mapping[str, Runs], rows: Callable[[], list[Row]]) -> Content:
    """One or several simulations: a row per procedure."""
    from evenhand.reports import simulation_sentences as said

    def picture() -> Picture:
        from evenhand.reports.sections.runs import pictures

        return pictures(many)[0]

    first = next(iter(many.values()))
    return Content(
        (said.lead(many), *((sentence,) for sentence in said.wrong_answers(first))),
        said.summary(many),
        rows,
        picture,
    )


def _run_rows(runs: Runs) -> Callable[[], list[Row]]:
    """A row per replication."""

    def rows() -> list[Row]:
        names = (*runs.study.problem.policies, None)  # -1, the last: none
        columns = zip(runs.samples.tolist(), runs.stopped.tolist(), runs.answer.tolist(),
                      runs.correct.tolist(), strict=True)  # fmt: skip
        return [
            {"replication": number, "samples": samples, "stopped": stopped, "answer": names[answer],
             "correct": correct}
            for number, (samples, stopped, answer, correct) in enumerate(columns)
        ]  # fmt: skip

    return rows


def _calibration(calibration: Calibration) -> Content:
    worst, delta = calibration.worst, f"{100 * calibration.delta:g}%"
    rows: list[Row] = [
        {"scenario": s.name, "error": s.error.rate, "low": s.error.low, "high": s.error.high,
         "needs": s.needs}
        for s in calibration.scenarios
    ]  # fmt: skip

    def picture() -> Picture:
        from evenhand.reports.captioned_figures import calibration_picture

        return calibration_picture(calibration)

    found = f"{calibration.threshold:g}"
    counted = "the scenario" if len(rows) == 1 else f"each of {len(rows)} scenarios"
    often = f"{worst.error.rate:.2%} of {calibration.replications:,} runs"
    interval = f"95% interval {worst.error.low:.2%} to {worst.error.high:.2%}"
    said: list[Words] = [
        ("With the threshold ", Strong(found), f" at most {delta} of the runs end with a wrong answer in ",
         f"{counted} (95% confidence; runs of up to {calibration.horizon:,} samples)."),
        ("The worst is ", Strong(worst.name), f": wrong in {often} ({interval})."),
        (f"Use it as Procedure(stopping=Calibrated({found}), delta={calibration.delta:g}).",),
    ]  # fmt: skip
    shown = table("Error of every scenario, and the threshold it needs by itself",
                  ["scenario", "error", "error, low", "error, high", "needs"],
                  [list(row.values()) for row in rows])  # fmt: skip
    return Content(tuple(said), shown, lambda: rows, picture)


def _item_plan(found: ItemPlan) -> Content:
    rows: list[Row] = [{"policy": name, "calls": calls} for name, calls in found.calls.items()]
    said = tuple((sentence,) for sentence in found.words())
    return Content(said, _table("Mean number of calls of every policy", rows), lambda: rows, lambda: None)


def _box_calibration(found: BoxCalibration) -> Content:
    from evenhand.reports import simulation_sentences
    from evenhand.reports.captioned_figures import box_calibration_picture, box_calibration_table

    shown = box_calibration_table(found)
    said = tuple((sentence,) for sentence in simulation_sentences.box_calibration(found))
    return Content(said, shown, lambda: _named(shown), lambda: box_calibration_picture(found))


def _scan(found: Scan) -> Content:
    from evenhand.reports import simulation_sentences
    from evenhand.reports.captioned_figures import scan_picture, scan_table

    shown = scan_table(found)
    said = tuple((sentence,) for sentence in simulation_sentences.scan(found))
    return Content(said, shown, lambda: _named(shown), lambda: scan_picture(found))


def _named(shown: Table) -> list[Row]:
    """Rows of a table by the titles of its columns."""
    return [dict(zip(shown.columns, row, strict=True)) for row in shown.rows]


def _verdict(verdict: Verdict) -> Content:
    return _cells(verdict, [(sentence,) for sentence in verdict.words()])


def _evaluation(evaluation: Evaluation) -> Content:
    return _cells(evaluation.verdict, [(sentence,) for sentence in evaluation.words()])


def _experiment(trial: Experiment) -> Content:
    from evenhand.verdicts.forecast_statement import NOT_ASKED, Forecast
    from evenhand.verdicts.judge import judge_state

    view = trial.present()
    protocol, samples = view.protocol, int(view.state.n.sum())
    no_forecast = Forecast(samples, why_none=NOT_ASKED)
    verdict = judge_state(protocol.problem, protocol.procedure, view.state, ahead=no_forecast)
    tickets = quantity(view.pending, "open ticket")
    facts = f"{protocol.experiment}: {quantity(samples, 'sample')}, {tickets}, head {view.head}."
    return _cells(verdict, [(trial.status().sentence,), (facts,)])


def _status(status: Status) -> Content:
    rows = [_cell_fields(cell) for cell in status.cells]

    def picture() -> Picture | None:
        from evenhand.reports.captioned_figures import floors_picture

        # a status has no intervals; None alone would be drawn as an interval without ends
        points = [replace(cell, low=cell.mean, high=cell.mean) for cell in status.cells]
        return floors_picture(points, status.policies) if rows else None

    samples, tickets = quantity(status.samples, "sample"), quantity(status.pending, "open ticket")
    head = f", head {status.head}" if status.head else ""
    facts = f"{status.experiment}: {status.state}, {samples}, {tickets}{head}."
    said = [(sentence,) for sentence in (status.sentence, facts) if sentence]
    shown = _table("Estimate and verdict of every cell", rows)
    return Content(tuple(said), shown, lambda: rows, picture)


def _remote_experiment(trial: Any) -> Content:
    """Content of an experiment of a service, of which the client has the status."""
    return _status(trial.status())


def _cells(verdict: Verdict, sentences: list[Words]) -> Content:
    """A verdict: a row per cell."""
    rows = [_cell_fields(cell) for cell in verdict.cells]

    def picture() -> Picture:
        from evenhand.reports.captioned_figures import floors_picture
        from evenhand.reports.requirement_marks import requirement_marks, with_bounds

        marks = requirement_marks(verdict.problem, verdict.cells)
        return floors_picture(
            with_bounds(verdict.problem, verdict.cells),
            list(verdict.policies),
            marks=marks,
            indifference=verdict.procedure.indifference,
        )

    shown = _table("Estimate, interval and verdict of every cell", rows)
    return Content(tuple(sentences), shown, lambda: rows, picture)


def _cell_fields(cell: CellRow) -> Row:
    """A cell as one row of a table: bounds relative to a control are in words."""
    relative = any(bound is not None for bound in cell.relative)
    row = {name: value for name, value in cell.to_dict().items() if not name.startswith("relative_")}
    if cell.pending is not None and cell.pending.is_integer():
        row["pending"] = int(cell.pending)
    return row | ({"requirement": requirement_words(cell)} if relative else {})


def _report(report: Report) -> Content:
    rows = [
        {"section": section.title, "name": name, "value": value}
        for section in report.sections
        for name, value in section.highlights
    ]
    pictures = [picture for section in (report.opening, *report.sections) for picture in section.pictures]
    said: tuple[Words, ...] = (
        (Strong(report.title),),
        report.opening.lead,
        (f"{len(report.sections)} sections; save('report.html') writes the whole page.",),
    )
    shown = _table("The main numbers of every section", rows)
    return Content(said, shown, lambda: rows, lambda: pictures[0] if pictures else None)


def _table(caption: str, rows: list[Row]) -> Table:
    """Rows as a table, without the columns that hold nothing."""
    known = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in known if any(row.get(name) is not None for row in rows)]
    fields: list[list[Field]] = [[row.get(name) for name in names] for row in rows]
    return table(caption, names, fields)


CONTENTS: dict[str, Callable[[Any], Content]] = {
    "Plan": _plan,
    "Runs": _runs,
    "Comparison": _comparison,
    "ItemPlan": _item_plan,
    "Calibration": _calibration,
    "BoxCalibration": _box_calibration,
    "Scan": _scan,
    "Verdict": _verdict,
    "Evaluation": _evaluation,
    "Experiment": _experiment,
    "RemoteExperiment": _remote_experiment,
    "Status": _status,
    "Report": _report,
}
