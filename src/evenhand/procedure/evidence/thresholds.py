"""What evidence must reach: the threshold of a stop, and the most that is ever asked of one condition."""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.model.region import BOX, PENALTY, Region
from evenhand.procedure.spec import Spec


@kernel
def threshold(spec: Spec) -> float:
    """def:delta-PAC: what the evidence against every alternative must reach, ln(wrong answers / delta)."""
    return math.log(wrong_answers(spec.region, spec.phi.shape[1]) / spec.delta)


@kernel
def wrong_answers(region: Region, policies: int) -> int:
    """Of K policies and "none", K answers are wrong; where a policy cannot fail, "none" is no answer."""
    if region.kind == PENALTY:
        return policies - 1
    if region.kind != BOX:
        return policies
    for g in range(region.lo.shape[0]):
        if region.lo[g, 0] > -math.inf or region.hi[g, 0] < math.inf:
            return policies
    return policies - 1


@kernel
def atom_ceiling(spec: Spec) -> float:
    """The most that is ever asked of one atom: the threshold, were it alone to carry an average over all."""
    groups = spec.phi.shape[0]
    return threshold(spec) + math.log(float(groups * (groups + 1) + spec.region.rows.shape[0]))
