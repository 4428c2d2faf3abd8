"""Checks of recorded answers: a repeated request gets them, so they must be answers that a writer gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evenhand.errors import EvenhandError
from evenhand.live.hash_chain import Difference
from evenhand.live.input_checks import checked_outcome
from evenhand.live.item_tickets import checked_item
from evenhand.live.projection import Place
from evenhand.live.protocol import Protocol
from evenhand.live.tickets import ticket_number

CellOf = Callable[[int], Place | None]

REASONS = (None, "stopped", "closed", "expired", "dropped", "withdrawn")  # why an outcome does not count
ASK, ITEM_ASK, RECEIPT, INTERVAL_RECEIPT = 3, 4, 4, 5  # number of fields


def check_answer(seq: int, answer: list[Any] | None, protocol: Protocol, cell_of: CellOf) -> None:
    """Refuse an answer that no writer gives: not an ask or a receipt, or of a ticket that does not exist."""
    rows = answer or []
    if rows and not isinstance(rows[0], list):
        rows = [rows]
    for row in rows:
        if not _is_given(row, protocol, cell_of):
            raise Difference(seq, f"holds an answer that no writer gives: {str(row)[:80]}.")


def _is_given(row: Any, protocol: Protocol, cell_of: CellOf) -> bool:
    if not isinstance(row, list):
        return False
    if len(row) == INTERVAL_RECEIPT:
        return [type(field) for field in row[:4]] == [int, int, bool, bool] and row[4] in REASONS[:3]
    try:
        cell = cell_of(ticket_number(protocol.hash, row[0])) if row else None
        if cell is None:
            return False
        if protocol.spec.shared_items:
            return _is_about_item(row, protocol, cell)
        if len(row) == ASK:
            return _is_ask(row[1], row[2], protocol, cell)
        checked_outcome(row[1], protocol.problem.family)
    except EvenhandError:
        return False
    return len(row) == RECEIPT and isinstance(row[2], bool) and row[3] in REASONS


def _is_about_item(row: list[Any], protocol: Protocol, cell: Place) -> bool:
    """Return whether this is an ask for a shared item of this group, or the receipt of its outcomes."""
    if len(row) == ITEM_ASK and row[1] == "":
        names = row[3] if isinstance(row[3], list) else []
        group = protocol.groups.get(row[2]) if isinstance(row[2], str) else None
        known = all(isinstance(name, str) and name in protocol.policies for name in names)
        return group == cell[1] and bool(names) and known
    checked_item(row[1] if len(row) == RECEIPT else None, protocol.problem)
    return isinstance(row[2], bool) and row[3] in REASONS


def _is_ask(policy: Any, group: Any, protocol: Protocol, cell: Place) -> bool:
    """Return whether these are the names of the cell of a ticket."""
    number = protocol.policies.get(policy) if isinstance(policy, str) else None
    if number != cell[0]:
        return False
    if protocol.problem.mode == "agnostic":  # the group was not known when asking
        return group is None
    return isinstance(group, str) and protocol.groups.get(group) == cell[1]
