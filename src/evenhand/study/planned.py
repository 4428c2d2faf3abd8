"""The plan of a study, for its assumed means and the indifference and tolerance of its procedure."""

from __future__ import annotations

from evenhand.study import Study
from evenhand.theory.plan import GAP, Plan, plan


def plan_of(study: Study, gap: float = GAP) -> Plan:
    """Return the plan of a study: the answer, the lower bound on samples and the allocation."""
    return plan(study, gap=gap)
