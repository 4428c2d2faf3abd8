"""The plan of a study: its problem at its truth, with the indifference and tolerance of its procedure."""

from __future__ import annotations

from evenhand.study import Study
from evenhand.theory.plan import GAP, Plan, plan


def plan_of(study: Study, gap: float = GAP) -> Plan:
    """Who would win at the study's truth, what it must cost and where to sample."""
    return plan(study, gap=gap)
