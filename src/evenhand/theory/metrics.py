"""Outcome and guard-rails of a problem in unit scale, and labels of alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import uncompiled
from evenhand.model import unit_families
from evenhand.model.problem import Problem, Standard
from evenhand.model.region import BOX, RELATIVE

Array = NDArray[np.float64]

METRIC = 1_000_000  # conditions of guard-rail j are numbered from (j + 1) METRIC


class Label(NamedTuple):
    """What an alternative is: its kind, policy and, for leaving, the metric, group and bound."""

    kind: str  # leave, beat, enter
    policy: int
    metric: int  # 0: the outcome; j + 1: guard-rail j, whose bound the policy would violate
    group: int | None  # the group in which it would leave
    relative: bool  # whether the violated bound is relative to the control


class Metric(NamedTuple):
    """An outcome with its requirement in unit scale, and its means (L, K)."""

    standard: Standard
    mu: Array


def metrics_of(problem: Problem, means: Array, guardrails: Sequence[Array]) -> tuple[Metric, ...]:
    """Return the outcome and every guard-rail with their means."""
    families = (problem.family, *(rail.family for rail in problem.guardrails))
    tables = (problem.check_means(means), *guardrails)
    return tuple(
        Metric(standard, np.ascontiguousarray(family.to_unit(table).T))
        for standard, family, table in zip(problem.standards, families, tables, strict=True)
    )


def spread_of(metric: Metric) -> Array:
    """Return the standard deviation of one outcome in every cell, K x L, in unit scale."""
    code, _, phi, _ = metric.standard
    variance = np.vectorize(lambda mu: uncompiled(unit_families.variance)(code, mu), otypes=[float])(
        metric.mu
    )
    return np.asarray(np.sqrt(variance * phi).T)


def control_of(metrics: Sequence[Metric]) -> int | None:
    """Return the policy that bounds of any metric are relative to; None where there is none."""
    return next((one.standard.region.control for one in metrics if one.standard.region.control >= 0), None)


def leaving_label(metrics: Sequence[Metric], policy: int, atom: int, weighed: Array) -> Label:
    """Return the label of a policy that leaves by violating this condition of a metric."""
    metric, atom = divmod(atom, METRIC) if atom >= METRIC else (0, atom)
    region = metrics[metric].standard.region
    groups = region.quad.shape[0]
    named = region.kind in (BOX, RELATIVE) and atom >= 0
    group = atom % groups if named else int(np.argmax(weighed))
    return Label("leave", policy, metric, group, region.kind == RELATIVE and atom >= 2 * groups)
