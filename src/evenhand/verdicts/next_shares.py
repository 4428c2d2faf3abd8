"""Shares of the next interval, from the data so far; and whether units were assigned as published.

    shares = next_shares(problem, None, salt="trial-1")            # equal shares for the first interval
    shares = next_shares(problem, "outcomes/*.parquet", shares, volume=100_000)
    sample_ratios(shares, {"young": {"a": 5_040, "b": 4_960}})

The sampling rule picks policies virtually, for the expected number of units of the next interval. Its picks
are pending samples, so they count for the allocation of the picks that follow. The evidence of `judge` is
valid for shares that depend on all earlier data in any way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from evenhand.errors import BadInput, shown
from evenhand.model.argument_checks import is_number, optional, whole_number
from evenhand.model.labels import by_name
from evenhand.model.problem import Problem
from evenhand.model.study_like import problem_of
from evenhand.procedure.assignment import Shares
from evenhand.procedure.compile_spec import compile_spec, with_mixture
from evenhand.procedure.interval_settings import FLOOR, Intervals
from evenhand.procedure.interval_steps import next_allocation, shares_by_name
from evenhand.procedure.spec import Procedure
from evenhand.study import Study
from evenhand.verdicts.read_data import read

PRIOR = 100.0  # strength of the prior of a mismatch test, in units


def next_shares(
    problem: Problem | Study,
    data: Any,
    shares: Shares | None = None,
    *,
    volume: Any = None,
    procedure: Procedure | None = None,
    floor: float = FLOOR,
    salt: str | None = None,
    seed: int = 0,
    valid_from: str | None = None,
    missing: str = "fail",
    columns: dict[str, str] | None = None,
    table: str | None = None,
) -> Shares:
    """Return the shares of every policy in every group for the next interval.

    Parameters
    ----------
    problem : Problem or Study
        The question; a study's own procedure is taken unless another is given.
    data : path, address, frame, dict or None
        All outcomes so far, as `judge` takes them; None before the first interval, for equal shares.
    shares : Shares, optional
        The shares of the interval before; as few units as possible change their policy.
    volume : float, dict or series
        The expected number of units of the next interval, in all or by group.
    procedure : Procedure, optional
        The sampling rule is taken from it; the default procedure unless given.
    floor : float
        The least share of every policy in every group.
    salt : str
        The salt of the first interval.
    seed : int
        The seed of the sampling rule.
    valid_from : str, optional
        The time from which units are assigned by the new shares.
    missing, columns, table
        How data are read, as in `judge`.

    Returns
    -------
    Shares
        The next version of the shares; the same arguments give the same shares.

    Raises
    ------
    BadInput
        If the data cannot be read, or an argument cannot be used.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.5))
    >>> first = eh.next_shares(problem, None, salt="example-1")
    >>> first.share("x", "a")
    0.5
    """
    chosen = optional(procedure, Procedure, "procedure")
    if chosen is None:
        chosen = problem.procedure if isinstance(problem, Study) else Procedure()
    whole_number(seed, "seed", 0)
    # units of a group arrive by themselves; the evidence does not depend on the mode
    problem = replace(problem_of(problem), mode="proportional")
    names = problem.policies
    if not is_number(floor) or not 0 <= floor * len(names) <= 1:
        raise BadInput(
            f"floor must be from 0 to 1/{len(names)}, one part for each policy; it is {shown(floor)}."
        )
    if data is None:
        return _first(problem, shares, salt)
    if not isinstance(shares, Shares):
        raise BadInput(f"shares must be those of the interval before; they are {shown(shares)}.")
    spec = compile_spec(problem, with_mixture(problem, chosen))  # counts have no order
    state = read(problem, data, missing, columns, table).state
    volumes, version = Intervals(volume).volumes(problem), shares.version + 1
    allocation = next_allocation(spec, state, np.zeros(spec.phi.shape), volumes, floor, seed, version)
    return shares.moved(shares_by_name(problem, allocation), valid_from)


def sample_ratios(shares: Shares, counts: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Return, by group, the largest risk at which units were assigned as published.

    A small number, such as below 0.001, is a sample-ratio mismatch: units of some policy are lost, counted
    twice or assigned in another way. Valid at any number of looks at the units of one version of the shares.

    Parameters
    ----------
    shares : Shares
        The published shares.
    counts : dict
        The number of units of every policy, by group, that were assigned by this version.

    Returns
    -------
    dict
        By group, the inverse of the evidence against the published shares, at most 1.

    Raises
    ------
    BadInput
        If a group has no shares, or a number is not a count.

    Examples
    --------
    >>> import evenhand as eh
    >>> shares = eh.Shares.of({"x": {"a": 0.5, "b": 0.5}}, salt="example-1")
    >>> eh.sample_ratios(shares, {"x": {"a": 5_040, "b": 4_960}})["x"] == 1.0
    True
    >>> eh.sample_ratios(shares, {"x": {"a": 5_400, "b": 4_600}})["x"] < 1e-9
    True
    """
    if not isinstance(shares, Shares):
        raise BadInput(f"shares must be the published Shares; they are {shown(shares)}.")
    counts = by_name(counts, "counts") if isinstance(counts, Mapping) else counts
    if not isinstance(counts, Mapping) or not all(isinstance(row, Mapping) for row in counts.values()):
        raise BadInput(f"counts must be given by group and policy; they are {shown(counts)}.")
    return {group: _ratio(shares, group, row) for group, row in counts.items()}


def _ratio(shares: Shares, group: str, row: Mapping[str, int]) -> float:
    """Return 1 / E, E the likelihood of the counts under a Dirichlet prior around the shares, over theirs."""
    evidence, total = 0.0, 0
    for policy, n in row.items():
        whole_number(n, f"the number of units of {policy!r} in {group!r}", 0)
        share = shares.share(group, policy)
        if share == 0.0 and n > 0:
            return 0.0  # impossible under these shares
        if n > 0:
            mass = PRIOR * share
            evidence += math.lgamma(mass + n) - math.lgamma(mass) - n * math.log(share)
        total += n
    evidence += math.lgamma(PRIOR) - math.lgamma(PRIOR + total)
    return math.exp(-max(evidence, 0.0))


def _first(problem: Problem, shares: Shares | None, salt: str | None) -> Shares:
    if shares is not None:
        raise BadInput("data must hold the outcomes under the shares so far; they are None.")
    if salt is None:
        raise BadInput(
            "the first interval needs a salt; pass 8 to 32 letters or digits that cannot be guessed."
        )
    equal = np.full((len(problem.group_names), len(problem.policies)), 1 / len(problem.policies))
    return Shares.of(shares_by_name(problem, equal), salt)
