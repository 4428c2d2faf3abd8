"""Sentences about result rows, shared by status, verdicts, reports and the dashboard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evenhand.model.result_rows import CellRow

LISTED = 6  # more names of groups than this are counted, not listed


def listed(names: Sequence[str]) -> str:
    """Return the names as "A, B and C"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def listed_groups(names: Sequence[str]) -> str:
    """Return the names of groups, or their number if the list would be long."""
    return f"{len(names)} groups" if len(names) > LISTED else listed(names)


def bound_word(cells: Iterable[CellRow]) -> str:
    """Return the kind of bounds of the cells: a floor, a cap, or both."""
    rows = list(cells)
    floors = any(cell.floor is not None for cell in rows)
    caps = any(cell.cap is not None for cell in rows)
    return "floor" if floors and not caps else "cap" if caps and not floors else "bound"


def bounds_sentence(cells: Iterable[CellRow], policy: str, proved: bool) -> str:
    """Return which of a policy's bounds are certified, refuted and open, by group; else "".

    `proved`: whether verdicts rest on a proof; otherwise bounds are called met or missed.
    """
    rows = list(cells)
    met, failed = ("certified", "refuted") if proved else ("met", "missed")
    parts = []
    for word, verdict in ((met, "met"), (failed, "failed"), ("still open", "undecided")):
        groups = [c.group for c in rows if c.policy == policy and c.bounded and c.verdict == verdict]
        if groups:
            parts.append(f"{word} for {listed_groups(groups)}")
    return f"Its {bound_word(rows)} is {', '.join(parts)}." if parts else ""


def evidence_share(evidence: float, needed: float) -> str:
    """Return the evidence as a percentage of the evidence needed."""
    return f"{max(min(evidence / needed, 1.0), 0.0):.0%} of the evidence needed"
