"""Guard-rails: further outcomes of the same sample, each with a family and a requirement of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.errors import BadInput
from evenhand.model.families import Family
from evenhand.model.requirements import All, Caps, Constraint, Floors

OUTCOME = "outcome"  # the name of the primary outcome where outcomes are given by name
# names of columns and fields beside which a guard-rail's name must stand out
RESERVED = (OUTCOME, "policy", "group", "item", "ticket", "n", "mean", "successes")


@dataclass(frozen=True)
class Guardrail:
    """A further outcome of every sample: its name, its family and the floors or caps that it must meet."""

    name: str
    family: Family
    constraint: Constraint

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise BadInput(f"a guard-rail needs a name; it is {self.name!r}.")
        if self.name in RESERVED:
            raise BadInput(
                f"a guard-rail cannot be called {self.name!r}, which is the name of something else."
            )
        if not isinstance(self.family, Family):
            raise BadInput(f"the guard-rail {self.name!r} needs a family; it has {self.family!r}.")
        for part in _flat(self.constraint):
            if not isinstance(part, (Floors, Caps)):
                raise BadInput(
                    f"a guard-rail takes floors, caps and 'all' of these; {self.name!r} has "
                    f"{getattr(part, 'kind', part)!r}."
                )


def checked_guardrails(guardrails: Any) -> tuple[Guardrail, ...]:
    """Guard-rails with different names."""
    if isinstance(guardrails, Guardrail) or not isinstance(guardrails, Sequence):
        raise BadInput(f"guardrails must be a list of guard-rails; it is {guardrails!r}.")
    for part in guardrails:
        if not isinstance(part, Guardrail):
            raise BadInput(f"guardrails must be a list of guard-rails; it holds {part!r}.")
    names = [part.name for part in guardrails]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise BadInput(f"guard-rails must have different names; {double!r} comes twice.")
    return tuple(guardrails)


def _flat(constraint: Constraint) -> list[Constraint]:
    if isinstance(constraint, All):
        return [part for one in constraint.of for part in _flat(one)]
    return [constraint]
