"""Guard-rails: further outcomes of the same sample, each with a family and a requirement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.errors import BadInput, shown
from evenhand.model.argument_checks import as_python_numbers
from evenhand.model.families import Family
from evenhand.model.requirements import All, Caps, Constraint, Floors

OUTCOME = "outcome"  # the name of the primary outcome where outcomes are given by name
# names of columns and fields that a guard-rail must not have
RESERVED = (OUTCOME, "policy", "group", "item", "ticket", "n", "mean", "successes")


@dataclass(frozen=True)
class Guardrail:
    """A further outcome of every sample, with floors or caps that its means must meet.

    Parameters
    ----------
    name : str
        The name of the outcome; not the name of a column such as "policy" or "outcome".
    family : Family
        The family of its outcomes.
    constraint : Floors, Caps or All of these
        The requirement on its means.

    Raises
    ------
    BadInput
        If the name is reserved or empty, or the requirement is of another kind.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Guardrail("complaints", eh.Poisson(), eh.Caps(1.5)).constraint.describe()
    'stay at or below 1.5 in every group'
    """

    name: str
    family: Family
    constraint: Constraint

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise BadInput(f"a guard-rail needs a name; it is {shown(self.name)}.")
        as_python_numbers(self, "name")
        if self.name in RESERVED:
            raise BadInput(
                f"a guard-rail cannot be called {shown(self.name)}, which is the name of something else."
            )
        if not isinstance(self.family, Family):
            raise BadInput(f"the guard-rail {shown(self.name)} needs a family; it has {shown(self.family)}.")
        for part in flat_requirements(self.constraint):
            if not isinstance(part, (Floors, Caps)):
                raise BadInput(
                    f"a guard-rail takes floors, caps and 'all' of these; {shown(self.name)} has "
                    f"{shown(getattr(part, 'kind', part))}."
                )


def checked_guardrails(guardrails: Any) -> tuple[Guardrail, ...]:
    """Return guard-rails, with different names."""
    if isinstance(guardrails, Guardrail) or not isinstance(guardrails, Sequence):
        raise BadInput(f"guardrails must be a list of guard-rails; it is {shown(guardrails)}.")
    for part in guardrails:
        if not isinstance(part, Guardrail):
            raise BadInput(f"guardrails must be a list of guard-rails; it holds {shown(part)}.")
    names = [part.name for part in guardrails]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise BadInput(f"guard-rails must have different names; {double!r} comes twice.")
    taken = next((name for name in names if name.endswith(" n") and name[:-2] in names), None)
    if taken is not None:
        raise BadInput(
            f"a guard-rail cannot be called {taken!r}: that column has the number of outcomes of "
            f"{taken[:-2]!r}."
        )
    return tuple(guardrails)


def flat_requirements(constraint: Constraint) -> list[Constraint]:
    """Return the parts of a requirement that are not `All` of others."""
    if isinstance(constraint, All):
        return [part for one in constraint.of for part in flat_requirements(one)]
    return [constraint]
