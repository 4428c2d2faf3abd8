"""Outcomes with the items they belong to: who answered which item, in the order of the items.

An item belongs to one group and counts once per policy. Items are numbered in the order of their first rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, shown
from evenhand.model.problem import Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Answers:
    """The items that one policy answered, ascending, and the outcomes in unit scale."""

    items: Ints
    outcomes: Array
    guardrails: Array | None = None  # outcomes of the guard-rails, (items, M); NaN where one is missing


@dataclass(frozen=True)
class Items:
    """Which policy answered which item, with which outcome."""

    group: Ints  # of every item
    answers: tuple[Answers, ...]  # by policy
    repeated: int  # rows that repeat another row's item, policy and outcome; they count once

    @property
    def shared(self) -> int:
        """Return the number of items that at least two policies answered."""
        times = np.zeros(self.group.size, dtype=np.int64)
        for answers in self.answers:
            times[answers.items] += 1
        return int((times >= 2).sum())

    def are_shared(self, i: int, k: int) -> bool:
        """Return whether some item was answered by both policies."""
        return bool(np.isin(self.answers[i].items, self.answers[k].items, assume_unique=True).any())

    def of_guardrail(self, j: int) -> Items:
        """Return the items with the outcomes of guard-rail j in place of the outcome's."""
        found = []
        for answers in self.answers:
            values = np.zeros(0) if answers.guardrails is None else answers.guardrails[:, j]
            there = np.flatnonzero(~np.isnan(values))
            found.append(Answers(answers.items[there], np.ascontiguousarray(values[there])))
        return Items(self.group, tuple(found), self.repeated)

    def in_order(self) -> tuple[Ints, Ints, Array]:
        """Return policies, groups and outcomes of all answers, in the order of the items."""
        policies, items, order = self._order()
        outcomes = np.concatenate([answers.outcomes for answers in self.answers])
        return policies[order], self.group[items[order]], np.ascontiguousarray(outcomes[order])

    def guardrails_in_order(self) -> Array:
        """Return the outcomes of the guard-rails of all answers, (answers, M), in the order of the items."""
        _, items, order = self._order()
        tables = [answers.guardrails for answers in self.answers if answers.guardrails is not None]
        if not tables:
            return np.empty((items.size, 0))
        return np.ascontiguousarray(np.concatenate(tables)[order])

    def _order(self) -> tuple[Ints, Ints, Ints]:
        """Return policies and items of all answers, policy by policy, and their order by item."""
        policies = np.concatenate([np.full(a.items.size, k) for k, a in enumerate(self.answers)])
        items = np.concatenate([answers.items for answers in self.answers])
        return policies.astype(np.int64), items, np.lexsort((policies, items))


class ItemRows:
    """Collects rows with items, chunk by chunk."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.numbers: dict[Any, int] = {}
        self.parts: list[tuple[Ints, Ints, Array, Ints, Array]] = []

    def number(self, names: Sequence[Any]) -> Ints:
        """Return the numbers of items; new items get the next numbers."""
        known = self.numbers
        found = []
        for name in names:
            key = name if type(name) is str else str(name)
            number = known.get(key)
            if number is None:
                number = known[key] = len(known)
            found.append(number)
        return np.array(found, dtype=np.int64)

    def add(self, policies: Ints, groups: Ints, outcomes: Array, items: Ints, guardrails: Array) -> None:
        """Add rows; outcomes, and those of the guard-rails (rows, M), are in unit scale."""
        self.parts.append((policies, groups, outcomes, items, guardrails))

    def finish(self) -> Items:
        """Return the items, or raise one sentence about what is wrong with them."""
        if not self.parts:
            empty = np.zeros(0, dtype=np.int64)
            none = Answers(empty, np.zeros(0), np.zeros((0, len(self.problem.guardrails))))
            return Items(empty, tuple(none for _ in self.problem.policies), 0)
        policies, groups, outcomes, items, rails = (
            np.concatenate(part) for part in zip(*self.parts, strict=True)
        )
        of_item = self._groups(groups, items)
        order = np.lexsort((items, policies))  # stable: of equal rows the first comes first
        policies, outcomes, items, rails = policies[order], outcomes[order], items[order], rails[order]
        again = np.zeros(items.size, dtype=bool)
        again[1:] = (items[1:] == items[:-1]) & (policies[1:] == policies[:-1])
        self._refuse_contradictions(again, policies, outcomes, items, rails)
        keep = ~again
        policies, outcomes, items, rails = policies[keep], outcomes[keep], items[keep], rails[keep]
        ends = np.searchsorted(policies, np.arange(len(self.problem.policies) + 1))
        return Items(
            of_item,
            tuple(
                Answers(items[begin:end], outcomes[begin:end], rails[begin:end])
                for begin, end in pairwise(ends)
            ),
            int(again.sum()),
        )

    def _groups(self, groups: Ints, items: Ints) -> Ints:
        """Return the group of every item."""
        of_item = np.full(len(self.numbers), -1, dtype=np.int64)
        of_item[items[::-1]] = groups[::-1]  # of several rows the first counts
        other = np.flatnonzero(of_item[items] != groups)
        names = self.problem.group_names
        if other.size:
            row = int(other[0])
            first, second = names[of_item[items[row]]], names[groups[row]]
            raise BadInput(
                f"an item belongs to one group; item {self._name(int(items[row]))} is in {first!r} and in "
                f"{second!r}. Give different items different names."
            )
        without = np.setdiff1d(np.arange(len(names)), groups)
        if without.size:
            raise BadInput(
                f"every group needs items; {names[int(without[0])]!r} has none. Add items of this group, or "
                "leave the group out of the study."
            )
        return of_item

    def _refuse_contradictions(
        self, again: NDArray[np.bool_], policies: Ints, outcomes: Array, items: Ints, rails: Array
    ) -> None:
        """Refuse a policy with two different outcomes on one item, of any metric."""
        families = [self.problem.family, *(rail.family for rail in self.problem.guardrails)]
        metrics = ["", *(f" of {rail.name}" for rail in self.problem.guardrails)]
        for family, metric, values in zip(families, metrics, [outcomes, *rails.T], strict=True):
            same = (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
            differs = np.flatnonzero(again[1:] & ~same)
            if not differs.size:
                continue
            row = int(differs[0])
            name = self.problem.policies[int(policies[row])]
            first, second = family.low + family.width * values[row : row + 2]
            raise BadInput(
                f"an item counts once per policy; {name!r} has two outcomes{metric} on item "
                f"{self._name(int(items[row]))}, {first:g} and {second:g}. Give repeated trials items of "
                "their own, or average them to one outcome."
            )

    def _name(self, number: int) -> str:
        return shown(next(name for name, found in self.numbers.items() if found == number))
