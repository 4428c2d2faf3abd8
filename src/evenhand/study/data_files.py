"""Read CSV files of counts or of outcomes.

The columns are policy, group, n and successes; or policy, group and outcome.

Every line is checked while reading; an error names the first invalid line.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput
from evenhand.model.families import BOOLEANS, Family
from evenhand.model.problem import JOINED, Problem

Array = NDArray[np.float64]


class Line(NamedTuple):
    """One line of a file with its policy and group."""

    place: str  # file and line number, the start of an error message
    policy: int
    group: int
    fields: dict[str, str]


def counts(path: Path, problem: Problem) -> tuple[Array, Array]:
    """Return the sizes and successes of the cells, each K x L; every cell must occur once."""
    n, successes = np.zeros(problem.shape), np.zeros(problem.shape)
    for line in lines(path, problem, ("n", "successes")):
        cell = line.policy, line.group
        if n[cell] > 0:
            raise BadInput(
                f"{line.place}: every cell must occur once; {_cell_name(problem, *cell)} occurs twice."
            )
        n[cell], successes[cell] = whole_number(line, "n"), whole_number(line, "successes")
        if not 0 <= successes[cell] <= n[cell] or n[cell] == 0:
            raise BadInput(f"{line.place}: n must be at least 1 and successes must lie between 0 and n.")
    _check_every_cell(n, problem, path)
    return n, successes


def outcomes(path: Path, problem: Problem, guardrails: bool = False) -> list[list[Array]]:
    """Return the outcomes of every cell, K lists of L tables; no cell may be empty.

    A table has a row per sample: the outcome and, if asked for, that of every guard-rail, which may be
    missing (NaN).
    """
    rails = problem.guardrails if guardrails else ()
    found: list[list[list[list[float]]]] = [[[] for _ in problem.groups] for _ in problem.policies]
    for line in lines(path, problem, ("outcome", *(rail.name for rail in rails))):
        sample = [_admitted(line, "outcome", problem.family, "outcomes")]
        for rail in rails:
            missing = not line.fields[rail.name].strip()
            what = f"outcomes of guard-rail {rail.name!r}"
            sample.append(math.nan if missing else _admitted(line, rail.name, rail.family, what))
        found[line.policy][line.group].append(sample)
    table = [[np.array(cell) for cell in row] for row in found]
    _check_every_cell(np.array([[len(cell) for cell in row] for row in table]), problem, path)
    return table


def _admitted(line: Line, column: str, family: Family, what: str) -> float:
    """Return an outcome that the family admits."""
    outcome = finite_number(line, column)
    if not family.admits(outcome):
        raise BadInput(f"{line.place}: {what} must be {family.outcomes}; this one is {line.fields[column]}.")
    return outcome


def lines(path: Path, problem: Problem, columns: tuple[str, ...]) -> Iterator[Line]:
    """Yield the lines of a CSV file that has the columns policy, group and `columns`.

    The group may be given by several columns (`Problem.by`).
    """
    wanted = ("policy", *group_columns(problem), *columns)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [column for column in wanted if column not in (reader.fieldnames or ())]
            if missing:
                raise BadInput(f"{path} needs the columns {', '.join(wanted)}; {missing[0]!r} is missing.")
            for row in reader:
                place = f"{path}, line {reader.line_num}"
                if None in row or None in row.values():
                    raise BadInput(f"{place}: a line needs as many fields as the header.")
                group = (
                    JOINED.join(row[column].strip() for column in problem.by) if problem.by else row["group"]
                )
                yield _parse_cell(place, row | {"group": group}, problem)
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; give the path of a CSV file.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} cannot be read: {error}.") from None


def group_columns(problem: Problem) -> tuple[str, ...]:
    """Return the columns of data files that give the group."""
    return problem.by or ("group",)


def has_column(path: Path, name: str) -> bool:
    """Return whether the header of a file names this column; False where the file cannot be read."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return name in next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return False  # reading the rows says why


def columns(path: Path, wanted: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield (line number, fields of the given columns); faster than `lines`, for long files."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            names = next(reader, [])
            missing = [column for column in wanted if column not in names]
            if missing:
                raise BadInput(f"{path} needs the columns {', '.join(wanted)}; {missing[0]!r} is missing.")
            places = [len(names) - 1 - names[::-1].index(column) for column in wanted]
            for row in reader:
                if len(row) == len(names):
                    yield reader.line_num, tuple([row[place] for place in places])
                elif row:
                    place = f"{path}, line {reader.line_num}"
                    raise BadInput(f"{place}: a line needs as many fields as the header.")
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; give the path of a CSV file.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} cannot be read: {error}.") from None


def finite_number(line: Line, column: str) -> float:
    """Return a field as a finite number; true and false are outcomes."""
    text = line.fields[column]
    try:
        is_word = column not in ("n", "successes") and text.strip().lower() in BOOLEANS
        value = BOOLEANS[text.strip().lower()] if is_word else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput(f"{line.place}: {column} must be a finite number; it is {text!r}.")
    return value


def whole_number(line: Line, column: str) -> int:
    """Return a field as a whole number."""
    value = finite_number(line, column)
    if value != int(value):
        raise BadInput(f"{line.place}: {column} must be a whole number; it is {line.fields[column]!r}.")
    return int(value)


def _parse_cell(place: str, row: dict[str, str], problem: Problem) -> Line:
    try:
        return Line(place, problem.policy_index(row["policy"]), problem.group_index(row["group"]), row)
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from None


def _check_every_cell(n: NDArray[Any], problem: Problem, path: Path) -> None:
    if np.any(n == 0):
        k, g = (int(i[0]) for i in np.nonzero(n == 0))
        raise BadInput(f"{path} must hold every cell; {_cell_name(problem, k, g)} is missing.")


def _cell_name(problem: Problem, k: int, g: int) -> str:
    return f"{problem.policies[k]!r} in {problem.group_names[g]!r}"
