"""Counts of an interval as users give them, checked against the family: number and sum of every cell.

    {"a": {"young": (120, 87), "old": (80, 51)}, ...}          n and sum, by policy and group
    [{"policy": "a", "group": "young", "n": 120, "sum": 87}]   rows; or `successes`, or `mean`

A row may have `squares`, the sum of squares, and for a guard-rail NAME the keys `NAME` (its sum), `NAME n`
(the number of its outcomes, if some are missing) and `NAME squares`. Outcomes of an unknown variance need
sums of squares. Cells that are not named have no outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from evenhand.errors import BadInput, Conflict, nearest, shown
from evenhand.live.events import CellCounts
from evenhand.live.input_checks import LARGEST
from evenhand.model.argument_checks import is_number, is_whole
from evenhand.model.families import Family
from evenhand.model.problem import Problem

MOST = 10**15  # outcomes of a cell in an interval
SUMS = ("sum", "successes", "mean")
KEYS = ("policy", "group", "n", *SUMS, "squares", "logs")
DISCRETE = ("bernoulli", "binomial", "poisson")
ROUNDING = 1e-9  # relative error of sums that a database adds up
UNKNOWN = "gaussian-unknown"  # the family whose counts need sums of squares
# a variance below the first part of the mean square is lost in rounding; below the second all are equal
LOST, EQUAL = 1e-6, 1e-12

Cells = tuple[CellCounts, ...]


def plain_rows(counts: Any) -> list[dict[str, Any]]:
    """Return counts as rows of plain Python numbers; they are checked when the request is carried out."""
    return [{str(key): _plain_number(value) for key, value in row.items()} for _, row in rows_of(counts)]


def _plain_number(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain_number(part) for part in value]
    if isinstance(value, (np.integer, np.floating)):
        return value.item()
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise BadInput(f"counts must hold names and finite numbers; one is {shown(value)}.")


def checked_cells(
    rows: Iterable[tuple[str, Mapping[str, Any]]], problem: Problem, policies: Sequence[str]
) -> Cells:
    """Return the counts of all cells with outcomes, in the order of the policies and groups.

    `rows` are those of `rows_of`; `policies` are those that the shares of the interval name.
    """
    cells: dict[tuple[str, str], CellCounts] = {}
    for place, row in rows:
        try:
            cell = _cell(row, problem, policies)
        except BadInput as error:
            raise BadInput(f"{place}: {error}") from None
        if (cell.policy, cell.group) in cells:
            raise BadInput(
                f"{place}: every cell may come once; {cell.policy!r} in {cell.group!r} comes twice."
            )
        cells[cell.policy, cell.group] = cell
    ordered = (cells.get((policy, group)) for policy in policies for group in problem.group_names)
    found = tuple(cell for cell in ordered if cell is not None and cell.n > 0)
    if not found:
        raise BadInput("the counts of an interval must hold at least one outcome; they hold none.")
    return found


def plain(cell: CellCounts) -> dict[str, Any]:
    """Return a cell as the row of which `checked_counts` makes it."""
    row: dict[str, Any] = {"policy": cell.policy, "group": cell.group, "n": cell.n, "sum": cell.sum}
    more = {"squares": cell.squares, "logs": cell.logs}
    row |= {name: value for name, value in more.items() if value is not None}
    for rail, (n, total) in (cell.metrics or {}).items():
        row |= {rail: total, size_key(rail): n}
    row |= {squares_key(rail): value for rail, value in (cell.metric_squares or {}).items()}
    return row


def size_key(rail: str) -> str:
    """Return the key with the number of outcomes of a guard-rail."""
    return f"{rail} n"


def squares_key(rail: str) -> str:
    """Return the key with the sum of squares of a guard-rail."""
    return f"{rail} squares"


def total(cells: Iterable[CellCounts]) -> int:
    """Return the number of outcomes."""
    return sum(cell.n for cell in cells)


def other_counts(interval: int, kept: Cells, given: Cells, closed: bool) -> Conflict:
    """Return the refusal of counts that differ from those of the same interval."""
    old, new = ({(cell.policy, cell.group): cell for cell in cells} for cells in (kept, given))
    policy, group = next(cell for cell in {**old, **new} if old.get(cell) != new.get(cell))
    before, after = (
        "no outcome" if cell is None else f"{cell.n:,} outcomes with sum {cell.sum:.12g}"
        for cell in (old.get((policy, group)), new.get((policy, group)))
    )
    shrinks = (new[policy, group].n if (policy, group) in new else 0) < (
        old[policy, group].n if (policy, group) in old else 0
    )
    fault = "counts must not shrink" if shrinks else "an interval has one set of counts"
    advice = (
        "It is closed, and its counts are final."
        if closed
        else "Correct them with a reason and your name if they are wrong."
    )
    return Conflict(
        f"{fault}: interval {interval} has {before} of {policy!r} in {group!r}, and now {after}. {advice}"
    )


def rows_of(counts: Any) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the content of every row of counts, as users give them."""
    if isinstance(counts, Mapping):
        for policy, groups in counts.items():
            if not isinstance(groups, Mapping):
                raise BadInput(f"counts must be given by policy and group; {policy!r} has {shown(groups)}.")
            for group, numbers in groups.items():
                yield f"{policy!r} in {group!r}", {"policy": policy, "group": group} | _numbers(numbers)
        return
    if hasattr(counts, "to_dicts"):  # polars
        counts = counts.to_dicts()
    elif hasattr(counts, "to_dict") and hasattr(counts, "columns"):  # pandas
        counts = counts.to_dict(orient="records")
    if isinstance(counts, (str, bytes)) or not isinstance(counts, Iterable):
        raise BadInput(f"counts must be rows, or given by policy and group; they are {shown(counts)}.")
    for number, row in enumerate(counts, start=1):
        if not isinstance(row, Mapping):
            raise BadInput(f"row {number} must name policy, group, n and sum; it is {shown(row)}.")
        yield f"row {number}", row


