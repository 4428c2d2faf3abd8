"""The pieces of the alternative, each with a value, a certified lower bound and a cut.

With answer i the alternative is: policy i leaves the region, or a rival k, inside it, beats i. With no
answer: some policy k enters the region. So piece k belongs to policy k, and the answer's own piece is its
leaving. A piece's nearest alternative lam at an allocation w gives a bound on its value at every allocation,
f_k(w') <= sum_c d(mu_c, lam_c) w'_c: a cut, which touches the cells of policy k and of the answer only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.model import units
from evenhand.model.problem import Problem, Standard
from evenhand.model.region import Region
from evenhand.theory import inner

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
    """The alternative to this answer at these means (K x L, in the user's units)."""
    return Pieces(problem.standard, problem.unit_means(means), answer)


class Pieces:
    """eq:internal_opt: the alternative to one answer, ready to be looked at from any allocation."""

    def __init__(self, standard: Standard, mu: Array, answer: int | None) -> None:
        self.standard = standard
        self.mu = mu  # (L, K), unit scale
        self.answer = answer
        groups = mu.shape[0]
        self._work = np.empty(inner.work_size(groups, standard.region.rows.shape[0]))
        self._lam = np.empty((2, groups))

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
        own, shared = np.zeros((policies, groups)), np.zeros((policies, groups))
        answer = -1 if self.answer is None else self.answer
        look_all(
            code,
            region,
            shares,
            answer,
            v,
            self.mu,
            phi,
            value,
            lower,
            atom,
            own,
            shared,
            self._lam,
            self._work,
        )
        if np.isnan(value).any() or np.isnan(lower).any():
            raise ArithmeticError("an inner solver answered with something that is not a number")
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
        lo, hi, rhs, phi, mu = (
            part[:, one].copy() for part in (region.lo, region.hi, region.rhs, phi, self.mu)
        )
        return Pieces(Standard(code, shares, phi, region._replace(lo=lo, hi=hi, rhs=rhs)), mu, None)


@kernel
def look_all(
    code: int, r: Region, q: Array, answer: int, v: Array, mu: Array, phi: Array,
    value: Array, lower: Array, atom: Integers, own: Array, shared: Array, lam: Array, work: Array,
) -> None:  # fmt: skip
    """Values, bounds and cuts of all pieces at effective weights v."""
    groups, policies = mu.shape
    for k in range(policies):
        if answer < 0:
            value[k], lower[k] = inner.enter(code, r, k, v, mu, lam[1], work)
        elif k == answer:
            value[k], lower[k], atom[k] = inner.leave(code, r, k, v, mu, lam[1], work)
        else:
            value[k], lower[k] = inner.beat(code, r, q, answer, k, v, mu, lam[0], lam[1], work)
        if value[k] == np.inf:
            continue
        for g in range(groups):
            own[k, g] = units.divergence(code, mu[g, k], lam[1, g]) / phi[g, k]
            if answer >= 0 and k != answer:
                shared[k, g] = units.divergence(code, mu[g, answer], lam[0, g]) / phi[g, answer]
