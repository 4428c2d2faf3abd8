"""Which cells of a large problem a figure has: the policies ranked first, in the groups that matter most.

A figure with thousands of rows is neither read nor drawn in time. The table of a report has every cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from evenhand.model.result_rows import CellRow, PolicyRow

MOST_CELLS = 80  # in one figure
FEWEST_GROUPS, FEWEST_POLICIES = 8, 3  # drawn even if there are many of the other
Row = TypeVar("Row")


class Drawn(NamedTuple):
    """The policies and groups of a figure, and a sentence on what is left out; "" if nothing is."""

    policies: frozenset[str]
    groups: frozenset[str]
    note: str

    def of(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows of cells that are drawn."""
        return [row for row in rows if row.policy in self.policies and row.group in self.groups]  # type: ignore[attr-defined]


def drawn_cells(policies: Sequence[str], groups: Sequence[str], which: str) -> Drawn:
    """Return what is drawn of these policies and groups, both the most important first.

    `which` says how the groups were ordered, as in "the groups nearest to their bounds".
    """
    k, g = len(policies), len(groups)
    if k * g > MOST_CELLS:
        g = min(g, max(FEWEST_GROUPS, MOST_CELLS // k))
        k = min(k, max(FEWEST_POLICIES, MOST_CELLS // g))
    left_out = [f"the {k} policies ranked first of {len(policies)}"] if k < len(policies) else []
    left_out += [f"{g} of {len(groups)} groups, {which}"] if g < len(groups) else []
    note = f" Drawn are {' and '.join(left_out)}; the numbers have all cells." if left_out else ""
    return Drawn(frozenset(policies[:k]), frozenset(groups[:g]), note)


def drawn_estimates(cells: Sequence[CellRow], standings: Sequence[PolicyRow]) -> Drawn:
    """Return the estimates that a figure has: leader and control first, groups by the leader's margin."""
    ranked = [row.policy for row in sorted(standings, key=lambda row: (not row.leads, row.place))]
    controls = dict.fromkeys(bound.control for cell in cells for bound in cell.relative if bound is not None)
    policies = list(dict.fromkeys([*ranked[:1], *controls, *ranked, *(cell.policy for cell in cells)]))
    first = [cell for cell in cells if cell.policy == (policies or [""])[0]]
    groups = [cell.group for cell in sorted(first, key=_margin)]
    highest = max(first, key=lambda cell: -1e300 if cell.mean is None else cell.mean, default=None)
    if highest is not None:  # the distance between groups is that of the extremes
        groups = list(dict.fromkeys([*groups[:1], highest.group, *groups]))
    return drawn_cells(policies, groups, "those nearest to their bounds")


def _margin(cell: CellRow) -> tuple[bool, float]:
    """Return how far a cell is above its floor or below its cap; cells without an estimate come last."""
    if cell.mean is None:
        return True, 0.0
    if cell.floor is None and cell.cap is not None:
        return False, cell.cap - cell.mean
    return False, cell.mean - (cell.floor or 0.0)
