"""evenhand picks one policy for everyone, fairly and with proof.

    import evenhand as eh

Nouns: Problem, Plan, Procedure, Runs, Experiment, Verdict, Report. Verbs: plan, simulate, compare, calibrate,
judge, evaluate, assert_meets, report, connect. Everything is frozen; nothing changes its argument. Names
load on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "model.constraints": (
        "All", "Caps", "Convex", "Dispersion", "Floors", "Gap", "NoConstraint", "Penalty", "Polyhedron",
        "Quota", "Ratio",
    ),
    "model.families": (
        "Bernoulli", "Binomial", "Bounded", "Exponential", "Gamma", "Gaussian", "GaussianUnknown", "Poisson",
    ),
    "model.problem": ("Problem",),
    "theory.plan": ("Plan", "plan"),
    "procedure.spec": ("Budget", "Calibrated", "Procedure", "TrackAndStop"),
    "study": ("Study",),
    "sim.simulate": ("calibrate", "compare", "simulate"),
    "sim.runs": ("Runs",),
    "live.experiment": ("Experiment",),
    "judge.verdict": ("Verdict", "judge"),
    "judge.evaluate": ("assert_meets", "evaluate"),
    "report.document": ("Report", "report"),
    "app.client": ("connect",),
    "errors": (
        "BadInput", "Closed", "Conflict", "EvenhandError", "IntegrityFailed", "NotFound", "StorageFailed",
        "Undecidable",
    ),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)


class _Package(ModuleType):
    """Two verbs, judge and report, are also rooms of the house: importing a room must not hide the verb."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("judge", "report"):
            return getattr(import_module(f"evenhand.{_HOME[name]}"), name)
        return super().__getattribute__(name)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    return getattr(import_module(f"evenhand.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


sys.modules[__name__].__class__ = _Package
