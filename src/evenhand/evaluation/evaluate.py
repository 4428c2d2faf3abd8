"""Evaluate candidates: which is best among those that are good enough for every group, in few calls.

    result = evaluate(candidates, pool, score, groups="language", at_least=0.8)
    result.answer, result.calls, result.saved

The procedure chooses the candidate and the group of every call; the item is drawn from that group at random,
with replacement, so the guarantee is about the pool. A repeated item of a candidate is not called again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from evenhand.errors import BadInput, nearest, shown
from evenhand.evaluation.callers import Caller, Cost, Score, named_candidates, scorer
from evenhand.evaluation.pool import Pool, open_pool
from evenhand.model.argument_checks import callable_or_none, flag, instance_of, optional, whole_number
from evenhand.model.families import Bernoulli, Bounded, Family
from evenhand.model.problem import Problem
from evenhand.model.requirements import Constraint, Floors
from evenhand.procedure.decide import check, is_due, next_cell
from evenhand.procedure.spec import Procedure, compile_spec, refuse_guardrails
from evenhand.procedure.state import RUNNING, STOPPED, TOLD, State, ask, new_state, new_work, record
from evenhand.result import Result
from evenhand.verdicts.exhausted_pool import exact_verdict
from evenhand.verdicts.judge import Verdict, judge_state

Progress = Callable[[Cost], None]


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """The verdict on candidates, and the calls that it cost.

    `evaluate` returns one.

    Attributes
    ----------
    verdict : Verdict
        The decision, and the verdict on every candidate and group.
    cost : Cost
        The calls made, and the calls of evaluating everything.

    Examples
    --------
    >>> import evenhand as eh
    >>> pool = [{"group": "all", "target": 1}] * 200
    >>> result = eh.evaluate({"yes": lambda item: 1, "no": lambda item: 0}, pool, target="target", seed=1)
    >>> result.answer, result.decided
    ('yes', True)
    """

    verdict: Verdict
    cost: Cost = field(compare=False)

    @property
    def answer(self) -> str | None:
        """Return the chosen candidate; None while undecided and for "none of them"."""
        return self.verdict.answer

    @property
    def decided(self) -> bool:
        """Return whether the answer is decided."""
        return self.verdict.decided

    @property
    def exact(self) -> bool:
        """Return whether everything was evaluated, so that the answer is that of the pool itself."""
        return self.verdict.exact

    @property
    def calls(self) -> int:
        """Return the number of calls made."""
        return self.cost.calls

    @property
    def saved(self) -> float:
        """Return the share of all calls that was not needed."""
        return self.cost.saved

    def words(self) -> list[str]:
        """Return the verdict in sentences, and the calls saved."""
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
    goal: str = "best",
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
    """Call candidates on items, as the procedure chooses, until the answer is certified.

    Parameters
    ----------
    candidates : mapping or sequence
        Functions of one item, or fitted scikit-learn models, by name.
    pool : frame or sequence of mappings
        The items.
    score : callable, optional
        score(output, item): 0 or 1, or a number within the bounds of the family. Without it an output is
        right if it equals the `target` of the item.
    groups : str or callable
        The column, or a function of an item, that gives the group.
    at_least : float, list, dict or frame, optional
        The floor of the mean score in every group.
    constraint : Constraint, optional
        Another requirement instead of `at_least`.
    goal : {"best", "screen"}
        Choose the best candidate, or find out of every candidate whether it meets the requirement; one
        candidate is then enough.
    target : str, optional
        The column that outputs must equal, where there is no `score`.
    features : sequence of str, optional
        The columns from which models predict; all but the group unless given.
    shares : mapping, optional
        The share of every group; those of the pool unless given.
    family : Family, optional
        What scores are: `Bernoulli()` without a `score`, otherwise `Bounded(0, 1)`, unless given.
    delta : float, optional
        The risk of a wrong answer; that of the procedure unless given.
    procedure : Procedure, optional
        How to sample and when to stop; the default procedure unless given.
    max_samples : int, optional
        The number of samples after which the evaluation ends without a decision.
    cache : bool
        Whether to keep scores, so that a repeated item costs no second call.
    seed : int
        The seed of all random numbers.
    progress : bool or callable
        Show a line on standard error, or call progress(cost) after every sample.

    Returns
    -------
    Evaluation
        The verdict, and what it cost.

    Raises
    ------
    BadInput
        If the pool, a candidate or a score cannot be used.

    Examples
    --------
    >>> import evenhand as eh
    >>> pool = [{"group": "even" if i % 2 == 0 else "odd", "x": i, "target": i % 3} for i in range(300)]
    >>> candidates = {"right": lambda item: item["x"] % 3, "constant": lambda item: 0}
    >>> result = eh.evaluate(candidates, pool, target="target", at_least=0.8, seed=1)
    >>> result.answer, result.calls < 600
    ('right', True)
    """
    whole_number(seed, "seed", 0)
    flag(cache, "cache")
    callable_or_none(score, "score")
    opened = open_pool(pool, groups, features)
    named = named_candidates(candidates)
    judge_output = scorer(score, target, opened)
    problem = Problem(
        list(named), opened.shares if shares is None else _checked_shares(shares, opened),
        (Bernoulli() if score is None else Bounded(0.0, 1.0)) if family is None else family,
        constraint if constraint is not None else None if at_least is None else Floors(at_least),
        goal=goal,
    )  # fmt: skip
    chosen = optional(procedure, Procedure, "procedure") or Procedure()
    if delta is not None:
        chosen = replace(chosen, delta=delta)
    if max_samples is not None:
        chosen = replace(chosen, max_samples=max_samples)
    caller = Caller(problem, opened, list(named.values()), judge_output, cache, seed)
    with _reporting(progress) as show:
        state = _run(problem, chosen, caller, seed, show)
    return _result(problem, chosen, state, caller)


def assert_meets(result: Verdict | Evaluation, policy: str | None = None) -> None:
    """Assert, in a test, that a policy is certified to meet the requirement.

    Parameters
    ----------
    result : Verdict or Evaluation
        What `judge` or `evaluate` returned.
    policy : str, optional
        The policy; the answer unless given, and every policy with the goal "screen".

    Raises
    ------
    AssertionError
        If it is not certified; the message says why.
    BadInput
        If there is no such policy.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.5))
    >>> eh.assert_meets(eh.judge(problem, {"a": {"x": [1] * 60}, "b": {"x": [0] * 60}}, replications=0), "a")
    """
    verdict = result.verdict if isinstance(result, Evaluation) else result
    instance_of(verdict, Verdict, "the result")
    if policy is None:
        if verdict.screens:
            accepted = len(verdict.allowed) == len(verdict.policies)
        else:
            accepted = verdict.decided and verdict.answer is not None
        if accepted:
            return
        raise AssertionError(" ".join(verdict.words()))
    found = next((p for p in verdict.policies if isinstance(policy, str) and p.policy == policy), None)
    if found is None:
        known = [p.policy for p in verdict.policies]
        raise BadInput(f"there is no policy {shown(policy)}{nearest(str(policy), known)}")
    if found.verdict == "met":
        return
    cells = [
        f"{c.group}: {c.verdict} ({_number(c.mean)}, n = {c.n})" for c in verdict.cells if c.policy == policy
    ]
    raise AssertionError(f"{policy} is not certified to meet the requirement: {'; '.join(cells)}.")


def _run(problem: Problem, procedure: Procedure, caller: Caller, seed: int, show: Progress | None) -> State:
    """Sample until the rule stops, the cap is reached, or every candidate has answered every item."""
    refuse_guardrails(problem, "an evaluation on a pool of items")
    spec = compile_spec(problem, procedure)
    state, work = new_state(spec), new_work(spec)
    while state.clock[STOPPED] == RUNNING and state.clock[TOLD] < spec.cap and not caller.is_complete():
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
    if not verdict.decided and caller.is_complete():
        verdict = exact_verdict(verdict, *caller.everything())
    return Evaluation(verdict, caller.cost)


def _checked_shares(shares: Mapping[str, float], pool: Pool) -> dict[str, float]:
    if not isinstance(shares, Mapping):
        raise BadInput(f"shares must map each group to its share; it is {shown(shares)}.")
    for name in shares:
        if name not in pool.members:
            raise BadInput(f"the pool has no item of group {name!r}{nearest(str(name), pool.members)}")
    return dict(shares)


@contextmanager
def _reporting(progress: bool | Progress) -> Iterator[Progress | None]:
    """Yield the function to call with the cost: none, the given one, or one that updates a line."""
    if not isinstance(progress, bool) or not progress:
        yield callable_or_none(progress or None, "progress")
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
