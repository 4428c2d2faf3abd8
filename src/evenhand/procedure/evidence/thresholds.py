"""Thresholds for the evidence: of a stop, and the largest one for a single condition."""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.model.region import BOX, PENALTY, RELATIVE, Region
from evenhand.procedure.spec import Spec


@kernel
def threshold(spec: Spec) -> float:
    """def:delta-PAC: return the threshold of the evidence: ln(wrong answers / delta)."""
    policies = spec.phi.shape[1]
    if spec.guardrails.present:  # every policy can fail
        return math.log(policies / spec.delta)
    return math.log(wrong_answers(spec.region, policies) / spec.delta)


@kernel
def wrong_answers(region: Region, policies: int) -> int:
    """Return the number of wrong answers.

    Of K policies and "none", K answers are wrong; where a policy cannot fail, "none" is not an answer.
    """
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
    """Return the largest evidence that is needed from one atom.

    It is the threshold for an average over all atoms to which this one alone contributes.
    """
    groups = spec.phi.shape[0]
    if spec.guardrails.present:
        atoms = groups * (groups + 1) + spec.region.rows.shape[0]
        return threshold(spec) + math.log(float(atoms + 4 * groups * (spec.guardrails.code.shape[0] + 1)))
    if spec.region.kind == RELATIVE:
        return threshold(spec) + math.log(4.0 * groups)
    return threshold(spec) + math.log(float(groups * (groups + 1) + spec.region.rows.shape[0]))
