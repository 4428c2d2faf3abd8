"""The pool of items to evaluate on, by group: a data frame, or a sequence of mappings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, nearest, shown
from evenhand.model.argument_checks import callable_or_none


@dataclass(frozen=True)
class Pool:
    """Items by number, their groups, and the inputs of a model for given items."""

    item: Callable[[int], Any]
    inputs: Callable[[Sequence[int]], Any]  # of several items, for a model
    groups: tuple[str, ...]
    members: dict[str, NDArray[np.int64]]
    columns: tuple[str, ...]
    names: tuple[str, ...]  # of the items, all different
    values: Callable[[str], Sequence[Any]]  # of a column; None where an item has none

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def shares(self) -> dict[str, float]:
        """Return the share of every group in the pool."""
        return {name: len(items) / len(self.groups) for name, items in self.members.items()}


def open_pool(
    pool: Any, groups: str | Callable[[Any], str], features: Sequence[str] | None, item: str | None = None
) -> Pool:
    """Return the items of a frame or sequence, by group; `item` is the column of their names."""
    if item is not None and not isinstance(item, str):
        raise BadInput(f"item must be a column of the pool; it is {shown(item)}.")
    if not isinstance(groups, str):
        callable_or_none(groups, "groups")
    if groups is None:
        raise BadInput("groups must be a column of the pool or a function of an item; it is None.")
    if features is not None and (isinstance(features, str) or not isinstance(features, Sequence)):
        raise BadInput(f"features must be a list of columns; it is {shown(features)}.")
    if isinstance(pool, Sequence) and not isinstance(pool, (str, bytes)):
        return _from_sequence(pool, groups, item)
    import narwhals as nw

    try:
        found = nw.from_native(pool)
    except nw.exceptions.DuplicateError:
        raise BadInput("the pool must have different column names; one comes twice.") from None
    except TypeError:
        raise BadInput(
            f"the pool must be a data frame or a sequence of items; it is {shown(pool)}."
        ) from None
    if isinstance(found, nw.Series):
        raise BadInput("the pool must be a data frame or a sequence of items; it is a series.")
    frame = found.collect() if isinstance(found, nw.LazyFrame) else found
    columns = tuple(map(str, frame.columns))
    if isinstance(groups, str) and groups not in columns:
        raise BadInput(f"the pool has no column {groups!r}{nearest(groups, columns)}")
    wanted = list(map(str, features)) if features is not None else [c for c in columns if c != groups]
    for name in (*wanted, *([] if item is None else [item])):
        if name not in columns:
            raise BadInput(f"the pool has no column {name!r}{nearest(name, columns)}")
    inputs = frame.select(wanted)

    def row(number: int) -> Any:
        return dict(zip(columns, frame.row(number), strict=True))

    if isinstance(groups, str):
        labels = [_label(value, number) for number, value in enumerate(frame[groups].to_list())]
    else:
        labels = [_label(groups(row(number)), number) for number in range(len(frame))]
    names = None if item is None else frame[item].to_list()
    return _sorted(
        row, lambda numbers: inputs[list(numbers)].to_native(), labels, columns, names,
        lambda column: frame[column].to_list(),
    )  # fmt: skip


def _from_sequence(pool: Sequence[Any], groups: str | Callable[[Any], str], name: str | None) -> Pool:
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

    def values(column: str) -> list[Any]:
        return [item.get(column) if isinstance(item, Mapping) else None for item in pool]

    return _sorted(
        pool.__getitem__, lambda numbers: [pool[number] for number in numbers], labels, columns,
        None if name is None else values(name), values,
    )  # fmt: skip


def _sorted(
    item: Callable[[int], Any],
    inputs: Callable[[Sequence[int]], Any],
    labels: list[str],
    columns: tuple[str, ...],
    names: Sequence[Any] | None,
    values: Callable[[str], Sequence[Any]],
) -> Pool:
    if not labels:
        raise BadInput("the pool must hold at least one item; it is empty.")
    members: dict[str, list[int]] = {}
    for number, label in enumerate(labels):
        members.setdefault(label, []).append(number)
    ordered = {name: np.array(members[name], dtype=np.int64) for name in sorted(members)}
    return Pool(item, inputs, tuple(labels), ordered, columns, _item_names(names, labels), values)


def _item_names(given: Sequence[Any] | None, labels: list[str]) -> tuple[str, ...]:
    """Return a name for every item: the given ones, or their numbers."""
    if given is None:
        return tuple(map(str, range(len(labels))))
    seen: dict[str, int] = {}
    for number, value in enumerate(given):
        if value is None or (isinstance(value, float) and math.isnan(value)):
            raise BadInput(f"every item needs a name; item {number} has none.")
        before = seen.setdefault(str(value), number)
        if labels[before] != labels[number]:
            raise BadInput(
                f"an item belongs to one group; item {shown(str(value))} is in {labels[before]!r} and in "
                f"{labels[number]!r}. Give different items different names."
            )
        if before != number:
            raise BadInput(f"every item needs a name of its own; {shown(str(value))} comes twice.")
    return tuple(seen)


def _label(value: Any, number: int) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise BadInput(f"every item needs a group; item {number} has none.")
    return str(value)
