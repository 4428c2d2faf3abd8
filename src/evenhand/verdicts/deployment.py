"""Which policies may be deployed: those certified to meet the requirement, and the best of them.

The lines are printed by `evenhand judge` and `evenhand evaluate`, and make up the Markdown summary that a
pipeline attaches to a pull request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evenhand.model.phrases import listed_policies
from evenhand.procedure.spec import proves

if TYPE_CHECKING:
    from evenhand.verdicts.judge import Verdict

JUST = 5e-4  # a margin that is not worth a sentence
WITHOUT_REQUIREMENT = ("none", "penalty")
SYMBOLS = {"met": "● met", "failed": "✕ failed", "undecided": "○ undecided"}


def deployment(verdict: Verdict) -> dict[str, Any]:
    """Return the allowed, failed and undecided policies, the best of the allowed, and its margins.

    `margin` is the estimated difference of overall means to the next of the allowed, `above_floor` the least
    certified distance to a floor.
    """
    best = _best(verdict)
    means = {row.policy: row.mean for row in verdict.policies}
    others = [name for name in verdict.allowed if name != best and means[name] is not None]
    second = max(others, key=lambda name: means[name] or 0.0, default=None)
    mean, next_mean = means.get(best or ""), means.get(second or "")
    return {
        "allowed": list(verdict.allowed),
        "failed": list(verdict.failed),
        "undecided": list(verdict.open),
        "best": best,
        "best_is_certified": verdict.decided and best is not None and best == verdict.answer,
        "ahead_of": second,
        "margin": None if mean is None or next_mean is None else mean - next_mean,
        "above_floor": _above_floor(verdict, best),
    }


def deployment_sentence(verdict: Verdict) -> str:
    """Return which policies may be deployed, fail or are undecided, and the best; empty without floors."""
    if verdict.problem.constraint.kind in WITHOUT_REQUIREMENT:
        return ""
    found = deployment(verdict)
    said = [f"May be deployed: {_names(found['allowed'])}."]
    if found["failed"]:
        said.append(f"{_shown_to(verdict).capitalize()} fail: {_names(found['failed'])}.")
    if found["undecided"]:
        said.append(f"Undecided: {_names(found['undecided'])}.")
    return " ".join([*said, *_about_best(found)])


def deployment_rows(verdict: Verdict) -> list[tuple[str, str]]:
    """Return the same as rows of a table: what, and who; none without a requirement."""
    if verdict.problem.constraint.kind in WITHOUT_REQUIREMENT:
        return []
    found, shown = deployment(verdict), _shown_to(verdict)
    rows = [
        (f"{shown} meet the requirement", _names(found["allowed"])),
        (f"{shown} fail it", _names(found["failed"])),
        ("undecided", _names(found["undecided"])),
    ]
    return [*rows, ("best of those that meet it", " ".join(_about_best(found)) or "none")]


def markdown_summary(title: str, verdict: Verdict, words: Sequence[str]) -> str:
    """Return a short Markdown page: the answer, which policies may be deployed, and every cell."""
    lines = [f"## {_escaped(title)}", "", f"**{_escaped(words[0])}**", ""]
    if may := deployment_rows(verdict):
        lines += [*_table(["which may be deployed", ""], may), ""]
    rows = [
        (c.policy, c.group, f"{c.n:,}", _number(c.mean), f"{_number(c.low)} to {_number(c.high)}",
         SYMBOLS[c.verdict])
        for c in verdict.cells
    ]  # fmt: skip
    lines += _table(["policy", "group", "samples", "mean", "interval", "verdict"], rows)
    lines += ["", *(f"- {_escaped(sentence)}" for sentence in words[1:])]
    return "\n".join(lines) + "\n"


def _shown_to(verdict: Verdict) -> str:
    """Return how a verdict on a policy is shown: certified, or only by the rule that was chosen."""
    proved = verdict.fixed or verdict.exact or proves(verdict.problem, verdict.procedure)
    return "certified to" if proved else "by the rule"


def _best(verdict: Verdict) -> str | None:
    """Return the answer, or the best of the allowed by the estimates."""
    if verdict.decided and verdict.answer is not None:
        return verdict.answer
    rows = [row for row in verdict.policies if row.policy in verdict.allowed and row.mean is not None]
    return max(rows, key=lambda row: row.mean or 0.0).policy if rows else None


def _above_floor(verdict: Verdict, policy: str | None) -> float | None:
    cells = [c for c in verdict.cells if c.policy == policy and c.floor is not None]
    away = [c.low - c.floor for c in cells if c.low is not None and c.floor is not None]
    return min(away) if away and len(away) == len(cells) else None


def _about_best(found: dict[str, Any]) -> list[str]:
    if found["best"] is None:
        return []
    by = "certified" if found["best_is_certified"] else "by the estimates"
    said = [f"The best of them is {found['best']} ({by})."]
    if len(found["allowed"]) == 1 and not found["best_is_certified"]:
        said = [f"{found['best']} is the only one so far."]
    margin, least = found["margin"], found["above_floor"]
    if margin is not None:
        said.append(f"Its overall mean is {margin:.3g} above that of {found['ahead_of']} (estimate).")
    if least is not None and least > JUST:
        said.append(f"It is certified to be at least {least:.3g} above the floor in every group.")
    return said


def _names(names: Sequence[str]) -> str:
    return listed_policies(names) if names else "none"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(_escaped(field) for field in line)} |" for line in lines]


def _escaped(text: str) -> str:
    """Return text in which Markdown reads no table, link or HTML."""
    for symbol in "\\|<>[]*_`":
        text = text.replace(symbol, f"\\{symbol}")
    return text.replace("\n", " ")


def _number(value: float | None) -> str:
    return "open" if value is None else f"{value:.4g}"
