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

    def in_order(self) -> tuple[Ints, Ints, Array]:
        """Return policies, groups and outcomes of all answers, in the order of the items."""
        policies = np.concatenate([np.full(a.items.size, k) for k, a in enumerate(self.answers)])
        items = np.concatenate([answers.items for answers in self.answers])
        outcomes = np.concatenate([answers.outcomes for answers in self.answers])
        order = np.lexsort((policies, items))
        return (
            policies[order].astype(np.int64),
            self.group[items[order]],
            np.ascontiguousarray(outcomes[order]),
        )


class ItemRows:
    """Collects rows with items, chunk by chunk."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.numbers: dict[Any, int] = {}
        self.parts: list[tuple[Ints, Ints, Array, Ints]] = []

    def number(self, names: Sequence[Any], missing: NDArray[np.bool_]) -> Ints:
        """Return the numbers of items, -1 where the row is left out; new items get the next numbers."""
        known = self.numbers
        found = []
        for name, left_out in zip(names, missing.tolist(), strict=True):
            if left_out:
                found.append(-1)
                continue
            key = name if type(name) is str else str(name)
            number = known.get(key)
            if number is None:
                number = known[key] = len(known)
            found.append(number)
        return np.array(found, dtype=np.int64)

    def add(self, policies: Ints, groups: Ints, outcomes: Array, items: Ints) -> None:
        """Add rows; outcomes are in unit scale."""
        self.parts.append((policies, groups, outcomes, items))

    def finish(self) -> Items:
        """Return the items, or raise one sentence about what is wrong with them."""
        if not self.parts:
            empty = np.zeros(0, dtype=np.int64)
            return Items(empty, tuple(Answers(empty, np.zeros(0)) for _ in self.problem.policies), 0)
        policies, groups, outcomes, items = (np.concatenate(part) for part in zip(*self.parts, strict=True))
        of_item = self._groups(groups, items)
        order = np.lexsort((items, policies))  # stable: of equal rows the first comes first
        policies, outcomes, items = policies[order], outcomes[order], items[order]
        again = np.zeros(items.size, dtype=bool)
        again[1:] = (items[1:] == items[:-1]) & (policies[1:] == policies[:-1])
        self._refuse_contradictions(again, policies, outcomes, items)
        keep = ~again
        policies, outcomes, items = policies[keep], outcomes[keep], items[keep]
        ends = np.searchsorted(policies, np.arange(len(self.problem.policies) + 1))
        return Items(
            of_item,
            tuple(Answers(items[begin:end], outcomes[begin:end]) for begin, end in pairwise(ends)),
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
        self, again: NDArray[np.bool_], policies: Ints, outcomes: Array, items: Ints
    ) -> None:
        """Refuse a policy with two different outcomes on one item."""
        differs = np.flatnonzero(again[1:] & (outcomes[1:] != outcomes[:-1]))
        if differs.size:
            row = int(differs[0])
            name = self.problem.policies[int(policies[row])]
            family = self.problem.family
            first, second = family.low + family.width * outcomes[row : row + 2]
            raise BadInput(
                f"an item counts once per policy; {name!r} has two outcomes on item "
                f"{self._name(int(items[row]))}, {first:g} and {second:g}. Give repeated trials items of "
                "their own, or average them to one outcome."
            )

    def _name(self, number: int) -> str:
        return shown(next(name for name, found in self.numbers.items() if found == number))
