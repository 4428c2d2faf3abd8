"""Proposals of an indifference for near ties, with the T* that it would give."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenhand.errors import Undecidable
from evenhand.theory.answers import answers_to
from evenhand.theory.boundary_distance import NEARLY, deviation
from evenhand.theory.modes import Active
from evenhand.theory.question import Question

WORTHWHILE = 0.5  # of T*: an indifference is proposed if the new T* is at most this share
GAP = 1e-3


@dataclass(frozen=True)
class Proposal:
    """An indifference, the acceptable answers with it, and T* in [time_low, time_high]."""

    indifference: float
    acceptable: tuple[str, ...]
    time_low: float
    time_high: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "indifference": self.indifference,
            "acceptable": list(self.acceptable),
            "time_low": self.time_low,
            "time_high": self.time_high,
        }


def propose(asked: Question, mode: Active, time: float) -> Proposal | None:
    """Return an indifference for a near tie with this T*; None if it saves little.

    Twice the largest lead over the rivals that are nearly tied, and no less than what counts as nearly tied,
    rounded up to one digit: the choice between them is then no longer required.
    """
    if asked.indifference > 0.0 or asked.answer is None:
        return None
    wanted = 0.0
    for k in np.nonzero(asked.allowed)[0].tolist():
        near = NEARLY * deviation(asked, asked.answer, k)
        lead = asked.lead(asked.answer, k)
        if k != asked.answer and lead < near:
            wanted = max(wanted, 2.0 * lead, near)
    if wanted == 0.0:
        return None
    eps = _rounded_up(wanted * asked.problem.family.width)
    other = replace(asked, indifference=eps)
    try:
        found = answers_to(other, mode, GAP)
    except Undecidable:
        return None
    if not found.time.high <= WORTHWHILE * time:
        return None
    names = tuple(asked.problem.policies[i] for i in found.acceptable if i is not None)
    return Proposal(eps, names, found.time.low, found.time.high)


def _rounded_up(number: float) -> float:
    """Return the next larger number with one significant digit."""
    exponent = math.floor(math.log10(number))
    digit = math.ceil(number / 10.0**exponent - 1e-9)
    return round(digit * 10.0**exponent, -exponent)
