"""Graders: the outcome of an output on an item; and labels that people give in a hand-over file.

A grader is "exact" (the output equals the target), {"numeric": tolerance} (it differs by at most this), or a
function of output and item. Targets are a column of the items, or labels: a CSV or JSONL file with the
columns `item` and `label`. Items without a label are written to this file with an empty label; one label
serves all policies. With guard-rails a grader is a function that returns the outcomes by name.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evenhand.errors import BadInput, is_one_of, nearest, shown
from evenhand.evaluation.pool import Pool
from evenhand.files import whole_file
from evenhand.model.argument_checks import is_number
from evenhand.model.families import Family
from evenhand.model.guardrails import OUTCOME, Guardrail, flat_requirements
from evenhand.model.problem import Problem
from evenhand.model.requirements import Floors

Score = Callable[[Any, Any], Any]
Settle = Callable[[Callable[[], Any]], Any]  # returns the result of a function; waits for one of a coroutine
# what is known of a call: the outcome; with guard-rails the outcome and those of all guard-rails
Graded = float | tuple[float, ...]
Grader = Score | str | Mapping[str, float]
Grade = Callable[[int, int, Any, Settle], Graded]  # of policy, item and output
LABEL, ITEM, GROUP = "label", "item", "group"


class LabelMissing(Exception):
    """The item has no label yet."""


class Unusable(Exception):
    """What a candidate or a score returned cannot be used: the call has failed.

    The message says what must hold and what came, without a full stop.
    """


class Labels:
    """Labels of items in a file that people fill in."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.lines = self.path.suffix.lower() in (".jsonl", ".ndjson")
        self.rows: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            self._read()

    def __getitem__(self, name: str) -> Any:
        label = self.rows.get(name, {}).get(LABEL)
        if label is None or label == "":
            raise LabelMissing(name)
        return label

    @property
    def open(self) -> int:
        """Return the number of items in the file that have no label."""
        return sum(row.get(LABEL) in (None, "") for row in self.rows.values())

    def hand_over(self, items: Mapping[str, Mapping[str, Any]]) -> None:
        """Add items without a label to the file."""
        for name, fields in items.items():
            self.rows.setdefault(name, {ITEM: name, **fields, LABEL: None if self.lines else ""})
        with whole_file(self.path) as file:
            file.write(self._text().encode())

    def _text(self) -> str:
        if self.lines:
            return "".join(
                f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in self.rows.values()
            )
        columns = list(dict.fromkeys([ITEM, LABEL, *(name for row in self.rows.values() for name in row)]))
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows.values())
        return out.getvalue()

    def _read(self) -> None:
        try:
            text = self.path.read_text(encoding="utf-8-sig")
            if self.lines:
                rows = [json.loads(line) for line in text.splitlines() if line.strip()]
            else:
                rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        except (OSError, UnicodeDecodeError, ValueError, csv.Error) as problem:
            raise BadInput(f"the labels in {self.path.name} cannot be read: {problem}.") from None
        for row in rows:
            if not isinstance(row, Mapping) or row.get(ITEM) is None or LABEL not in row:
                raise BadInput(f"{self.path.name} needs the columns item and label; a row has {shown(row)}.")
            name = str(row[ITEM])
            if name in self.rows and self.rows[name][LABEL] != row[LABEL]:
                raise BadInput(f"an item has one label; {self.path.name} gives item {shown(name)} two.")
            self.rows[name] = dict(row)


def scorer(
    score: Grader | None,
    target: str | None,
    pool: Pool,
    labels: Labels | None = None,
    guarded: bool = False,
) -> Score:
    """Return a function of output and item, from what the user gave; `guarded`: there are guard-rails."""
    if callable(score):
        return score
    if guarded:
        raise BadInput(
            "with guard-rails an evaluation needs score(output, item), a function that returns the outcome "
            f"and every guard-rail by name; it is {shown(score or 'exact')}."
        )
    if labels is None and target is None:
        raise BadInput("give score(output, item), or the target column that outputs must equal.")
    if labels is None and not is_one_of(target, pool.columns):
        raise BadInput(f"the pool has no column {shown(target)}{nearest(str(target), pool.columns)}")
    column = target or LABEL
    if labels is None:
        _refuse_items_without_target(pool, column)
    if score is None or is_one_of(score, ("exact",)):
        return lambda output, item: _is_equal(output, item[column])
    if isinstance(score, Mapping) and set(score) == {"numeric"} and is_number(score["numeric"]):
        tolerance = float(score["numeric"])
        return lambda output, item: _is_near(output, item[column], tolerance)
    raise BadInput(
        f"score must be a function of output and item, 'exact' or {{'numeric': 0.01}}; it is {shown(score)}."
    )


