"""Checks of ticket codes, phase, groups, texts and outcomes that users pass."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, Closed, nearest, shown
from evenhand.live.events import Metrics, Sample
from evenhand.live.protocol import LIMITS, Protocol
from evenhand.live.tickets import ticket_code
from evenhand.model.families import BOOLEANS, Family
from evenhand.model.guardrails import OUTCOME, Guardrail
from evenhand.model.problem import Problem
from evenhand.procedure.state import TOLD

if TYPE_CHECKING:
    from evenhand.live.projection import Fold

TOLD_ROW, IMPORTED_ROW = "(ticket, outcome, group)", "(policy, group, outcome)"


def iterated(rows: Any, name: str, content: str) -> Iterator[Any]:
    """Return an iterator over rows; refuse what has none. `content` says what a row holds."""
    try:
        return iter(rows)
    except TypeError:
        raise BadInput(f"{name} must be a list of {content}; it is {shown(rows)}.") from None


def places_of(rows: Sequence[Any], places: Any) -> list[str]:
    """Return the name of every row for error messages: the given ones, or "row 1" and so on."""
    if places is None:
        return [f"row {n}" for n in range(1, len(rows) + 1)]
    names = list(iterated(places, "places", "texts"))
    if len(names) != len(rows):
        raise BadInput(f"places must have one text for each outcome, {len(rows)}; it has {len(names)}.")
    return names


def code(fold: Fold, ticket: int) -> str:
    """Return the ticket code that users see."""
    return ticket_code(fold.protocol.hash, ticket)


def refuse_unless_open(fold: Fold, what: str) -> None:
    """Raise if the experiment is closed or paused."""
    refuse_if_closed(fold, what)
    if fold.paused:
        raise Closed(f"the experiment is paused and cannot {what}; resume it first.")


def refuse_if_closed(fold: Fold, what: str) -> None:
    if fold.closed:
        raise Closed(f"the experiment is closed and cannot {what}.")


def refuse_in_intervals(fold: Fold) -> None:
    """Refuse tickets and single outcomes in an experiment that has none."""
    if fold.intervals is not None:
        raise BadInput(
            "this experiment runs in intervals and has no tickets: servers assign by its shares, and the "
            "outcomes of an interval come as counts (tell-counts or sync)."
        )


def samples_left(fold: Fold) -> int:
    """Return how many outcomes may still be asked for; those of open tickets are asked for."""
    return int(fold.replay.spec.cap - fold.replay.state.clock[TOLD]) - outcomes_out(fold)


def outcomes_out(fold: Fold) -> int:
    """Return the number of outcomes that open tickets ask for."""
    if not fold.replay.spec.shared_items:
        return len(fold.open_tickets)
    return sum(len(out.policies) for out in fold.open_tickets.values())


def changed_protocol(fold: Fold, policy: str, joins: bool) -> Protocol:
    """Return the protocol after a policy has joined or left; refuse what the experiment cannot do."""
    what = "take a new policy" if joins else "withdraw a policy"
    refuse_if_closed(fold, what)
    if fold.stop is not None:
        raise Closed(f"the experiment has stopped and cannot {what}.")
    if not joins:
        return fold.protocol.without_policy(policy)
    after = fold.protocol.with_policy(policy)
    lacking = _initial_samples_lacking(fold, after)
    left = samples_left(fold)
    if lacking > left:
        raise BadInput(
            f"the budget or max_samples must cover the initial samples of {policy!r}: {lacking} are lacking "
            f"once it has joined, and {max(left, 0)} samples are left."
        )
    return after


def _initial_samples_lacking(fold: Fold, after: Protocol) -> int:
    """Return how many initial samples there are to draw under another protocol."""
    state, wanted = fold.replay.state, after.spec.initial
    have = np.zeros(wanted.shape)
    have[:, : state.n.shape[1]] = state.n + state.out  # a policy that joins gets the last column
    return int(np.ceil(np.maximum(wanted - have, 0.0)).sum())


def told_group(problem: Problem, asked: int, group: str | None) -> str | None:
    """Return the group to record with an outcome: None if it was known when asking."""
    if problem.mode == "agnostic":
        if group is None:
            raise BadInput("in agnostic mode say with the outcome which group the unit belongs to.")
        problem.group_index(group)
        return group
    if group is not None and problem.group_index(group) != asked:
        raise BadInput(
            f"the ticket is for {problem.group_names[asked]!r}; the outcome is told for {group!r}."
        )
    return None


def checked_text(value: Any, what: str, most: int = LIMITS["text_characters"]) -> str:
    """Return the text; refuse what is empty, too long or cannot be stored."""
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{what} must be some text; it is {shown(value)}.")
    if len(value) > most:
        raise BadInput(f"{what} may have {most} characters; it has {len(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{what} must be proper Unicode text; it holds half a character.") from None
    return value


def optional_text(value: Any, what: str) -> str | None:
    """Return the checked text, or None for None."""
    return None if value is None else checked_text(value, what, LIMITS["name_characters"])


LARGEST = 1e100  # above this, the sum of squares could overflow
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def checked_outcome(value: Any, family: Family) -> float:
    """Return the outcome as a float; refuse what the family cannot produce.

    True and False are 1 and 0.
    """
    if not isinstance(value, (bool, np.bool_, int, float, np.integer, np.floating)):
        raise BadInput(f"outcomes must be {family.outcomes}; {_shown_outcome(value)} is not a number.")
    try:
        outcome = float(value)
    except OverflowError:
        outcome = math.inf
    if not math.isfinite(outcome) or not family.admits(outcome):
        raise BadInput(f"outcomes must be {family.outcomes}; this one is {_shown_outcome(value)}.")
    if outcome == 0.0 and math.copysign(1.0, outcome) < 0.0:
        raise BadInput(
            f"outcomes must be {family.outcomes}; this one is -0.0. Write 0 if the outcome was zero."
        )
    if abs(outcome) > LARGEST:
        raise BadInput(
            f"outcomes must not be larger than {LARGEST:g} in size; this one is {_shown_outcome(value)}."
        )
    return outcome


def checked_sample(value: Any, problem: Problem) -> Sample:
    """Return the outcomes of a sample, checked: a number, or a mapping by name where there are guard-rails.

    A guard-rail's outcome of None is missing; every guard-rail must be named.
    """
    if not problem.guardrails:
        return Sample(checked_outcome(value, problem.family))
    names = (OUTCOME, *(rail.name for rail in problem.guardrails))
    if not isinstance(value, Mapping):
        raise BadInput(
            f"the outcome of a sample must name {', '.join(names)}; it is {_shown_outcome(value)}."
        )
    for name in value:
        if name not in names:
            raise BadInput(f"a sample has no outcome {_shown_outcome(name)}{nearest(str(name), names)}")
    lacking = next((name for name in names if name not in value), None)
    if lacking is not None:
        extra = "" if lacking == OUTCOME else " Give it as null (None) if it is missing."
        raise BadInput(
            f"the outcome of a sample must name {', '.join(names)}; {lacking!r} is not there.{extra}"
        )
    metrics = {name: value[name] for name in names[1:]}
    return Sample(checked_outcome(value[OUTCOME], problem.family), checked_metrics(metrics, problem))


def checked_metrics(metrics: Metrics, problem: Problem) -> Metrics:
    """Return the outcomes of all guard-rails by name, checked; None where the problem has none."""
    names = [rail.name for rail in problem.guardrails]
    if sorted(metrics or ()) != sorted(names):
        wanted = ", ".join(names) if names else "nothing"
        raise BadInput(
            f"the outcomes of guard-rails must name {wanted}; they name {', '.join(metrics or ())}."
        )
    return (
        None
        if metrics is None
        else {rail.name: _checked_metric(rail, metrics) for rail in problem.guardrails}
    )


def _checked_metric(rail: Guardrail, metrics: Mapping[str, Any]) -> float | None:
    value = metrics[rail.name]
    if value is None:
        return None
    try:
        return checked_outcome(value, rail.family)
    except BadInput as problem:
        raise BadInput(f"guard-rail {rail.name!r}: {problem}") from None


def unit_metrics(metrics: Metrics, problem: Problem) -> tuple[float, ...]:
    """Return the outcomes of the guard-rails in unit scale, in their order; NaN where one is missing."""
    told = [(rail.family, (metrics or {}).get(rail.name)) for rail in problem.guardrails]
    return tuple(math.nan if x is None else (x - family.low) / family.width for family, x in told)


def parsed_sample(
    text: str, metrics: Mapping[str, str | None], problem: Problem
) -> float | dict[str, float | None]:
    """Return what `tell` takes, from fields of a file or a command line.

    An empty field of a guard-rail is a missing outcome; a guard-rail without a field stays out.
    """
    outcome = parsed_outcome(text, problem.family)
    if not problem.guardrails and not metrics:
        return outcome
    families = {rail.name: rail.family for rail in problem.guardrails}
    found: dict[str, float | None] = {OUTCOME: outcome}
    for name, field in metrics.items():
        if name not in families:
            raise BadInput(f"there is no guard-rail {_shown_outcome(name)}{nearest(name, families)}")
        if field is not None:
            found[name] = parsed_number(field, families[name]) if field.strip() else None
    return found


def first_bad(outcomes: NDArray[np.float64], family: Family) -> int | None:
    """Return the index of the first number that `checked_outcome` refuses."""
    minus_zero = (outcomes == 0.0) & np.signbit(outcomes)
    good = np.isfinite(outcomes) & family.admits(outcomes) & (np.abs(outcomes) <= LARGEST) & ~minus_zero
    return None if good.all() else int(np.argmin(good))


def parsed_outcome(text: str, family: Family) -> float:
    """Return the outcome in a field of a file or command line."""
    return checked_outcome(parsed_number(text, family), family)


def parsed_number(text: str, family: Family) -> float:
    """Return the number in a field, whether or not it can be an outcome."""
    stripped = text.strip()
    if stripped.lower() in BOOLEANS:
        return BOOLEANS[stripped.lower()]
    if not _NUMBER.fullmatch(stripped):
        raise BadInput(f"outcomes must be {family.outcomes}; {_shown_outcome(text)} is not a number.")
    return float(stripped)


def _shown_outcome(value: Any) -> str:
    text = " ".join(repr(value).split())  # arrays and frames have several lines
    return text if len(text) <= 60 else text[:57] + "..."
