"""Alternatives to an answer, each with a value, a certified lower bound and a cut.

With answer i the alternatives are: policy i leaves its region, or a rival k, inside its region, beats i. With
no answer: some policy k enters its region. Alternative k belongs to policy k; the answer's own alternative is
that it leaves. The nearest means lam of an alternative at an allocation w bound its value at every
allocation, f_k(w') <= sum_c d(mu_c, lam_c) w'_c: a cut. Its coefficients are non-zero only in the cells of
policy k, of the answer and, where bounds are relative to a control, of the control.

With guard-rails a rival must also enter the region of every guard-rail, and the costs add up; the answer
leaves through the cheapest of all. This is exact where the outcomes of a sample are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model import unit_families
from evenhand.model.problem import Problem, Standard
from evenhand.model.region import CUSTOM, Region
from evenhand.theory import inner
from evenhand.theory.metrics import METRIC, Label, Metric, control_of, leaving_label, metrics_of

if TYPE_CHECKING:
    from evenhand.theory.regions.custom import Custom

Array = NDArray[np.float64]
Integers = NDArray[np.intp]


class Cuts(NamedTuple):
    """Linear bounds on alternatives: own . w[policy] + shared . w[answer] + aside . w[control]."""

    policy: Integers  # (n,) the policy of the alternative
    atom: Integers  # (n,) the condition that the answer violates; -1 for the other policies
    own: Array  # (n, L) coefficients of the policy's cells
    shared: Array  # (n, L) coefficients of the answer's cells
    aside: Array  # (n, L) coefficients of the control's cells; 0 where it is the policy itself or the answer

    def values(self, w: Array, answer: int | None, control: int | None = None) -> Array:
        """Return the value of every cut at the allocation w (K x L)."""
        found = (self.own * w[self.policy]).sum(axis=1)
        if answer is not None:
            found = np.asarray(found + self.shared @ w[answer])
        return found if control is None else np.asarray(found + self.aside @ w[control])

    def mixture(self, share: Array, policies: int, answer: int | None, control: int | None = None) -> Array:
        """Return the mixture of the cuts with these shares, as a K x L table."""
        table = np.zeros((policies, self.own.shape[1]))
        np.add.at(table, self.policy, share[:, None] * self.own)
        if answer is not None:
            table[answer] += share @ self.shared
        if control is not None:
            table[control] += share @ self.aside
        return table

    def take(self, which: NDArray[np.intp] | NDArray[np.bool_]) -> Cuts:
        return Cuts(self.policy[which], *(part[which] for part in self[1:]))  # type: ignore[arg-type]

    def join(self, *others: Cuts) -> Cuts:
        return Cuts(*(np.concatenate(parts) for parts in zip(self, *others, strict=True)))

    @classmethod
    def none(cls, groups: int) -> Cuts:
        nobody, nothing = np.zeros(0, dtype=np.intp), np.zeros((0, groups))
        return cls(nobody, nobody, nothing, nothing, nothing)


class InnerSolution(NamedTuple):
    """The values, bounds and cuts of the inner solvers at one allocation."""

    value: float  # the smallest cost of an alternative: f*(w) up to the solvers' accuracy
    lower: float  # a certified lower bound on f*(w)
    cuts: Cuts  # one per alternative that is not empty


def alternatives_to(
    problem: Problem,
    means: Array,
    answer: int | None,
    guardrails: Sequence[Array] = (),
    eps: float = 0.0,
    kept: Region | None = None,
) -> Alternatives:
    """def:alt: return the alternatives to this answer at these means.

    `means` is K x L, in the user's units; `eps` is the indifference in unit scale; `kept` is the region that
    the answer itself must stay in, where it differs from that of the rivals.
    """
    metrics = metrics_of(problem, means, guardrails)
    if problem.standard.region.kind != CUSTOM:
        return Alternatives(metrics, answer, eps, kept)
    from evenhand.theory.regions.custom import Custom, rescaled

    standard, mu, origin, unit = rescaled(*metrics[0])
    metrics = (Metric(standard, mu), *metrics[1:])
    return Alternatives(metrics, answer, eps / unit, custom=Custom(problem, origin, unit))


class Alternatives:
    """eq:internal_opt, eq:internal_opt_ext1, eq:internal_opt_ext2: alternatives to an answer.

    `look` solves for the nearest of them at any allocation.
    """

    def __init__(
        self,
        metrics: Sequence[Metric],
        answer: int | None,
        eps: float = 0.0,
        kept: Region | None = None,
        custom: Custom | None = None,
    ) -> None:
        self.metrics = tuple(metrics)
        self.standard, self.mu = metrics[0]  # (L, K), unit scale
        self.answer = answer
        self.eps = eps
        self.control = control_of(metrics)
        self._kept = self.standard.region if kept is None else kept
        self._custom = custom  # solves in Python where the region has no kernel
        groups, policies = self.mu.shape
        self._work = np.empty(inner.work_size(groups, self.standard.region.rows.shape[0]))
        self._lam = np.zeros((policies, 3, groups))  # per alternative: means of the answer, policy, control

    @property
    def shape(self) -> tuple[int, int]:
        """Return K and L."""
        return self.mu.shape[1], self.mu.shape[0]

    @property
    def separable(self) -> bool:
        """Return whether there is no answer and no two alternatives share a cell."""
        return True

    @property
    def slots(self) -> int:
        """Return the largest possible number of alternatives; the answer's counts once."""
        return self.shape[0]

    def slot(self, cuts: Cuts) -> Integers:
        """Return the index of the alternative that each of these cuts belongs to."""
        return cuts.policy

    def solve_at(self, w: Array) -> InnerSolution:
        """lemma:subgradient: return the values, bounds and cuts at the allocation w (K x L)."""
        policies, groups = self.shape
        code, shares, phi, region = self.standard
        v = np.ascontiguousarray(w.T) / phi
        value, lower = np.empty(policies), np.empty(policies)
        atom = np.full(policies, -1, dtype=np.intp)
        answer = -1 if self.answer is None else self.answer
        if self._custom is not None:
            self._solve_in_python(self._custom, v, value, lower, atom)
        else:
            solve_all(
                code, region, self._kept, shares, self.eps, answer, v, self.mu, value, lower, atom, self._lam,
                self._work,
            )  # fmt: skip
        own, shared, aside = (np.zeros((policies, groups)) for _ in range(3))
        cut_all(code, answer, region.control, self.mu, phi, value, self._lam, own, shared, aside)
        for j, rail in enumerate(self.metrics[1:]):
            self._add_guardrail(j, rail, w, value, lower, atom, own, aside)
        if np.isnan(value).any() or np.isnan(lower).any():
            raise ArithmeticError("an inner solver returned NaN")
        cuts = self._cuts(w, np.arange(policies), atom, own, shared, aside)
        usable = np.isfinite(value) & np.isfinite(cuts.own).all(axis=1) & np.isfinite(cuts.shared).all(axis=1)
        usable &= np.isfinite(cuts.aside).all(axis=1)
        return InnerSolution(float(value.min()), float(lower.min()), cuts.take(usable))

    def label(self, policy: int, atom: int, weighed: Array) -> Label:
        """Return the label of a cut; `weighed` is its own part times the policy's weights."""
        if self.answer is None:
            return Label("enter", policy, 0, None, False)
        if policy != self.answer:
            return Label("beat", policy, 0, None, False)
        return leaving_label(self.metrics, policy, atom, weighed)

    def alone(self, policy: int) -> Alternatives:
        """Return the alternative of one policy alone, where none is feasible and none share a cell."""
        one = slice(policy, policy + 1)
        metrics = []
        for (code, shares, phi, region), mu in self.metrics:
            lo, hi, rhs, resolution, phi, mu = (
                part[:, one].copy() for part in (region.lo, region.hi, region.rhs, region.resolution, phi, mu)
            )
            alone = region._replace(lo=lo, hi=hi, rhs=rhs, resolution=resolution)
            metrics.append(Metric(Standard(code, shares, phi, alone), mu))
        return Alternatives(metrics, None, custom=self._custom)

    def _add_guardrail(
        self,
        j: int,
        rail: Metric,
        w: Array,
        value: Array,
        lower: Array,
        atom: Integers,
        own: Array,
        aside: Array,
    ) -> None:
        """Add the cost of entering guard-rail j to every rival; the answer may leave through it."""
        (code, shares, phi, region), mu = rail
        policies, groups = self.shape
        v = np.ascontiguousarray(w.T) / phi
        cost, bound, lam = np.empty(policies), np.empty(policies), np.zeros((policies, 3, groups))
        unused = np.empty(policies, dtype=np.intp)
        solve_all(code, region, region, shares, 0.0, -1, v, mu, cost, bound, unused, lam, self._work)
        if self.answer is not None:
            i = self.answer
            cost[i], bound[i], way = inner.leave(code, region, i, v, mu, lam[i, 1], lam[i, 2], self._work)
        mine, beside, ignored = (np.zeros((policies, groups)) for _ in range(3))
        cut_all(code, -1, region.control, mu, phi, cost, lam, mine, ignored, beside)
        rivals = np.arange(policies) != (-1 if self.answer is None else self.answer)
        value[rivals] += cost[rivals]
        lower[rivals] += bound[rivals]
        own[rivals] += mine[rivals]
        aside[rivals] += beside[rivals]
        if self.answer is not None:
            lower[i] = min(lower[i], bound[i])
            if cost[i] < value[i]:
                value[i], own[i], aside[i], atom[i] = cost[i], mine[i], beside[i], (j + 1) * METRIC + way

    def _cuts(
        self, w: Array, policy: Integers, atom: Integers, own: Array, shared: Array, aside: Array
    ) -> Cuts:
        """Return the cuts, with coefficient 0 for the cells that this mode can never sample."""
        own[w[policy] == 0.0] = 0.0
        if self.answer is not None:
            shared[:, w[self.answer] == 0.0] = 0.0
        if self.control is not None:
            aside[:, w[self.control] == 0.0] = 0.0
            if self.control == self.answer:  # each cell may occur only once
                shared, aside = shared + aside, np.zeros_like(aside)
        return Cuts(policy, atom, own, shared, aside)

    def _solve_in_python(self, custom: Custom, v: Array, value: Array, lower: Array, atom: Integers) -> None:
        """Do what `solve_all` does, for a region that has no kernel."""
        for k, (lam_i, lam_k, _) in enumerate(self._lam):
            if self.answer is None:
                value[k], lower[k] = custom.enter(k, v, self.mu, lam_k)
            elif k == self.answer:
                value[k], lower[k], atom[k] = custom.leave(k, v, self.mu, lam_k)
            else:
                value[k], lower[k] = custom.beat(self.eps, self.answer, k, v, self.mu, lam_i, lam_k)


