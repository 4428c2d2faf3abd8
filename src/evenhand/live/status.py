"""Where an experiment stands: one sentence, then the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from evenhand.live import words
from evenhand.live.health import health_of
from evenhand.live.stop import finite
from evenhand.live.view import View
from evenhand.procedure.decide import check
from evenhand.procedure.estimates import refresh
from evenhand.procedure.spec import CERTIFIED, EVIDENCE_VERSION, Spec, is_unproven
from evenhand.procedure.state import (
    ANSWER,
    DECIDED,
    EVIDENCE,
    NEEDED,
    NONE,
    RUNNING,
    STOPPED,
    TOLD,
    State,
    new_work,
)
from evenhand.procedure.stopping.cells import threshold
from evenhand.procedure.stopping.logs import NOT_COMPUTED
from evenhand.procedure.verdicts import WORDS, verdicts

Status = dict[str, Any]
CHANCES = ("0.5", "0.7", "0.8", "0.9")


class Forecast(Protocol):
    """How many more samples it may take, as `judge.forecast_statement` states it."""

    def summary(self, samples: int | None = None) -> str: ...

    def to_dict(self, samples: int | None = None) -> dict[str, Any]: ...


Forecaster = Callable[[View], Forecast]


def status_of(view: View, now: float, forecast: Forecaster | None = None) -> Status:
    """The JSON of `evenhand status`, and the sentence people read."""
    stop, state = view.stop, view.state
    decided, samples = stop is not None and stop.why == "decided", int(state.clock[TOLD])
    ahead = None if forecast is None else forecast(view)
    tables, computed = _verdicts(view)
    status: Status = {
        "answer": stop.answer if stop is not None else None,
        "decided": decided,
        "samples": samples,
        "pending": view.pending,
        "evidence": finite(state.level[EVIDENCE]),
        "needed": finite(state.level[NEEDED] if has_looked(view) else _line_ahead(view)),
        "head": str(view.head),
        **(_no_forecast(decided) if ahead is None else ahead.to_dict(samples)),
        "experiment": view.protocol.experiment,
        "title": view.protocol.study.title,
        "state": state_word(view),
        "leader": _leader(view, state),
        "corrected": _with_corrections(view) if view.corrected_after_stop else None,
        "events": view.head.seq,
        "late": view.counts["late"],
        "counts": view.counts,
        "health": health_of(view, now),
        **tables,
    }
    summary = "" if ahead is None else ahead.summary(samples)
    status["sentence"] = words.sentence(view, status, has_looked(view), summary)
    if notes := " ".join(_notes(view, computed)):
        status["sentence"] += f" {notes}"
    return status


def _notes(view: View, computed: bool) -> list[str]:
    """What everybody must know before relying on the evidence."""
    found = []
    if is_unproven(view.protocol.problem, view.protocol.procedure):
        found.append(words.UNPROVEN)
    if not computed or view.state.level[EVIDENCE] == NOT_COMPUTED:
        found.append(words.NOT_COMPUTED)
    if view.stop is None and not view.closed and _decides_by_newer_bounds(view):
        found.append(words.OLDER_EVIDENCE)
    return found


def _decides_by_newer_bounds(view: View) -> bool:
    """Would the data decide by the bounds of this version, where the experiment goes on by earlier ones?"""
    spec = view.protocol.spec
    if spec.evidence == EVIDENCE_VERSION or spec.stopping != CERTIFIED or not has_looked(view):
        return False
    state = _looked_at_again(view, spec._replace(evidence=EVIDENCE_VERSION))
    return bool(state.clock[STOPPED] == DECIDED)


def state_word(view: View) -> str:
    """running, paused, decided, exhausted or closed."""
    if view.stop is not None:
        return view.stop.why
    return "closed" if view.closed else "paused" if view.paused else "running"


def _no_forecast(decided: bool) -> dict[str, Any]:
    """The keys of a forecast where none was asked for: a decision needs no more samples."""
    more = dict.fromkeys(CHANCES, 0 if decided else None)
    return {"more": more, "horizon": None, "unfinished": None, "forecast": None}


def has_looked(view: View) -> bool:
    """Has the stopping rule looked at the data yet? It does when the start is over."""
    return bool(view.state.level[NEEDED] != 0.0)


def _line_ahead(view: View) -> float:
    """What the evidence will have to reach at the first look, where that is known before."""
    spec = view.protocol.spec
    return threshold(spec) if spec.stopping == CERTIFIED else math.inf


def _with_corrections(view: View) -> dict[str, Any]:
    """What the rule would see now: the decision stands, but outcomes were corrected since."""
    state = _looked_at_again(view, view.protocol.spec)
    return {
        "leader": _leader(view, state),
        "evidence": finite(state.level[EVIDENCE]),
        "needed": finite(state.level[NEEDED]),
    }


def _looked_at_again(view: View, spec: Spec) -> State:
    """A copy of the state after the stopping rule has looked at the data as they are."""
    tables: list[Any] = [np.array(part) for part in view.state]
    state = State(*tables)
    state.clock[STOPPED] = RUNNING
    check(spec, state, new_work(spec))
    return state


def _leader(view: View, state: State) -> str | None:
    """Who leads by the last look; None before the first, and where nobody seems to meet the requirement."""
    answer = int(state.clock[ANSWER])
    return None if answer == NONE else view.protocol.problem.policies[answer]


def _verdicts(view: View) -> tuple[dict[str, Any], bool]:
    """The tables of policies and cells; and was all their evidence computed?"""
    spec, state, problem = view.protocol.spec, view.state, view.protocol.problem
    work = new_work(spec)
    refresh(spec, state, work, False)
    cells, policies, computed = verdicts(spec, state, work)
    means = _means(view, state)
    overall = np.where(np.isfinite(means).all(axis=1), means @ problem.shares, np.nan)
    tables: dict[str, Any] = {
        "policies": [
            {"policy": name, "mean": finite(overall[k]), "verdict": WORDS[policies[k]]}
            for k, name in enumerate(problem.policies)
        ],
        "cells": [
            {
                "policy": policy, "group": group, "n": int(state.n[g, k]), "mean": finite(means[k, g]),
                "pending": finite(round(state.out[g, k], 6)), "verdict": WORDS[cells[g, k]],
            }
            for k, policy in enumerate(problem.policies)
            for g, group in enumerate(problem.group_names)
        ],
    }  # fmt: skip
    return tables, computed


def _means(view: View, state: State) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Estimates K x L in the user's units; NaN where there is no outcome."""
    family = view.protocol.problem.family
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = np.where(state.n > 0, state.s / state.n, np.nan)
    return family.low + family.width * unit.T
