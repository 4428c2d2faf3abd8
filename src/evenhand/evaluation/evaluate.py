"""Evaluate candidates: which is best among those that are good enough for every group, in few calls.

    result = evaluate(candidates, pool, score, groups="language", at_least=0.8, journal="run.jsonl")
    result.answer, result.calls, result.saved

Items are drawn at random from their groups. Every candidate that is still open answers the same items, and
candidates are compared on the items that both answered, by the rule of `judge`. The run ends when the answer
is certified, or when everything is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evenhand.errors import BadInput, is_one_of, nearest, shown
from evenhand.evaluation.callers import CallSettings, Workers, named_candidates
from evenhand.evaluation.collect import Calls, Cost, collect
from evenhand.evaluation.graders import Grader, Labels, described, grader_of, scorer, worst_outcomes
from evenhand.evaluation.journal import CallJournal, OutputCache, pool_digest
from evenhand.evaluation.pool import Pool, open_pool
from evenhand.evaluation.prices import known_prices, price_of_label, prices_of_calls
from evenhand.evaluation.sampling import (
    POOL,
    POPULATION,
    Cells,
    Prices,
    Sampling,
    SharedItems,
    can_share_items,
)
from evenhand.model.argument_checks import callable_or_none, instance_of, optional, whole_number
from evenhand.model.families import Bernoulli, Bounded, Family
from evenhand.model.guardrails import Guardrail
from evenhand.model.labels import by_name
from evenhand.model.problem import Problem
from evenhand.model.requirements import Constraint, Floors
from evenhand.procedure.compile_spec import refuse_linear_bets, with_mixture
from evenhand.procedure.spec import Procedure
from evenhand.result import Result
from evenhand.study.problem_tables import problem_to_dict
from evenhand.verdicts.deployment import deployment, deployment_sentence
from evenhand.verdicts.judge import Verdict
from evenhand.verdicts.verdict_sentences import ONE_LOOK

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
    about : str
        "pool" or "population": what the means are means of.
    interrupted : str
        Why it ended before it was decided, and what to do; empty otherwise.

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
    about: str = POOL
    interrupted: str = ""

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
        """Return the verdict in sentences, the candidates that may be deployed, and the calls saved."""
        # candidates stop answering only when they are certified to fail, and then are compared with none
        first, *rest = [sentence for sentence in self.verdict.words() if sentence != ONE_LOOK]
        cost = f"{self.calls:,} calls instead of {self.cost.everything:,}: {self.saved:.0%} saved."
        said = [first, deployment_sentence(self.verdict), self.interrupted, *rest]
        if self.about == POOL and self.verdict.pool is None:
            said.append("The verdict is about the items of the pool, which were drawn with replacement.")
        if self.cost.failed:
            said.append(f"{self.cost.failed:,} calls failed permanently. The last: {self.cost.last_error}.")
        said.append(_money(self.cost))
        return [*filter(None, said), cost]

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict's numbers and the calls, as plain names and numbers."""
        return self.verdict.to_dict() | {
            "calls": self.calls,
            "calls_of_everything": self.cost.everything,
            "saved": self.saved,
            "failed_calls": self.cost.failed,
            "last_error": self.cost.last_error or None,
            "attempts": self.cost.attempts,
            "reused": self.cost.reused,
            "cost": self.cost.total,
            "labels": self.cost.labels,
            "label_cost": self.cost.label_cost,
            "about": self.about,
            "interrupted": self.interrupted or None,
            "deployment": deployment(self.verdict),
            "words": self.words(),
        }


