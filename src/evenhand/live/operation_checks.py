"""Checks shared by the operations: ticket codes, phase, groups and text arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenhand.errors import BadInput, Closed
from evenhand.live.protocol import LIMITS
from evenhand.live.tickets import ticket_code
from evenhand.model.problem import Problem

if TYPE_CHECKING:
    from evenhand.live.projection import Fold


def code(fold: Fold, ticket: int) -> str:
    """Return the ticket code that users see."""
    return ticket_code(fold.protocol.hash, ticket)


def refuse_unless_open(fold: Fold, what: str) -> None:
    """Raise if the experiment is closed or paused."""
    refuse_if_closed(fold, what)
    if fold.paused:
        raise Closed(f"the experiment is paused and cannot {what}; resume it first.")


def refuse_if_closed(fold: Fold, what: str) -> None:
    if fold.closed:
        raise Closed(f"the experiment is closed and cannot {what}.")


def told_group(problem: Problem, asked: int, group: str | None) -> str | None:
    """Return the group to record with an outcome: None if it was known when asking."""
    if problem.mode == "agnostic":
        if group is None:
            raise BadInput("in agnostic mode say with the outcome which group the unit belongs to.")
        problem.group_index(group)
        return group
    if group is not None and problem.group_index(group) != asked:
        raise BadInput(
            f"the ticket is for {problem.group_names[asked]!r}; the outcome is told for {group!r}."
        )
    return None


def checked_text(value: Any, what: str, most: int = LIMITS["text_characters"]) -> str:
    """Return the text; refuse what is empty, too long or cannot be stored."""
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{what} must be some text; it is {value!r}.")
    if len(value) > most:
        raise BadInput(f"{what} may have {most} characters; it has {len(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{what} must be proper Unicode text; it holds half a character.") from None
    return value


def optional_text(value: Any, what: str) -> str | None:
    """Return the checked text, or None for None."""
    return None if value is None else checked_text(value, what, LIMITS["name_characters"])
