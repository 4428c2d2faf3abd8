"""Import of outcomes collected before: rows are checked in batches and stored compactly.

All rows are written in one transaction. Only the first event carries the key of the import.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from evenhand.errors import BadInput, Closed, shown
from evenhand.live import events as ev
from evenhand.live.events import Metrics, encode
from evenhand.live.input_checks import (
    checked_outcome,
    checked_sample,
    first_bad,
    refuse_in_intervals,
    refuse_unless_open,
)
from evenhand.live.projection import Fold
from evenhand.live.schema import BEGAN, Index, index_of
from evenhand.live.transaction import Entry, Session
from evenhand.model.problem import Problem
from evenhand.procedure.outcome_order import depends_on_order, new_order, note_order, refuse_sorted

AT_ONCE = 500  # rows per batch: larger batches make the garbage collector slow


class Rows:
    """Rows stored as columns of 16 bytes per row."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.policies = array("i")
        self.groups = array("i")
        self.outcomes = array("d")
        self.rails = {rail.name: array("d") for rail in problem.guardrails}  # NaN where one is missing
        self._policy_numbers = {name: number for number, name in enumerate(problem.policies)}
        self._group_numbers = {name: number for number, name in enumerate(problem.group_names)}

    def __len__(self) -> int:
        return len(self.outcomes)

    def add(self, policy: str, group: str, outcome: Any) -> None:
        """Add a row; its number is checked later, in batches."""
        metrics: Metrics = None
        if self.rails:
            outcome, metrics = checked_sample(outcome, self.problem)
        elif type(outcome) is not float:
            outcome = checked_outcome(outcome, self.problem.family)
        k, g = self._policy_numbers.get(policy), self._group_numbers.get(group)
        if k is None or g is None:
            k, g = self.problem.policy_index(policy), self.problem.group_index(group)  # one of them raises
        self.policies.append(k)
        self.groups.append(g)
        self.outcomes.append(outcome)
        for name, value in (metrics or {}).items():
            self.rails[name].append(math.nan if value is None else value)

    def metrics(self, row: int) -> Metrics:
        """Return the outcomes of the guard-rails in a row; None where the problem has none."""
        if not self.rails:
            return None
        return {name: None if math.isnan(column[row]) else column[row] for name, column in self.rails.items()}

    @property
    def digest(self) -> str:
        """Return SHA-256 over all rows in hexadecimal digits; the same on every machine."""
        found = hashlib.sha256()
        for column, kind in ((self.policies, "<i4"), (self.groups, "<i4"), (self.outcomes, "<f8")):
            found.update(np.asarray(column).astype(kind).tobytes())
        for column in self.rails.values():
            found.update(np.asarray(column).astype("<f8").tobytes())
        return found.hexdigest()


def checked_rows(rows: Iterable[Any], problem: Problem, place_of: Callable[[int], str]) -> Rows:
    """Return the rows; the error names the first invalid one by `place_of` its number."""
    checked, coming = Rows(problem), iter(rows)
    while True:
        begun = len(checked)
        try:
            for row in itertools.islice(coming, AT_ONCE):
                _add(checked, row, place_of)
        finally:  # also if a later row was refused: the first is named
            _refuse_bad_outcomes(checked, begun, place_of)
        if len(checked) == begun:
            break
    if begun == 0:
        raise BadInput("an import must hold at least one outcome; it holds none.")
    return checked


def import_rows(session: Session, rows: Rows, source: str) -> int:
    """Record all rows as one import; return how many."""
    fold = session.fold
    refuse_in_intervals(fold)
    if fold.protocol.procedure.items is not None:
        raise BadInput(
            "an experiment on shared items takes outcomes by its tickets only, because who answers an item "
            "must be decided before any outcome on it is known; judge data that you have with `judge`."
        )
    refuse_unless_open(fold, "take data")
    if fold.stop is not None:
        raise Closed("the experiment has stopped; data collected elsewhere cannot be added to its decision.")
    if depends_on_order(fold.protocol.problem, fold.protocol.procedure):
        _refuse_sorted(rows)
    _refuse_absent_policies(fold, rows)
    stamp, tickets = session.stamp(), fold.tickets
    session.name_build(stamp["at"], stamp.get("back", 0.0))
    for start in range(0, len(rows), AT_ONCE):
        session.emit_all(_events(fold, rows, start, tickets, source, stamp))
    return len(rows)


