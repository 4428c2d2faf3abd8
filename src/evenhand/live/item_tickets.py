"""Tickets for shared items, in the fold: who answers an item, and what its outcomes do to sums and state.

An item has one ticket, and one event holds the outcomes of all policies that answered it. Who answers was
decided when the ticket was issued, before any outcome on the item was known. In the index of the journal, and
as a place, an item stands at policy 0 in its group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evenhand.errors import BadInput, nearest, shown
from evenhand.live.events import Outcome, Sample, by_policy
from evenhand.live.replay import CellSums, no_sums
from evenhand.live.replay_kernels import ASK_THIS, DROP, TELL
from evenhand.model.problem import Problem

if TYPE_CHECKING:
    from evenhand.live.projection import Fold, History, PlacedSample

MISSING = "missing"  # how a file or a command line gives an outcome that is missing


def checked_item(value: Any, problem: Problem) -> dict[str, float | None]:
    """Return the outcomes on a shared item by policy, checked; None where one is missing."""
    from evenhand.live.input_checks import checked_outcome

    if not isinstance(value, Mapping):
        raise BadInput(
            "several policies answer an item, so its outcomes must be given by policy, such as "
            f"{{{problem.policies[0]!r}: 1}}; this one is {shown(value)}."
        )
    found: dict[str, float | None] = {}
    for name, outcome in value.items():
        if name not in problem.policies:
            raise BadInput(f"there is no policy {shown(name)}{nearest(str(name), problem.policies)}")
        try:
            found[name] = None if outcome is None else checked_outcome(outcome, problem.family)
        except BadInput as error:
            raise BadInput(f"policy {name!r}: {error}") from None
    if all(outcome is None for outcome in found.values()):
        raise BadInput(
            "an item must have the outcome of at least one policy; drop the ticket if all are missing."
        )
    return found


def parsed_item(fields: Mapping[str, str], problem: Problem) -> dict[str, float | None]:
    """Return the outcomes on an item from fields of a file or a command line, by policy."""
    from evenhand.live.input_checks import parsed_number

    found: dict[str, float | None] = {}
    for name, field in fields.items():
        text = field.strip()
        if not text:
            raise BadInput(f"policy {name!r} has no outcome; write {MISSING!r} if it is missing.")
        try:
            found[name] = None if text.lower() == MISSING else parsed_number(text, problem.family)
        except BadInput as error:
            raise BadInput(f"policy {name!r}: {error}") from None
    return checked_item(found, problem)


def refuse_other_policies(code: str, asked: Sequence[str], outcome: Outcome) -> None:
    """Refuse outcomes that do not name exactly the policies that answer the item of a ticket."""
    told = by_policy(outcome)
    for name in told:
        if name not in asked:
            raise BadInput(f"ticket {code} does not ask for {name!r}; it asks for {', '.join(asked)}.")
    lacking = next((name for name in asked if name not in told), None)
    if lacking is not None:
        raise BadInput(
            f"ticket {code} asks for {', '.join(asked)}; the outcome of {lacking!r} is not there. Give it as "
            "null (None) if it is missing."
        )


def unit_row(problem: Problem, outcome: Outcome) -> list[float]:
    """Return the outcomes on an item in unit scale, for `item_kernels`.

    NaN for a policy that was not asked, infinity where an outcome is missing.
    """
    told, low, width = by_policy(outcome), problem.family.low, problem.family.width
    row = []
    for name in problem.policies:
        x = told.get(name)
        row.append(math.nan if name not in told else math.inf if x is None else (x - low) / width)
    return row


def queue_asked(fold: Fold, seq: int, g: int, arrived: int, chance: float, digests: tuple[int, int]) -> None:
    """Queue the arithmetic of the ticket that was issued last, for an item of group g."""
    row = _row(fold, dict.fromkeys(fold.answering, 1.0))
    fold.replay.queue(seq, ASK_THIS, 0, g, arrived, chance, digests, row)


def queue_told(fold: Fold, seq: int, g: int, outcome: Outcome) -> None:
    """Queue the arithmetic of the outcomes on an item."""
    fold.replay.queue(seq, TELL, 0, g, -1, 0.0, further=unit_row(fold.protocol.problem, outcome))


def queue_given_up(fold: Fold, seq: int, g: int) -> None:
    """Queue the arithmetic of the ticket that was closed last: its item has no outcomes."""
    row = _row(fold, dict.fromkeys(fold.answering, math.inf))
    fold.replay.queue(seq, DROP, 0, g, -1, 0.0, further=row)


def fold_items_again(fold: Fold, seq: int, history: History) -> None:
    """Fold the outcomes on all items again: bets depend on the order of items."""
    rows = []
    for g in range(len(fold.protocol.groups)):
        rows += [(position, g, sample.outcome) for position, sample in history(fold.cell(0, g), seq)]
    rows.sort(key=lambda row: row[0])
    problem = fold.protocol.problem
    fold.replay.replace_items(seq, [(g, unit_row(problem, outcome)) for _, g, outcome in rows])


def sums_with_item(fold: Fold, g: int, outcome: Outcome) -> dict[int, CellSums]:
    """Return the sums of the cells of an item after its outcomes, by cell."""
    cells = {fold.cell(k, g): x for k, x in _numbered(fold, outcome).items() if x is not None}
    return {cell: fold.sums_with(cell, Sample(x)) for cell, x in cells.items()}


def sums_of_items(fold: Fold, g: int, samples: Iterable[PlacedSample]) -> dict[int, CellSums]:
    """Return the sums of the cells of a group with these items, added in this order."""
    sums: dict[int, CellSums] = {}
    for _, sample in samples:
        for k, x in _numbered(fold, sample.outcome).items():
            before = sums.setdefault(fold.cell(k, g), no_sums(0))
            if x is not None:
                sums[fold.cell(k, g)] = before.plus(fold.unit(x), ())
    return sums


def _numbered(fold: Fold, outcome: Outcome) -> dict[int, float | None]:
    return {fold.protocol.policies[name]: x for name, x in by_policy(outcome).items()}


def _row(fold: Fold, values: Mapping[int, float]) -> list[float]:
    return [values.get(k, math.nan) for k in range(len(fold.protocol.policies))]