@kernel
def solve_all(
    code: int, r: Region, kept: Region, q: Array, eps: float, answer: int, v: Array, mu: Array,
    value: Array, lower: Array, atom: Integers, lam: Array, work: Array,
) -> None:  # fmt: skip
    """lemma: counter_set_calculation, lemma: counter_set_calculation_ext1: solve each.

    Writes the value, lower bound and nearest means of every alternative at effective weights v. The answer
    leaves `kept`.
    """
    for k in range(mu.shape[1]):
        if answer < 0:
            value[k], lower[k] = inner.enter(code, r, k, v, mu, lam[k, 1], lam[k, 2], work)
        elif k == answer:
            value[k], lower[k], atom[k] = inner.leave(code, kept, k, v, mu, lam[k, 1], lam[k, 2], work)
        else:
            value[k], lower[k] = inner.beat(
                code, r, q, eps, answer, k, v, mu, lam[k, 0], lam[k, 1], lam[k, 2], work
            )  # fmt: skip


@kernel
def cut_all(
    code: int, answer: int, control: int, mu: Array, phi: Array, value: Array, lam: Array,
    own: Array, shared: Array, aside: Array,
) -> None:  # fmt: skip
    """Write the information of one sample per cell against each alternative: d(mu, lam) / phi."""
    groups, policies = mu.shape
    for k in range(policies):
        if value[k] == np.inf:
            continue  # the alternative is empty: no cut
        for g in range(groups):
            own[k, g] = unit_families.divergence(code, mu[g, k], lam[k, 1, g]) / phi[g, k]
            if answer >= 0 and k != answer:
                shared[k, g] = unit_families.divergence(code, mu[g, answer], lam[k, 0, g]) / phi[g, answer]
            if control >= 0:
                aside[k, g] = unit_families.divergence(code, mu[g, control], lam[k, 2, g]) / phi[g, control]
