"""The pool of items to evaluate on, by group: a data frame, or a sequence of mappings.

Where every candidate has answered every item, the means of the pool are known and the verdict is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, nearest, shown
from evenhand.model.argument_checks import callable_or_none
from evenhand.model.region import ROUNDING, bounds_at
from evenhand.procedure.intervals import FAILED, MET
from evenhand.procedure.spec import Spec, compile_spec
from evenhand.procedure.state import NONE, new_state
from evenhand.verdicts.apply_rule import CellVerdicts, RuleResult, result_rows
from evenhand.verdicts.forecast import nothing_more
from evenhand.verdicts.judge import Verdict


@dataclass(frozen=True)
class Pool:
    """Items by number, their groups, and the inputs of a model for given items."""

    item: Callable[[int], Any]
    inputs: Callable[[Sequence[int]], Any]  # of several items, for a model
    groups: tuple[str, ...]
    members: dict[str, NDArray[np.int64]]
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def shares(self) -> dict[str, float]:
        """Return the share of every group in the pool."""
        return {name: len(items) / len(self.groups) for name, items in self.members.items()}


def open_pool(pool: Any, groups: str | Callable[[Any], str], features: Sequence[str] | None) -> Pool:
    """Return the items of a frame or sequence, by group."""
    if not isinstance(groups, str):
        callable_or_none(groups, "groups")
    if groups is None:
        raise BadInput("groups must be a column of the pool or a function of an item; it is None.")
    if features is not None and (isinstance(features, str) or not isinstance(features, Sequence)):
        raise BadInput(f"features must be a list of columns; it is {shown(features)}.")
    if isinstance(pool, Sequence) and not isinstance(pool, (str, bytes)):
        return _from_sequence(pool, groups)
    import narwhals as nw

    try:
        found = nw.from_native(pool)
    except nw.exceptions.DuplicateError:
        raise BadInput("the pool must have different column names; one comes twice.") from None
    except TypeError:
        raise BadInput(
            f"the pool must be a data frame or a sequence of items; it is a {type(pool).__name__}."
        ) from None
    if isinstance(found, nw.Series):
        raise BadInput("the pool must be a data frame or a sequence of items; it is a series.")
    frame = found.collect() if isinstance(found, nw.LazyFrame) else found
    columns = tuple(map(str, frame.columns))
    if isinstance(groups, str) and groups not in columns:
        raise BadInput(f"the pool has no column {groups!r}{nearest(groups, columns)}")
    wanted = list(map(str, features)) if features is not None else [c for c in columns if c != groups]
    for name in wanted:
        if name not in columns:
            raise BadInput(f"the pool has no column {name!r}{nearest(name, columns)}")
    inputs = frame.select(wanted)

    def item(number: int) -> Any:
        return dict(zip(columns, frame.row(number), strict=True))

    if isinstance(groups, str):
        labels = [_label(value, number) for number, value in enumerate(frame[groups].to_list())]
    else:
        labels = [_label(groups(item(number)), number) for number in range(len(frame))]
    return _sorted(item, lambda numbers: inputs[list(numbers)].to_native(), labels, columns)


def _from_sequence(pool: Sequence[Any], groups: str | Callable[[Any], str]) -> Pool:
    labels = []
    for number, item in enumerate(pool):
        if isinstance(groups, str):
            if not isinstance(item, Mapping) or groups not in item:
                raise BadInput(f"every item needs a {groups!r}; item {number} has none.")
            labels.append(_label(item[groups], number))
        else:
            labels.append(_label(groups(item), number))
    first = pool[0] if len(pool) else {}
    columns = tuple(first) if isinstance(first, Mapping) else ()
    return _sorted(pool.__getitem__, lambda numbers: [pool[number] for number in numbers], labels, columns)


def _sorted(
    item: Callable[[int], Any],
    inputs: Callable[[Sequence[int]], Any],
    labels: list[str],
    columns: tuple[str, ...],
) -> Pool:
    if not labels:
        raise BadInput("the pool must hold at least one item; it is empty.")
    members: dict[str, list[int]] = {}
    for number, label in enumerate(labels):
        members.setdefault(label, []).append(number)
    ordered = {name: np.array(members[name], dtype=np.int64) for name in sorted(members)}
    return Pool(item, inputs, tuple(labels), ordered, columns)


def _label(value: Any, number: int) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise BadInput(f"every item needs a group; item {number} has none.")
    return str(value)


Array = NDArray[np.float64]


def exact_verdict(verdict: Verdict, sums: Array, counts: Array) -> Verdict:
    """Return the verdict at the means of the whole pool, from sums and counts (K x L)."""
    problem = verdict.problem
    spec = compile_spec(problem, verdict.procedure)
    state = new_state(spec)
    means = sums / counts
    unit = np.ascontiguousarray(problem.family.to_unit(means).T)
    state.n[:], state.s[:] = counts.T, counts.T * unit
    feasible = problem.feasible(means)
    chooses = feasible.any() and not spec.screens
    answer = int(np.argmax(np.where(feasible, problem.scores(means), -np.inf))) if chooses else NONE
    lo, hi = bounds_at(spec.region, unit)
    meets = (unit >= lo - _rounding(spec, unit, lo)) & (unit <= hi + _rounding(spec, unit, hi))
    cells = CellVerdicts(unit, unit, np.where(meets, MET, FAILED))
    weight = RuleResult(answer, True, verdict.evidence, verdict.needed, 0, np.where(feasible, MET, FAILED))
    of_cells, of_policies = result_rows(problem, spec, state, cells, weight)
    return replace(
        verdict,
        cells=of_cells,
        policies=of_policies,
        decided=True,
        leader=None if answer == NONE else problem.policies[answer],
        exact=True,
        delta_needed=None,
        forecast=nothing_more(problem, verdict.samples),
        alternatives=(),
    )


def _rounding(spec: Spec, unit: Array, bound: Array) -> Array:
    """Return how far a mean may miss its bound through rounding."""
    return np.asarray(ROUNDING * (np.abs(unit) + np.abs(bound)) + spec.region.resolution)
