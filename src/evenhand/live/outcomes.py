"""Validation of outcomes for the Python API, the command line, files and the service."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput
from evenhand.model.families import BOOLEANS, Family

LARGEST = 1e100  # above this, the sum of squares could overflow
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def checked_outcome(value: Any, family: Family) -> float:
    """Return the outcome as a float; refuse what the family cannot produce.

    True and False are 1 and 0.
    """
    if not isinstance(value, (bool, np.bool_, int, float, np.integer, np.floating)):
        raise BadInput(f"outcomes must be {family.outcomes}; {_shown(value)} is not a number.")
    try:
        outcome = float(value)
    except OverflowError:
        outcome = math.inf
    if not math.isfinite(outcome) or not family.admits(outcome):
        raise BadInput(f"outcomes must be {family.outcomes}; this one is {_shown(value)}.")
    if outcome == 0.0 and math.copysign(1.0, outcome) < 0.0:
        raise BadInput(
            f"outcomes must be {family.outcomes}; this one is -0.0. Write 0 if that is what was seen."
        )
    if abs(outcome) > LARGEST:
        raise BadInput(f"outcomes must not be larger than {LARGEST:g} in size; this one is {_shown(value)}.")
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
        raise BadInput(f"outcomes must be {family.outcomes}; {_shown(text)} is not a number.")
    return float(stripped)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
