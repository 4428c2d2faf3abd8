"""Rows in the order in which their outcomes came: as they stand in the data, or sorted by a column.

Linear bets use this order. A column that gives it holds numbers, or times; rows with equal values keep the
order in which they stand in the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np

from evenhand.errors import BadInput, shown
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, new_state, new_work
from evenhand.verdicts.counts import Rows, is_missing, record_all
from evenhand.verdicts.evidence_history import OrderedOutcomes

NUMBER, TIME, ZONED_TIME = "a number", "a time without a zone", "a time with a zone"


class OrderedRows:
    """Collects the rows of the data, and gives them in the order in which the outcomes came."""

    def __init__(self, column: str | None) -> None:
        self.column = column  # the title of the column that gives the order; None: the order of the rows
        self.chunks: list[Rows] = []
        self.keys: list[Any] = []
        self.first: tuple[str, str, Any] | None = None  # kind, place and value of the first key

    def add(self, chunk: Rows, keys: Sequence[Any] | None) -> None:
        """Add valid rows, with what `key_of` made of their values in the column that gives the order."""
        if self.chunks and (self.chunks[0].items is None) != (chunk.items is None):
            raise BadInput("all rows must name their items, or none; some files have a column of items only.")
        self.chunks.append(chunk)
        self.keys.extend(keys or ())

    def checked_keys(self, values: Sequence[Any], where: Sequence[str]) -> list[Any]:
        """Return the values as numbers or times that can be compared; None where one is missing."""
        found = []
        for place, value in enumerate(values):
            key, kind = key_of(value)
            if kind is None and key is not None:
                raise BadInput(
                    f"{where[place]}: the column {self.column!r} gives the order of rows, so it must hold "
                    f"numbers or times such as 2026-11-19T10:30:00; this is {shown(value)}."
                )
            if kind is not None:
                self.first = self.first or (kind, where[place], value)
                self._refuse_another_kind(kind, where[place], value)
            found.append(key)
        return found

    def _refuse_another_kind(self, kind: str, where: str, value: Any) -> None:
        if self.first is not None and self.first[0] != kind:
            known, place, first = self.first
            raise BadInput(
                f"the column {self.column!r} must hold values of one kind, so that rows can be sorted; "
                f"{place} has {known}, {shown(first)}, and {where} {kind}, {shown(value)}."
            )

    def in_order(self) -> Iterator[Rows]:
        """Yield the rows in their order."""
        if self.column is None or not self.chunks:
            yield from self.chunks
            return
        order = np.array(sorted(range(len(self.keys)), key=self.keys.__getitem__), dtype=np.int64)
        *tables, items = zip(*self.chunks, strict=True)
        policies, groups, outcomes, rails = (np.concatenate(part)[order] for part in tables)
        names = None if items[0] is None else [name for part in items for name in part or ()]
        in_order = None if names is None else [names[i] for i in order.tolist()]
        yield Rows(policies, groups, outcomes, rails, in_order)


def key_of(value: Any) -> tuple[Any, str | None]:
    """Return a value that can be compared, and its kind; (None, None) where it is missing.

    The kind of what is neither a number nor a time is None. Whole numbers of any size stay exact.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if is_missing(value) or value != value:  # NaN, and pandas' missing time
        return None, None
    if isinstance(value, str):
        return _key_of_text(value.strip())
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return (value, NUMBER) if math.isfinite(value) else (value, None)
    if isinstance(value, datetime):
        return value, TIME if value.tzinfo is None else ZONED_TIME
    if isinstance(value, date):
        return datetime.combine(value, time()), TIME
    return value, None


def _key_of_text(text: str) -> tuple[Any, str | None]:
    for read in (int, float, datetime.fromisoformat):
        try:
            return key_of(read(text))
        except ValueError:
            continue
    return text, None


def folded(spec: Spec, outcomes: OrderedOutcomes) -> State:
    """Return the state after these outcomes, recorded one by one as in a live experiment."""
    state = new_state(spec)
    record_all(spec, state, new_work(spec), *outcomes)
    return state
