"""Which item is asked next, and who answers it: decided before any outcome on the item is seen.

`SharedItems` asks every open policy on the same item and chooses only the group. The weakest alternative to
the leader decides: for a floor its group, for a rival the group that makes their difference known best,
argmax q^2 sd^2 / (N (N + 1)) with sd that of the differences on shared items. A policy that is certified to
fail is not asked again. With prices, and draws from a population, a policy whose comparison with the leader
is settled is not asked either, unless its call costs little compared with a later item for the two: see
`Prices`. Every open comparison gets the same items, since a label shared by several costs no more than one
for each. `Cells` asks one policy at a time, as the sampling rule of the procedure chooses; it serves
families, requirements and stopping rules for which there is no evidence by pairs.

Outcomes are recorded in the order in which items were asked, whatever the order in which they come. Random
numbers are those of stream 0 (`procedure.randomness`), with 1 (draws) and 2 (order) as the replication.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evenhand.evaluation.graders import Graded
from evenhand.evaluation.pool import Pool
from evenhand.model.problem import Problem
from evenhand.model.region import BOX
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.decide import check, is_due, next_cell
from evenhand.procedure.intervals import FAILED, MET
from evenhand.procedure.item_settings import PAIRED_FAMILIES, why_not_paired
from evenhand.procedure.randomness import OUTCOMES, uniform
from evenhand.procedure.spec import Procedure
from evenhand.procedure.state import (
    EVIDENCE,
    NEEDED,
    RUNNING,
    STOPPED,
    TOLD,
    State,
    ask,
    drop,
    new_state,
    new_work,
    record,
    record_guardrails,
)  # fmt: skip
from evenhand.theory.metrics import METRIC
from evenhand.verdicts.apply_rule import RuleResult, apply_stopping_rule
from evenhand.verdicts.counts import ready
from evenhand.verdicts.exhausted_pool import exact_verdict
from evenhand.verdicts.items import Answers, Items
from evenhand.verdicts.judge import Verdict, judge_pairs, judge_state
from evenhand.verdicts.shared_items import (
    Comparisons,
    apply_rule_to_items,
    needs_pairs,
    settled_rivals,
)

Array = NDArray[np.float64]

POOL, POPULATION = "pool", "population"
LOOK_EVERY = 50  # the rule is applied again after a fiftieth more items
ASKED_AGAIN = 0.05  # assumed chance that a settled comparison is needed again, as after a change of leader


class Asked(NamedTuple):
    """An item, the policies that answer it, and the number of the draw that it is."""

    draw: int
    item: int
    group: int
    policies: tuple[int, ...]


class Prices(NamedTuple):
    """The price of a call of every policy, and of the label of an item, which serves all policies."""

    calls: tuple[float, ...]
    label: float

    def is_worth_asking(self, k: int, leader: int) -> bool:
        """Return whether a call whose comparison is settled costs less than it may save later."""
        later = self.label + self.calls[k] + self.calls[leader]
        return self.calls[k] <= ASKED_AGAIN * later


class Sampling(Protocol):
    """The next item of an evaluation, and whether more calls are needed."""

    level: tuple[float, float]  # the evidence, and what is needed

    @property
    def chooses_policies(self) -> bool: ...

    @property
    def finished(self) -> bool: ...

    def next(self) -> Asked | None: ...

    def record(self, asked: Asked, outcomes: dict[int, Graded | None]) -> None: ...

    def verdict(self) -> Verdict: ...


def can_share_items(problem: Problem, procedure: Procedure) -> bool:
    """Return whether there is evidence by pairs for this problem and stopping rule."""
    return not why_not_paired(problem, procedure)


class SharedItems:
    """Ask all open policies on each item; choose the group of the next one."""

    def __init__(
        self, problem: Problem, procedure: Procedure, pool: Pool, seed: int, about: str, complete: bool,
        prices: Prices | None = None, look_every: int = LOOK_EVERY,
    ) -> None:  # fmt: skip
        self.prices, self.look_every = prices, look_every
        self.problem, self.procedure, self.pool, self.seed = problem, procedure, pool, seed
        self.spec = compile_spec(problem, procedure)
        box = self.spec.region.kind == BOX and problem.goal != "screen"
        box = box and all(rail.family.name in PAIRED_FAMILIES for rail in problem.guardrails)
        # evidence without replacement holds at any time only if no answer is missing
        self.without_replacement = about == POOL and box and complete
        self.with_replacement = about == POOL and not self.without_replacement
        self.order = [_shuffled(pool.members[name], seed, g) for g, name in enumerate(problem.group_names)]
        self.sizes = np.array([len(members) for members in self.order], dtype=float)
        self.drawn = np.zeros(len(self.order), dtype=np.int64)
        self.asked: list[Asked] = []
        self.outcomes = np.full((len(problem.policies), 256), math.nan)  # unit scale, by draw
        self.rails = np.full((len(problem.guardrails), *self.outcomes.shape), math.nan)
        self.recorded = self.samples = self.next_look = 0
        self.open = list(range(len(problem.policies)))
        self.answering = self.open
        # the outcomes of a policy on an item in unit scale, each once
        self.known: dict[tuple[int, int], tuple[float, ...]] = {}
        self.result: RuleResult | None = None
        self.weights = np.array(self.spec.shares) ** 2
        self.level = (0.0, 0.0)

    @property
    def chooses_policies(self) -> bool:
        """Return whether prices decide who answers an item; in a pool every open policy must."""
        return self.prices is not None and not self.without_replacement

    @property
    def finished(self) -> bool:
        """Return whether the answer is decided, everything is known, or the cap is reached."""
        decided = self.result is not None and self.result.decided
        return decided or self.samples >= self.spec.cap or self._is_complete()

    def next(self) -> Asked | None:
        """Return the next item and who answers it; None when nothing is left to ask."""
        g = self._next_group()
        if g is None:
            return self._left_out()
        draw = int(self.drawn[g])
        self.drawn[g] += 1
        if self.with_replacement:
            u = uniform(self.seed, draw, g, 1, OUTCOMES)
            draw = min(int(u * self.sizes[g]), int(self.sizes[g]) - 1)
        asked = Asked(len(self.asked), int(self.order[g][draw]), g, tuple(self.answering))
        self.asked.append(asked)
        return asked

    def record(self, asked: Asked, outcomes: dict[int, Graded | None]) -> None:
        """Record the outcomes on an item, and apply the rule where enough came since the last time."""
        if asked.draw >= self.outcomes.shape[1]:
            self.outcomes = np.concatenate([self.outcomes, np.full_like(self.outcomes, math.nan)], axis=1)
            self.rails = np.concatenate([self.rails, np.full_like(self.rails, math.nan)], axis=2)
        for k, outcome in outcomes.items():
            if outcome is not None:
                unit = self.known[k, asked.item] = in_unit_scale(self.problem, outcome)
                self.outcomes[k, asked.draw], self.rails[:, k, asked.draw] = unit[0], unit[1:]
                self.samples += 1
        self.recorded = max(self.recorded, asked.draw + 1)
        if self.recorded >= self.next_look:
            self._look()
            self.next_look = self.recorded + max(1, self.recorded // self.look_every)

    def verdict(self) -> Verdict:
        """Return the verdict on everything recorded."""
        items, state = self._items(), self._state()
        if self._pairs(items):
            sizes = self.sizes if self.without_replacement else None
            found = judge_pairs(self.problem, self.procedure, self.spec, state, items, sizes)
        else:
            found = judge_state(self.problem, self.procedure, state, replications=0)
        found = replace(found, items=items.group.size, shared_items=items.shared)
        if not found.decided and self.with_replacement and self._is_complete():
            found = exactly(found, self.pool, self.known)
        return found

    def _look(self) -> None:
        """Apply the stopping rule, leave out policies that are certified, and aim at the weakest part."""
        items, state, compare = self._items(), self._state(), None
        if self._pairs(items):
            compare = Comparisons(self.spec, state, items, self.sizes if self.without_replacement else None)
            result = apply_rule_to_items(self.problem, self.spec, state, compare)
        else:
            result = apply_stopping_rule(self.spec, state)
        self.result, self.level = result, (float(result.evidence), float(result.needed))
        settled = (MET, FAILED) if self.problem.goal == "screen" else (FAILED,)
        still = [k for k in self.open if int(result.policies[k]) not in settled]
        self.answering = self.open = still or self.open
        if self.chooses_policies and compare is not None:
            self.answering = self._worth_asking(result, state, compare)
        self.weights = self._aim(result, state)

    def _worth_asking(self, result: RuleResult, state: State, compare: Comparisons) -> list[int]:
        """Return the open policies without those whose comparison with the leader is settled."""
        leader, prices = result.leader, self.prices
        if prices is None or leader < 0 or self.problem.goal == "screen":
            return self.open
        settled = settled_rivals(self.problem, self.spec, state, compare, leader)
        return [k for k in self.open if k not in settled or prices.is_worth_asking(k, leader)]

    def _aim(self, result: RuleResult, state: State) -> Array:
        """Return weights of the groups; the next item is of the group with the largest weight/(N (N + 1))."""
        shares, policies = np.array(self.spec.shares), len(self.problem.policies)
        code, box = result.alternative, self.spec.region.kind == BOX
        if code >= policies:
            return _only(((code - policies) % METRIC) % shares.size, shares.size) if box else shares**2
        if self.problem.goal == "screen" or result.leader < 0:
            return _only(self._least_known(state, code), shares.size) if box else shares**2
        gap, sd = self._differences(result.leader, code)
        by_value = float(shares @ gap) ** 2 / (2.0 * max(float(shares @ sd) ** 2, 1e-12))
        above = self._above_floor(state, code)
        if box and 2.0 * min(float(above.min()), 0.0) ** 2 > by_value:
            return _only(int(above.argmin()), shares.size)
        return np.asarray(shares**2 * np.maximum(sd, 0.05) ** 2)

    def _least_known(self, state: State, k: int) -> int:
        """Return the group in which one policy is lowest below its floor, or its floor the least certain."""
        above = self._above_floor(state, k)
        far = np.where(np.isfinite(above), np.square(above), math.inf)
        return int(np.argmin(above if above.min() < 0.0 else np.maximum(state.n[:, k], 1.0) * far))

    def _above_floor(self, state: State, k: int) -> Array:
        """Return how far the means of a policy are above its floors; infinite without a floor.

        With guard-rails, how far the nearest bound of any metric is.
        """
        floors = self.spec.region.lo[:, k]
        means = state.s[:, k] / np.maximum(state.n[:, k], 1.0)
        above = np.asarray(means - floors)  # floors are -inf where there are none
        for j in range(len(self.problem.guardrails)):
            rails = self.spec.guardrails
            mean = state.rail_s[j, :, k] / np.maximum(state.rail_n[j, :, k], 1.0)
            above = np.minimum(above, np.minimum(mean - rails.lo[j, :, k], rails.hi[j, :, k] - mean))
        return above

    def _differences(self, i: int, k: int) -> tuple[Array, Array]:
        """Return mean and standard deviation, by group, of the differences of two policies."""
        away = self.outcomes[i, : self.recorded] - self.outcomes[k, : self.recorded]
        group = self._groups()
        both = ~np.isnan(away)
        gap, sd = np.zeros(len(self.order)), np.zeros(len(self.order))
        for g in range(len(self.order)):
            here = away[both & (group == g)]
            gap[g] = here.mean() if here.size else 0.0
            sd[g] = math.sqrt((0.25 + float(((here - gap[g]) ** 2).sum())) / (here.size + 1))
        return gap, sd

    def _next_group(self) -> int | None:
        """Return the group of the next item; None where no group has items left."""
        left = np.full(self.sizes.size, True) if self.with_replacement else self.drawn < self.sizes
        if not left.any():
            return None
        few = left & (self.drawn < self.spec.initial.max(axis=1))
        if few.any():
            return int(np.argmin(np.where(few, self.drawn, np.iinfo(np.int64).max)))
        usual = np.array(self.spec.shares) ** 2
        weights = self.weights if (self.weights[left] > 0).any() else usual
        return int(np.argmax(np.where(left, weights / (self.drawn * (self.drawn + 1.0) + 1e-9), -1.0)))

    def _left_out(self) -> Asked | None:
        """Return an item that a policy was not asked on, when a pool is used up without a decision."""
        if not self.without_replacement:
            return None
        self.next_look = 2**62  # the means of the pool are about to be known
        for k in range(len(self.problem.policies)):
            for number, asked in enumerate(self.asked):
                if k not in asked.policies:
                    self.asked[number] = asked._replace(policies=(*asked.policies, k))
                    return asked._replace(policies=(k,))
        return None

    def _is_complete(self) -> bool:
        return len(self.known) == len(self.problem.policies) * int(self.sizes.sum())

    def _pairs(self, items: Items) -> bool:
        return self.without_replacement or needs_pairs(self.problem, items)

    def _groups(self) -> NDArray[np.int64]:
        return np.array([asked.group for asked in self.asked[: self.recorded]], dtype=np.int64)

    def _items(self) -> Items:
        answers = []
        for k, row in enumerate(self.outcomes[:, : self.recorded]):
            there = np.flatnonzero(~np.isnan(row))
            answers.append(Answers(there, np.ascontiguousarray(row[there]), self.rails[:, k, there].T))
        return Items(self._groups(), tuple(answers), 0)

    def _state(self) -> State:
        """Return the counts and sums of every cell."""
        state, group = new_state(self.spec), self._groups()
        outcomes = self.outcomes[:, : self.recorded]
        for g in range(len(self.order)):
            here = outcomes[:, group == g]
            state.n[g], state.s[g] = (~np.isnan(here)).sum(axis=1), np.nansum(here, axis=1)
            rails = self.rails[:, :, : self.recorded][:, :, group == g]
            state.rail_n[:, g], state.rail_s[:, g] = (~np.isnan(rails)).sum(axis=2), np.nansum(rails, axis=2)
        return ready(self.spec, state)


class Cells:
    """Ask one policy on an item drawn for it alone, with replacement, as the sampling rule chooses."""

    def __init__(self, problem: Problem, procedure: Procedure, pool: Pool, seed: int) -> None:
        self.problem, self.procedure, self.pool, self.seed = problem, procedure, pool, seed
        self.spec = compile_spec(problem, procedure)
        self.state, self.work = new_state(self.spec), new_work(self.spec)
        self.drawn = np.zeros(problem.shape, dtype=np.int64)
        self.draws = 0
        self.known: dict[tuple[int, int], tuple[float, ...]] = {}
        self.level = (0.0, 0.0)

    @property
    def chooses_policies(self) -> bool:
        """Return False: the sampling rule chooses cells."""
        return False

    @property
    def finished(self) -> bool:
        """Return whether the rule has stopped, everything is known, or the cap is reached."""
        stopped = self.state.clock[STOPPED] != RUNNING or self.state.clock[TOLD] >= self.spec.cap
        return bool(stopped) or self._is_complete()

    def next(self) -> Asked | None:
        """Return the next item and who answers it."""
        k, g = map(int, next_cell(self.spec, self.state, self.work, self.seed, 0, -1))
        ask(self.state, self.work, k, g)
        members = self.pool.members[self.problem.group_names[g]]
        u = uniform(self.seed, int(self.drawn[k, g]), k * len(self.problem.groups) + g, 0, OUTCOMES)
        self.drawn[k, g] += 1
        self.draws += 1
        return Asked(self.draws - 1, int(members[min(int(u * len(members)), len(members) - 1)]), g, (k,))

    def record(self, asked: Asked, outcomes: dict[int, Graded | None]) -> None:
        """Record the outcome, and apply the rule where it is due."""
        ((k, outcome),) = outcomes.items()
        if outcome is None:
            drop(self.spec, self.state, self.work, k, asked.group)
            return
        unit = self.known[k, asked.item] = in_unit_scale(self.problem, outcome)
        record_guardrails(self.spec, self.state, k, asked.group, np.array(unit[1:]))
        record(self.spec, self.state, self.work, k, asked.group, unit[0], True)
        if is_due(self.spec, self.state):
            check(self.spec, self.state, self.work)
            self.level = float(self.state.level[EVIDENCE]), float(self.state.level[NEEDED])

    def verdict(self) -> Verdict:
        """Return the verdict on everything recorded."""
        found = judge_state(self.problem, self.procedure, self.state, replications=0)
        if not found.decided and self._is_complete():
            found = exactly(found, self.pool, self.known)
        return found

    def _is_complete(self) -> bool:
        items = sum(len(self.pool.members[name]) for name in self.problem.group_names)
        return len(self.known) == len(self.problem.policies) * items


def in_unit_scale(problem: Problem, graded: Graded) -> tuple[float, ...]:
    """Return the outcome and those of the guard-rails in unit scale."""
    values = graded if isinstance(graded, tuple) else (graded,)
    families = (problem.family, *(rail.family for rail in problem.guardrails))
    return tuple(float(family.to_unit(value)) for family, value in zip(families, values, strict=True))


def exactly(found: Verdict, pool: Pool, known: dict[tuple[int, int], tuple[float, ...]]) -> Verdict:
    """Return the verdict at the means of the pool, all of whose outcomes are known, each item once."""
    problem = found.problem
    families = (problem.family, *(rail.family for rail in problem.guardrails))
    sums, counts = np.zeros((len(families), *problem.shape)), np.zeros(problem.shape)
    for (k, item), units in known.items():
        cell = k, problem.group_index(pool.groups[item])
        for j, (family, unit) in enumerate(zip(families, units, strict=True)):
            sums[j][cell] += family.low + family.width * unit
        counts[cell] += 1
    rails = {rail.name: sums[j + 1] / counts for j, rail in enumerate(problem.guardrails)}
    return exact_verdict(found, sums[0], counts, rails)


def _only(group: int, groups: int) -> Array:
    weights = np.zeros(groups)
    weights[group] = 1.0
    return weights


def _shuffled(members: NDArray[np.int64], seed: int, g: int) -> NDArray[np.int64]:
    """Return the items of a group in a random order."""
    keys = [uniform(seed, number, g, 2, OUTCOMES) for number in range(len(members))]
    return members[np.argsort(np.array(keys), kind="stable")]
