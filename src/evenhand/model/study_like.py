"""A problem, or a study that holds one: what the public functions take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import ArrayLike

from evenhand.errors import BadInput, shown
from evenhand.model.problem import Problem


class StudyLike(Protocol):
    """What `plan` needs of a study; studies themselves are defined in a layer above."""

    @property
    def problem(self) -> Problem: ...

    @property
    def procedure(self) -> Any: ...

    def means(self) -> ArrayLike: ...

    def guardrail_means(self) -> Mapping[str, Any] | None: ...


def problem_of(given: Any) -> Problem:
    """Return the problem itself, or the one that a study holds."""
    found = getattr(given, "problem", given)
    if not isinstance(found, Problem):
        raise BadInput(f"problem must be a Problem or a Study; it is {shown(given)}.")
    return found
