"""`kaufmann-koolen` with guard-rails: each metric's likelihood ratio has a threshold of its own.

The inequality of `kaufmann_koolen` multiplies martingales of cells, which are never sampled together. The
metrics of one sample are, and may depend on each other, so their ratios are not added. "Rival k meets its
requirement and its guard-rails and is ahead" is refuted when one of its M + 1 metrics refutes its own part.
Each has the level x + ln(M + 1), so that together they do so wrongly with probability at most e^-x. "The
leader violates condition a" concerns one metric, at the level x.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.model.region import RELATIVE, Region
from evenhand.procedure.evidence.by_family import threshold
from evenhand.procedure.guardrails import enter_guardrail, leave_guardrail
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, State, Work
from evenhand.procedure.stopping.kaufmann_koolen import constant_of, growth_of, threshold_at
from evenhand.theory import inner
from evenhand.theory.metrics import METRIC


@kernel
def strongest_metric(spec: Spec, state: State, work: Work, i: int, k: int) -> tuple[float, float]:
    """Return ratio and threshold of the metric that refutes "k is allowed and ahead of i" best.

    Where i is NONE: "k is allowed".
    """
    rails = spec.guardrails.code.shape[0]
    x = threshold(spec) + math.log(rails + 1.0)
    if i == NONE:
        _, value = inner.enter(
            spec.code, spec.region, k, work.v, work.mean, work.lam_k, work.lam_0, work.scratch
        )
    else:
        _, value = inner.beat(
            spec.code, spec.region, spec.shares, spec.indifference, i, k, work.v, work.mean,
            work.lam_i, work.lam_k, work.lam_0, work.scratch,
        )  # fmt: skip
    needed = threshold_at(spec, state, k, i, x)
    for j in range(rails):
        mine, need = enter_guardrail(spec, work, j, k), metric_threshold(spec, state, j, k, x)
        if mine - need > value - needed:
            value, needed = mine, need
    return value, needed


@kernel
def weakest_metric(spec: Spec, state: State, work: Work, region: Region, i: int) -> tuple[float, float, int]:
    """Return ratio, threshold and number of the condition of policy i that is least secure, of any metric."""
    x = threshold(spec)
    _, value, which = inner.leave(
        spec.code, region, i, work.v, work.mean, work.lam_k, work.lam_0, work.scratch
    )
    needed = threshold_at(spec, state, i, NONE, x)
    for j in range(spec.guardrails.code.shape[0]):
        mine, atom = leave_guardrail(spec, work, j, i)
        need = metric_threshold(spec, state, j, i, x)
        if mine - need < value - needed:
            value, needed, which = mine, need, (j + 1) * METRIC + atom
    return value, needed, which


@kernel
def metric_threshold(spec: Spec, state: State, j: int, k: int, x: float) -> float:
    """Return the threshold of policy k's conditions on guard-rail j; the control's cells count too."""
    rails = spec.guardrails
    groups, code, checks = spec.phi.shape[0], rails.code[j], 0.0
    cells = groups
    for g in range(groups):
        checks += growth_of(code, state.rail_n[j, g, k])
    if rails.kind == RELATIVE and k != rails.control:
        cells += groups
        for g in range(groups):
            checks += growth_of(code, state.rail_n[j, g, rails.control])
    return checks + cells * constant_of(code, x / cells)