def evaluate(
    candidates: Mapping[str, Any] | Sequence[Any],
    pool: Any,
    score: Grader | None = None,
    groups: str | Callable[[Any], str] = "group",
    *,
    at_least: Any = None,
    constraint: Constraint | None = None,
    goal: str = "best",
    guardrails: Sequence[Guardrail] = (),
    target: str | None = None,
    features: Sequence[str] | None = None,
    shares: Any = None,
    family: Family | None = None,
    delta: float | None = None,
    procedure: Procedure | None = None,
    max_samples: int | None = None,
    about: str = POOL,
    item: str | None = None,
    labels: str | Path | None = None,
    journal: str | Path | None = None,
    cache: bool | str | Path = True,
    price: float | Mapping[str, float] | None = None,
    label_price: float | None = None,
    concurrency: int = 1,
    timeout: float | None = None,
    retries: int = 2,
    backoff: float = 0.25,
    batch: int = 64,
    failures: str = "lowest",
    seed: int = 0,
    progress: bool | Progress = False,
) -> Evaluation:
    """Call candidates on items, as the procedure chooses, until the answer is certified.

    Parameters
    ----------
    candidates : mapping or sequence
        Functions or coroutine functions of one item, or objects with predict(items), by name.
    pool : frame or sequence of mappings
        The items.
    score : callable, "exact" or {"numeric": tolerance}, optional
        score(output, item): 0 or 1, or a number within the bounds of the family. Without it, and with
        "exact", an output is right if it equals the `target` of the item.
    groups : str or callable
        The column, or a function of an item, that gives the group.
    at_least : float, list, dict or frame, optional
        The floor of the mean score in every group.
    constraint : Constraint, optional
        Another requirement instead of `at_least`.
    goal : {"best", "screen"}
        Choose the best candidate, or find out of every candidate whether it meets the requirement; one
        candidate is then enough.
    guardrails : sequence of Guardrail, optional
        Further outcomes of every call. `score` then returns a mapping of "outcome" and the name of every
        guard-rail to numbers.
    target : str, optional
        The column that outputs must equal, where there is no `score`.
    features : sequence of str, optional
        The columns from which models predict; all but the group unless given.
    shares : mapping or series, optional
        The share of every group; those of the pool unless given.
    family : Family, optional
        What scores are: `Bernoulli()` without a `score`, otherwise `Bounded(0, 1)`, unless given.
    delta : float, optional
        The risk of a wrong answer; that of the procedure unless given.
    procedure : Procedure, optional
        How to sample and when to stop; the default procedure unless given.
    max_samples : int, optional
        The number of samples after which the evaluation ends without a decision.
    about : {"pool", "population"}
        Whether the statement is about the items of the pool, or about the population they come from.
    item : str, optional
        The column with the names of the items; their numbers unless given.
    labels : path, optional
        A CSV or JSONL file of labels that people give. Items without one are written to it, and the
        evaluation ends until they are filled in.
    journal : path, optional
        The file of calls that ended. If it exists, the evaluation continues from there.
    cache : True or path
        The path of a file of outputs that evaluations share; an output found there costs no call. In any
        case no candidate is called twice on an item.
    price : float or mapping, optional
        The price of a call, of all candidates or by name.
    label_price : float, optional
        The price of the label of an item, which serves all candidates. With prices, and a statement about the
        population, a candidate whose comparison is settled answers only where its calls cost little next to
        labels.
    concurrency : int
        How many calls may run at once.
    timeout : float, optional
        The seconds after which an attempt counts as failed.
    retries : int
        Further attempts after one that failed.
    backoff : float
        The seconds before the second attempt; the time doubles for every further one.
    batch : int
        How many items predict(items) gets, and how many are sent for labels, at once.
    failures : {"lowest", "drop"}
        Whether a call that fails permanently counts as the lowest outcome, or is left out. Leaving it out is
        valid only if failures do not depend on the outcome.
    seed : int
        The seed of all random numbers.
    progress : bool or callable
        Show a line on standard error, or call progress(cost) after every call.

    Returns
    -------
    Evaluation
        The verdict, and what it cost.

    Raises
    ------
    BadInput
        If the pool, a candidate, a score or the journal cannot be used; the journal keeps all calls that
        ended.

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
    opened = open_pool(pool, groups, features, item)
    named = named_candidates(candidates)
    problem = Problem(
        list(named), opened.shares if shares is None else _checked_shares(shares, opened),
        (Bounded(0.0, 1.0) if callable(score) else Bernoulli()) if family is None else family,
        constraint if constraint is not None else None if at_least is None else Floors(at_least),
        goal=goal, guardrails=guardrails,
    )  # fmt: skip
    chosen = optional(procedure, Procedure, "procedure") or Procedure()
    if delta is not None:
        chosen = replace(chosen, delta=delta)
    if max_samples is not None:
        chosen = replace(chosen, max_samples=max_samples)
    settings = CallSettings(concurrency, timeout, retries, backoff, batch, failures)
    return evaluate_problem(
        problem, chosen, named, opened, score, target, settings, about=about, labels=labels, journal=journal,
        cache=None if cache is True else cache, price=price, label_price=label_price, seed=seed,
        progress=progress,
    )  # fmt: skip


def evaluate_problem(
    problem: Problem,
    procedure: Procedure,
    candidates: Mapping[str, Any],
    pool: Pool,
    score: Grader | None,
    target: str | None,
    settings: CallSettings,
    *,
    about: str = POOL,
    labels: str | Path | None = None,
    journal: str | Path | None = None,
    cache: bool | str | Path | None = None,
    price: float | Mapping[str, float] | None = None,
    label_price: float | None = None,
    seed: int = 0,
    progress: bool | Progress = False,
) -> Evaluation:
    """Evaluate candidates on a pool that is open, for a problem with their names and groups."""
    refuse_linear_bets(procedure, "an evaluation on a pool of items")
    if not is_one_of(about, (POOL, POPULATION)):
        raise BadInput(f"about must be 'pool' or 'population'; it is {shown(about)}.")
    _refuse_groups_without_items(problem, pool)
    handed = None if labels is None else Labels(labels)
    if settings.failures == "lowest":
        worst_outcomes(problem)  # refuses guard-rails without one
    graded = scorer(score, target, pool, handed, bool(problem.guardrails))
    grade = grader_of(problem, pool, graded, handed, target)
    prices, label = prices_of_calls(price, candidates), price_of_label(label_price)
    known = known_prices(prices, label, candidates)
    rule = with_mixture(problem, replace(procedure, items=None))
    sampling = _sampling(problem, rule, pool, seed, about, settings.failures == "lowest", known)
    items = sum(len(pool.members[name]) for name in problem.group_names)
    cost = Cost(everything=len(candidates) * items, label_price=label)
    asked = replace(procedure, evidence=None)  # a journal is of the same evaluation with "mixture" or without
    with _reporting(progress) as show, _storage(journal, cache, pool, lambda: {
        "problem": problem_to_dict(problem), "procedure": asked.to_dict(), "seed": seed, "about": about,
        "grader": described(score), "failures": settings.failures, "pool": pool_digest(pool),
        **({"prices": known} if sampling.chooses_policies else {}),
    }) as (kept, outputs):  # fmt: skip
        workers = Workers(candidates, pool, grade, settings)
        calls = Calls(problem, pool, workers, settings, cost, prices, outputs, kept, labels=handed, show=show)
        try:
            calls.load()
            interrupted = collect(sampling, calls)
        except BaseException as error:
            calls.finish_quietly(wait=isinstance(error, BadInput))
            raise
        finally:
            workers.close()
    return Evaluation(sampling.verdict(), cost, about, interrupted)


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


def _sampling(
    problem: Problem,
    procedure: Procedure,
    pool: Pool,
    seed: int,
    about: str,
    complete: bool,
    prices: Prices | None,
) -> Sampling:
    """Return the sampling of shared items, or that of single cells where pairs cannot be compared."""
    if can_share_items(problem, procedure):
        return SharedItems(problem, procedure, pool, seed, about, complete, prices)
    if about == POPULATION:
        raise BadInput(
            "a statement about the population needs Bernoulli, binomial or bounded outcomes, a requirement "
            "on each candidate alone and the certified stopping rule; take about='pool' otherwise."
        )
    return Cells(problem, procedure, pool, seed)


def _refuse_groups_without_items(problem: Problem, pool: Pool) -> None:
    for name in problem.group_names:
        if name not in pool.members:
            raise BadInput(
                f"every group needs items; {name!r} has none. Add items of this group, or leave the group "
                "out."
            )


def _money(cost: Cost) -> str:
    """Return a sentence with what the calls and the labels have cost; empty without prices."""
    if cost.total is None:
        return ""
    if cost.label_cost is None:
        return f"The calls have cost {cost.total:,.6g}."
    return (
        f"It has cost {cost.total:,.6g}: {cost.spent or 0.0:,.6g} for calls and {cost.label_cost:,.6g} for "
        f"{cost.labels:,} labels."
    )


@contextmanager
def _storage(
    journal: str | Path | None,
    cache: bool | str | Path | None,
    pool: Pool,
    header: Callable[[], dict[str, Any]],
) -> Iterator[tuple[CallJournal | None, OutputCache | None]]:
    """Yield the journal and the cache, or None where there is none."""
    for name, path in (("journal", journal), ("cache", cache)):
        if path is not None and not isinstance(path, (str, Path)):
            raise BadInput(f"{name} must be the path of a file; it is {shown(path)}.")
    kept = None if journal is None else CallJournal(journal, header(), pool)
    try:
        outputs = OutputCache(cache) if isinstance(cache, (str, Path)) else None
        try:
            yield kept, outputs
        finally:
            if outputs is not None:
                outputs.close()
    finally:
        if kept is not None:
            kept.close()


def _checked_shares(shares: Any, pool: Pool) -> dict[str, float]:
    shares = by_name(shares, "shares")
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
                f"instead of {cost.everything:,}{_outlook(cost)}"
            )

        yield show


def _number(value: float | None) -> str:
    return "no data" if value is None else f"mean {value:.4g}"


def _outlook(cost: Cost) -> str:
    """Return the money spent and the expected end, as far as they are known."""
    said = "" if cost.total is None else f", cost {cost.total:,.6g}"
    if cost.failed:
        said += f", {cost.failed:,} failed"
    if cost.expected_calls is not None and cost.seconds_left is not None:
        said += f", about {cost.expected_calls:,} calls in all, {cost.seconds_left:,.0f} s left"
    return said
