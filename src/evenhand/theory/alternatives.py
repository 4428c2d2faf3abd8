"""The pieces of the alternative, each with a value, a certified lower bound and a cut.

With answer i the alternative is: policy i leaves the region, or a rival k, inside it, beats i. With no
answer: some policy k enters the region. So piece k belongs to policy k, and the answer's own piece is its
leaving. A piece's nearest alternative lam at an allocation w gives a bound on its value at every allocation,
f_k(w') <= sum_c d(mu_c, lam_c) w'_c: a cut, which touches the cells of policy k and of the answer only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model import unit_families
from evenhand.model.problem import Problem, Standard
from evenhand.model.region import CUSTOM, Region
from evenhand.theory import inner

if TYPE_CHECKING:
    from evenhand.theory.regions.custom import Custom

Array = NDArray[np.float64]
Integers = NDArray[np.intp]


class Cuts(NamedTuple):
    """Linear bounds on pieces: own . w[policy] + shared . w[answer]."""

    policy: Integers  # (n,) whose piece it is
    atom: Integers  # (n,) which way out, for the answer's leaving; -1 for the others
    own: Array  # (n, L) on the policy's cells
    shared: Array  # (n, L) on the answer's cells

    def values(self, w: Array, answer: int | None) -> Array:
        """Every cut at the allocation w (K x L)."""
        own = (self.own * w[self.policy]).sum(axis=1)
        return own if answer is None else np.asarray(own + self.shared @ w[answer])

    def mixture(self, share: Array, policies: int, answer: int | None) -> Array:
        """The cuts mixed with these shares, as a K x L table."""
        table = np.zeros((policies, self.own.shape[1]))
        np.add.at(table, self.policy, share[:, None] * self.own)
        if answer is not None:
            table[answer] += share @ self.shared
        return table

    def take(self, which: NDArray[np.intp] | NDArray[np.bool_]) -> Cuts:
        return Cuts(self.policy[which], *(part[which] for part in self[1:]))  # type: ignore[arg-type]

    def join(self, *others: Cuts) -> Cuts:
        return Cuts(*(np.concatenate(parts) for parts in zip(self, *others, strict=True)))

    @classmethod
    def none(cls, groups: int) -> Cuts:
        nobody = np.zeros(0, dtype=np.intp)
        return cls(nobody, nobody, np.zeros((0, groups)), np.zeros((0, groups)))


class Look(NamedTuple):
    """What the inner solvers say at one allocation."""

    value: float  # the smallest piece's cost: f*(w) up to the solvers' accuracy
    lower: float  # a certified lower bound on f*(w)
    cuts: Cuts  # one per piece that has an alternative


def pieces_of(problem: Problem, means: Array, answer: int | None) -> Pieces:
    """def:alt: the alternatives to this answer at these means (K x L, in the user's units)."""
    standard, mu = problem.standard, problem.unit_means(means)
    if standard.region.kind != CUSTOM:
        return Pieces(standard, mu, answer)
    from evenhand.theory.regions.custom import Custom, rescaled

    standard, mu, origin, unit = rescaled(standard, mu)
    return Pieces(standard, mu, answer, Custom(problem, origin, unit))


class Pieces:
    """eq:internal_opt, eq:internal_opt_ext1, eq:internal_opt_ext2: the alternatives to one answer.

    `look` gives the nearest of them at any allocation.
    """

    def __init__(
        self, standard: Standard, mu: Array, answer: int | None, custom: Custom | None = None
    ) -> None:
        self.standard = standard
        self.mu = mu  # (L, K), unit scale
        self.answer = answer
        self._custom = custom  # solves in Python where the region has no kernel
        groups, policies = mu.shape
        self._work = np.empty(inner.work_size(groups, standard.region.rows.shape[0]))
        self._lam = np.empty((policies, 2, groups))  # per piece: the answer's means, the policy's own

    @property
    def shape(self) -> tuple[int, int]:
        """K, L."""
        return self.mu.shape[1], self.mu.shape[0]

    def look(self, w: Array) -> Look:
        """lemma:subgradient: every piece at the allocation w (K x L), with the cut that bounds it."""
        policies, groups = self.shape
        code, shares, phi, region = self.standard
        v = np.ascontiguousarray(w.T) / phi
        value, lower = np.empty(policies), np.empty(policies)
        atom = np.full(policies, -1, dtype=np.intp)
        answer = -1 if self.answer is None else self.answer
        if self._custom is not None:
            self._solve_in_python(self._custom, v, value, lower, atom)
        else:
            solve_all(code, region, shares, answer, v, self.mu, value, lower, atom, self._lam, self._work)
        if np.isnan(value).any() or np.isnan(lower).any():
            raise ArithmeticError("an inner solver answered with something that is not a number")
        own, shared = np.zeros((policies, groups)), np.zeros((policies, groups))
        cut_all(code, answer, self.mu, phi, value, self._lam, own, shared)
        # a cell that this mode can never sample has no say in a cut
        own[w == 0.0] = 0.0
        if self.answer is not None:
            shared[:, w[self.answer] == 0.0] = 0.0
        usable = np.isfinite(value) & np.isfinite(own).all(axis=1) & np.isfinite(shared).all(axis=1)
        cuts = Cuts(np.arange(policies), atom, own, shared).take(usable)
        return Look(float(value.min()), float(lower.min()), cuts)

    def alone(self, policy: int) -> Pieces:
        """The piece of one policy by itself, where nobody is feasible and pieces share no cell."""
        code, shares, phi, region = self.standard
        one = slice(policy, policy + 1)
        lo, hi, rhs, resolution, phi, mu = (
            part[:, one].copy()
            for part in (region.lo, region.hi, region.rhs, region.resolution, phi, self.mu)
        )
        alone = region._replace(lo=lo, hi=hi, rhs=rhs, resolution=resolution)
        standard = Standard(code, shares, phi, alone)
        return Pieces(standard, mu, None, self._custom)

    def _solve_in_python(self, custom: Custom, v: Array, value: Array, lower: Array, atom: Integers) -> None:
        """`solve_all` for a region that only Python knows."""
        for k, (lam_i, lam_k) in enumerate(self._lam):
            if self.answer is None:
                value[k], lower[k] = custom.enter(k, v, self.mu, lam_k)
            elif k == self.answer:
                value[k], lower[k], atom[k] = custom.leave(k, v, self.mu, lam_k)
            else:
                value[k], lower[k] = custom.beat(self.answer, k, v, self.mu, lam_i, lam_k)


@kernel
def solve_all(
    code: int, r: Region, q: Array, answer: int, v: Array, mu: Array,
    value: Array, lower: Array, atom: Integers, lam: Array, work: Array,
) -> None:  # fmt: skip
    """lemma: counter_set_calculation, lemma: counter_set_calculation_ext1: solve every alternative.

    Its value, lower bound and nearest means at effective weights v.
    """
    for k in range(mu.shape[1]):
        if answer < 0:
            value[k], lower[k] = inner.enter(code, r, k, v, mu, lam[k, 1], work)
        elif k == answer:
            value[k], lower[k], atom[k] = inner.leave(code, r, k, v, mu, lam[k, 1], work)
        else:
            value[k], lower[k] = inner.beat(code, r, q, answer, k, v, mu, lam[k, 0], lam[k, 1], work)


@kernel
def cut_all(
    code: int, answer: int, mu: Array, phi: Array, value: Array, lam: Array, own: Array, shared: Array
) -> None:
    """What a sample of each cell earns against each piece's alternative: d(mu, lam) / phi."""
    groups, policies = mu.shape
    for k in range(policies):
        if value[k] == np.inf:
            continue  # no alternative, no cut
        for g in range(groups):
            own[k, g] = unit_families.divergence(code, mu[g, k], lam[k, 1, g]) / phi[g, k]
            if answer >= 0 and k != answer:
                shared[k, g] = unit_families.divergence(code, mu[g, answer], lam[k, 0, g]) / phi[g, answer]
