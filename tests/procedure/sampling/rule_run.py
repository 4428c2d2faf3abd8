"""The smallest body a sampling rule can live in: hands cells out, draws outcomes, tells them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.model.families import Bernoulli, Gaussian
from evenhand.model.problem import Problem
from evenhand.model.requirements import Constraint, Floors
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.decide import next_cell
from evenhand.procedure.spec import Procedure, TrackAndStop
from evenhand.procedure.state import (
    ask,
    ask_policy,
    new_state,
    new_work,
    record,
    record_guardrail,
    return_policy,
)

Array = NDArray[np.float64]
Cell = tuple[int, int]

MEANS = np.array([[0.8, 0.6, 0.7], [0.5, 0.6, 0.4], [-0.6, 1.2, 1.1], [0.4, 0.2, 0.1]])
SHARES = {"north": 0.5, "south": 0.3, "west": 0.2}


def problem(
    mode: str = "active", constraint: Constraint | None = None, policies: int = 4, bernoulli: bool = False
) -> Problem:
    """Three groups, Gaussian outcomes with sd 0.5, a floor at 0, unless told otherwise."""
    family = Bernoulli() if bernoulli else Gaussian(0.5)
    names = [f"policy {k}" for k in range(policies)]
    return Problem(names, SHARES, family, constraint or Floors(0.5 if bernoulli else 0.0), mode)


class RuleRun:
    """One run of a rule; outcomes are drawn from `means` with `sd` (0: the means themselves)."""

    def __init__(
        self, problem: Problem, procedure: Procedure, means: ArrayLike, seed: int = 1, sd: float = 0.5,
        weights: ArrayLike | None = None, rails: ArrayLike | None = None,
    ) -> None:  # fmt: skip
        self.rails = None if rails is None else np.asarray(rails, dtype=float)  # (M, K, L), always observed
        self.spec = compile_spec(problem, procedure, weights)
        self.state, self.work = new_state(self.spec), new_work(self.spec)
        self.means, self.sd, self.seed = np.asarray(means, dtype=float), sd, seed
        self._noise = np.random.default_rng(seed)
        self._bernoulli = isinstance(problem.family, Bernoulli)
        self._arrivals = np.random.default_rng(seed + 1)

    def ask(self) -> Cell:
        """The next cell, counted as out."""
        group = self._arrived() if self.spec.mode == 1 else -1
        k, g = next_cell(self.spec, self.state, self.work, self.seed, 0, group)
        if self.spec.mode == 2:
            ask_policy(self.spec, self.state, self.work, k)
        else:
            ask(self.state, self.work, k, g)
        return k, g

    def tell(self, cell: Cell) -> None:
        """Its outcome."""
        k, g = cell
        if self.spec.mode == 2:
            return_policy(self.spec, self.state, self.work, k)
            g = self._arrived()
        mean = self.means[k, g]
        outcome = (
            float(self._noise.random() < mean) if self._bernoulli else mean + self.sd * self._noise.normal()
        )
        for j in range(0 if self.rails is None else len(self.rails)):
            record_guardrail(self.spec, self.state, j, k, g, float(self.rails[j, k, g]))
        record(self.spec, self.state, self.work, k, g, outcome, self.spec.mode != 2)

    def run(self, steps: int, batch: int = 1) -> Iterator[Cell]:
        """So many cells, told batch by batch."""
        for _ in range(steps // batch):
            cells = [self.ask() for _ in range(batch)]
            for cell in cells:
                self.tell(cell)
            yield from cells

    def start(self) -> None:
        """The initial samples, so that the next cell is the rule's own."""
        for _ in self.run(self.spec.initial_total * (1 if self.spec.mode == 0 else 4)):
            pass

    @property
    def counts(self) -> Array:
        """K x L, what is out included."""
        return np.asarray(self.state.n + self.state.out).T

    def _arrived(self) -> int:
        return int(self._arrivals.choice(len(self.spec.arrivals), p=self.spec.arrivals))


RULES: dict[str, str | TrackAndStop] = {
    "ts-ids": "ts-ids", "ids": "ids", "track-and-stop": TrackAndStop(),
    "diminishing": TrackAndStop(diminishing=True, steps=2), "exact-tracking": "exact-tracking",
    "frank-wolfe": "frank-wolfe", "top-two": "top-two", "uniform": "uniform",
    "policy-track-and-stop": "policy-track-and-stop", "two-stage": "two-stage", "ocba-co": "ocba-co",
    "sequential-halving": "sequential-halving", "oracle": "oracle",
}  # fmt: skip


def rule_run(rule: str, mode: str = "active", stopping: str = "stylised", **more: object) -> RuleRun:
    """A rule on the standard instance."""
    asked: dict[str, object] = {"initial": 2, "max_samples": 4000} | more
    weights = np.full(MEANS.shape, 1 / MEANS.size) if rule == "oracle" else None
    procedure = Procedure(sampling=RULES[rule], stopping=stopping, **asked)  # type: ignore[arg-type]
    return RuleRun(problem(mode), procedure, MEANS, weights=weights)
