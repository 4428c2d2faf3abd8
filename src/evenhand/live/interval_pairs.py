"""Differences of policies on shared units: the SQL that sums them, and the sums that counts must hold.

With `items = "shared"` every policy serves every unit of an interval. Counts then have a row for every pair
of policies in every group, beside those of cells:

    {"policy": "a", "other": "b", "group": "young", "n": 200, "sum": 12, "squares": 60}

has the sum and the sum of squares of the differences a - b. For outcomes 0 and 1 that is all; for others
`logs` has the sums of the bets, which the SQL of `PairIntervalBets` computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import msgspec
import numpy as np

from evenhand.errors import BadInput, nearest, shown
from evenhand.live.events import CellCounts, PairCounts
from evenhand.live.interval_counts import (
    DISCRETE,
    ROUNDING,
    Cells,
    checked_cells,
    count_of,
    logs_of,
    number_of,
    plain,
    rows_of,
)
from evenhand.live.protocol import Protocol
from evenhand.model.families import Family
from evenhand.model.problem import Problem
from evenhand.procedure.assignment import literal
from evenhand.procedure.evidence.interval_pairs import (
    PairBets,
    PairSums,
    Place,
    add_pairs,
    are_possible,
    bets_on_pairs,
    blocks_in,
    sums_of_signs,
)
from evenhand.procedure.state import State

KEYS = ("policy", "other", "group", "n", "sum", "squares", "logs")


class PairBet(NamedTuple):
    """One bet on the differences of two policies in a group, in the units of the user."""

    policy: str
    other: str
    group: str
    number: int  # position among the logs of the pair, from 0
    slope: float
    centre: float


class PairIntervalBets(NamedTuple):
    """The bets on the next interval to be closed, where every policy serves every unit.

    Attributes
    ----------
    interval : int
        The number of the interval.
    rows : tuple of PairBet
        Policy, other policy, group, number, slope and centre of every bet.
    needed : bool
        Whether counts must hold their sums: not for outcomes 0 and 1, where the counts give them.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bounded(0, 1), mode="proportional")
    >>> procedure = eh.Procedure(items="shared", interval=eh.Intervals(volume=100))
    >>> bets = eh.Experiment.create(":memory:", problem, procedure, seed=7).bets()
    >>> bets.interval, len(bets.rows), bets.to_sql("scores").startswith("SELECT")
    (1, 20, True)
    """

    interval: int
    rows: tuple[PairBet, ...]
    needed: bool

    def to_sql(
        self, table: str, unit: str = "unit", policy: str = "policy", group: str = '"group"',
        outcome: str = "outcome", where: str = "TRUE",
    ) -> str:  # fmt: skip
        """Return a query of policy, other policy, group, number of the bet, n, sum, squares and its sum.

        The arguments are SQL expressions; `where` selects the rows of the interval. `counts` makes rows for
        `tell_counts` of the result.
        """
        units = (
            f"(SELECT {unit} AS u, {policy} AS p, {group} AS g, CAST({outcome} AS DOUBLE PRECISION) AS x "
            f"FROM {table} WHERE {where})"
        )
        return pairs_sql(units, self.rows if self.needed else _without_bets(self.rows))

    def counts(self, rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
        """Return the rows of the query as rows of counts."""
        found: dict[tuple[str, str, str], dict[str, Any]] = {}
        for policy, other, group, _number, n, total, squares, log in rows:
            row = {"policy": policy, "other": other, "group": group, "n": int(n)}
            row |= {"sum": float(total), "squares": float(squares)} | ({"logs": []} if self.needed else {})
            kept = found.setdefault((policy, other, group), row)
            if self.needed:
                kept["logs"].append(float(log))
        return list(found.values())


def pairs_sql(units: str, bets: Sequence[PairBet]) -> str:
    """Return the self-join of `units`, a query of u, p, g and x, with the bets, in the order of the bets."""
    values = ", ".join(
        f"({literal(bet.policy)}, {literal(bet.other)}, {literal(bet.group)}, {bet.number}, {bet.slope!r}, "
        f"{bet.centre!r})"
        for bet in bets
    )
    return (
        "SELECT d.i, d.k, d.g, b.number, COUNT(*), SUM(d.x), SUM(d.x * d.x), "
        "SUM(LN(1 + b.slope * (d.x - b.centre))) FROM (SELECT one.p AS i, two.p AS k, one.g AS g, "
        f"one.x - two.x AS x FROM {units} AS one JOIN {units} AS two "
        "ON one.u = two.u AND one.g = two.g AND one.p <> two.p) AS d JOIN (SELECT i, k, g, number, "
        "CAST(slope AS DOUBLE PRECISION) AS slope, CAST(centre AS DOUBLE PRECISION) AS centre "
        f"FROM (VALUES {values}) AS v(i, k, g, number, slope, centre)) AS b "
        "ON b.i = d.i AND b.k = d.k AND b.g = d.g GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
    )


def _without_bets(rows: Sequence[PairBet]) -> list[PairBet]:
    """Return one row per pair and group that bets nothing."""
    return [bet._replace(slope=0.0, centre=0.0) for bet in rows if bet.number == 0]


def next_pair_bets(protocol: Protocol, state: State, interval: int) -> PairIntervalBets:
    """Return the bets on the differences of the next interval to be closed."""
    problem, width = protocol.problem, protocol.problem.family.width
    rows = [
        PairBet(problem.policies[i], problem.policies[k], problem.group_names[g], number, slope, centre)
        for ((i, k), g), bets in bets_on_pairs(blocks_in(protocol.spec, state)).items()
        for number, (slope, centre) in enumerate(
            (slope / width, bets.centre * width) for slope in bets.slope.tolist()
        )
    ]
    return PairIntervalBets(interval, tuple(rows), needs_pair_logs(protocol))


def needs_pair_logs(protocol: Protocol) -> bool:
    """Return whether counts must hold sums of logarithms of pairs: shared units, outcomes not 0 and 1."""
    return bool(protocol.spec.shared_items) and protocol.problem.family.name != "bernoulli"


def counts_of(counts: Any, protocol: Protocol, policies: Sequence[str]) -> Cells:
    """Return the counts of all cells with outcomes, with their pairs where units are shared.

    `policies` are those that the shares of the interval name.
    """
    rows = list(rows_of(counts))
    pairs = [(place, row) for place, row in rows if row.get("other") is not None]
    alone = [(place, row) for place, row in rows if row.get("other") is None]
    if pairs and not protocol.spec.shared_items:
        raise BadInput(
            f"{pairs[0][0]}: a row with 'other' is about units that every policy serves, and the study does "
            "not say items = 'shared'; leave it out."
        )
    problem = protocol.study.problem
    cells = checked_cells(alone, problem, policies)
    return _with_pairs(cells, pairs, problem, policies) if protocol.spec.shared_items else cells


def check_cells(cells: Cells, protocol: Protocol, policies: Sequence[str]) -> None:
    """Refuse cells of an event that `counts_of` cannot have returned."""
    rows = [row for cell in cells for row in (plain(cell), *_plain_pairs(cell))]
    if counts_of(rows, protocol, policies) != cells:
        raise BadInput("cells must come in the order of the study, without empty ones.")


def _plain_pairs(cell: CellCounts) -> list[dict[str, Any]]:
    """Return the pairs of a cell as rows."""
    place = {"policy": cell.policy, "group": cell.group, "n": cell.n}
    return [
        place | {"other": other, **msgspec.to_builtins(pair)} for other, pair in (cell.pairs or {}).items()
    ]


def _with_pairs(
    cells: Cells, rows: Sequence[tuple[str, Mapping[str, Any]]], problem: Problem, policies: Sequence[str]
) -> Cells:
    """Return the cells with the differences of all pairs; refuse units that some policy did not serve."""
    found: dict[tuple[str, str, str], tuple[int, PairCounts]] = {}
    for place, row in rows:
        try:
            pair, number, given = _pair(row, problem, policies)
        except BadInput as error:
            raise BadInput(f"{place}: {error}") from None
        if pair in found:
            raise BadInput(
                f"{place}: every pair may come once in a group; {pair[0]!r} and {pair[1]!r} come twice in "
                f"{pair[2]!r}."
            )
        found[pair] = number, given
    by_cell = {(cell.policy, cell.group): cell for cell in cells}
    pairs: dict[tuple[str, str], dict[str, PairCounts]] = {}
    for group in problem.group_names:
        for one, two in combinations(policies, 2):
            first, second = by_cell.get((one, group)), by_cell.get((two, group))
            n, sums = found.get((one, two, group), (0, None))
            sizes = (0 if first is None else first.n, 0 if second is None else second.n)
            if not sizes[0] == sizes[1] == n:
                raise BadInput(not_served(group, one, two, *sizes, n))
            if first is not None and second is not None and sums is not None:
                _check_pair(sums, first, second, problem.family)
                pairs.setdefault((one, group), {})[two] = sums
    return tuple(msgspec.structs.replace(cell, pairs=pairs.get((cell.policy, cell.group))) for cell in cells)


def not_served(group: str, one: str, two: str, first: float, second: float, both: float) -> str:
    """Return the refusal of an interval in which not every policy served every unit."""
    return (
        f"every policy must serve every unit of an interval; in {group!r} {one!r} served {first:,.0f}, "
        f"{two!r} {second:,.0f}, and both {both:,.0f} of them."
    )


def _pair(
    row: Mapping[str, Any], problem: Problem, policies: Sequence[str]
) -> tuple[tuple[str, str, str], int, PairCounts]:
    """Return policy, other policy and group of a row, in the order of the study, its number and its sums."""
    odd = next((key for key in row if key not in KEYS), None)
    if odd is not None:
        raise BadInput(f"unknown key {shown(odd)}{nearest(str(odd), KEYS)}")
    names = row.get("policy"), row.get("other")
    for name in names:
        if not isinstance(name, str) or name not in policies:
            raise BadInput(
                f"the shares of this interval have no policy {shown(name)}{nearest(str(name), policies)}"
            )
    if names[0] == names[1]:
        raise BadInput(f"a pair must be of two policies; both are {names[0]!r}.")
    group = row.get("group")
    if not isinstance(group, str):
        raise BadInput(f"a pair must name its group; it is {shown(group)}.")
    problem.group_index(group)
    n = count_of(row.get("n"), "n")
    total, squares = number_of(row.get("sum"), "sum"), number_of(row.get("squares"), "squares")
    logs = logs_of(row.get("logs"))
    one, two = str(names[0]), str(names[1])
    if policies.index(one) < policies.index(two):
        return (one, two, group), n, PairCounts(total, squares, logs)
    if logs is not None:
        raise BadInput(
            f"logs are of the pair {two!r}, {one!r}, in the order of the study; swap the policies."
        )
    return (two, one, group), n, PairCounts(-total + 0.0, squares)


def _check_pair(pair: PairCounts, first: CellCounts, second: CellCounts, family: Family) -> None:
    """Refuse sums of differences that the outcomes of the two cells cannot have."""
    where = f"of {first.policy!r} and {second.policy!r} in {first.group!r}"
    n, apart = first.n, first.sum - second.sum
    whole = family.name in DISCRETE
    slack = 0.0 if whole else ROUNDING * max(1.0, abs(first.sum), abs(second.sum), n * family.width)
    if abs(pair.sum - apart) > slack:
        raise BadInput(
            f"the differences {where} must sum to the difference of their sums, {apart:.12g}; they sum to "
            f"{pair.sum:.12g}."
        )
    least, most = pair.sum**2 / n, n * family.width**2
    if family.name == "bernoulli":
        # at least the difference; at most all units on which they may differ
        ones = first.sum + second.sum
        least, most = abs(pair.sum), min(ones, 2.0 * n - ones)
    slack = ROUNDING * (1.0 + most) if not whole else 0.0
    odd = whole and (
        not pair.squares.is_integer()
        or (family.name == "bernoulli" and (pair.squares - pair.sum) % 2.0 != 0.0)
    )
    if odd or not least - slack <= pair.squares <= most + slack:
        raise BadInput(
            f"{n:,} differences {where} with sum {pair.sum:.12g} cannot have the sum of squares "
            f"{pair.squares:.12g}."
        )


def check_pair_logs(protocol: Protocol, state: State, cells: Cells) -> None:
    """Refuse pairs without the sums that the bets of the interval need, or with impossible ones."""
    bets = bets_on_pairs(blocks_in(protocol.spec, state)) if needs_pair_logs(protocol) else {}
    for place, (cell, other, pair) in _places(protocol, cells).items():
        where = f"{cell.policy!r} and {other!r} in {cell.group!r}"
        if not bets:
            if pair.logs is not None:
                raise BadInput(f"logs are for outcomes other than 0 and 1; {where} have some.")
            continue
        if pair.logs is None:
            raise BadInput(
                f"the pairs need logs of {where}: the sums that the SQL of `Experiment.bets` returns."
            )
        if not are_possible(_sums(protocol, cell.n, pair, bets[place]), bets[place]):
            raise BadInput(
                f"the logs of {where} must be the {bets[place].slope.size} sums of the bets of the interval, "
                "over differences with this number and sum."
            )


def add_interval_pairs(protocol: Protocol, state: State, cells: Cells) -> None:
    """Add the differences of an interval to the bets of the state."""
    blocks = blocks_in(protocol.spec, state)
    bets = bets_on_pairs(blocks)
    places = _places(protocol, cells)
    add_pairs(
        blocks,
        bets,
        {place: _sums(protocol, cell.n, pair, bets[place]) for place, (cell, _, pair) in places.items()},
    )


def _places(protocol: Protocol, cells: Cells) -> dict[Place, tuple[CellCounts, str, PairCounts]]:
    """Return the pairs of all cells with the numbers of their policies and group."""
    policies = protocol.problem.policies.index
    return {
        ((policies(cell.policy), policies(other)), protocol.groups[cell.group]): (cell, other, pair)
        for cell in cells
        for other, pair in (cell.pairs or {}).items()
    }


def _sums(protocol: Protocol, n: int, pair: PairCounts, bets: PairBets) -> PairSums:
    """Return the sums of a pair in unit scale; for outcomes 0 and 1 they follow from the counts."""
    width = protocol.problem.family.width
    if not needs_pair_logs(protocol):
        return sums_of_signs(float(n), pair.sum, pair.squares, bets)
    return PairSums(float(n), pair.sum / width, pair.squares / width**2, np.array(pair.logs, dtype=float))
