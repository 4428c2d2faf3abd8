"""Linear bets on the outcomes of an interval: their SQL, and the sums that counts must hold.

With `evidence = "linear-bets"` the tilts of an interval are fixed when the one before it is closed. For
outcomes 0 and 1 the counts give all sums. For others a database computes them, by the SQL of `IntervalBets`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evenhand.errors import BadInput, Conflict
from evenhand.live import events as ev
from evenhand.live.interval_counts import Cells
from evenhand.live.interval_pairs import (
    PairIntervalBets,
    check_pair_logs,
    needs_pair_logs,
    next_pair_bets,
)
from evenhand.live.intervals import IntervalLog
from evenhand.live.protocol import Protocol
from evenhand.procedure.assignment import literal
from evenhand.procedure.evidence.interval_bets import CellSums, bets_on, is_possible, sums_of_ones
from evenhand.procedure.state import State


class Bet(NamedTuple):
    """One bet on the outcomes of a cell, in the units of the user: ln(1 + slope (x - centre))."""

    policy: str
    group: str
    number: int  # position among the logs of the cell, from 0
    slope: float
    centre: float


class IntervalBets(NamedTuple):
    """The bets on the outcomes of the next interval to be closed; `logs` of its counts are their sums.

    Attributes
    ----------
    interval : int
        The number of the interval.
    rows : tuple of Bet
        Policy, group, number, slope and centre of every bet.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bounded(0, 1), mode="proportional")
    >>> procedure = eh.Procedure(evidence="linear-bets", interval=eh.Intervals(volume=100))
    >>> bets = eh.Experiment.create(":memory:", problem, procedure, seed=7).bets()
    >>> bets.interval, len(bets.rows), bets.to_sql("visits").startswith("SELECT")
    (1, 72, True)
    """

    interval: int
    rows: tuple[Bet, ...]

    def to_sql(
        self, table: str, policy: str = "policy", group: str = '"group"', outcome: str = "outcome",
        where: str = "TRUE",
    ) -> str:  # fmt: skip
        """Return a query of policy, group, number and sum of ln(1 + slope (x - centre)) of every bet.

        The arguments are SQL expressions; `where` selects the rows of the interval.
        """
        values = ", ".join(
            f"({literal(bet.policy)}, {literal(bet.group)}, {bet.number}, {bet.slope!r}, {bet.centre!r})"
            for bet in self.rows
        )
        return (
            f"SELECT o.p, o.g, b.number, SUM(LN(1 + b.slope * (o.x - b.centre))) FROM (SELECT {policy} AS p, "
            f"{group} AS g, CAST({outcome} AS DOUBLE PRECISION) AS x FROM {table} WHERE {where}) AS o JOIN "
            "(SELECT p, g, number, CAST(slope AS DOUBLE PRECISION) AS slope, CAST(centre AS DOUBLE "
            f"PRECISION) AS centre FROM (VALUES {values}) AS v(p, g, number, slope, centre)) AS b "
            "ON o.p = b.p AND o.g = b.g GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )


def next_bets(protocol: Protocol, state: State, log: IntervalLog) -> IntervalBets | PairIntervalBets:
    """Return the bets on the next interval to be closed: on outcomes, or on differences of shared units."""
    if protocol.spec.shared_items:
        return next_pair_bets(protocol, state, log.closed + 1)
    if not protocol.spec.linear_bets:
        raise BadInput(
            "the bets of an interval are for evidence = 'linear-bets' or items = 'shared'; the study has "
            "neither."
        )
    family, rows = protocol.problem.family, []
    for k, policy in enumerate(protocol.problem.policies):
        for g, group in enumerate(protocol.problem.group_names):
            slopes, centres = bets_on(protocol.spec, state, k, g)
            pairs = zip((slopes / family.width).tolist(), centres.tolist(), strict=True)
            rows += [
                Bet(policy, group, number, slope, family.low + family.width * centre)
                for number, (slope, centre) in enumerate(pairs)
            ]
    return IntervalBets(log.closed + 1, tuple(rows))


def sums_by_cell(protocol: Protocol, state: State, cells: Cells) -> dict[tuple[int, int], CellSums]:
    """Return the sums that linear bets need, by policy and group."""
    return {
        (protocol.columns[protocol.policies[cell.policy]], protocol.groups[cell.group]): _cell_sums(
            protocol, state, cell
        )
        for cell in cells
    }


def _cell_sums(protocol: Protocol, state: State, cell: ev.CellCounts) -> CellSums:
    """Return the sums of a cell in unit scale; for outcomes 0 and 1 they follow from the counts."""
    k, g = protocol.columns[protocol.policies[cell.policy]], protocol.groups[cell.group]
    low, width = protocol.problem.family.low, protocol.problem.family.width
    n, s = float(cell.n), (cell.sum - cell.n * low) / width
    if not needs_logs(protocol):
        return sums_of_ones(n, s, bets_on(protocol.spec, state, k, g))
    squares = (cell.squares or 0.0) - 2.0 * low * cell.sum + cell.n * low * low
    return CellSums(n, s, squares / width**2, np.array(cell.logs or (), dtype=float))


def needs_logs(protocol: Protocol) -> bool:
    """Return whether counts must hold sums of logarithms: linear bets on outcomes other than 0 and 1."""
    on_outcomes = bool(protocol.spec.linear_bets) and protocol.problem.family.name != "bernoulli"
    return on_outcomes or needs_pair_logs(protocol)


def check_logs(protocol: Protocol, state: State, log: IntervalLog, number: int, cells: Cells) -> None:
    """Refuse counts without the sums that the bets of the interval need, or with impossible ones."""
    shared = bool(protocol.spec.shared_items)
    if shared or not needs_logs(protocol):
        odd = next((cell for cell in cells if cell.logs is not None), None)
        if odd is not None:
            raise BadInput(
                f"logs are for linear bets on outcomes other than 0 and 1; {odd.policy!r} has some."
            )
    if not needs_logs(protocol):
        check_pair_logs(protocol, state, cells)
        return
    if number != log.closed + 1:
        raise Conflict(
            f"the bets of interval {number} are known when interval {number - 1} is closed; the next is "
            f"{log.closed + 1}."
        )
    if shared:
        check_pair_logs(protocol, state, cells)
        return
    for cell in cells:
        k, g = protocol.columns[protocol.policies[cell.policy]], protocol.groups[cell.group]
        bets = bets_on(protocol.spec, state, k, g)
        if cell.squares is None or cell.logs is None:
            raise BadInput(
                f"linear bets need squares and logs of {cell.policy!r} in {cell.group!r}: the sums that the "
                "SQL of `Experiment.bets` returns."
            )
        if not is_possible(_cell_sums(protocol, state, cell), bets):
            raise BadInput(
                f"the logs of {cell.policy!r} in {cell.group!r} must be the {bets.slope.size} sums of the "
                f"bets of interval {number}, over outcomes with this number and sum."
            )
