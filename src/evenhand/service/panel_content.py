"""Content of a dashboard page: texts, figures, tables. Runs in a worker process.

Blinded content has enrolment, tickets and health, and no outcomes.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from markupsafe import Markup

from evenhand.live.clock import seconds_of
from evenhand.live.compute_status import has_looked, status_of
from evenhand.live.journal import Journal, open_journal
from evenhand.live.projection import View
from evenhand.live.tickets import Out, ticket_code
from evenhand.model.rows import CellRow
from evenhand.model.sentences import requirement_words
from evenhand.procedure.state import EMPTY
from evenhand.reports import captioned_figures, page_parts
from evenhand.reports.figures.save import svg
from evenhand.reports.figures.style import NARROW, WIDE
from evenhand.reports.rows import Evidence
from evenhand.reports.sections.experiment import where_samples_went
from evenhand.service.experiments import blinded
from evenhand.service.log_reader import Ledger, chart
from evenhand.service.panels import Drawn, Picture, Ticket
from evenhand.verdicts.forecast_statement import Forecast
from evenhand.verdicts.judge import judge_state

OLDEST = 10  # number of open tickets listed


def draw(address: str, view: View, now: float, forecast: Forecast | None, blind: bool) -> Drawn:
    """Return the page content for this view."""
    status = status_of(view, now, None if forecast is None else lambda _: forecast)
    ledger = _ledger(address, view)
    ledger.read_on(_journal(address), view.head.seq)
    out = _out(view, ledger, now)
    if blind:
        seen = blinded(status)
        words = f"{seen['samples']:,} outcomes told, {seen['pending']:,} tickets out."
        if seen.get("decided"):
            words = f"{_end_in_words(view, seen)} {words}"
        return Drawn(view.head.seq, seen, words, out=out)
    verdict = judge_state(view.protocol.problem, view.protocol.procedure, view.state, replications=0)
    estimates, standings = verdict.cells, verdict.policies
    points = list(ledger.points)
    if has_looked(view) and view.state.clock[EMPTY] == 0 and status.evidence is not None and status.needed:
        points.append(Evidence(status.samples, status.evidence, status.needed, verdict.weakest))
    return Drawn(
        head=view.head.seq,
        status=status.to_dict(),
        sentence=status.sentence,
        progress=verdict.progress if has_looked(view) and status.needed else None,
        pictures=(
            _picture(captioned_figures.floors_picture(estimates, standings), WIDE, NARROW),
            _picture(where_samples_went(view, standings, "Where samples go"), NARROW),
        ),
        cells=tuple(_cell(e) for e in estimates),
        evidence=chart(points) if points else None,
        says_evidence=captioned_figures.evidence_picture(points).says if points else "",
        behind=view.head.seq - ledger.seq,
        late=_late(view, ledger, now),
        out=out,
    )


def _end_in_words(view: View, seen: dict[str, Any]) -> str:
    """Return the decision in a few words, for a user who may not see outcomes before the end."""
    if view.stop is not None and view.stop.allowed is not None:
        return f"{len(view.stop.allowed)} of {len(view.protocol.problem.policies)} policies are allowed."
    return f"{seen['answer'] or 'No policy'} is the answer."


_ledgers: dict[tuple[str, bytes], Ledger] = {}  # logs read so far by this worker process
MOST_LEDGERS = 100


def _ledger(address: str, view: View) -> Ledger:
    name = (address, view.protocol.hash)
    found = _ledgers.pop(name, None) or Ledger(view.protocol)
    _ledgers[name] = found  # least recently used first
    while len(_ledgers) > MOST_LEDGERS:
        _ledgers.pop(next(iter(_ledgers)))
    return found


@cache
def _journal(address: str) -> Journal:
    return open_journal(address, write=False)


def _picture(picture: page_parts.Picture, *widths: int) -> Picture:
    # our own SVG: names in it were escaped when it was written
    drawings = [
        Markup(_light(svg(picture.draw(width), f"{picture.name}-{width}", themed=True))) for width in widths
    ]
    wide = drawings[0] if len(drawings) > 1 else None
    return Picture(picture.name, picture.title, picture.says, wide, drawings[-1])


def _light(drawing: str) -> str:
    """Return the SVG without comments, which halves its size."""
    return re.sub(r"\s*<!--.*?-->", "", drawing, flags=re.DOTALL)


def _cell(estimate: CellRow) -> dict[str, Any]:
    bound = estimate.floor if estimate.floor is not None else estimate.cap
    relative = any(one is not None for one in estimate.relative)
    return estimate.to_dict() | {
        "bound": bound,
        "requirement": requirement_words(estimate) if relative else "",
    }


def _cell_name(view: View, out: Out) -> str:
    """Return the policy and group of an open ticket, as far as known."""
    problem = view.protocol.problem
    policy = problem.policies[out.policy]
    return policy if out.group < 0 else f"{policy}, {problem.group_names[out.group]}"


def _out(view: View, ledger: Ledger, now: float) -> tuple[Ticket, ...]:
    protocol = view.protocol
    return tuple(
        Ticket(
            ticket_code(protocol.hash, number),
            _cell_name(view, out),
            out.worker or "",
            max(now - seconds_of(out.at), 0.0),
        )
        for number, out in list(ledger.out.items())[:OLDEST]
    )


def _late(view: View, ledger: Ledger, now: float) -> tuple[Ticket, ...]:
    return tuple(
        Ticket(
            ticket_code(view.protocol.hash, late.ticket), f"ticket {late.why} before it came", "",
            max(now - seconds_of(late.at), 0.0), late.outcome,
        )
        for late in reversed(ledger.late)
    )  # fmt: skip
