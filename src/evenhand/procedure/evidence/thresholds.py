"""Thresholds for the evidence: of a stop, and the largest one for a single condition."""

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
