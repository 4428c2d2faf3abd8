"""Tally: adds rows to counts; every name and outcome is checked, and rows that are left out are counted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.errors import BadInput, is_one_of, nearest, shown
from evenhand.model.families import BOOLEANS
from evenhand.model.guardrails import Guardrail
from evenhand.model.problem import Problem
from evenhand.procedure.compile_spec import compile_spec, with_mixture
from evenhand.procedure.outcome_order import FAMILIES, Order, new_order, note_order
from evenhand.procedure.spec import Procedure, Spec
from evenhand.procedure.state import State, Work, new_state, new_work, record, record_guardrails
from evenhand.procedure.state import ready as ready
from evenhand.verdicts.evidence_history import OrderedOutcomes
from evenhand.verdicts.items import ItemRows, Items

if TYPE_CHECKING:
    from evenhand.verdicts.ordered_rows import OrderedRows

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

MISSING_WORDS = frozenset(("", "na", "n/a", "nan", "null", "none", "."))
LARGEST = 1e100  # the squares of larger outcomes overflow
MOST = 1e15  # outcomes of a cell
OUTCOME = "an outcome"
ORDER_COLUMN = "order of rows"  # our name of the column that gives the order of the rows
SHOWN = 5  # that many bad rows are named; the others are counted


def size_column(rail: str) -> str:
    """Return the column with the number of outcomes of a guard-rail, in a table of counts."""
    return f"{rail} n"


class ValuesMissing(BadInput):
    """Rows miss a value; `fault` is the message without the advice for callers in Python."""

    def __init__(self, fault: str) -> None:
        super().__init__(
            f"{fault} Complete them, or pass missing='drop' to leave them out and have them counted."
        )
        self.fault = fault


class Rows(NamedTuple):
    """Valid rows: policies, groups, outcomes and those of guard-rails in unit scale, and names of items."""

    policies: Ints
    groups: Ints
    outcomes: Array
    rails: Array  # (rows, M); NaN where one is missing
    items: list[Any] | None  # None where the data name no items


@dataclass(frozen=True)
class Data:
    """The data as counts, and how many rows were read and left out."""

    state: State  # counts and sums, in unit scale, (L, K)
    rows: int  # rows read
    missing: int  # rows left out because a value was missing
    counts: bool  # came as counts per cell, not as single outcomes
    order: Order  # of single outcomes, where the family's evidence depends on it
    rail_orders: tuple[Order, ...] = ()  # the same for every guard-rail
    items: Items | None = None  # who answered which item, where the data name items
    in_order: OrderedOutcomes | None = None  # single outcomes, where the data are in the order they came


class Tally:
    """Adds rows to the counts, chunk by chunk.

    Memory grows with their number only where they name items, or come in the order of the outcomes.
    """

    def __init__(self, problem: Problem, missing: str = "fail", ordered: OrderedRows | None = None) -> None:
        if not is_one_of(missing, ("drop", "fail")):
            known = nearest(str(missing), ("drop", "fail"))
            raise BadInput(f"missing must be 'drop' or 'fail'; it is {shown(missing)}{known}")
        self.problem = problem
        self.drops_missing = missing == "drop"
        self.policies = {name: k for k, name in enumerate(problem.policies)}
        self.groups = {name: g for g, name in enumerate(problem.group_names)}
        # counts do not depend on the procedure; with the mixture the state holds nothing else
        self.spec: Spec = compile_spec(problem, with_mixture(problem, Procedure()))
        self.state: State = new_state(self.spec)
        self.work: Work = new_work(self.spec)
        self.order: Order = new_order(self.state.n.shape)
        self.rails = tuple(rail.name for rail in problem.guardrails)
        self.rail_orders = tuple(new_order(self.state.n.shape) for _ in self.rails)
        self.items: ItemRows | None = None
        self.ordered = ordered  # where the rows are in the order of the outcomes
        self.recorded: list[tuple[Ints, Ints, Array, Array]] = []  # the same, in unit scale
        self.rows = 0
        self.absent = _BadRows()
        self.outside = _BadRows()

    def add(
        self,
        where: Sequence[str],
        policies: Sequence[Any],
        groups: Sequence[Any],
        outcomes: Sequence[Any],
        columns: Mapping[str, Sequence[Any]],
    ) -> None:
        """Add single outcomes, with the place of each.

        `columns` has the outcomes of the guard-rails by name and, where known, the items.
        """
        self.rows += len(where)
        k = np.array(
            [self._index(self.policies, name, "policy", where, i) for i, name in enumerate(policies)],
            dtype=np.int64,
        )
        g = np.array(
            [self._index(self.groups, name, "group", where, i) for i, name in enumerate(groups)],
            dtype=np.int64,
        )
        x, items = self._numbers(outcomes, where), columns.get("item")
        absent = (k < 0) | (g < 0) | np.isnan(x)
        if items is not None:
            absent |= np.array([is_missing(name) for name in items], dtype=bool)
        keys = columns.get(ORDER_COLUMN)
        if self.ordered is not None and keys is not None:
            keys = self.ordered.checked_keys(keys, where)
            absent |= np.array([key is None for key in keys], dtype=bool)
        self.absent.note(where, absent, outcomes)
        outside = ~absent & ~(self.problem.family.admits(x) & (np.abs(x) <= LARGEST))
        if outside.any():
            self.outside.note(where, outside, outcomes)
        keep = ~absent & ~outside
        unit = np.ascontiguousarray(self.problem.family.to_unit(x[keep]))
        names = None if items is None else list(compress(items, keep.tolist()))
        rows = Rows(k[keep], g[keep], unit, self._rails(where, columns, keep), names)
        if self.ordered is None:
            self._put(rows)
        else:
            self.ordered.add(rows, None if keys is None else list(compress(keys, keep.tolist())))

    def _put(self, rows: Rows) -> None:
        """Add valid rows, in the order in which they count."""
        if rows.items is None:
            self._record(*rows[:4])
            return
        # outcomes on items are recorded in the order of the items
        self.items = self.items or ItemRows(self.problem)
        self.items.add(*rows[:3], self.items.number(rows.items), rows.rails)

    def _record(self, policies: Ints, groups: Ints, unit: Array, rails: Array) -> None:
        """Add outcomes in unit scale to the counts."""
        record_all(self.spec, self.state, self.work, policies, groups, unit, rails)
        if self.ordered is not None:
            self.recorded.append((policies, groups, unit, rails))
        if self.problem.family.name in FAMILIES or self.ordered is not None:
            note_order(self.order, policies, groups, unit)
        for j, rail in enumerate(self.problem.guardrails):
            if rail.family.name in FAMILIES:
                seen = ~np.isnan(rails[:, j])
                values = np.ascontiguousarray(rails[seen, j])
                note_order(self.rail_orders[j], policies[seen], groups[seen], values)

    def _rails(
        self,
        where: Sequence[str],
        columns: Mapping[str, Sequence[Any]],
        keep: NDArray[np.bool_],
    ) -> Array:
        """Return the outcomes of the guard-rails in unit scale, (rows, M); NaN where one is missing."""
        found = np.full((int(keep.sum()), len(self.rails)), math.nan)
        for j, rail in enumerate(self.problem.guardrails):
            values = self._numbers(columns[rail.name], where)
            self._check_rail(rail, where, values, columns[rail.name])
            found[:, j] = rail.family.to_unit(values[keep])
        return found

    def _check_rail(
        self, rail: Guardrail, where: Sequence[str], values: Array, given: Sequence[Any] | None = None
    ) -> None:
        """Refuse outcomes that a guard-rail cannot have; NaN is a missing one."""
        seen = ~np.isnan(values)
        wrong = seen & ~(rail.family.admits(np.where(seen, values, 0.0)) & (np.abs(values) <= LARGEST))
        if wrong.any():
            i = int(np.argmax(wrong))
            raise BadInput(
                f"{where[i]}: outcomes of guard-rail {rail.name!r} must be {rail.family.outcomes}; this "
                f"one is {(values if given is None else given)[i]}."
            )

    def add_counts(
        self, where: str, policy: Any, group: Any, n: Any, mean: Any, successes: Any, row: Mapping[str, Any]
    ) -> None:
        """Add the count and the mean (or the number of successes) of a cell; every cell may come once.

        `row` has the means of the guard-rails by name, and the numbers of their outcomes if not n.
        """
        self.rows += 1
        k = self._index(self.policies, policy, "policy", [where], 0)
        g = self._index(self.groups, group, "group", [where], 0)
        size = self._numbers([n], [where], "n")[0]
        what = "the mean" if successes is None else "successes"
        value = self._numbers([mean if successes is None else successes], [where], what)[0]
        if k < 0 or g < 0 or math.isnan(size) or (math.isnan(value) and size != 0):
            self.absent.note([where], np.array([True]), [""])
            return
        if not 0 <= size <= MOST or size != int(size):
            raise BadInput(f"{where}: n must be a whole number from 0 to {MOST:g}; it is {n}.")
        if self.state.n[g, k] > 0:
            raise BadInput(
                f"{where}: every cell may come once; {self.problem.policies[k]!r} in {group!r} comes twice."
            )
        if size == 0:
            return
        if (
            successes is not None
            and self.problem.family.name == "bernoulli"
            and not float(value).is_integer()
        ):
            raise BadInput(f"{where}: successes must be a whole number; it is {successes}.")
        average = value if successes is None else value / size
        self._check_mean(
            where, average, size, mean if successes is None else successes, successes is not None
        )
        unit = float(self.problem.family.to_unit(average))
        self.state.n[g, k], self.state.s[g, k] = size, size * unit
        for j, rail in enumerate(self.problem.guardrails):
            self._add_rail_counts(where, j, rail, k, g, size, row)

    def _add_rail_counts(
        self, where: str, j: int, rail: Guardrail, k: int, g: int, most: float, row: Mapping[str, Any]
    ) -> None:
        """Add the count and the mean of a cell's outcomes of one guard-rail."""
        given = row.get(size_column(rail.name))
        size = most if given is None else self._numbers([given], [where], size_column(rail.name))[0]
        mean = self._numbers([row[rail.name]], [where], f"the mean of {rail.name}")[0]
        if math.isnan(mean) or math.isnan(size) or size == 0:
            return  # all are missing
        if not 0 <= size <= most or size != int(size):
            raise BadInput(
                f"{where}: {size_column(rail.name)!r} must be a whole number from 0 to n, {most:,.0f}; it is "
                f"{given}."
            )
        low, high = rail.family.domain
        if not (low <= mean <= high and math.isfinite(mean)):
            raise BadInput(
                f"{where}: the mean of guard-rail {rail.name!r} ({rail.family.outcomes}) is not "
                f"{row[rail.name]}."
            )
        self.state.rail_n[j, g, k] = size
        self.state.rail_s[j, g, k] = size * float(rail.family.to_unit(mean))

    def finish(self, counts: bool) -> Data:
        """Return the data, or raise one sentence about what is wrong with them."""
        family = self.problem.family
        if self.outside.count:
            raise BadInput(f"outcomes must be {family.outcomes}; {self.outside.words()}. Correct them first.")
        if self.absent.count and not self.drops_missing:
            raise ValuesMissing(
                f"{self.absent.count:,} of {self.rows:,} rows miss a value ({self.absent.places()})."
            )
        if counts and self.ordered is not None:
            raise BadInput(
                "a table of counts has no order of outcomes; give rows of policy, group, outcome in their "
                "order, or leave the order out."
            )
        families = [family, *(rail.family for rail in self.problem.guardrails)]
        ordered = next((one.name for one in families if one.name in FAMILIES), None)
        if counts and ordered is not None:  # their evidence needs single outcomes
            raise BadInput(
                f"the {ordered} family learns its scale from single outcomes, which counts do not hold. "
                "Give rows of policy, group, outcome, in the order they came."
            )
        for rows in () if self.ordered is None else self.ordered.in_order():
            self._put(rows)
        items = None if self.items is None else self.items.finish()
        if items is not None:
            policies, groups, outcomes = items.in_order()
            self._record(policies, groups, outcomes, items.guardrails_in_order())
        return Data(
            self.state, self.rows, self.absent.count, counts, self.order, self.rail_orders, items,
            None if self.ordered is None else self._outcomes_in_order(),
        )  # fmt: skip

    def _outcomes_in_order(self) -> OrderedOutcomes:
        """Return all outcomes in the order in which they were recorded."""
        none = np.zeros(0, dtype=np.int64)
        empty = (none, none, np.zeros(0), np.zeros((0, len(self.rails))))
        return OrderedOutcomes(*map(np.concatenate, zip(empty, *self.recorded, strict=True)))

    def _index(self, known: dict[str, int], name: Any, what: str, where: Sequence[str], i: int) -> int:
        """Return the number of a name; -1 where it is missing."""
        found = known.get(name if isinstance(name, str) else "" if is_missing(name) else str(name))
        if found is not None:
            return found
        if is_missing(name):
            return -1
        raise BadInput(f"{where[i]}: there is no {what} {str(name)!r}{nearest(str(name), known)}")

    def _numbers(self, values: Sequence[Any], where: Sequence[str], what: str = OUTCOME) -> Array:
        """Return values as numbers, NaN where one is missing; True and False are numbers as outcomes only."""
        try:
            # the common case, converted by NumPy: all values are numbers, or text that spells numbers
            booleans = what != OUTCOME and any(isinstance(v, (bool, np.bool_)) for v in values)
            found = None if booleans else np.array(values, dtype=float)
        except (TypeError, ValueError):
            found = None
        if found is not None and not np.isnan(found).any():
            return found
        return np.array(
            [self._number(value, place, what) for value, place in zip(values, where, strict=True)]
        )

    def _number(self, value: Any, where: str, what: str) -> float:
        if is_missing(value):
            return math.nan
        if what == OUTCOME and isinstance(value, str) and value.strip().lower() in BOOLEANS:
            return BOOLEANS[value.strip().lower()]
        try:
            if what != OUTCOME and isinstance(value, (bool, np.bool_)):
                raise ValueError
            return float(value)
        except (TypeError, ValueError):
            raise BadInput(f"{where}: {what} must be a number; it is {shown(value)}.") from None

    def _check_mean(self, where: str, mean: float, n: float, given: Any, is_successes: bool) -> None:
        low, high = self.problem.family.domain
        if not (low <= mean <= high and math.isfinite(mean)):
            what = "successes" if is_successes else "mean"
            raise BadInput(
                f"{where}: the {what} of {n:,.0f} outcomes ({self.problem.family.outcomes}) is not {given}."
            )


