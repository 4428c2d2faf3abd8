"""The section about a verdict: every cell against its bound, and the forecast of further samples."""

from __future__ import annotations

import shlex
from dataclasses import replace

import numpy as np

from evenhand.model.phrases import bound_word, quantity
from evenhand.model.requirements import NoConstraint, Penalty
from evenhand.procedure.spec import is_unproven
from evenhand.reports.captioned_figures import allocation_picture, floors_picture
from evenhand.reports.figure_rows import shares, standings_by
from evenhand.reports.guarantees import judged_methods
from evenhand.reports.page_parts import GUARDRAIL, Field, Picture, Section, Strong, Table, Words, table
from evenhand.reports.requirement_marks import requirement_marks, with_bounds
from evenhand.study import Study
from evenhand.verdicts.judge import Verdict
from evenhand.verdicts.read_data import DataSource
from evenhand.verdicts.verdict_sentences import looser, under_other_bounds


def verdict_section(verdict: Verdict) -> tuple[Section, Study]:
    """Return the section about a verdict, and its study."""
    estimates, standings = verdict.cells, verdict.policies
    said, source = verdict.words(), verdict.source or DataSource()
    section = Section(
        kind="verdict",
        title="What the data say",
        lead=(*emphasised(said[0], verdict), *(f" {sentence}" for sentence in said[1:])),
        notes=notes(verdict),
        pictures=(
            floors_picture(
                with_bounds(verdict.problem, estimates),
                standings,
                marks=requirement_marks(verdict.problem, estimates),
                indifference=verdict.procedure.indifference,
            ),
            *guardrail_pictures(verdict),
            *where(verdict),
        ),
        tables=tuple(tables(verdict)),
        numbers=verdict.to_dict()
        | {
            "estimates": [row.to_dict() for row in estimates],
            "standings": [row.to_dict() for row in standings],
        },
        highlights=highlights(verdict),
        progress=None if verdict.decided else verdict.progress,
        facts=_facts(verdict),
        code=_code(verdict),
        methods=None if verdict.source is None else judged_methods(verdict),
    )
    return section, Study(verdict.problem, verdict.procedure, title=source.title, file=source.study_file)


def emphasised(sentence: str, verdict: Verdict) -> Words:
    """Return the sentence with the name of the leader emphasised."""
    if verdict.leader is None or verdict.leader not in sentence:
        return (sentence,)
    before, after = sentence.split(verdict.leader, 1)
    return tuple(part for part in (before, Strong(verdict.leader), after) if part)


def notes(verdict: Verdict) -> tuple[Words, ...]:
    """Return what the intervals mean, and what would change the verdict."""
    control = verdict.problem.control
    clears = "A bound is met exactly when the interval clears it."
    if control is not None:
        clears = f"A bound relative to {control} is tested on the outcomes of both policies together."
    intervals = f"{_intervals(verdict)} {clears}"
    return tuple((said,) for said in (intervals, verdict.forecast.basis(), looser(verdict)) if said)


def _intervals(verdict: Verdict) -> str:
    if verdict.exact:
        return "Everything was evaluated: the means are known, and their intervals are points."
    share = f"{verdict.coverage:.2%}"
    if verdict.fixed:
        return (
            f"Each interval holds the true mean with probability at least {share}, for one look at data "
            "whose size was fixed before any outcome was seen. This and the risk hold at every size: nothing "
            "here is a large-sample approximation."
        )
    unproven = is_unproven(verdict.problem, verdict.procedure)
    if unproven or verdict.procedure.stopping_name not in ("certified", "kaufmann-koolen"):
        return f"Each interval holds the true mean with probability {share}, nominally: nothing proves it."
    return f"Each interval holds the true mean with probability at least {share}, however often one looks."


def guardrail_pictures(verdict: Verdict) -> list[Picture]:
    """Return the figures of the means of every guard-rail against their bounds."""
    return [
        replace(
            floors_picture(
                rows.cells,
                standings_by(verdict.problem, verdict.policies, rows.cells),
                f"The means of {rows.name} against their bounds",
            ),
            name=f"{GUARDRAIL}{number}",
        )
        for number, rows in enumerate(verdict.guardrails, start=1)
    ]


