"""Evaluating models: which candidate is best among those good enough for every group, in few calls.

    result = evaluate(candidates, pool, score, groups="language", at_least=0.8)
    result.answer, result.calls, result.saved

The procedure chooses candidate and group of every call; the item is drawn from that group at random, with
replacement, so the guarantee is about the pool. An item a candidate has answered before costs no second call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from evenhand.errors import BadInput, nearest
from evenhand.judge.pool import Pool, open_pool
from evenhand.judge.verdict import Verdict, judge_state
from evenhand.model.constraints import Constraint, Floors
from evenhand.model.families import Bernoulli, Bounded, Family
from evenhand.model.problem import Problem
from evenhand.procedure.decide import check, is_due, next_cell
from evenhand.procedure.randomness import OUTCOMES, uniform
from evenhand.procedure.spec import Procedure, compile_spec
from evenhand.procedure.state import RUNNING, STOPPED, TOLD, State, ask, new_state, new_work, record

Score = Callable[[Any, Any], float]
Progress = Callable[["Tally"], None]


@dataclass
class Tally:
    """What an evaluation has cost so far, and what evaluating everything would."""

    everything: int
    calls: int = 0
    samples: int = 0
    evidence: float = 0.0
    needed: float = 0.0

    @property
    def saved(self) -> float:
        """The share of all calls that was not needed."""
        return 1.0 - self.calls / self.everything


@dataclass(frozen=True)
class Evaluation:
    """The verdict, and what it cost."""

    verdict: Verdict
    tally: Tally = field(compare=False)
    exact: bool = False  # everything was evaluated: the answer is that of the pool itself

    @property
    def answer(self) -> str | None:
        return self.verdict.answer

    @property
    def decided(self) -> bool:
        return self.verdict.decided

    @property
    def calls(self) -> int:
        return self.tally.calls

    @property
    def saved(self) -> float:
        return self.tally.saved

    def words(self) -> list[str]:
        """The verdict in sentences, and the calls saved."""
        cost = f"{self.calls:,} calls instead of {self.tally.everything:,}: {self.saved:.0%} saved."
        return [*self.verdict.words(), cost]


def evaluate(
    candidates: Mapping[str, Any] | Sequence[Any],
    pool: Any,
    score: Score | None = None,
    groups: str | Callable[[Any], str] = "group",
    *,
    at_least: Any = None,
    constraint: Constraint | None = None,
    target: str | None = None,
    features: Sequence[str] | None = None,
    shares: Mapping[str, float] | None = None,
    family: Family | None = None,
    delta: float = 0.05,
    procedure: Procedure | None = None,
    max_samples: int | None = None,
    cache: bool = True,
    seed: int = 0,
    progress: bool | Progress = False,
) -> Evaluation:
    """Call candidates on items, group by group as the procedure asks, until the answer is certified.

    A candidate is a callable of one item, or a fitted scikit-learn model (it predicts from `features`).
    `score(output, item)` is 0 or 1, or between the family's bounds; without it, whether the output equals the
    item's `target`. `groups` is the column, or a function of an item, that tells its group. `shares` weigh
    the groups; the pool's own proportions do unless given.
    """
    opened = open_pool(pool, groups, features)
    named = _named(candidates)
    judge_output = _score(score, target, opened)
    problem = Problem(
        list(named), opened.shares if shares is None else _checked_shares(shares, opened),
        family or (Bernoulli() if score is None else Bounded(0.0, 1.0)),
        constraint if constraint is not None else None if at_least is None else Floors(at_least),
    )  # fmt: skip
    chosen = replace(procedure or Procedure(), delta=delta)
    if max_samples is not None:
        chosen = replace(chosen, max_samples=max_samples)
    caller = _Caller(problem, opened, list(named.values()), judge_output, cache, seed)
    state = _run(problem, chosen, caller, seed, _shown(progress))
    return _result(problem, chosen, state, caller)


def assert_meets(result: Verdict | Evaluation, policy: str | None = None) -> None:
    """For tests: the policy (unnamed: the answer) is certified to meet the requirement; else say why not."""
    verdict = result.verdict if isinstance(result, Evaluation) else result
    if policy is None:
        if verdict.decided and verdict.answer is not None:
            return
        raise AssertionError(" ".join(verdict.words()))
    found = next((p for p in verdict.policies if p.policy == policy), None)
    if found is None:
        known = [p.policy for p in verdict.policies]
        raise BadInput(f"there is no policy {policy!r}{nearest(policy, known)}")
    if found.verdict == "met":
        return
    cells = [
        f"{c.group}: {c.verdict} ({_number(c.mean)}, n = {c.n})" for c in verdict.cells if c.policy == policy
    ]
    raise AssertionError(f"{policy} is not certified to meet the requirement: {'; '.join(cells)}.")


class _Caller:
    """Calls candidates on items of a pool, and remembers what they scored."""

    def __init__(
        self, problem: Problem, pool: Pool, candidates: list[Any], score: Score, cache: bool, seed: int
    ) -> None:
        self.problem, self.pool, self.candidates, self.score, self.seed = (
            problem,
            pool,
            candidates,
            score,
            seed,
        )
        self.cache: dict[tuple[int, int], float] | None = {} if cache else None
        self.tally = Tally(everything=len(candidates) * len(pool))
        self.drawn = np.zeros(problem.shape, dtype=np.int64)

    def sample(self, k: int, g: int) -> float:
        """The score of candidate k on a random item of group g."""
        members = self.pool.members[self.problem.group_names[g]]
        u = uniform(self.seed, int(self.drawn[k, g]), k * len(self.problem.groups) + g, 0, OUTCOMES)
        self.drawn[k, g] += 1
        item = int(members[min(int(u * len(members)), len(members) - 1)])
        self.tally.samples += 1
        if self.cache is not None and (k, item) in self.cache:
            return self.cache[k, item]
        value = self._call(k, item)
        if self.cache is not None:
            self.cache[k, item] = value
        return value

    def knows_everything(self) -> bool:
        return self.cache is not None and len(self.cache) == self.tally.everything

    def _call(self, k: int, item: int) -> float:
        row, candidate = self.pool.item(item), self.candidates[k]
        output = (
            candidate.predict(self.pool.inputs(item))[0] if hasattr(candidate, "predict") else candidate(row)
        )
        value = self.score(output, row)
        self.tally.calls += 1
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise BadInput(f"score must return a number; it returned {value!r}.") from None
        if not bool(self.problem.family.admits(number)):
            name, family = self.problem.policies[k], self.problem.family
            raise BadInput(f"scores must be {family.outcomes}; {name!r} got {number:g} on item {item}.")
        return number


def _run(problem: Problem, procedure: Procedure, caller: _Caller, seed: int, show: Progress | None) -> State:
    """Ask, call, tell, look, until the rule stops, the cap is reached, or everything is known."""
    spec = compile_spec(problem, procedure)
    state, work = new_state(spec), new_work(spec)
    while state.clock[STOPPED] == RUNNING and state.clock[TOLD] < spec.cap and not caller.knows_everything():
        k, g = next_cell(spec, state, work, seed, 0, -1)
        ask(state, work, k, g)
        unit = float(problem.family.to_unit(caller.sample(int(k), int(g))))
        record(spec, state, work, k, g, unit, True)
        if is_due(spec, state):
            check(spec, state, work)
            caller.tally.evidence, caller.tally.needed = float(state.level[0]), float(state.level[1])
        if show is not None:
            show(caller.tally)
    return state


def _result(problem: Problem, procedure: Procedure, state: State, caller: _Caller) -> Evaluation:
    verdict = judge_state(problem, procedure, state, replications=0)
    if verdict.decided or not caller.knows_everything():
        return Evaluation(verdict, caller.tally)
    # every candidate answered every item: the pool's means are known, and with them the answer
    assert caller.cache is not None
    means = np.zeros(problem.shape)
    for (k, item), value in caller.cache.items():
        group = problem.group_index(caller.pool.groups[item])
        means[k, group] += value / len(caller.pool.members[caller.pool.groups[item]])
    answer = problem.answer(means)
    leader = None if answer is None else problem.policies[answer]
    return Evaluation(replace(verdict, decided=True, leader=leader), caller.tally, exact=True)


def _named(candidates: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
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


def _score(score: Score | None, target: str | None, pool: Pool) -> Score:
    if score is not None:
        return score
    if target is None:
        raise BadInput("give score(output, item), or the target column that outputs must equal.")
    if target not in pool.columns:
        raise BadInput(f"the pool has no column {target!r}{nearest(target, pool.columns)}")
    return lambda output, item: float(output == item[target])


def _checked_shares(shares: Mapping[str, float], pool: Pool) -> dict[str, float]:
    for name in shares:
        if name not in pool.members:
            raise BadInput(f"the pool has no item of group {name!r}{nearest(name, pool.members)}")
    return dict(shares)


def _shown(progress: bool | Progress) -> Progress | None:
    if callable(progress):
        return progress
    return _bar() if progress else None


def _bar() -> Progress:
    """A line on standard error, rewritten as it goes: samples, evidence, calls saved."""
    import sys

    def show(tally: Tally) -> None:
        if tally.samples % 20 == 0:
            share = min(max(tally.evidence / tally.needed, 0.0), 1.0) if tally.needed > 0 else 0.0
            line = f"{tally.samples:,} samples, {tally.calls:,} calls, {share:.0%} of the evidence"
            print(f"\r{line:<60}", end="", file=sys.stderr, flush=True)

    return show


def _number(value: float | None) -> str:
    return "no data" if value is None else f"mean {value:.4g}"
