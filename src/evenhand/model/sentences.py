"""Sentences about result rows, the same in a status, a verdict, a report and on the dashboard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evenhand.model.rows import CellRow

LISTED = 6  # names that a sentence about groups lists; more are counted


def listed(names: Sequence[str]) -> str:
    """Return the names as "A, B and C"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def listed_groups(names: Sequence[str]) -> str:
    """Return the names of groups, or how many there are where the list would be long."""
    return f"{len(names)} groups" if len(names) > LISTED else listed(names)


def bound_word(cells: Iterable[CellRow]) -> str:
    """Return what the cells are held to: a floor, a cap, or both."""
    rows = list(cells)
    floors = any(cell.floor is not None for cell in rows)
    caps = any(cell.cap is not None for cell in rows)
    return "floor" if floors and not caps else "cap" if caps and not floors else "bound"


def bounds_sentence(cells: Iterable[CellRow], policy: str, proved: bool) -> str:
    """Return for which groups a policy's bounds are certified, refuted and open; empty without bounds.

    `proved`: whether verdicts rest on a proof; otherwise bounds are said to be met or missed.
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
    """Return how much of the evidence needed there is, in per cent."""
    return f"{max(min(evidence / needed, 1.0), 0.0):.0%} of the evidence needed"
