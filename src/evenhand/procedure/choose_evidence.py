"""Which evidence compares overall means: the one that a procedure names, or the default for the problem.

A recorded study without the key (the first event of a journal, saved runs) was written where the default was
the mixture, so it keeps it: `recorded` names the mixture where the default is now another. `settled` names a
default other than the mixture, so that what is recorded from now on says which evidence it uses.
"""

from __future__ import annotations

from dataclasses import replace

from evenhand.model.problem import Problem
from evenhand.model.region import PENALTY
from evenhand.procedure.evidence.linear_bets import TILTS
from evenhand.procedure.spec import (
    BY_EVIDENCE,
    LINEAR_BETS,
    LINEAR_FAMILIES,
    LINEAR_POLICIES,
    MIXTURE,
    Procedure,
)

MOST_BETS = 2_000_000  # numbers in a state, 16 MB: with more the mixture is the default


def evidence_of(problem: Problem, procedure: Procedure) -> str:
    """Return the evidence that compares overall means in this procedure.

    By default linear bets for outcomes that come one by one, if they are bounded, or Gaussian of known sd in
    a mode where the rule cannot choose the group; and the mixture otherwise. The measurements are in
    `docs/decisions/linear-bets.md`.
    """
    if procedure.evidence is not None:
        return procedure.evidence
    name = problem.family.name
    gains = name == "bounded" or (name == "gaussian" and problem.mode != "active")
    policies, groups = problem.shape
    gains = gains and procedure.interval is None and 2 * TILTS * 2 * policies**2 * groups <= MOST_BETS
    usable = procedure.stopping_name in BY_EVIDENCE and why_not_linear(problem) is None
    return LINEAR_BETS if gains and usable else MIXTURE


def why_not_linear(problem: Problem) -> str | None:
    """Return why linear bets do not serve this problem, or None where they do."""
    if problem.family.name not in LINEAR_FAMILIES:
        return f"is for the families {', '.join(LINEAR_FAMILIES)}; the family is {problem.family.name!r}"
    if problem.standard.region.kind == PENALTY:
        return "does not support penalties"
    if problem.max_policies is not None:
        return "does not support max_policies: its bets on a pair begin with the first outcome of both"
    if problem.shape[0] > LINEAR_POLICIES:
        return f"supports up to {LINEAR_POLICIES} policies; there are {problem.shape[0]}"
    return None


def settled(problem: Problem, procedure: Procedure) -> Procedure:
    """Return the procedure with its evidence named, where that is not what `recorded` adds."""
    chosen = evidence_of(problem, procedure)
    return procedure if chosen == MIXTURE else replace(procedure, evidence=chosen)


def recorded(problem: Problem, procedure: Procedure) -> Procedure:
    """Return the procedure of a recorded study; where it names no evidence, the mixture was the default."""
    return procedure if procedure.evidence is not None else with_mixture(problem, procedure)


def with_mixture(problem: Problem, procedure: Procedure) -> Procedure:
    """Return the procedure with the mixture, named only where it is not the default."""
    plain = replace(procedure, evidence=None)
    return plain if evidence_of(problem, plain) == MIXTURE else replace(procedure, evidence=MIXTURE)
