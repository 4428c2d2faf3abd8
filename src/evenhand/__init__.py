"""Choose one policy for everyone, with a requirement in every group and a stated risk.

    import evenhand as eh

Values: Problem, Procedure, Intervals, Study, Truth, Shares, families and requirements. Functions: plan,
plan_items, simulate, compare, calibrate, calibrate_box, scan, judge, evaluate, assert_meets, assign,
next_shares, sample_ratios, report, load, connect. Results: Plan, ItemPlan, Runs, Comparison, Calibration,
BoxCalibration, Scan, Verdict, Evaluation, Experiment, PairedIntervals, Report. Values and results cannot be
changed; no function changes its argument. Names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `_NAMES_BY_MODULE` for type checkers and editors; not run
    from evenhand.errors import BadInput as BadInput
    from evenhand.errors import Closed as Closed
    from evenhand.errors import CompilationFailed as CompilationFailed
    from evenhand.errors import Conflict as Conflict
    from evenhand.errors import EvenhandError as EvenhandError
    from evenhand.errors import IntegrityFailed as IntegrityFailed
    from evenhand.errors import KeyReused as KeyReused
    from evenhand.errors import NotComputed as NotComputed
    from evenhand.errors import NotFound as NotFound
    from evenhand.errors import StorageFailed as StorageFailed
    from evenhand.errors import Undecidable as Undecidable
    from evenhand.evaluation.evaluate import Evaluation as Evaluation
    from evenhand.evaluation.evaluate import assert_meets as assert_meets
    from evenhand.evaluation.evaluate import evaluate as evaluate
    from evenhand.evaluation.item_plan import ItemPlan as ItemPlan
    from evenhand.evaluation.item_plan import plan_items as plan_items
    from evenhand.live.events import LogEntry as LogEntry
    from evenhand.live.experiment import Experiment as Experiment
    from evenhand.live.interval_bets import IntervalBets as IntervalBets
    from evenhand.live.interval_pairs import PairIntervalBets as PairIntervalBets
    from evenhand.live.intervals import IntervalReceipt as IntervalReceipt
    from evenhand.live.status import Status as Status
    from evenhand.live.tickets import Ask as Ask
    from evenhand.live.tickets import Receipt as Receipt
    from evenhand.model.families import Bernoulli as Bernoulli
    from evenhand.model.families import Binomial as Binomial
    from evenhand.model.families import Bounded as Bounded
    from evenhand.model.families import Exponential as Exponential
    from evenhand.model.families import Gamma as Gamma
    from evenhand.model.families import Gaussian as Gaussian
    from evenhand.model.families import GaussianUnknown as GaussianUnknown
    from evenhand.model.families import Poisson as Poisson
    from evenhand.model.guardrails import Guardrail as Guardrail
    from evenhand.model.problem import Problem as Problem
    from evenhand.model.requirements import All as All
    from evenhand.model.requirements import Caps as Caps
    from evenhand.model.requirements import Convex as Convex
    from evenhand.model.requirements import Dispersion as Dispersion
    from evenhand.model.requirements import Floors as Floors
    from evenhand.model.requirements import Gap as Gap
    from evenhand.model.requirements import NoConstraint as NoConstraint
    from evenhand.model.requirements import Penalty as Penalty
    from evenhand.model.requirements import Polyhedron as Polyhedron
    from evenhand.model.requirements import Quota as Quota
    from evenhand.model.requirements import Ratio as Ratio
    from evenhand.model.result_rows import CellRow as CellRow
    from evenhand.model.result_rows import PolicyRow as PolicyRow
    from evenhand.procedure.assignment import Shares as Shares
    from evenhand.procedure.assignment import assign as assign
    from evenhand.procedure.interval_settings import Intervals as Intervals
    from evenhand.procedure.spec import Budget as Budget
    from evenhand.procedure.spec import Calibrated as Calibrated
    from evenhand.procedure.spec import Procedure as Procedure
    from evenhand.procedure.spec import TrackAndStop as TrackAndStop
    from evenhand.reports.document import Report as Report
    from evenhand.reports.document import report as report
    from evenhand.service.client import connect as connect
    from evenhand.simulation.box_calibration import BoxCalibration as BoxCalibration
    from evenhand.simulation.box_calibration import calibrate_box as calibrate_box
    from evenhand.simulation.calibrate import Calibration as Calibration
    from evenhand.simulation.runs import Runs as Runs
    from evenhand.simulation.scan import Scan as Scan
    from evenhand.simulation.scan import scan as scan
    from evenhand.simulation.simulate import Comparison as Comparison
    from evenhand.simulation.simulate import calibrate as calibrate
    from evenhand.simulation.simulate import compare as compare
    from evenhand.simulation.simulate import simulate as simulate
    from evenhand.study import Study as Study
    from evenhand.study import Truth as Truth
    from evenhand.study import load as load
    from evenhand.theory.plan import Plan as Plan
    from evenhand.theory.plan import plan as plan
    from evenhand.verdicts.judge import Verdict as Verdict
    from evenhand.verdicts.judge import judge as judge
    from evenhand.verdicts.next_shares import next_shares as next_shares
    from evenhand.verdicts.next_shares import sample_ratios as sample_ratios
    from evenhand.verdicts.paired_intervals import PairedIntervals as PairedIntervals

__version__ = "0.1.0"

_NAMES_BY_MODULE = {
    "model.requirements": (
        "All", "Caps", "Convex", "Dispersion", "Floors", "Gap", "NoConstraint", "Penalty", "Polyhedron",
        "Quota", "Ratio",
    ),
    "model.families": (
        "Bernoulli", "Binomial", "Bounded", "Exponential", "Gamma", "Gaussian", "GaussianUnknown", "Poisson",
    ),
    "model.guardrails": ("Guardrail",),
    "model.problem": ("Problem",),
    "model.result_rows": ("CellRow", "PolicyRow"),
    "theory.plan": ("Plan", "plan"),
    "procedure.assignment": ("Shares", "assign"),
    "procedure.interval_settings": ("Intervals",),
    "procedure.spec": ("Budget", "Calibrated", "Procedure", "TrackAndStop"),
    "study": ("Study", "Truth", "load"),
    "simulation.simulate": ("Comparison", "calibrate", "compare", "simulate"),
    "simulation.box_calibration": ("BoxCalibration", "calibrate_box"),
    "simulation.calibrate": ("Calibration",),
    "simulation.runs": ("Runs",),
    "simulation.scan": ("Scan", "scan"),
    "live.experiment": ("Experiment",),
    "live.interval_bets": ("IntervalBets",),
    "live.interval_pairs": ("PairIntervalBets",),
    "live.intervals": ("IntervalReceipt",),
    "live.status": ("Status",),
    "live.tickets": ("Ask", "Receipt"),
    "live.events": ("LogEntry",),
    "verdicts.judge": ("Verdict", "judge"),
    "verdicts.next_shares": ("next_shares", "sample_ratios"),
    "verdicts.paired_intervals": ("PairedIntervals",),
    "evaluation.evaluate": ("Evaluation", "assert_meets", "evaluate"),
    "evaluation.item_plan": ("ItemPlan", "plan_items"),
    "reports.document": ("Report", "report"),
    "service.client": ("connect",),
    "errors": (
        "BadInput", "Closed", "CompilationFailed", "Conflict", "EvenhandError", "IntegrityFailed",
        "KeyReused", "NotComputed", "NotFound", "StorageFailed", "Undecidable",
    ),
}  # fmt: skip
_MODULE_OF = {name: home for home, names in _NAMES_BY_MODULE.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    found = getattr(import_module(f"evenhand.{_MODULE_OF[name]}"), name)
    globals()[name] = found  # later uses do not call this function
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