def _numbers(numbers: Any) -> dict[str, Any]:
    if isinstance(numbers, Mapping):
        return dict(numbers)
    if isinstance(numbers, (tuple, list)) and len(numbers) == 2:
        return {"n": numbers[0], "sum": numbers[1]}
    raise BadInput(f"the counts of a cell must be (n, sum); they are {shown(numbers)}.")


def _cell(row: Mapping[str, Any], problem: Problem, policies: Sequence[str]) -> CellCounts:
    rails = [rail.name for rail in problem.guardrails]
    known = (*KEYS, *rails, *map(size_key, rails), *map(squares_key, rails))
    odd = next((key for key in row if key not in known), None)
    if odd is not None:
        raise BadInput(f"unknown key {shown(odd)}{nearest(str(odd), known)}")
    policy, group = row.get("policy"), row.get("group")
    if not isinstance(policy, str) or policy not in policies:
        raise BadInput(
            f"the shares of this interval have no policy {shown(policy)}{nearest(str(policy), policies)}"
        )
    if not isinstance(group, str):
        raise BadInput(f"a cell must name its group; it is {shown(group)}.")
    problem.group_index(group)
    n = count_of(row.get("n"), "n")
    given = [key for key in SUMS if row.get(key) is not None]
    if n and len(given) != 1:
        raise BadInput(f"a cell needs exactly one of {', '.join(SUMS)}; it has {', '.join(given) or 'none'}.")
    total = _sum(row[given[0]] if given else 0, given[0] if given else "sum", n, problem.family)
    squares = _squares(row.get("squares"), n, total, problem.family)
    metrics = {rail.name: _rail(row, rail.name, rail.family, n) for rail in problem.guardrails}
    rail_squares = {
        rail.name: _rail_squares(row, rail.name, rail.family, *metrics[rail.name])
        for rail in problem.guardrails
    }
    kept = {name: value for name, value in rail_squares.items() if value is not None}
    logs = logs_of(row.get("logs"))
    return CellCounts(policy, group, n, total, squares, metrics or None, logs, kept or None)


def count_of(value: Any, what: str) -> int:
    """Return a number of outcomes; refuse what is none."""
    if not is_whole(value) or not 0 <= value <= MOST:
        raise BadInput(f"{what} must be a whole number from 0 to {MOST:g}; it is {shown(value)}.")
    return int(value)


