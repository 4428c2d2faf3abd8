"""Forecasts of evaluations on shared items: labels, calls and money, by simulation at assumed means.

One label serves all policies, and only the group of the next item is chosen (`sampling.SharedItems`). How
many labels this takes depends on how often two policies agree on an item (`simulation.agreement`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput
from evenhand.evaluation.pool import Pool
from evenhand.evaluation.prices import known_prices, price_of_label, prices_of_calls
from evenhand.evaluation.sampling import POPULATION, Prices, SharedItems, can_share_items
from evenhand.model.argument_checks import optional, whole_number
from evenhand.model.families import Bernoulli
from evenhand.procedure.intervals import MET
from evenhand.procedure.spec import Procedure
from evenhand.result import Result
from evenhand.simulation.agreement import MOST_SHARE, difficulty_share, right_given
from evenhand.theory.plan import Plan, plan

Array = NDArray[np.float64]

RUNS = 20
MOST_LABELS = 60_000  # a run that reaches this many is not decided
LOOK_EVERY = 20  # the rule is applied again after 5% more items


@dataclass(frozen=True, repr=False)
class ItemPlan(Result):
    """A forecast of an evaluation on shared items; `plan_items` returns one.

    Attributes
    ----------
    agreement : float
        The share of items on which two policies agree, on average.
    runs, decided, right : int
        The simulated runs, those that decided, and those that gave an acceptable answer.
    labels, low, high : float
        The mean number of labels, and the range of half of the runs.
    calls : mapping
        The mean number of calls of every policy.
    call_cost, label_cost : float or None
        The mean money for calls and for labels; None without prices.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.5))
    >>> found = eh.plan_items(problem, [[0.9], [0.7]], agreement=0.78, label_price=2.0, runs=4)
    >>> found.decided, found.label_cost == 2 * found.labels
    (4, True)
    """

    agreement: float
    runs: int
    decided: int
    right: int
    labels: float
    low: float
    high: float
    calls: Mapping[str, float]
    call_cost: float | None = None
    label_cost: float | None = None

    @property
    def cost(self) -> float | None:
        """Return the mean money for calls and labels; None without prices."""
        paid = [part for part in (self.call_cost, self.label_cost) if part is not None]
        return sum(paid) if paid else None

    def words(self) -> list[str]:
        """Return the forecast in sentences."""
        total, everything = sum(self.calls.values()), self.labels * len(self.calls)
        labels = (
            f"If the policies answer the same items, and two of them agree on {self.agreement:.0%} of these: "
            f"about {self.labels:,.0f} labels (half of {self.runs} simulated runs take {self.low:,.0f} to "
            f"{self.high:,.0f}) and {total:,.0f} calls ({everything:,.0f} if everyone answered every item)."
        )
        said = [labels]
        if self.cost is not None:
            parts = [
                f"{money:,.6g} for {what}"
                for money, what in ((self.call_cost, "calls"), (self.label_cost, "labels"))
                if money is not None
            ]
            said.append(f"That costs about {self.cost:,.6g}: {' and '.join(parts)}.")
        if self.decided < self.runs:
            said.append(
                f"{self.runs - self.decided} of {self.runs} runs were not decided after {MOST_LABELS:,} "
                "labels."
            )
        return said

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain names and numbers."""
        return {
            "agreement": self.agreement, "runs": self.runs, "decided": self.decided, "right": self.right,
            "labels": {"mean": self.labels, "low": self.low, "high": self.high},
            "calls": dict(self.calls), "cost": self.cost, "call_cost": self.call_cost,
            "label_cost": self.label_cost, "words": self.words(),
        }  # fmt: skip


