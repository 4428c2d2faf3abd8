"""Screening: alternatives to a classification of policies as allowed or not, and its T*.

The classification is wrong if an allowed policy violates one of its bounds, or another policy enters. An
allowed policy has an alternative for every bound (or one for all where the region is not a box), the others
have one each. Where all bounds are absolute no alternative involves another policy's cells, and in active
sampling T* is a sum: every bound (k, l) of an allowed policy takes 1 / d(mu_kl, C_l) samples of its cell, and
a policy that is not allowed takes 1 / D_l samples of the cell whose violated bounds give most evidence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model import unit_families
from evenhand.model.region import BOX, PENALTY, RELATIVE, Region
from evenhand.theory import inner
from evenhand.theory.alternatives import Alternatives, Cuts, InnerSolution, cut_all, solve_all
from evenhand.theory.metrics import METRIC, Label, Metric, leaving_label
from evenhand.theory.modes import Active
from evenhand.theory.outer import ROUNDING, Binding, Solution, solve
from evenhand.theory.question import Question
from evenhand.theory.regions import relative

Array = NDArray[np.float64]
Integers = NDArray[np.intp]
Flags = NDArray[np.bool_]


def screen(metrics: Sequence[Metric], allowed: Flags, mode: Active, gap: float) -> Solution:
    """Return the best allocation to classify every policy, and its bounds."""
    if type(mode) is Active and all(one.standard.region.kind == BOX for one in metrics):
        return sum_of_cells(metrics, allowed, mode)
    return solve(Screening(metrics, allowed), mode, gap)


def sum_of_cells(metrics: Sequence[Metric], allowed: Flags, mode: Active) -> Solution:
    """Return the closed form for boxes: a sum over allowed bounds and other policies."""
    policies, groups = mode.cost.shape
    kept, broken = np.full((policies, groups), np.inf), np.zeros((policies, groups))
    weakest = np.zeros((policies, groups), dtype=int)
    for j, ((code, _, phi, region), mu) in enumerate(metrics):
        for bound in (region.lo, region.hi):
            for g, k in zip(*np.nonzero(np.isfinite(bound)), strict=True):
                tells = unit_families.divergence(code, mu[g, k], bound[g, k]) / phi[g, k]
                violated = mu[g, k] < bound[g, k] if bound is region.lo else mu[g, k] > bound[g, k]
                if tells < kept[k, g]:
                    kept[k, g], weakest[k, g] = tells, j
                broken[k, g] += tells if violated else 0.0
    w = np.zeros((policies, groups))
    shares: dict[Label, float] = {}
    for k in range(policies):
        if allowed[k]:
            w[k] = 1.0 / kept[k]
            for g in np.nonzero(w[k])[0].tolist():
                label = Label("leave", k, int(weakest[k, g]), g, False)
                shares[label] = float(mode.cost[k, g] * w[k, g])
        else:
            best = int(np.argmax(broken[k] / mode.cost[k]))
            w[k, best] = 1.0 / broken[k, best]
            shares[Label("enter", k, 0, None, False)] = float(mode.cost[k, best] * w[k, best])
    total = sum(shares.values())
    if not total > 0.0:
        return Solution(mode.start(), np.inf, np.inf, ())
    binding = [Binding(label, share / total) for label, share in shares.items()]
    ordered = tuple(sorted(binding, key=lambda one: -one.share))
    return Solution(w / total, (1.0 - ROUNDING) / total, (1.0 + ROUNDING) / total, ordered)


def why_unclassified(asked: Question) -> str | None:
    """Return why no number of samples classifies every policy; None where some number does."""
    names = ("its requirement", *(f"its guard-rail {rail.name!r}" for rail in asked.problem.guardrails))
    for k, policy in enumerate(asked.problem.policies):
        inside = asked.margins(k)
        worst = int(np.argmin(inside))
        # a policy that clearly fails another metric is not allowed in any case
        if inside[worst] == 0.0:
            return (
                f"{policy!r} lies exactly on the boundary of {names[worst]}, and no number of samples "
                "decides on which side; move its means or the requirement."
            )
    return None


class Screening(Alternatives):
    """The alternatives to a classification of every policy as allowed or not."""

    def __init__(self, metrics: Sequence[Metric], allowed: Flags) -> None:
        super().__init__(metrics, None)
        self.allowed = allowed
        self._work = np.empty(self._work.size + 2 * self.shape[1])

    @property
    def separable(self) -> bool:
        return False

    @property
    def slots(self) -> int:
        """Return the largest number of alternatives: entering, and every bound of every metric."""
        policies, groups = self.shape
        return policies * (1 + 4 * groups * len(self.metrics))

    def slot(self, cuts: Cuts) -> Integers:
        policies, groups = self.shape
        metric, bound = cuts.atom // METRIC, cuts.atom % METRIC
        inside = 1 + metric * 4 * groups + np.minimum(bound, 4 * groups - 1)
        return np.where(cuts.atom < 0, 0, inside) * policies + cuts.policy

    def solve_at(self, w: Array) -> InnerSolution:
        """Return every alternative's value, bound and cut at the allocation w (K x L)."""
        parts = [self._entering(w), *(self._leaving(j, w) for j in range(len(self.metrics)))]
        value, lower = (np.concatenate([part[n] for part in parts]) for n in (0, 1))
        cuts = parts[0][2].join(*(part[2] for part in parts[1:]))
        if np.isnan(value).any() or np.isnan(lower).any():
            raise ArithmeticError("an inner solver returned NaN")
        usable = np.isfinite(value) & np.isfinite(cuts.own).all(axis=1) & np.isfinite(cuts.aside).all(axis=1)
        least = float(value.min()) if len(value) else np.inf
        return InnerSolution(least, float(lower.min()) if len(lower) else np.inf, cuts.take(usable))

    def label(self, policy: int, atom: int, weighed: Array) -> Label:
        if atom < 0:
            return Label("enter", policy, 0, None, False)
        return leaving_label(self.metrics, policy, atom, weighed)

    def _entering(self, w: Array) -> tuple[Array, Array, Cuts]:
        """Return the alternatives of policies that are not allowed: entering every metric's region."""
        policies, groups = self.shape
        value, lower = np.zeros(policies), np.zeros(policies)
        own, aside = np.zeros((policies, groups)), np.zeros((policies, groups))
        for (code, shares, phi, region), mu in self.metrics:
            v = np.ascontiguousarray(w.T) / phi
            cost, bound, lam = np.empty(policies), np.empty(policies), np.zeros((policies, 3, groups))
            unused = np.empty(policies, dtype=np.intp)
            solve_all(code, region, region, shares, 0.0, -1, v, mu, cost, bound, unused, lam, self._work)
            mine, beside, ignored = (np.zeros((policies, groups)) for _ in range(3))
            cut_all(code, -1, region.control, mu, phi, cost, lam, mine, ignored, beside)
            value, lower, own, aside = value + cost, lower + bound, own + mine, aside + beside
        outside = np.nonzero(~self.allowed)[0]
        atom = np.full(len(outside), -1, dtype=np.intp)
        nothing = np.zeros((len(outside), groups))
        cuts = self._cuts(w, outside, atom, own[outside], nothing, aside[outside])
        return value[outside], lower[outside], cuts

    def _leaving(self, j: int, w: Array) -> tuple[Array, Array, Cuts]:
        """Return the alternatives of the allowed policies that violate a bound of metric j."""
        (code, _, phi, region), mu = self.metrics[j]
        groups, inside = self.shape[1], np.nonzero(self.allowed)[0]
        boxed = region.kind in (BOX, RELATIVE)
        many = 4 * groups if boxed else 1
        size = (len(inside), many)
        value, lower, atom = np.empty(size), np.empty(size), np.full(size, -1, dtype=np.intp)
        own, aside = np.zeros((*size, groups)), np.zeros((*size, groups))
        if region.kind != PENALTY:
            v = np.ascontiguousarray(w.T) / phi
            leave_each(code, region, inside, v, mu, phi, value, lower, atom, own, aside, self._work)
        atom += j * METRIC
        flat = (-1, groups)
        policy = np.repeat(inside, many)
        nothing = np.zeros((len(policy), groups))
        cuts = self._cuts(w, policy, atom.ravel(), own.reshape(flat), nothing, aside.reshape(flat))
        real = ~np.isinf(value.ravel())  # NaN is refused later
        return value.ravel()[real], lower.ravel()[real], cuts.take(real)


@kernel
def leave_each(
    code: int, r: Region, policies: Integers, v: Array, mu: Array, phi: Array,
    value: Array, lower: Array, atom: Integers, own: Array, aside: Array, work: Array,
) -> None:  # fmt: skip
    """Solve for each bound of these policies, or for the cheapest if the region is no box."""
    groups = mu.shape[0]
    lam_k, lam_0, rest = work[:groups], work[groups : 2 * groups], work[2 * groups :]
    for n in range(policies.size):
        k = policies[n]
        for which in range(value.shape[1]):
            if value.shape[1] > 1:
                value[n, which], lower[n, which] = relative.leave_by(
                    code, r, k, which, v, mu, lam_k, lam_0, rest
                )
                atom[n, which] = which
            else:
                value[n, which], lower[n, which], atom[n, which] = inner.leave(
                    code, r, k, v, mu, lam_k, lam_0, rest
                )
            if value[n, which] == np.inf:
                continue
            for g in range(groups):
                own[n, which, g] = unit_families.divergence(code, mu[g, k], lam_k[g]) / phi[g, k]
                if r.control >= 0:
                    aside[n, which, g] = (
                        unit_families.divergence(code, mu[g, r.control], lam_0[g]) / phi[g, r.control]
                    )
