"""Thresholds for the evidence: of a stop, the largest one for a single condition, and the stylised one.

`stylised` is the threshold of Garivier and Kaufmann (2016) as used in practice. It has no proof.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.model.region import RELATIVE
from evenhand.procedure.spec import Spec


@kernel
def threshold(spec: Spec) -> float:
    """def:delta-PAC: return the threshold of the evidence: ln(wrong statements / delta)."""
    return math.log(spec.wrong_statements / spec.delta)


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


@kernel
def cost_of_checks(samples: int) -> float:
    """Return ln(1 + ln t), the cost of repeated checks."""
    return math.log1p(math.log(float(max(samples, 1))))


@kernel
def stylised_threshold(samples: int, delta: float) -> float:
    """`stylised`: return the threshold ln((1 + ln t) / delta) of the likelihood ratio after t outcomes."""
    return cost_of_checks(samples) - math.log(delta)