def plan_items(
    problem: Any,
    means: Any = None,
    *,
    agreement: float,
    procedure: Procedure | None = None,
    price: float | Mapping[str, float] | None = None,
    label_price: float | None = None,
    runs: int = RUNS,
    seed: int = 0,
) -> ItemPlan:
    """Forecast the labels, calls and money of an evaluation in which all policies answer the same items.

    Parameters
    ----------
    problem : Problem or Study
        The question, with Bernoulli outcomes; means and procedure may come from the study.
    means : table, dict or frame, optional
        The mean of every cell: a row per policy, or by name.
    agreement : float
        The share of items on which two policies are both right or both wrong, on average over pairs.
    procedure : Procedure, optional
        The risk and the first samples; the study's, or the default procedure, unless given.
    price : float or mapping, optional
        The price of a call, of all policies or by name.
    label_price : float, optional
        The price of the label of an item.
    runs : int
        The number of simulated evaluations.
    seed : int
        The seed of all random numbers.

    Returns
    -------
    ItemPlan
        Means over the runs.

    Raises
    ------
    BadInput
        If outcomes are not Bernoulli, pairs cannot be compared, or the agreement is impossible.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.5))
    >>> one, other = (eh.plan_items(problem, [[0.9], [0.7]], agreement=a, runs=6) for a in (0.7, 0.79))
    >>> other.labels < one.labels  # policies that agree more need fewer labels
    True
    """
    found = plan(problem, means)
    chosen = optional(procedure, Procedure, "procedure")
    if chosen is None:
        chosen = getattr(problem, "procedure", None) or Procedure()
    return forecast_items(
        found, chosen, agreement, price=price, label_price=label_price, runs=runs, seed=seed
    )


def forecast_items(
    found: Plan,
    procedure: Procedure,
    agreement: float,
    *,
    price: float | Mapping[str, float] | None = None,
    label_price: float | None = None,
    runs: int = RUNS,
    seed: int = 0,
) -> ItemPlan:
    """Return the forecast at the means of a plan."""
    problem = found.problem
    whole_number(runs, "runs", 1)
    whole_number(seed, "seed", 0)
    if not isinstance(problem.family, Bernoulli) or not can_share_items(problem, procedure):
        raise BadInput(
            "a forecast for shared items needs Bernoulli outcomes, a requirement on each policy alone and "
            f"the certified stopping rule; it has {problem.family.name} outcomes, "
            f"{problem.constraint.describe()} and the rule {procedure.stopping_name}."
        )
    if problem.guardrails:
        raise BadInput("a forecast for shared items has no guard-rails; leave them out of the study.")
    prices, label = prices_of_calls(price, problem.policies), price_of_label(label_price)
    rho = difficulty_share(found.means, np.array(problem.shares), agreement)
    known = known_prices(prices, label, problem.policies)
    results = [_run(found, procedure, rho, known, seed, run) for run in range(runs)]
    labels = np.array([counts.max() for counts, _, _ in results])
    calls = np.mean([counts for counts, _, _ in results], axis=0)
    named = dict(zip(problem.policies, calls.tolist(), strict=True))
    return ItemPlan(
        float(agreement), runs, sum(decided for _, decided, _ in results),
        sum(right for *_, right in results),
        float(labels.mean()), float(np.quantile(labels, 0.25)), float(np.quantile(labels, 0.75)), named,
        sum(prices.get(name, 0.0) * count for name, count in named.items()) if prices else None,
        None if label is None else label * float(labels.mean()),
    )  # fmt: skip


def _run(
    found: Plan, procedure: Procedure, rho: float, prices: Prices | None, seed: int, run: int
) -> tuple[Array, bool, bool]:
    """Return the calls of every policy, whether a simulated run decided, and whether it was right."""
    problem, rho = found.problem, min(rho, MOST_SHARE)
    sampling = SharedItems(
        problem, procedure, _one_item_each(problem.group_names), seed, POPULATION, True, prices, LOOK_EVERY
    )
    sampling.order = [np.arange(g, MOST_LABELS * len(sampling.order), len(sampling.order))
                      for g in range(len(sampling.order))]  # fmt: skip
    sampling.sizes[:] = MOST_LABELS
    rng, calls = np.random.default_rng([seed, run]), np.zeros(len(problem.policies))
    while (
        not sampling.finished and len(sampling.asked) < MOST_LABELS and (asked := sampling.next()) is not None
    ):
        chance = right_given(found.means[:, asked.group], rho, rng.standard_normal())
        right = rng.random(chance.size) < chance
        sampling.record(asked, {k: float(right[k]) for k in asked.policies})
        calls[list(asked.policies)] += 1
    result = sampling.result
    if result is None or not result.decided:
        return calls, False, False
    if problem.goal == "screen":
        allowed = [name in found.feasible for name in problem.policies]
        return calls, True, bool(np.array_equal(result.policies == MET, allowed))
    answer = None if result.leader < 0 else problem.policies[result.leader]
    return calls, True, answer in found.acceptable


def _one_item_each(groups: tuple[str, ...]) -> Pool:
    members = {name: np.array([g], dtype=np.int64) for g, name in enumerate(groups)}
    return Pool(lambda number: None, lambda numbers: None, groups, members, (), groups, lambda column: ())
