"""Checks of ticket codes, phase, groups, texts and outcomes that users pass."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, Closed
from evenhand.live.protocol import LIMITS
from evenhand.live.tickets import ticket_code
from evenhand.model.families import BOOLEANS, Family
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


LARGEST = 1e100  # above this, the sum of squares could overflow
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def checked_outcome(value: Any, family: Family) -> float:
    """Return the outcome as a float; refuse what the family cannot produce.

    True and False are 1 and 0.
    """
    if not isinstance(value, (bool, np.bool_, int, float, np.integer, np.floating)):
        raise BadInput(f"outcomes must be {family.outcomes}; {_shown_outcome(value)} is not a number.")
    try:
        outcome = float(value)
    except OverflowError:
        outcome = math.inf
    if not math.isfinite(outcome) or not family.admits(outcome):
        raise BadInput(f"outcomes must be {family.outcomes}; this one is {_shown_outcome(value)}.")
    if outcome == 0.0 and math.copysign(1.0, outcome) < 0.0:
        raise BadInput(
            f"outcomes must be {family.outcomes}; this one is -0.0. Write 0 if that is what was seen."
        )
    if abs(outcome) > LARGEST:
        raise BadInput(
            f"outcomes must not be larger than {LARGEST:g} in size; this one is {_shown_outcome(value)}."
        )
    return outcome


def first_bad(outcomes: NDArray[np.float64], family: Family) -> int | None:
    """Return the index of the first number that `checked_outcome` refuses."""
    minus_zero = (outcomes == 0.0) & np.signbit(outcomes)
    good = np.isfinite(outcomes) & family.admits(outcomes) & (np.abs(outcomes) <= LARGEST) & ~minus_zero
    return None if good.all() else int(np.argmin(good))


def parsed_outcome(text: str, family: Family) -> float:
    """Return the outcome in a field of a file or command line."""
    return checked_outcome(parsed_number(text, family), family)


def parsed_number(text: str, family: Family) -> float:
    """Return the number in a field, whether or not it can be an outcome."""
    stripped = text.strip()
    if stripped.lower() in BOOLEANS:
        return BOOLEANS[stripped.lower()]
    if not _NUMBER.fullmatch(stripped):
        raise BadInput(f"outcomes must be {family.outcomes}; {_shown_outcome(text)} is not a number.")
    return float(stripped)


def _shown_outcome(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