def _refuse_absent_policies(fold: Fold, rows: Rows) -> None:
    """Refuse rows of a policy that was withdrawn since they were read."""
    present, names = fold.protocol.members.present, rows.problem.policies
    absent = next((names[k] for k in sorted(set(rows.policies)) if names[k] not in present), None)
    if absent is not None:
        raise BadInput(f"policy {absent!r} was withdrawn; outcomes of it cannot be added.")


def _refuse_sorted(rows: Rows) -> None:
    """Refuse rows sorted by outcome if the evidence depends on their order."""
    k, l = rows.problem.shape
    order = new_order((l, k))
    policies, groups = (np.asarray(column).astype(np.int64) for column in (rows.policies, rows.groups))
    note_order(order, policies, groups, np.asarray(rows.outcomes))
    refuse_sorted(rows.problem, order)


def _add(rows: Rows, row: Any, place_of: Callable[[int], str]) -> None:
    try:
        policy, group, outcome = row
        rows.add(policy, group, outcome)
    except BadInput as error:
        raise BadInput(f"{place_of(len(rows) + 1)}: {error}") from None
    except (TypeError, ValueError):
        place = place_of(len(rows) + 1)
        raise BadInput(f"{place} must be (policy, group, outcome); it is {shown(row)}.") from None


def _refuse_bad_outcomes(rows: Rows, begun: int, place_of: Callable[[int], str]) -> None:
    """Raise for the first row after `begun` whose number cannot come from the family."""
    family, outcomes = rows.problem.family, rows.outcomes[begun:]
    bad = first_bad(np.asarray(outcomes), family)
    if bad is not None:
        try:
            checked_outcome(outcomes[bad], family)
        except BadInput as error:
            raise BadInput(f"{place_of(begun + bad + 1)}: {error}") from None


def _events(
    fold: Fold, rows: Rows, start: int, tickets: int, source: str, stamp: dict[str, Any]
) -> Iterator[tuple[ev.Imported, Entry]]:
    """Yield the events of the next rows and their stored form, one at a time.

    Each event is built after those before it were folded. The first event of the import has the whole stamp,
    the others its time only.
    """
    policies, groups, part = rows.problem.policies, rows.problem.group_names, slice(start, start + AT_ONCE)
    time: dict[str, Any] = {name: value for name, value in stamp.items() if name in ("at", "back")}
    form, total = _Form(len(rows), source, **time), len(rows)
    cells = zip(rows.policies[part], rows.groups[part], rows.outcomes[part], strict=True)
    for number, (k, g, outcome) in enumerate(cells, start=start + 1):
        ticket, cell = tickets + number, fold.cell(fold.protocol.policies[policies[k]], g)
        sample = ev.Sample(outcome, rows.metrics(number - 1))
        event = ev.Imported(
            ticket=ticket, policy=policies[k], group=groups[g], outcome=outcome, metrics=sample.metrics,
            row=number, rows=total, source=source, sums=fold.sums_with(cell, sample).digest(ticket, cell),
            **(stamp if number == 1 else time),
        )  # fmt: skip
        if number == 1 or sample.metrics is not None:
            yield event, (encode(event), index_of(event, 0, cell))
        else:
            yield event, (form.encoded(event), Index(ticket, BEGAN, cell))


class _Form:
    """Encoder for the events of one import, which differ in a few fields; equals `encode`."""

    def __init__(self, rows: int, source: str, at: str, back: float = 0.0) -> None:
        backwards = f',"back":{back!r}' if back else ""
        self._begin = f'{{"at":"{at}"{backwards},"group":'
        self._end = f',"rows":{rows},"source":{_text(source)},"sums":'
        self._texts: dict[str, str] = {}

    def encoded(self, event: ev.Imported) -> bytes:
        text = (
            f'{self._begin}{self._name(event.group)},"kind":"imported","outcome":{event.outcome!r},'
            f'"policy":{self._name(event.policy)},"row":{event.row}{self._end}"{event.sums}","ticket":'
            f"{event.ticket}}}"
        )
        return text.encode()

    def _name(self, name: str) -> str:
        known = self._texts.get(name)
        if known is None:
            known = self._texts[name] = _text(name)
        return known


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
