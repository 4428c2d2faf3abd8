"""Sentences about result rows, shared by status, verdicts, reports and the dashboard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evenhand.model.result_rows import CellRow, Classes, GuardrailRows, RelativeBound

LISTED_CHARACTERS = 160  # a longer list of policies is counted too
LISTED = 6  # more names of groups than this are counted, not listed


def quantity(number: int, noun: str) -> str:
    """Return the number with its noun, such as "1 sample" and "1,200 samples"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Return the names as "A, B and C"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def listed_groups(names: Sequence[str]) -> str:
    """Return the names of groups, or their number if the list would be long."""
    return f"{len(names)} groups" if len(names) > LISTED else listed(names)


def bound_word(cells: Iterable[CellRow]) -> str:
    """Return the kind of bounds of the cells: a floor, a cap, or both."""
    rows = list(cells)
    floors = any(cell.floor is not None for cell in rows)
    caps = any(cell.cap is not None for cell in rows)
    return "floor" if floors and not caps else "cap" if caps and not floors else "bound"


def bounds_sentence(cells: Iterable[CellRow], policy: str, proved: bool) -> str:
    """Return which of a policy's bounds are certified, refuted and open, by group; else "".

    `proved`: whether verdicts rest on a proof; otherwise bounds are called met or missed.
    """
    rows = list(cells)
    met, failed = ("certified", "refuted") if proved else ("met", "missed")
    parts = []
    for word, verdict in ((met, "met"), (failed, "failed"), ("still open", "undecided")):
        groups = [c.group for c in rows if c.policy == policy and c.bounded and c.verdict == verdict]
        if groups:
            parts.append(f"{word} for {listed_groups(groups)}")
    return f"Its {_bound_of(rows, policy)} is {', '.join(parts)}." if parts else ""


def _bound_of(cells: Sequence[CellRow], policy: str) -> str:
    """Return the kind of bounds of a policy; those relative to a control in words."""
    own = [cell for cell in cells if cell.policy == policy]
    relative = [words for side in (0, 1) if (words := _range_in_words([c.relative[side] for c in own], side))]
    if not relative:
        return bound_word(cells)
    absolute = any(cell.floor is not None or cell.cap is not None for cell in own)
    kinds = {cell.relative_cap is not None for cell in own if cell.relative_floor or cell.relative_cap}
    word = "bound" if absolute or len(relative) > 1 else "cap" if kinds == {True} else "floor"
    return f"{word} ({' and '.join(relative)})"


def _range_in_words(bounds: Sequence[RelativeBound | None], side: int) -> str:
    """Return relative floors (side 0) or caps (1) of several groups in words; empty if there are none."""
    given = [bound for bound in bounds if bound is not None]
    words = list(dict.fromkeys(relative_words(bound, is_cap=side == 1) for bound in given))
    if len(words) <= 1:
        return words[0] if words else ""
    return f"{'below' if side else 'above'} a bound by group relative to {given[0].control}"


def relative_words(bound: RelativeBound, is_cap: bool = False) -> str:
    """Return a bound relative to a control in words, such as "at most 0.02 below Standard"."""
    name = bound.control
    if bound.ratio != 1.0:
        return f"{'at most' if is_cap else 'at least'} {bound.ratio:g} times {name}"
    if bound.margin == 0.0:
        return f"no more than {name}" if is_cap else f"no less than {name}"
    if is_cap:
        side = "at most {:g} above" if bound.margin > 0 else "at least {:g} below"
    else:
        side = "at most {:g} below" if bound.margin > 0 else "at least {:g} above"
    return f"{side.format(abs(bound.margin))} {name}"


def requirement_words(cell: CellRow) -> str:
    """Return the bounds of a cell in words; empty if it has none."""
    found = [f"{word} {bound:.6g}" for word, bound in (("at least", cell.floor), ("at most", cell.cap))
             if bound is not None]  # fmt: skip
    found += [relative_words(bound, side == 1) for side, bound in enumerate(cell.relative) if bound]
    return ", ".join(found)


def classes_sentence(classes: Classes, proved: bool) -> str:
    """Return how many policies are allowed, which, and which fail or are open."""
    total = sum(map(len, classes))
    word = "allowed" if proved else "allowed by the rule"
    verb = "is" if len(classes.allowed) == 1 else "are"
    names = f": {listed_policies(classes.allowed)}" if classes.allowed else ""
    parts = [f"{len(classes.allowed)} of {total} policies {verb} {word}{names}"]
    if classes.failed:
        parts.append(f"{listed_policies(classes.failed)} {_verb(classes.failed, 'fails', 'fail')}")
    if classes.open:
        parts.append(f"{listed_policies(classes.open)} {_verb(classes.open, 'is', 'are')} open")
    return f"{'; '.join(parts)}."


def listed_policies(names: Sequence[str]) -> str:
    """Return the names of policies, or their number if the list would be long."""
    many = len(names) > 2 * LISTED or sum(map(len, names)) > LISTED_CHARACTERS
    return f"{len(names)} policies" if many else listed(names)


def spent_sentence(spent: float | None) -> str:
    """Return what the samples have cost so far; empty without costs."""
    return "" if spent is None else f"The samples have cost {spent:,.6g} so far."


def close_words(indifference: float, loosened: bool) -> str:
    """Return what an answer is shown to be, completing "A is the answer: it ..."."""
    best = (
        f"is within {indifference:g} of the best overall mean"
        if indifference
        else "has the best overall mean"
    )
    own = ", its own bounds loosened by the tolerance" if loosened else ""
    return f"{best} of all that meet the requirement{own}"


def _verb(names: Sequence[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many


def evidence_share(evidence: float, needed: float) -> str:
    """Return the evidence as a percentage of the evidence needed."""
    return f"{max(min(evidence / needed, 1.0), 0.0):.0%} of the evidence needed"


def missing_sentence(rows: GuardrailRows) -> str:
    """Return how many outcomes of a guard-rail are missing, and the assumption about them."""
    verb = "has" if rows.missing == 1 else "have"
    return (
        f"{quantity(rows.missing, 'sample')} {verb} no outcome of {rows.name}; the guarantee assumes that "
        "outcomes are missing independently of their values."
    )
