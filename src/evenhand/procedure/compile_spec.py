"""The specification of a procedure for the kernels, made from a problem and a procedure.

The procedure names the evidence that compares overall means, or the default for the problem is used. A
recorded study without the key (the first event of a journal, saved runs) was written where the default was
the mixture, so it keeps it: `recorded` names the mixture where the default is now another. `settled` names a
default other than the mixture, so that what is recorded from now on says which evidence it uses.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from evenhand.errors import BadInput
from evenhand.model.families import GaussianUnknown
from evenhand.model.problem import MODES, NEVER_ARRIVES, Problem
from evenhand.model.region import BOX, CUSTOM, PENALTY, RELATIVE, Region
from evenhand.procedure.evidence.linear_bets import TILTS
from evenhand.procedure.guardrail_spec import compile_guardrails
from evenhand.procedure.initial_samples import initial_table, rounds_of
from evenhand.procedure.interval_settings import check_intervals
from evenhand.procedure.item_settings import check_shared_items
from evenhand.procedure.spec import (
    ACTIVE,
    BY_EVIDENCE,
    EVIDENCE_VERSION,
    LINEAR_BETS,
    LINEAR_FAMILIES,
    LINEAR_POLICIES,
    MANY,
    MIXTURE,
    MOST_BETS,
    SAMPLING,
    SCREENING,
    STOPPING,
    UNPROVEN,
    Budget,
    Calibrated,
    Procedure,
    Spec,
    TrackAndStop,
    is_unproven,
)


def compile_spec(
    problem: Problem, procedure: Procedure, weights: ArrayLike | None = None, *, recorded: bool = False
) -> Spec:
    """Compile problem and procedure for the kernels; `weights` (K x L) are for the oracle rule.

    `recorded`: the specification of an existing experiment, whose log must stay readable even where the rule
    has no proof.
    """
    if is_unproven(problem, procedure) and not recorded:
        raise BadInput(UNPROVEN)
    _refuse_what_does_not_go_together(problem, procedure)
    standard = problem.standard
    groups, policies = standard.phi.shape
    follow = (
        np.zeros((groups, policies))
        if weights is None
        else np.ascontiguousarray(np.asarray(weights, dtype=float).T)
    )
    track = procedure.sampling if isinstance(procedure.sampling, TrackAndStop) else TrackAndStop()
    budget = procedure.stopping.samples if isinstance(procedure.stopping, Budget) else procedure.max_samples
    initial = initial_table(procedure.initial, problem)
    rounds = rounds_of(initial)
    linear = evidence_of(problem, procedure) == LINEAR_BETS
    return Spec(
        code=standard.code,
        shares=standard.shares,
        phi=standard.phi,
        region=standard.region,
        mode=MODES.index(problem.mode),
        arrivals=problem.arrival_shares,
        unknown_variance=isinstance(problem.family, GaussianUnknown),
        sampling=SAMPLING.index(procedure.sampling_name),
        stopping=STOPPING.index(procedure.stopping_name),
        delta=float(procedure.delta),
        initial=initial,
        initial_total=rounds.total,
        initial_levels=rounds.levels,
        initial_cells=rounds.cells,
        random_order=procedure.initial_order == "random",
        uneven=bool(np.ptp(initial) > 0),
        batch=int(procedure.batch),
        cap=int(min(budget, procedure.max_samples)),
        level=procedure.stopping.threshold if isinstance(procedure.stopping, Calibrated) else float(budget),
        leader=float(procedure.leader),
        step=float(track.step),
        steps=int(track.steps),
        diminishing=bool(track.diminishing),
        c_tracking=procedure.tracking == "c",
        weights=follow,
        evidence=EVIDENCE_VERSION,
        indifference=problem.check_indifference(procedure.indifference) / problem.family.width,
        kept=problem.loosened(procedure.tolerance),
        costs=np.ascontiguousarray(problem.sampling_costs.T),
        has_costs=bool(np.ptp(problem.sampling_costs) > 0),
        screens=problem.goal == "screen",
        futility=procedure.futility or 0.0,
        has_futility=procedure.futility is not None,
        several=procedure.indifference > 0 or bool(procedure.tolerance),
        guardrails=compile_guardrails(problem),
        wrong_statements=float(wrong_statements(problem)),
        many=policies > MANY,
        linear_bets=linear,
        shared_items=procedure.items is not None,
        bounded=(linear or (procedure.items is not None and procedure.interval is None))
        and problem.family.name == "bounded",
    )


def _refuse_what_does_not_go_together(problem: Problem, procedure: Procedure) -> None:
    """Refuse a procedure that does not serve this problem."""
    if problem.goal == "screen" and procedure.sampling_name not in SCREENING:
        raise BadInput(
            f'goal = "screen" is sampled by {", ".join(SCREENING)}; the sampling is '
            f"{procedure.sampling_name!r}."
        )
    _refuse_where_bets_are_not_linear(problem, procedure)
    check_intervals(problem, procedure)
    check_shared_items(problem, procedure)
    if problem.standard.region.kind == CUSTOM:
        raise BadInput(
            "a convex set of your own is solved by cvxpy and cannot enter the compiled procedures; "
            "use plan, or write it as a polyhedron, dispersion or 'all' of these."
        )


def _refuse_where_bets_are_not_linear(problem: Problem, procedure: Procedure) -> None:
    """Refuse linear bets where they do not serve: other families, penalties, too many policies."""
    why = why_not_linear(problem) if procedure.evidence == LINEAR_BETS else None
    if why is not None:
        raise BadInput(f"evidence 'linear-bets' {why}. Leave evidence out.")
    in_intervals = procedure.evidence == LINEAR_BETS and procedure.interval is not None
    if in_intervals and problem.family.name == "gaussian":
        raise BadInput(
            "evidence 'linear-bets' does not support intervals of gaussian outcomes; leave evidence out."
        )


def refuse_linear_bets(procedure: Procedure, what: str) -> None:
    """Refuse linear bets where outcomes of different policies may be on the same item."""
    if procedure.evidence == LINEAR_BETS:
        raise BadInput(
            f"{what} does not support evidence 'linear-bets': its bets assume that no item is shared. Leave "
            "evidence out."
        )


def wrong_statements(problem: Problem) -> int:
    """Return the number of wrong statements that share the risk; the threshold is ln(this / delta).

    Of K policies and "none", K answers are wrong; where no policy can fail, "none" is not an answer. Where
    policies may join and leave, M = max_policies: there is one statement "k is ahead of i" for each ordered
    pair and one about the requirement of each policy, M^2 in all (M if policies are only classified). Bounds
    relative to a control add one for each of them and each policy but the control: which of them a policy
    that joins violates may depend on the outcomes of the control.
    """
    policies, most = len(problem.policies), problem.max_policies
    if most is not None:
        conditions = sum(_relative_bounds(one.region) for one in problem.standards)
        return (most if problem.goal == "screen" else most * most) + (most - 1) * conditions
    region = problem.standard.region
    bounded = bool(np.any(region.lo[:, 0] > -np.inf) or np.any(region.hi[:, 0] < np.inf))
    can_fail = region.kind not in (BOX, PENALTY) or (region.kind == BOX and bounded)
    return policies if can_fail or problem.guardrails else policies - 1


def _relative_bounds(region: Region) -> int:
    """Return the number of bounds relative to the control that each other policy has."""
    if region.kind != RELATIVE:
        return 0
    return int(np.isfinite(region.floor_margin).sum() + np.isfinite(region.cap_margin).sum())


def check_start(spec: Spec) -> None:
    """Refuse a cap that ends a run before every cell has its initial samples."""
    if spec.mode != ACTIVE and not np.all(spec.arrivals > 0):
        raise BadInput(NEVER_ARRIVES)
    least = spec.initial_total if spec.mode == ACTIVE else spec.phi.size
    if spec.cap < least:
        raise BadInput(
            f"the budget or max_samples must cover the initial samples of all cells, {least}; "
            f"it is {spec.cap}."
        )


def evidence_of(problem: Problem, procedure: Procedure) -> str:
    """Return the evidence that compares overall means in this procedure.

    By default linear bets for outcomes that come one by one, if they are bounded, or Gaussian of known sd in
    a mode where the rule cannot choose the group; and the mixture otherwise. The measurements are in
    `docs/decisions/linear-bets.md`.
    """
    if procedure.evidence is not None:
        return procedure.evidence
    if procedure.items is not None:
        return MIXTURE  # of single policies; `item_evidence` compares them
    name = problem.family.name
    gains = name == "bounded" or (name == "gaussian" and problem.mode != "active")
    return LINEAR_BETS if gains and procedure.interval is None and _is_linear(problem, procedure) else MIXTURE


def _is_linear(problem: Problem, procedure: Procedure) -> bool:
    """Return whether linear bets serve this problem and stopping rule, and their numbers are not too many."""
    policies, groups = problem.shape
    usable = procedure.stopping_name in BY_EVIDENCE and why_not_linear(problem) is None
    return usable and 2 * TILTS * 2 * policies**2 * groups <= MOST_BETS


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


def with_linear_bets(problem: Problem, procedure: Procedure) -> Procedure:
    """Return the procedure for outcomes that no rule chose, in their order: linear bets where they serve.

    The mixture stays where the procedure names it.
    """
    plain = replace(procedure, items=None)
    if plain.evidence == MIXTURE or not _is_linear(problem, plain):
        return with_mixture(problem, plain)
    return replace(plain, evidence=LINEAR_BETS, interval=None)  # outcomes came one by one