def guardrail_tables(verdict: Verdict) -> list[Table]:
    """Return a table of the cells of every guard-rail."""
    columns = ["policy", "group", "outcomes", "mean", "low", "high", "verdict"]
    return [
        table(
            f"Guard-rail {rows.name}"
            + (f" ({quantity(rows.missing, 'outcome')} missing)" if rows.missing else ""),
            columns,
            [[c.policy, c.group, c.n, c.mean, c.low, c.high, c.verdict] for c in rows.cells],
        )
        for rows in verdict.guardrails
    ]


def where(verdict: Verdict) -> list[Picture]:
    """Return the figure of where the samples are, and where the next ones should go."""
    problem, total = verdict.problem, max(verdict.samples, 1)
    n = np.array([cell.n for cell in verdict.cells]).reshape(problem.shape)
    aim = None if verdict.decided or verdict.next is None else verdict.next
    title = "Where the samples are" + ("" if aim is None else ", and where the next should go")
    return [
        allocation_picture(shares(problem, n / total, aim, n), verdict.policies, title, "of the next samples")
    ]


def tables(verdict: Verdict) -> list[Table]:
    """Return the tables of policies, of further samples and of the decision under other bounds."""
    all_allowed = isinstance(verdict.problem.constraint, (NoConstraint, Penalty)) and not verdict.guardrails
    found = [*([] if all_allowed else [_classes(verdict)]), *guardrail_tables(verdict)]
    if verdict.forecast.runs:
        found.append(
            table(
                "Further samples until the decision: a forecast under Jeffreys' prior",
                ["chance to have decided", "further samples"],
                verdict.forecast.rows(),
            )
        )
    if verdict.alternatives:
        word = bound_word(verdict.cells)
        spans = under_other_bounds(verdict)
        found.append(table(f"What the same data say under another {word}", [word, "answer"], spans))
    return found


def highlights(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """Return the main numbers of a verdict."""
    answer = (verdict.answer or "none") if verdict.decided else "undecided"
    first = ("allowed", allowed_words(verdict)) if verdict.screens else ("answer", answer)
    return (
        first,
        ("evidence", evidence_words(verdict)),
        ("samples", f"{verdict.samples:,}"),
        *spent_highlight(verdict.spent),
        ("risk", f"{100 * verdict.procedure.delta:g}%"),
    )


def allowed_words(verdict: Verdict) -> str:
    """Return how many policies are allowed, and of how many that is known."""
    known = len(verdict.allowed) + len(verdict.failed)
    return f"{len(verdict.allowed)} of {known} classified, {len(verdict.open)} open"


def spent_highlight(spent: float | None) -> tuple[tuple[str, str], ...]:
    """Return what the samples have cost, if they have a price."""
    return () if spent is None else (("cost so far", f"{spent:,.6g}"),)


def _classes(verdict: Verdict) -> Table:
    """Return the class of every policy: whether it is shown to meet the requirement."""
    kinds = zip(("allowed", "failed", "open"), verdict.classes, strict=True)
    place = {name: kind for kind, names in kinds for name in names}
    rows: list[list[Field]] = [
        [policy.policy, policy.mean, place[policy.policy]]
        for policy in sorted(verdict.policies, key=lambda row: row.place)
    ]
    return table("Which policies meet the requirement", ["policy", "overall mean", "class"], rows)


def evidence_words(verdict: Verdict) -> str:
    """Return the evidence and the threshold, or their ratio, as text."""
    if verdict.evidence >= verdict.needed:
        return f"{verdict.evidence:.2f} of {verdict.needed:.2f}"
    return f"{verdict.progress:.0%} of what is needed"


def _facts(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    rows = [("rows read", f"{verdict.rows:,}"), ("rows left out, a value missing", f"{verdict.missing:,}")]
    source = verdict.source or DataSource()
    named = [
        ("study file", source.study_file),
        ("data", source.data_file),
        ("SHA-256 of the data file", source.sha256),
    ]
    return (*((name, value) for name, value in named if value), *(rows if verdict.rows else ()))


def _code(verdict: Verdict) -> str:
    """Return the command that judges the same data; nothing where there were no data."""
    if verdict.source is None:
        return ""
    study, data = verdict.source.study_file or "study.toml", verdict.source.data_file or "data.csv"
    options = ["--fixed-sample"] if verdict.fixed else []
    options += [f"--pool {shlex.quote(f'{group}={size}')}" for group, size in (verdict.pool or {}).items()]
    return " ".join(["evenhand judge", shlex.quote(study), shlex.quote(data), *options])
