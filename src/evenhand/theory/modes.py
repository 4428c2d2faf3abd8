"""Sampling modes: which allocations are possible, and the best of them for a linear bound.

    active        any cell may be sampled
    proportional  groups arrive at random with shares pi, the policy is chosen for each arrival:
                  sum_k w_kl = pi_l sum(w)
    agnostic      the policy is chosen before the group is observed: w_kl = v_k pi_l

An allocation w is K x L with sum cost * w = 1, the budget. With unit costs its entries are shares of the
samples. Every mode provides a start, the largest value of a mixture of alternatives (`support`), the value of
budget in every cell against it (`worth`), and its rows and columns in the linear program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.model.problem import Problem

Array = NDArray[np.float64]
Index = NDArray[np.int32]

Row = tuple[float, Index, Array]  # right-hand side, columns, coefficients of one equality


@dataclass(frozen=True)
class Active:
    """Any cell may be sampled; base class of the other modes."""

    cost: Array  # K x L
    arrivals: Array  # (L,)

    @property
    def columns(self) -> int:
        """Return how many variables the linear program has besides its objective."""
        return self.cost.size

    def start(self) -> Array:
        """Return equal samples for every policy and, where it can be chosen, every group."""
        return self.admit(np.ones(self.cost.shape))

    def admit(self, w: Array) -> Array:
        """Return the allocation of this mode, at budget 1, that corresponds to positive weights w."""
        return np.asarray(w / (self.cost * w).sum())

    def support(self, mixture: Array) -> float:
        """Return the largest value of mixture . w over the mode's allocations."""
        return float((mixture / self.cost).max())

    def worth(self, w: Array, mixture: Array) -> Array:
        """Return the value of budget in each cell over the average: 1 where used at the optimum."""
        return np.asarray(mixture / self.cost / (mixture * w).sum())

    def weights(self, x: Array) -> Array:
        """Return the allocation for these variables of the linear program."""
        return np.asarray(
            np.maximum(x[: self.cost.size].reshape(self.cost.shape), 0.0) / self.cost / self.cost.size
        )

    def coefficients(self, policy: NDArray[np.intp], per_cell: Array) -> tuple[Index, Array]:
        """Return columns and coefficients of per_cell . w[policy], a row per bound."""
        groups = self.cost.shape[1]
        column = policy[:, None] * groups + np.arange(groups)
        return column.astype(np.int32), per_cell / self.cost[policy] / self.cost.size

    def equalities(self) -> list[Row]:
        """Return the equality constraints of the variables: the budget is spent."""
        n = self.cost.size
        return [(float(n), np.arange(n, dtype=np.int32), np.ones(n))]


@dataclass(frozen=True)
class Proportional(Active):
    """Groups arrive, the policy is chosen for each. One more variable: the number of arrivals."""

    @property
    def columns(self) -> int:
        return self.cost.size + 1

    def admit(self, w: Array) -> Array:
        w = w / w.sum(axis=0) * self.arrivals
        return np.asarray(w / (self.cost * w).sum())

    def support(self, mixture: Array) -> float:
        # the best ratio of sum_l pi_l mixture_l / sum_l pi_l cost_l over one policy per group, by
        # Dinkelbach's iteration
        best = -np.inf
        ratio = float(
            (self.arrivals * mixture.max(axis=0)).sum() / (self.arrivals * self.cost.max(axis=0)).sum()
        )
        while ratio > best:
            best = ratio
            chosen = np.argmax(mixture - best * self.cost, axis=0)
            at = (chosen, np.arange(len(self.arrivals)))
            ratio = float((self.arrivals * mixture[at]).sum() / (self.arrivals * self.cost[at]).sum())
        return best

    def worth(self, w: Array, mixture: Array) -> Array:
        # at the optimum mixture - value * cost is the same for every policy in use within a group
        column = np.maximum(w.sum(axis=0), np.finfo(float).tiny)
        value = float((mixture * w).sum())
        worth = np.maximum(mixture - value * (self.cost - (self.cost * w).sum(axis=0) / column), 0.0)
        average = (worth * w).sum(axis=0) / column
        # a group that does not discriminate keeps its shares
        return np.where(average > 0.0, worth / np.where(average > 0.0, average, 1.0), 1.0)

    def equalities(self) -> list[Row]:
        policies, groups = self.cost.shape
        rows = super().equalities()
        for g in range(groups):
            columns = np.append(np.arange(policies) * groups + g, policies * groups).astype(np.int32)
            rows.append((0.0, columns, np.append(1.0 / self.cost[:, g], -self.arrivals[g])))
        return rows


@dataclass(frozen=True)
class Agnostic(Active):
    """The policy is chosen before the group is observed: one variable per policy."""

    @property
    def columns(self) -> int:
        return self.cost.shape[0]

    @property
    def policy_cost(self) -> Array:
        """Return the average cost of one sample of each policy."""
        return np.asarray(self.cost @ self.arrivals)

    def admit(self, w: Array) -> Array:
        w = np.outer(w.sum(axis=1), self.arrivals)
        return np.asarray(w / (self.cost * w).sum())

    def support(self, mixture: Array) -> float:
        return float((mixture @ self.arrivals / self.policy_cost).max())

    def worth(self, w: Array, mixture: Array) -> Array:
        worth = mixture @ self.arrivals / self.policy_cost / (mixture * w).sum()
        return np.repeat(worth[:, None], len(self.arrivals), axis=1)

    def weights(self, x: Array) -> Array:
        share = np.maximum(x[: self.columns], 0.0) / self.policy_cost / self.columns
        return np.outer(share, self.arrivals)

    def coefficients(self, policy: NDArray[np.intp], per_cell: Array) -> tuple[Index, Array]:
        worth = per_cell @ self.arrivals / self.policy_cost[policy] / self.columns
        return policy[:, None].astype(np.int32), worth[:, None]

    def equalities(self) -> list[Row]:
        return [(float(self.columns), np.arange(self.columns, dtype=np.int32), np.ones(self.columns))]


MODES: dict[str, type[Active]] = {"active": Active, "proportional": Proportional, "agnostic": Agnostic}


def mode_of(problem: Problem) -> Active:
    """Return the problem's sampling mode."""
    return MODES[problem.mode](problem.sampling_costs, problem.arrival_shares)
