"""Evaluating models: which candidate is best among those good enough for every group, in few calls.

    result = evaluate(candidates, pool, score, groups="language", at_least=0.8)
    result.answer, result.calls, result.saved

The procedure chooses candidate and group of every call; the item is drawn from that group at random, with
replacement, so the guarantee is about the pool. An item a candidate has answered before costs no second call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from evenhand.errors import BadInput, nearest
from evenhand.evaluation.calls import Caller, Cost, Score, named_candidates, scorer
from evenhand.evaluation.pool import Pool, census, open_pool
from evenhand.model.families import Bernoulli, Bounded, Family
from evenhand.model.problem import Problem
from evenhand.model.requirements import Constraint, Floors
from evenhand.procedure.decide import check, is_due, next_cell
from evenhand.procedure.spec import Procedure, compile_spec
from evenhand.procedure.state import RUNNING, STOPPED, TOLD, State, ask, new_state, new_work, record
from evenhand.result import Result
from evenhand.verdicts.judge import Verdict, judge_state

Progress = Callable[[Cost], None]


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """The verdict, and what it cost."""

    verdict: Verdict
    cost: Cost = field(compare=False)

    @property
    def answer(self) -> str | None:
        return self.verdict.answer

    @property
    def decided(self) -> bool:
        return self.verdict.decided

    @property
    def exact(self) -> bool:
        """Was everything evaluated, so that the answer is that of the pool itself?"""
        return self.verdict.exact

    @property
    def calls(self) -> int:
        return self.cost.calls

    @property
    def saved(self) -> float:
        return self.cost.saved

    def words(self) -> list[str]:
        """The verdict in sentences, and the calls saved."""
        cost = f"{self.calls:,} calls instead of {self.cost.everything:,}: {self.saved:.0%} saved."
        return [*self.verdict.words(), cost]

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict's numbers and the calls, as plain names and numbers."""
        calls = {"calls": self.calls, "calls_of_everything": self.cost.everything, "saved": self.saved}
        return self.verdict.to_dict() | calls


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
    delta: float | None = None,
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
    named = named_candidates(candidates)
    judge_output = scorer(score, target, opened)
    problem = Problem(
        list(named), opened.shares if shares is None else _checked_shares(shares, opened),
        family or (Bernoulli() if score is None else Bounded(0.0, 1.0)),
        constraint if constraint is not None else None if at_least is None else Floors(at_least),
    )  # fmt: skip
    chosen = procedure or Procedure()
    if delta is not None:
        chosen = replace(chosen, delta=delta)
    if max_samples is not None:
        chosen = replace(chosen, max_samples=max_samples)
    caller = Caller(problem, opened, list(named.values()), judge_output, cache, seed)
    with _shown(progress) as show:
        state = _run(problem, chosen, caller, seed, show)
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


def _run(problem: Problem, procedure: Procedure, caller: Caller, seed: int, show: Progress | None) -> State:
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
            caller.cost.evidence, caller.cost.needed = float(state.level[0]), float(state.level[1])
        if show is not None:
            show(caller.cost)
    return state


def _result(problem: Problem, procedure: Procedure, state: State, caller: Caller) -> Evaluation:
    verdict = judge_state(problem, procedure, state, replications=0)
    if not verdict.decided and caller.knows_everything():
        verdict = census(verdict, *caller.everything())
    return Evaluation(verdict, caller.cost)


def _checked_shares(shares: Mapping[str, float], pool: Pool) -> dict[str, float]:
    for name in shares:
        if name not in pool.members:
            raise BadInput(f"the pool has no item of group {name!r}{nearest(name, pool.members)}")
    return dict(shares)


@contextmanager
def _shown(progress: bool | Progress) -> Iterator[Progress | None]:
    """Whom to tell how far it is: nobody, a function, or a line on standard error."""
    if not progress or callable(progress):
        yield progress or None
        return
    from rich.console import Console

    with Console(stderr=True, highlight=False).status("evaluating") as line:

        def show(cost: Cost) -> None:
            share = min(max(cost.evidence / cost.needed, 0.0), 1.0) if cost.needed > 0 else 0.0
            line.update(
                f"{cost.samples:,} samples, {share:.0%} of the evidence, {cost.calls:,} calls "
                f"instead of {cost.everything:,}"
            )

        yield show


def _number(value: float | None) -> str:
    return "no data" if value is None else f"mean {value:.4g}"
