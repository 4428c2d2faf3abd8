"""Sections of a page about a plan, runs, a verdict, an experiment or a study."""

from __future__ import annotations

from typing import Any

from evenhand.errors import BadInput, shown
from evenhand.reports.page_parts import Section
from evenhand.study import Study


def sections_of(source: Any) -> list[tuple[Section, Study]]:
    """Return the sections of a source, each with its study; only the modules it needs are imported."""
    kind = type(source).__name__
    if kind == "Plan":
        from evenhand.reports.sections.plan import plan_section

        return [plan_section(source)]
    if kind in ("Runs", "Comparison"):
        from evenhand.reports.sections.runs import runs_section

        return [runs_section(source)]
    if kind == "Scan":
        from evenhand.reports.sections.runs import scan_section

        return [scan_section(source)]
    if kind in ("Verdict", "Evaluation"):
        from evenhand.reports.sections.verdict import verdict_section

        return [verdict_section(source.verdict if kind == "Evaluation" else source)]
    if kind == "Experiment":
        from evenhand.reports.sections.experiment import experiment_section

        return [experiment_section(source)]
    if isinstance(source, Study):
        from evenhand.reports.sections.plan import plan_section
        from evenhand.theory.plan import plan

        return [plan_section(plan(source), source)]
    raise BadInput(
        "a report takes plans, runs, comparisons, scans, experiments, verdicts, evaluations and studies; "
        f"got {shown(source)}."
    )