@dataclass
class _BadRows:
    """The number of bad rows, and the first few of them."""

    count: int = 0
    first: list[tuple[str, str]] = field(default_factory=list)

    def note(self, where: Sequence[str], which: NDArray[np.bool_], values: Sequence[Any]) -> None:
        self.count += int(which.sum())
        for i in np.flatnonzero(which)[: SHOWN - len(self.first)] if len(self.first) < SHOWN else ():
            self.first.append((where[i], str(values[i]) if len(values) > i else ""))

    def places(self) -> str:
        more = f" and {self.count - len(self.first):,} more" if self.count > len(self.first) else ""
        return ", ".join(place for place, _ in self.first) + more

    def words(self) -> str:
        named = ", ".join(f"{place} has {value}" for place, value in self.first)
        more = f", and {self.count - len(self.first):,} more" if self.count > len(self.first) else ""
        return f"{named}{more}"


def is_missing(value: Any) -> bool:
    """Return whether a field holds no value."""
    if value is None:
        return True
    if isinstance(value, str):
        return value.strip().lower() in MISSING_WORDS
    # pandas marks a missing value of its nullable columns by an object of its own
    return type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))


@kernel
def record_all(
    spec: Spec,
    state: State,
    work: Work,
    policies: NDArray[np.int64],
    groups: NDArray[np.int64],
    outcomes: Array,
    rails: Array,
) -> None:
    """Record outcomes in their order: where the variance is unknown, the evidence depends on it."""
    for i in range(outcomes.shape[0]):
        record_guardrails(spec, state, policies[i], groups[i], rails[i])
        record(spec, state, work, policies[i], groups[i], outcomes[i], False)
