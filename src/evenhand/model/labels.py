"""Numbers by name: dicts, pandas and polars frames and series, matched with the names of the problem.

A table may be given by position (a number, a list, a row per policy) or by name. By name the order does not
matter; a name that is not known is refused with the nearest known one, and so is a missing one.

    by group      {"young": 0.7, "old": 0.6}, or a series indexed by group
    by cell       {"new": {"young": 0.7, "old": 0.6}, ...}, a dict of series, or a frame: policies and groups
                  are recognised by their names, whichever of them are the rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, nearest, shown
from evenhand.model.argument_checks import checked_table, float_array, is_number, python_number
from evenhand.model.frozen_dict import FrozenDict

Array = NDArray[np.float64]


class FrameRows(FrozenDict[Any]):
    """The rows of a data frame by their labels, each a dict by the labels of the columns."""

    __slots__ = ()


PLAIN = (str, bytes, int, float, list, tuple, np.ndarray, np.generic, type(None))  # no frame, no series


def by_name(value: Any, what: str) -> Any:
    """Return a frame or series as a dict by its labels, without labels as lists; other values as they are.

    A dict of series, such as one by group for every policy, is a dict of dicts.
    """
    if isinstance(value, (*PLAIN, FrozenDict)):
        return value
    if isinstance(value, Mapping):
        if all(isinstance(part, (*PLAIN, Mapping)) for part in value.values()):
            return value
        return {name: by_name(part, f"{what} of {name!r}") for name, part in value.items()}
    import narwhals as nw

    if nw.dependencies.is_into_series(value):
        return _series_by_label(value, what)
    if nw.dependencies.is_into_dataframe(value):
        return _frame_by_label(value, what)
    return value


def cells_in_order(value: Any, policies: Sequence[str], groups: Sequence[str], what: str) -> Any:
    """Return a table by policy and group as a list per policy, groups in order; other values as they are."""
    table = by_name(value, what)
    if not isinstance(table, Mapping):
        return table
    if is_by_group(table, policies, groups, what):
        rows = _matrix(table, groups, policies, what, "group", "policy")
        return [list(row) for row in zip(*rows, strict=True)]
    return _matrix(table, policies, groups, what, "policy", "group")


def checked_bounds(value: Any, what: str) -> Any:
    """Return one number, one per group, or K x L as nested tuples; by name as a FrozenDict."""
    value = by_name(value, what)
    if isinstance(value, Mapping):
        return checked_bounds_by_name(value, what)
    table = checked_table(value, what)
    if table.ndim > 2:
        raise BadInput(
            f"{what} must be one number, a list per group, or K x L; it has {table.ndim} dimensions."
        )
    if table.ndim == 2:
        return tuple(map(tuple, table.tolist()))
    return tuple(table.tolist()) if table.ndim == 1 else table.tolist()


def bounds_in_order(value: Any, policies: Sequence[str], groups: Sequence[str], what: str) -> Any:
    """Return what `checked_bounds` made by position: a tuple per group, or one per policy."""
    if not isinstance(value, Mapping):
        return value
    if any(isinstance(part, (Mapping, Sequence)) for part in value.values()):
        table = checked_table(cells_in_order(value, policies, groups, what), what)
        if table.shape != (len(policies), len(groups)):
            raise BadInput(f"{what} by name must have a number for every policy and group; some have others.")
        return tuple(map(tuple, table.tolist()))
    return tuple(per_group(tuple(value.items()), groups, what).tolist())


def checked_bounds_by_name(value: Mapping[str, Any], what: str) -> FrozenDict[Any]:
    """Return numbers by group, or by policy and group, checked to be finite and frozen."""
    if not value:
        raise BadInput(f"{what} by name must name at least one group or policy; the table is empty.")
    found: dict[str, Any] = {}
    for name, part in value.items():
        if not isinstance(name, str):
            raise BadInput(f"{what} by name must be a table of names and numbers; it has {name!r}.")
        if isinstance(part, Mapping):
            found[name] = checked_bounds_by_name(part, what)
        elif isinstance(part, (list, tuple, np.ndarray)):
            found[name] = tuple(checked_table(part, what).ravel().tolist())
        elif is_number(part):
            found[name] = float(part)
        else:
            raise BadInput(f"{what} must hold finite numbers only; {name!r} has {shown(part)}.")
    return FrameRows(found) if isinstance(value, FrameRows) else FrozenDict(found)


def checked_per_group(value: Any, what: str) -> Any:
    """Return one number, a tuple with one per group, or pairs (group name, number), all finite."""
    value = by_name(value, what)
    if isinstance(value, Mapping):
        for name, number in value.items():
            if not isinstance(name, str) or not is_number(number):
                raise BadInput(
                    f"{what} by group must map names to finite numbers; it has {name!r}: {shown(number)}."
                )
        if not value:
            raise BadInput(f"{what} by group must name at least one group; the table is empty.")
        return tuple((name, float(number)) for name, number in value.items())
    if is_named(value):
        return value
    table = checked_table(value, what)
    if table.ndim > 1:
        raise BadInput(
            f"{what} must be one number, a list per group or a table by group; it is {shown(value)}."
        )
    return tuple(table.tolist()) if table.ndim == 1 else table.tolist()


def per_group(value: Any, names: Sequence[str], what: str) -> Array:
    """Return what `checked_per_group` made as one number per group."""
    if is_named(value):
        given = dict(value)
        for name in given:
            if name not in names:
                raise BadInput(f"{what} names an unknown group {name!r}{nearest(name, names)}")
        missing = [name for name in names if name not in given]
        if missing:
            raise BadInput(f"{what} by group must name every group; {missing[0]!r} is missing.")
        return np.array([given[name] for name in names])
    table = np.asarray(value, dtype=float)
    if table.ndim == 1 and table.size != len(names):
        raise BadInput(f"{what} must have one number per group, {len(names)}; it has {table.size}.")
    return np.broadcast_to(table, (len(names),)).copy()


def written(value: Any) -> Any:
    """Return what `checked_per_group` made as a study file holds it."""
    if is_named(value):
        return dict(value)
    return list(value) if isinstance(value, tuple) else float(value)


def cost_table(costs: Any, policies: Sequence[str], groups: Sequence[str]) -> Array:
    """Return the cost of one sample in every cell, K x L; by name, a cell that is not named costs 1."""
    given, costs = costs, by_name(costs, "costs")
    if isinstance(costs, FrameRows):
        costs = cells_in_order(given, policies, groups, "costs")
    if isinstance(costs, Mapping):
        return _named_costs(costs, policies, groups)
    shape = (len(policies), len(groups))
    try:
        table = float_array(costs)
    except (TypeError, ValueError, OverflowError):
        table = np.zeros(0)
    if table.ndim == 1 and table.size in shape and shape[0] == shape[1]:
        raise BadInput(
            f"a list of {table.size} costs could be by policy or by group; give a table by name, or a row "
            "per policy."
        )
    if table.shape == (shape[0],):
        table = table[:, None]
    if table.shape in ((), (shape[1],), (shape[0], 1)):
        table = np.broadcast_to(table, shape)
    if table.shape != shape or not np.all(np.isfinite(table)) or not np.all(table > 0):
        raise BadInput(
            f"costs must be positive numbers, a row per policy, {shape[0]} x {shape[1]}, or a table by "
            f"policy or by group; they are {shown(costs)}."
        )
    return np.array(table)


def is_named(value: Any) -> bool:
    """Return whether these are pairs (name, number), as `checked_per_group` keeps a table by name."""
    return (
        isinstance(value, tuple)
        and len(value) > 0
        and isinstance(value[0], tuple)
        and len(value[0]) > 0
        and isinstance(value[0][0], str)
    )


def _series_by_label(series: Any, what: str) -> Any:
    """Return a series by its index; its values where it has none, or only the row numbers of pandas."""
    values = list(map(python_number, series.to_list()))
    index = getattr(series, "index", None)
    if index is None or callable(index) or _is_made_up(index):
        return values
    if type(index).__name__ == "MultiIndex":
        raise BadInput(f"{what} as a series must have one level of labels; it has more. Unstack it.")
    names = list(map(str, index))
    _refuse_repeated(names, what)
    return dict(zip(names, values, strict=True))


def _frame_by_label(frame: Any, what: str) -> Any:
    """Return a frame by the labels of its rows (the index, or the one column of text) and of its columns."""
    import narwhals as nw

    index = getattr(frame, "index", None)
    kind = "" if index is None else type(index).__name__
    if index is not None and _is_made_up(index) and _is_made_up(frame.columns):
        return frame.to_numpy().tolist()  # no labels at all
    if "MultiIndex" in (kind, type(getattr(frame, "columns", None)).__name__):
        raise BadInput(
            f"{what} as a frame must have one level of labels for rows and for columns; it has more."
        )
    if kind:
        _refuse_repeated(list(map(str, frame.columns)), what)
        frame = frame.rename(columns=str)
    try:
        found: Any = nw.from_native(frame, eager_only=True)
    except nw.exceptions.DuplicateError:
        raise BadInput(f"{what} must have every name once; a column of the frame comes twice.") from None
    columns = list(found.columns)
    if kind not in ("", "RangeIndex"):
        labels = list(map(str, index if index is not None else ()))
    else:
        texts = [c for c in columns if all(isinstance(v, str) for v in found[c].to_list())]
        if len(texts) != 1:
            raise BadInput(
                f"{what} as a frame must name its rows, by an index or by one column of names; this one does "
                "not. Set the index to the policies, or give an array in the order of the problem."
            )
        labels = found[texts[0]].to_list()
        columns.remove(texts[0])
    names = list(map(str, columns))
    _refuse_repeated(labels, what)
    _refuse_repeated(names, what)
    values = [list(map(python_number, found[column].to_list())) for column in columns]
    return FrameRows(
        {label: {name: column[i] for name, column in zip(names, values, strict=True)}
         for i, label in enumerate(labels)}
    )  # fmt: skip


def _is_made_up(index: Any) -> bool:
    """Return whether these are the row numbers 0, 1, 2, ... of pandas; in another order they are labels."""
    return type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)


def is_by_group(table: Mapping[str, Any], policies: Sequence[str], groups: Sequence[str], what: str) -> bool:
    """Return whether the rows of a table by name are groups; refuse a frame that can be read both ways."""
    if not table or not all(isinstance(row, Mapping) for row in table.values()):
        return False
    if not all(name in groups for name in table):
        return False
    could_be_policies = all(name in policies for name in table)
    if could_be_policies and isinstance(table, FrameRows):
        columns = {name for row in table.values() for name in row}
        if all(name in groups for name in columns) and all(name in policies for name in columns):
            raise BadInput(
                f"policies and groups have the same names, so the rows of the frame could be either; give "
                f"{what} as a dict by policy, then by group."
            )
        return not all(name in groups for name in columns)
    return not could_be_policies


def _matrix(
    table: Mapping[str, Any], rows: Sequence[str], columns: Sequence[str], what: str, kind: str, other: str
) -> list[Any]:
    """The rows of a table by name in this order, each a list, or a dict put into the order of the columns."""
    _refuse_unknown(table, rows, what, kind)
    missing = [name for name in rows if name not in table]
    if missing:
        raise BadInput(f"{what} by name must have a row for every {kind}; {missing[0]!r} has none.")
    return [_row(table[name], columns, f"{what} of {name!r}", other) for name in rows]


def _row(row: Any, names: Sequence[str], what: str, kind: str) -> Any:
    if not isinstance(row, Mapping):
        return row
    _refuse_unknown(row, names, what, kind)
    missing = [name for name in names if name not in row]
    if missing:
        raise BadInput(f"{what} must have a number for every {kind}; {missing[0]!r} has none.")
    return [row[name] for name in names]


def _named_costs(costs: Mapping[str, Any], policies: Sequence[str], groups: Sequence[str]) -> Array:
    """Return costs by policy, by group, or by both, in either order."""
    known = (*policies, *groups)
    _refuse_unknown(costs, known, "costs", "policy or group")
    both = [name for name in costs if name in policies and name in groups]
    if both:
        raise BadInput(f"{both[0]!r} is both a policy and a group; give costs with a row per policy.")
    table = np.ones((len(policies), len(groups)))
    by_policy = [name in policies for name in costs]
    if any(by_policy) and not all(by_policy):
        raise BadInput("costs by name must name policies only or groups only; these name both.")
    rows, columns, kind, part = policies, groups, "group", table
    if not any(by_policy):
        rows, columns, kind, part = groups, policies, "policy", table.T
    for name, cost in costs.items():
        row = part[list(rows).index(name)]
        if isinstance(cost, Mapping):
            _refuse_unknown(cost, columns, f"costs of {name!r}", kind)
            for column, one in cost.items():
                row[list(columns).index(column)] = _cost(one, f"{name}, {column}")
        elif isinstance(cost, (list, tuple, np.ndarray)) and len(cost) == len(columns):
            row[:] = [_cost(one, f"{name}, {column}") for column, one in zip(columns, cost, strict=True)]
        else:
            row[:] = _cost(cost, name)
    return table


def _cost(value: Any, name: str) -> float:
    if not is_number(value) or value <= 0:
        raise BadInput(f"costs must be positive finite numbers; {name!r} has {shown(value)}.")
    return float(value)


def _refuse_unknown(table: Mapping[str, Any], known: Sequence[str], what: str, kind: str) -> None:
    for name in table:
        if name not in known:
            raise BadInput(f"{what}: there is no {kind} {name!r}{nearest(str(name), known)}")


def _refuse_repeated(names: Sequence[str], what: str) -> None:
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise BadInput(f"{what} must have every name once; {repeated!r} comes twice.")
