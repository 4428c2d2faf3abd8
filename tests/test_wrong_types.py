"""Whatever is passed to the public API: a result, or one sentence of ours; never a raw TypeError."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import evenhand as eh

JUNK: dict[str, Any] = {
    "None": None,
    "text": "young",
    "empty text": "",
    "bytes": b"x",
    "zero": 0,
    "negative": -1,
    "huge": 10**400,
    "half": 0.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "True": True,
    "complex": 1j,
    "empty list": [],
    "ragged": [[0.5, 0.4], [0.3]],
    "list of text": ["a", "b"],
    "list of None": [None, None],
    "nested list": [[[0.5]]],
    "list of lists of text": [["a"], ["b"]],
    "set": {0.1, 0.2},
    "dict": {"young": "old"},
    "dict of None": {"a": None, "b": None},
    "dict by number": {1: 2},
    "nested dict": {"a": {"young": None}},
    "object": object(),
    "class": int,
    "function": len,
    "array of objects": np.array([None, "a"], dtype=object),
    "array of complex": np.full((2, 2), 0.5 + 0.1j),
    "array of nan": np.full((2, 2), np.nan),
    "pandas": pd.DataFrame({"young": [1, 2]}),
    "pandas with names": pd.DataFrame({"young": [None, "x"]}, index=["a", "b"]),
    "empty pandas": pd.DataFrame(),
    "series": pd.Series(["x"], index=["young"]),
    "polars": pl.DataFrame({"policy": ["a"], "young": [None]}),
    "polars series": pl.Series([None, 1]),
}
PROBLEM = eh.Problem(["a", "b"], {"young": 0.6, "old": 0.4}, eh.Bernoulli(), eh.Floors(0.2))
MEANS = [[0.8, 0.7], [0.5, 0.3]]
STUDY = eh.Study(PROBLEM, eh.Procedure(stopping=eh.Budget(20)), eh.Truth(means=MEANS))
PLAN = eh.plan(PROBLEM, MEANS)
RUNS = eh.simulate(STUDY, replications=2, checkpoints=[10], workers=1)
COMPARISON = eh.compare({"one": STUDY, "two": STUDY}, replications=2, workers=1)
SCAN = eh.scan(STUDY, {"a": {"young": (0.6, 0.7, 2)}}, replications=2, max_samples=20, workers=1)
SHARES = eh.Shares.of({"young": {"a": 0.5, "b": 0.5}, "old": {"a": 0.5, "b": 0.5}}, salt="example-1")
POOL = [{"group": "x", "target": i % 2} for i in range(20)]


def verdict() -> eh.Verdict:
    return eh.judge(PROBLEM, {"a": {"young": [1, 0]}}, replications=0)


# the function, and arguments with which it works
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Problem": (
        eh.Problem,
        {
            "policies": ["a", "b"], "groups": {"young": 0.6, "old": 0.4}, "family": eh.Bernoulli(),
            "constraint": eh.Floors(0.2), "mode": "active", "arrivals": {"young": 0.5, "old": 0.5},
            "costs": [[1.0, 2.0], [1.0, 1.0]], "normalise": False, "guardrails": [], "goal": "best",
            "max_policies": 3,
        },
    ),
    "Gaussian": (eh.Gaussian, {"sd": 1.0}),
    "Binomial": (eh.Binomial, {"trials": 3}),
    "Gamma": (eh.Gamma, {"shape": 1.0}),
    "Bounded": (eh.Bounded, {"low": 0.0, "high": 1.0}),
    "Floors": (eh.Floors, {"at_least": 0.5}),
    "Floors relative": (lambda **given: eh.Floors(**given), {"relative_to": "a", "margin": 0.1}),
    "Caps": (eh.Caps, {"at_most": 0.5}),
    "Caps relative": (lambda **given: eh.Caps(**given), {"relative_to": "a", "ratio": 1.1}),
    "Gap": (eh.Gap, {"at_most": 0.1}),
    "Ratio": (eh.Ratio, {"at_least": 0.8}),
    "Quota": (eh.Quota, {"at_least": 0.5, "groups": 1}),
    "Quota by share": (lambda **given: eh.Quota(**given), {"at_least": 0.5, "share": 0.5}),
    "Dispersion": (eh.Dispersion, {"at_most": 0.1, "weighted": True}),
    "Polyhedron": (eh.Polyhedron, {"A": [[1.0, -1.0]], "b": [-0.5]}),
    "All": (eh.All, {"of": (eh.Floors(0.1),)}),
    "Penalty": (eh.Penalty, {"floor": 0.5, "gamma": 1.0}),
    "Convex": (eh.Convex, {"build": len, "contains": len, "words": "lie inside"}),
    "Guardrail": (eh.Guardrail, {"name": "harm", "family": eh.Poisson(), "constraint": eh.Caps(1.0)}),
    "Procedure": (
        eh.Procedure,
        {
            "sampling": "uniform", "stopping": "certified", "delta": 0.05, "initial": 2, "batch": 1,
            "max_samples": 100, "leader": 0.5, "tracking": "d", "indifference": 0.0, "tolerance": 0.0,
        },
    ),
    "Intervals": (
        eh.Intervals,
        {"volume": 100, "floor": 0.01, "salt": "example-1", "length": "10m", "delay": "1h"},
    ),
    "Budget": (eh.Budget, {"samples": 5}),
    "Calibrated": (eh.Calibrated, {"threshold": 3.0}),
    "TrackAndStop": (eh.TrackAndStop, {"step": 1.0, "steps": 1, "diminishing": False}),
    "Truth": (
        eh.Truth,
        {"means": MEANS, "lag": 0, "dropout": 0.0, "outcomes": None, "sd": 1.0, "guardrails": None,
         "folder": "."},
    ),
    "Truth of files": (lambda **given: eh.Truth(**given), {"data": "d.csv"}),
    "Study": (eh.Study, {"problem": PROBLEM, "procedure": eh.Procedure(), "truth": None, "title": ""}),
    "load": (eh.load, {"path": "none.toml"}),
    "plan": (
        eh.plan,
        {"problem": PROBLEM, "means": MEANS, "gap": 0.1, "guardrails": None, "indifference": 0.0,
         "tolerance": 0.0},
    ),
    "plan_items": (
        eh.plan_items,
        {"problem": PROBLEM, "means": MEANS, "agreement": 0.6, "procedure": None, "price": 1.0,
         "label_price": 1.0, "runs": 1, "seed": 0},
    ),
    "simulate": (
        eh.simulate,
        {
            "problem": PROBLEM, "truth": MEANS, "procedure": eh.Procedure(stopping=eh.Budget(20)),
            "replications": 2, "seed": 0, "checkpoints": (), "workers": 1, "progress": None,
        },
    ),
    "compare": (
        eh.compare,
        {"studies": {"one": STUDY, "two": STUDY}, "replications": 2, "seed": 0, "checkpoints": (),
         "workers": 1},
    ),
    "calibrate": (
        eh.calibrate,
        {
            "study": eh.Study(PROBLEM, eh.Procedure(delta=0.4)), "scenarios": {"one": eh.Truth(means=MEANS)},
            "replications": 20, "seed": 0, "horizon": 20, "workers": 1,
        },
    ),
    "calibrate_box": (
        eh.calibrate_box,
        {
            "study": eh.Study(PROBLEM, eh.Procedure(delta=0.4), eh.Truth(means=MEANS)),
            "box": {"a": {"young": (0.6, 0.7)}}, "replications": 40, "seed": 0, "horizon": 12, "tiles": None,
            "workers": 1,
        },
    ),
    "scan": (
        eh.scan,
        {
            "problem": STUDY, "box": {"a": {"young": (0.6, 0.7, 2)}}, "truth": MEANS, "procedure": None,
            "points": None, "replications": 2, "seed": 0, "worst": None, "max_samples": 20, "workers": 1,
        },
    ),
    "judge": (
        eh.judge,
        {
            "problem": PROBLEM, "data": {"a": {"young": [1, 0]}}, "delta": 0.05, "procedure": None,
            "missing": "fail", "columns": None, "fixed": False, "replications": 0, "seed": 0,
        },
    ),
    "evaluate": (
        eh.evaluate,
        {
            "candidates": {"one": lambda item: 1, "two": lambda item: item["target"]}, "pool": POOL,
            "score": None, "groups": "group",
            "at_least": 0.1, "constraint": None, "target": "target", "features": None,
            "shares": None, "family": None, "delta": 0.2, "procedure": eh.Procedure(), "max_samples": 20,
            "cache": True, "seed": 0,
        },
    ),
    "assert_meets": (lambda result, policy: eh.assert_meets(result, policy), {"result": None, "policy": "a"}),
    "report": (lambda source, title: eh.report(source, title=title), {"source": None, "title": "x"}),
    "Shares": (
        eh.Shares,
        {"ranges": {"young": (("a", 65536),)}, "salt": "example-1", "version": 1, "valid_from": None},
    ),
    "Shares by share": (eh.Shares.of, {"shares": {"young": {"a": 1.0}}, "salt": "example-1"}),
    "assign": (eh.assign, {"unit": "u1", "group": "young", "shares": SHARES}),
    "next_shares": (
        eh.next_shares,
        {
            "problem": PROBLEM, "data": None, "shares": None, "volume": None, "procedure": None,
            "floor": 0.05, "salt": "example-1", "seed": 0, "valid_from": None, "missing": "fail",
            "columns": None, "table": None,
        },
    ),
    "sample_ratios": (eh.sample_ratios, {"shares": SHARES, "counts": {"young": {"a": 5, "b": 4}}}),
    "Experiment.create": (
        lambda **given: eh.Experiment.create(**given).close(),
        {
            "address": ":memory:", "problem": PROBLEM, "procedure": eh.Procedure(), "seed": 1, "name": "main",
            "title": "", "lease": None, "by": None, "key": None,
        },
    ),
    "Experiment.open": (
        lambda address, name: eh.Experiment.open(address, name).close(), {"address": "none.db", "name": None},
    ),
    "PairedIntervals": (eh.PairedIntervals, {"problem": PROBLEM, "procedure": None}),
    "samples_at_least": (PLAN.samples_at_least, {"delta": 0.05}),
    "plan.to_dict": (PLAN.to_dict, {"delta": 0.05}),
    "quantile": (RUNS.quantile, {"chance": 0.5}),
    "decided_by": (RUNS.decided_by, {"chance": 0.5}),
    "at_checkpoint": (RUNS.at_checkpoint, {"number": 0}),
    "runs.save": (RUNS.save, {"path": "runs.npz"}),
    "runs.load": (eh.Runs.load, {"path": "none.npz"}),
    "comparison.samples": (COMPARISON.samples, {"name": "two"}),
    "comparison.correct": (COMPARISON.correct, {"name": "two"}),
    "scan.worst": (SCAN.worst, {"of": "power"}),
    "report.save": (eh.report(PLAN).save, {"path": "page.md"}),
    "save_figures": (eh.report(PLAN).save_figures, {"folder": "figures"}),
    "check_means": (PROBLEM.check_means, {"means": MEANS}),
    "scores": (PROBLEM.scores, {"means": MEANS}),
    "feasible": (PROBLEM.feasible, {"means": MEANS, "guardrails": None}),
    "answer": (PROBLEM.answer, {"means": MEANS}),
    "policy_index": (PROBLEM.policy_index, {"name": "a"}),
    "group_index": (PROBLEM.group_index, {"name": "old"}),
}  # fmt: skip
FUNCTIONS = ("truth", "progress", "score", "groups", "candidates")  # arguments that may be functions
FILES = ("load", "Truth of files", "runs.load")  # what reads a file that is not there
SENTENCES = (eh.EvenhandError, AssertionError)  # assert_meets says so by an AssertionError


def attempts() -> list[tuple[str, str]]:
    return [(name, argument) for name, (_, given) in CALLS.items() for argument in given]


def prepared(name: str) -> dict[str, Any]:
    given = dict(CALLS[name][1])
    if name in ("assert_meets", "report"):
        given["result" if name == "assert_meets" else "source"] = verdict()
    return given


def refusal(function: Callable[..., Any], given: dict[str, Any]) -> str | None:
    """The message with which a call is refused; None where it works."""
    try:
        function(**given)
    except SENTENCES as error:
        return str(error)
    return None


@pytest.mark.parametrize(("name", "argument"), attempts())
def test_a_wrong_value_gets_one_sentence(name: str, argument: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    function, given = CALLS[name][0], prepared(name)
    for what, junk in JUNK.items():
        if argument in FUNCTIONS and callable(junk):
            continue  # taken, and free to raise what it likes
        try:
            message = refusal(function, given | {argument: junk})
        except Exception as error:
            pytest.fail(f"{name}({argument}={what}) raised {type(error).__name__}: {error}")
        if message is not None:
            assert message.strip(), what
            assert "\n" not in message, what
            assert "--" not in message, what  # options belong to the command line


def test_every_public_function_and_value_is_tried() -> None:
    results = {"Plan", "Runs", "Comparison", "Calibration", "Verdict", "Evaluation", "Report", "Experiment"}
    without_arguments = {"Bernoulli", "Poisson", "Exponential", "GaussianUnknown", "NoConstraint"}
    kinds = {name: getattr(eh, name) for name in eh.__all__ if inspect.isclass(getattr(eh, name))}
    errors = {name for name, kind in kinds.items() if issubclass(kind, Exception)}
    # what the package returns, and users do not construct
    results |= {"Ask", "BoxCalibration", "CellRow", "IntervalBets", "IntervalReceipt", "ItemPlan", "LogEntry"}
    results |= {"PairIntervalBets", "PolicyRow", "Receipt", "Scan", "Status"}
    assert set(eh.__all__) - results - without_arguments - errors - {"connect"} <= set(CALLS)


@pytest.mark.parametrize("name", [name for name in CALLS if name not in FILES])
def test_the_values_that_are_changed_work_unchanged(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    function, given = CALLS[name][0], prepared(name)
    try:
        function(**given)
    except eh.NotFound:
        assert name == "Experiment.open"  # there is no such file
    except AssertionError:
        assert name == "assert_meets"  # two outcomes certify nothing