def number_of(value: Any, what: str) -> float:
    """Return a sum; refuse what is no finite number."""
    if not is_number(value):
        raise BadInput(f"{what} must be a finite number; it is {shown(value)}.")
    return float(value)


def _sum(value: Any, what: str, n: int, family: Family) -> float:
    """Return the sum of n outcomes; refuse one that no n outcomes of the family have."""
    given = number_of(value, what)
    if what == "successes" and family.name not in ("bernoulli", "binomial"):
        raise BadInput(f"{family.name} outcomes have no successes; give their sum.")
    total = given * n if what == "mean" else given
    whole = family.name in DISCRETE
    if whole and what == "mean":
        total = float(round(total))  # a mean of whole numbers, written with rounding
    if whole and not total.is_integer():
        raise BadInput(f"{what} must be a whole number, as outcomes are {family.outcomes}; it is {value}.")
    low, high = ((end * n if n else 0.0) for end in family.domain)
    slack = 0.0 if whole else ROUNDING * max(abs(x) for x in (total, low, high) if math.isfinite(x))
    if total > high + slack and family.name == "bernoulli":
        raise BadInput(f"there are more successes than trials: {total:,.0f} of {n:,}.")
    if not low - slack <= total <= high + slack or abs(total) > LARGEST:
        raise BadInput(f"{n:,} outcomes ({family.outcomes}) cannot have the {what} {value}.")
    return min(max(total, low), high)


def _squares(value: Any, n: int, total: float, family: Family) -> float | None:
    """Return the sum of squares; refuse one that outcomes with this number and sum cannot have."""
    if value is None:
        if family.name == UNKNOWN and n:
            raise BadInput(f"{family.name} outcomes need squares, the sum of their squares.")
        return None
    if not is_number(value) or not 0 <= value <= LARGEST:
        raise BadInput(f"squares must be a number, at least 0; it is {shown(value)}.")
    least = total * total / n if n else 0.0
    low, high = family.domain
    most = math.inf
    if math.isfinite(low) and math.isfinite(high):
        most = (low + high) * total - n * low * high  # all outcomes at the ends of the range
    slack = ROUNDING * max(abs(x) for x in (1.0, float(value), least, most) if math.isfinite(x))
    if not least - slack <= value <= most + slack:
        raise BadInput(f"{n:,} outcomes with sum {total:.12g} cannot have the sum of squares {value}.")
    if family.name == UNKNOWN and EQUAL * value < value - least < LOST * value:
        raise BadInput(
            "the variance is lost in the rounding of the sum of squares, as all outcomes are far from 0; "
            "subtract the same number from all of them and from the bounds."
        )
    return float(value)


def _rail(row: Mapping[str, Any], name: str, family: Family, n: int) -> tuple[int, float]:
    """Return the number and the sum of a guard-rail's outcomes; a cell without its key has none."""
    value, size = row.get(name), row.get(size_key(name))
    try:
        found = count_of(n if size is None else size, size_key(name)) if value is not None else 0
        if found > n:
            raise BadInput(f"{size_key(name)} must be at most n, {n:,}; it is {found:,}.")
        return found, _sum(0 if value is None else value, "sum", found, family)
    except BadInput as error:
        raise BadInput(f"guard-rail {name!r}: {error}") from None


def _rail_squares(row: Mapping[str, Any], name: str, family: Family, n: int, total: float) -> float | None:
    """Return the sum of squares of a guard-rail, where its family needs it."""
    value = row.get(squares_key(name))
    if family.name != UNKNOWN:
        if value is not None:
            raise BadInput(f"{squares_key(name)!r} is for {UNKNOWN} outcomes; those of {name!r} are not.")
        return None
    try:
        return _squares(value, n, total, family) if n else None
    except BadInput as error:
        raise BadInput(f"guard-rail {name!r}: {error}") from None


def logs_of(value: Any) -> tuple[float, ...] | None:
    """Return the sums of bets; refuse what is no list of numbers."""
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not all(map(is_number, value)):
        raise BadInput(f"logs must be a list of finite numbers; they are {shown(value)}.")
    return tuple(map(float, value))
