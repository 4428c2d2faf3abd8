"""Certified evidence about the conditions of guard-rails.

Each metric has e-processes of its own, from its own outcomes. They hold in the joint filtration however the
outcomes of a sample depend on each other: an average over the conditions of all metrics is an e-process, and
each condition may be compared with the threshold. Products across the metrics of a sample are never formed.
"""

from __future__ import annotations

import math

from evenhand.compile import Static, kernel
from evenhand.model.unit_families import BERNOULLI, EXPONENTIAL, GAUSSIAN, POISSON
from evenhand.procedure.evidence.by_family import bounds_broken, bounds_kept
from evenhand.procedure.guardrails import region_of, state_of
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, Work
from evenhand.theory.metrics import METRIC


@kernel
def broken(spec: Spec, state: State, work: Work, k: int, total: float, atoms: int) -> tuple[float, int]:
    """Add the e-values against {k meets this condition} of all guard-rails, in logs; and count them."""
    for j in range(spec.guardrails.code.shape[0]):
        total, atoms = _broken(spec, state, work, j, k, total, atoms)
    return total, atoms


@kernel
def kept(spec: Spec, state: State, work: Work, i: int, least: float, which: int) -> tuple[float, int]:
    """Return the least of `least` and the e-values against {i violates this condition}; and which."""
    for j in range(spec.guardrails.code.shape[0]):
        value, atom = _kept(spec, state, work, j, i)
        if value < least:
            least, which = value, (j + 1) * METRIC + atom
    return least, which


@kernel
def _broken(
    spec: Spec, state: State, work: Work, j: int, k: int, total: float, atoms: int
) -> tuple[float, int]:
    """The same for guard-rail j, by its family."""
    rails, own = spec.guardrails, state_of(state, j)
    code, unknown = rails.code[j], rails.unknown_variance[j]
    if rails.has_unknown_variance and unknown:
        return bounds_broken(_metric(spec, j, GAUSSIAN, True), own, k, total, atoms, work.scratch)
    if rails.has_gaussian and code == GAUSSIAN:
        return bounds_broken(_metric(spec, j, GAUSSIAN, False), own, k, total, atoms, work.scratch)
    if rails.has_bernoulli and code == BERNOULLI:
        return bounds_broken(_metric(spec, j, BERNOULLI, False), own, k, total, atoms, work.scratch)
    if rails.has_poisson and code == POISSON:
        return bounds_broken(_metric(spec, j, POISSON, False), own, k, total, atoms, work.scratch)
    if rails.has_exponential and code == EXPONENTIAL:
        return bounds_broken(_metric(spec, j, EXPONENTIAL, False), own, k, total, atoms, work.scratch)
    return total, atoms


@kernel
def _kept(spec: Spec, state: State, work: Work, j: int, i: int) -> tuple[float, int]:
    rails, own = spec.guardrails, state_of(state, j)
    code, unknown = rails.code[j], rails.unknown_variance[j]
    if rails.has_unknown_variance and unknown:
        return bounds_kept(_metric(spec, j, GAUSSIAN, True), own, i, work.scratch)
    if rails.has_gaussian and code == GAUSSIAN:
        return bounds_kept(_metric(spec, j, GAUSSIAN, False), own, i, work.scratch)
    if rails.has_bernoulli and code == BERNOULLI:
        return bounds_kept(_metric(spec, j, BERNOULLI, False), own, i, work.scratch)
    if rails.has_poisson and code == POISSON:
        return bounds_kept(_metric(spec, j, POISSON, False), own, i, work.scratch)
    if rails.has_exponential and code == EXPONENTIAL:
        return bounds_kept(_metric(spec, j, EXPONENTIAL, False), own, i, work.scratch)
    return math.inf, 0


@kernel
def _metric(spec: Spec, j: int, code: Static[int], unknown: Static[bool]) -> Spec:
    """Return the specification with guard-rail j in place of the outcome."""
    region = region_of(spec, j)
    return spec._replace(
        code=code, phi=spec.guardrails.phi[j], region=region, kept=region, unknown_variance=unknown,
        indifference=0.0, linear_bets=False, shared_items=False, bounded=False,
    )  # fmt: skip
