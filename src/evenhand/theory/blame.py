"""Reasons why no policy is allowed, with bounds relative to a control or with guard-rails."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evenhand.model.region import BOX, RELATIVE
from evenhand.theory import inner
from evenhand.theory.alternatives import cut_all, solve_all
from evenhand.theory.boundary_distance import Blame, WhyNone, why_none
from evenhand.theory.metrics import Metric
from evenhand.theory.question import Question

Array = NDArray[np.float64]


def why_nobody(asked: Question, allocation: Array) -> WhyNone:
    """Return for each policy the bound against which one sample gives most evidence."""
    problem = asked.problem
    if not problem.guardrails and problem.standard.region.kind != RELATIVE:
        return why_none(problem, asked.means, allocation)
    evidence = np.array([_evidence_against(one, allocation) for one in asked.metrics])  # (metrics, K, L)
    blames = []
    for k, policy in enumerate(problem.policies):
        metric, g = np.unravel_index(int(np.argmax(evidence[:, k])), evidence[:, k].shape)
        mean = (asked.means, *asked.guardrails)[metric][k, g]
        name = problem.guardrails[metric - 1].name if metric else None
        blames.append(Blame(policy, problem.group_names[g], float(mean), name))
    nearest = blames[int(np.argmin(evidence.sum(axis=(0, 2))))]
    what = "its requirement" if nearest.metric is None else f"its guard-rail {nearest.metric!r}"
    words = f"{nearest.policy} comes nearest: it misses {what} most clearly in {nearest.group}."
    return WhyNone(tuple(blames), nearest.policy, None, words)


def _evidence_against(metric: Metric, allocation: Array) -> Array:
    """Return the evidence of one sample of each cell against a policy being inside; K x L."""
    (code, shares, phi, region), mu = metric
    groups, policies = mu.shape
    v = np.ascontiguousarray(np.ones((groups, policies)) / phi)
    cost, bound, lam = np.empty(policies), np.empty(policies), np.zeros((policies, 3, groups))
    unused = np.empty(policies, dtype=np.intp)
    work = np.empty(inner.work_size(groups, region.rows.shape[0]))
    solve_all(code, region, region, shares, 0.0, -1, v, mu, cost, bound, unused, lam, work)
    own, ignored, aside = (np.zeros((policies, groups)) for _ in range(3))
    cut_all(code, -1, region.control, mu, phi, cost, lam, own, ignored, aside)
    if region.kind in (BOX, RELATIVE):
        return own + aside
    # other regions do not separate by group: name the group that is sampled most
    return np.where(allocation == allocation.max(axis=1, keepdims=True), cost[:, None], 0.0)
