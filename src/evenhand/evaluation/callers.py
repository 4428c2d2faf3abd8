"""Calls of candidates on items of a pool, their scores and their cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, is_one_of, nearest, shown
from evenhand.evaluation.pool import Pool
from evenhand.model.problem import Problem
from evenhand.procedure.randomness import OUTCOMES, uniform

Array = NDArray[np.float64]
Score = Callable[[Any, Any], float]

AHEAD = 64  # predictions of a fitted model that are made at once


@dataclass
class Cost:
    """The calls of an evaluation so far, and the calls of evaluating everything."""

    everything: int
    calls: int = 0
    samples: int = 0
    evidence: float = 0.0
    needed: float = 0.0

    @property
    def saved(self) -> float:
        """Return the share of all calls that was not needed."""
        return 1.0 - self.calls / self.everything


class Caller:
    """Calls candidates on items of a pool, and keeps their scores."""

    def __init__(
        self, problem: Problem, pool: Pool, candidates: list[Any], score: Score, cache: bool, seed: int
    ) -> None:
        self.problem, self.pool, self.candidates = problem, pool, candidates
        self.score, self.seed = score, seed
        self.cache: dict[tuple[int, int], float] | None = {} if cache else None
        items = sum(len(pool.members[name]) for name in problem.group_names)
        self.cost = Cost(everything=len(candidates) * items)
        self.drawn = np.zeros(problem.shape, dtype=np.int64)
        self.ahead: dict[tuple[int, int], dict[int, Any]] = {}

    def sample(self, k: int, g: int) -> float:
        """Return the score of candidate k on a random item of group g."""
        draw = int(self.drawn[k, g])
        item = self._item(k, g, draw)
        self.drawn[k, g] += 1
        self.cost.samples += 1
        if self.cache is not None and (k, item) in self.cache:
            return self.cache[k, item]
        row = self.pool.item(item)
        value = self._number(k, item, self.score(self._output(k, g, draw, row), row))
        self.cost.calls += 1
        if self.cache is not None:
            self.cache[k, item] = value
        return value

    def is_complete(self) -> bool:
        """Return whether every candidate has answered every item."""
        return self.cache is not None and len(self.cache) == self.cost.everything

    def everything(self) -> tuple[Array, Array]:
        """Return sums and counts (K x L) of the scores kept, each item once."""
        sums, counts = np.zeros(self.problem.shape), np.zeros(self.problem.shape)
        for (k, item), value in (self.cache or {}).items():
            cell = k, self.problem.group_index(self.pool.groups[item])
            sums[cell] += value
            counts[cell] += 1
        return sums, counts

    def _item(self, k: int, g: int, draw: int) -> int:
        """Return the item of this draw of a cell; it depends on nothing else, so it is known beforehand."""
        members = self.pool.members[self.problem.group_names[g]]
        u = uniform(self.seed, draw, k * len(self.problem.groups) + g, 0, OUTCOMES)
        return int(members[min(int(u * len(members)), len(members) - 1)])

    def _output(self, k: int, g: int, draw: int, row: Any) -> Any:
        """Return the output of the candidate; a fitted model predicts a block of coming draws at once."""
        candidate = self.candidates[k]
        if not hasattr(candidate, "predict"):
            return candidate(row)
        if draw not in self.ahead.get((k, g), {}):
            draws = range(draw, draw + AHEAD)
            outputs = candidate.predict(self.pool.inputs([self._item(k, g, i) for i in draws]))
            if len(outputs) != AHEAD:
                name = self.problem.policies[k]
                raise BadInput(
                    f"predict must give one output an item; {name!r} gave {len(outputs)} of {AHEAD}."
                )
            self.ahead[k, g] = dict(zip(draws, outputs, strict=True))
        return self.ahead[k, g][draw]

    def _number(self, k: int, item: int, value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise BadInput(f"score must return a number; it returned {shown(value)}.") from None
        if not bool(self.problem.family.admits(number)):
            name, family = self.problem.policies[k], self.problem.family
            raise BadInput(f"scores must be {family.outcomes}; {name!r} got {number:g} on item {item}.")
        return number


def named_candidates(candidates: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return candidates by name; those of a list by the names of their functions or classes."""
    if not isinstance(candidates, (Mapping, list, tuple)):
        raise BadInput(f"candidates must be a mapping from name to candidate; it is {shown(candidates)}.")
    if isinstance(candidates, Mapping):
        found = dict(candidates)
    else:
        found = {getattr(c, "__name__", type(c).__name__): c for c in candidates}
        if len(found) < len(candidates):
            raise BadInput("candidates need different names; pass a mapping from name to candidate.")
    for name, candidate in found.items():
        if not callable(candidate) and not hasattr(candidate, "predict"):
            raise BadInput(
                f"a candidate must be callable or have predict; {name!r} is a {type(candidate).__name__}."
            )
    return found


def scorer(score: Score | None, target: str | None, pool: Pool) -> Score:
    """Return the given score, or one that compares the output with the target of the item."""
    if score is not None:
        return score
    if target is None:
        raise BadInput("give score(output, item), or the target column that outputs must equal.")
    if not is_one_of(target, pool.columns):
        raise BadInput(f"the pool has no column {shown(target)}{nearest(str(target), pool.columns)}")
    return lambda output, item: float(output == item[target])