def _refuse_items_without_target(pool: Pool, column: str) -> None:
    """Refuse an item without a target: it would count against every candidate."""
    for name, value in zip(pool.names, pool.values(column), strict=True):
        if value is None or (isinstance(value, float) and math.isnan(value)):
            raise BadInput(f"every item needs a {column!r} that outputs must equal; item {name} has none.")


def grader_of(problem: Problem, pool: Pool, score: Score, labels: Labels | None, target: str | None) -> Grade:
    """Return the function that grades the output of a policy on an item, checked against the families."""
    families = {OUTCOME: problem.family, **{rail.name: rail.family for rail in problem.guardrails}}

    def grade(policy: int, item: int, output: Any, settle: Settle) -> Graded:
        row = pool.item(item)
        if labels is not None:
            row = {**row, (target or LABEL): labels[pool.names[item]]}
        found = settle(lambda: score(output, row))
        given = _by_name(found, families) if problem.guardrails else {OUTCOME: found}
        graded = tuple(_outcome(given[name], name, family) for name, family in families.items())
        return graded if problem.guardrails else graded[0]

    return grade


def _outcome(given: Any, name: str, family: Family) -> float:
    """Return an outcome that a score returned, checked."""
    metric = "" if name == OUTCOME else f" of {name}"
    try:
        if isinstance(given, (str, bytes)):
            raise TypeError("text is no number")
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        raise Unusable(f"score{metric} must return a number; it returned {shown(given)}") from None
    if not bool(family.admits(number)):
        raise Unusable(f"scores{metric} must be {family.outcomes}; this one is {number:g}")
    return number


def _by_name(found: Any, families: Mapping[str, Family]) -> Mapping[str, Any]:
    """Return the outcomes by name that a score must return if there are guard-rails."""
    names = ", ".join(families)
    if not isinstance(found, Mapping):
        raise Unusable(
            f"with guard-rails score must return a mapping of {names} to numbers; it returned {shown(found)}"
        )
    for name in (*families, *found):
        if name not in found or name not in families:
            raise Unusable(
                f"score must return {names}, each a number; {shown(name)} is "
                f"{'missing' if name in families else 'none of these'}"
            )
    return found


def worst_outcomes(problem: Problem) -> Graded:
    """Return what a failed call counts as: the lowest outcome, and the worst of every guard-rail."""
    lowest = float(problem.family.low)
    if not problem.guardrails:
        return lowest
    return (lowest, *(_worst(rail) for rail in problem.guardrails))


def _worst(rail: Guardrail) -> float:
    """Return the outcome of a guard-rail that is the farthest beyond its bounds."""
    are_floors = {isinstance(part, Floors) for part in flat_requirements(rail.constraint)}
    low, high = rail.family.domain
    worst = low if are_floors == {True} else high
    if len(are_floors) > 1 or not math.isfinite(worst):
        raise BadInput(
            f"a failed call has no worst outcome of {rail.name!r}; give failures='drop', or a guard-rail "
            "with a known range and bounds on one side."
        )
    return float(worst)


def described(score: Grader | None) -> Any:
    """Return a grader as a journal names it; a function by its name."""
    if callable(score):
        return getattr(score, "__qualname__", type(score).__name__)
    return dict(score) if isinstance(score, Mapping) else score or "exact"


def handed_over(pool: Pool, numbers: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Return the fields of items for the people who label them."""
    found = {}
    for number in numbers:
        item = pool.item(number)
        fields = dict(item) if isinstance(item, Mapping) else {"content": item}
        found[pool.names[number]] = {
            GROUP: pool.groups[number],
            **{name: value for name, value in fields.items() if name not in (ITEM, GROUP, LABEL)},
        }
    return found


def _is_equal(output: Any, target: Any) -> float:
    try:
        same = bool(output == target)
    except (TypeError, ValueError):
        raise Unusable(
            f"an output that is compared with a target must be a single value; it is {shown(output)}"
        ) from None
    try:
        return float(same or str(output).strip() == str(target).strip())
    except Exception:  # a whole number with more digits than Python prints, or a class without a text
        return float(same)


def _is_near(output: Any, target: Any, tolerance: float) -> float:
    try:
        return float(abs(float(output) - float(target)) <= tolerance)
    except (TypeError, ValueError, OverflowError):
        return 0.0  # an output that is no number is wrong
