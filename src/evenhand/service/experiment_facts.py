"""Facts of an experiment in words, for its page and for the list: protocol, alarms, expected end, ending."""

from __future__ import annotations

import math
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from markupsafe import Markup, escape

from evenhand.live import events as ev
from evenhand.live.clock import seconds_of
from evenhand.live.compute_status import health_of, is_evaluated, state_word
from evenhand.live.journal import Journal
from evenhand.live.projection import View
from evenhand.live.protocol import Protocol
from evenhand.live.status import Health
from evenhand.live.status_sentences import health_findings
from evenhand.model.families import Bernoulli
from evenhand.model.requirements import NoConstraint, Polyhedron
from evenhand.procedure.interval_settings import Intervals
from evenhand.procedure.state import ANSWER, EVIDENCE, NEEDED, NONE, TOLD

DAY = 86_400.0
MOST_SHARES, MOST_CONDITIONS = 12, 6  # listed one by one
LONGEST_PACE = 5 * 365 * DAY  # an expected end further away than this is not given as a date

GOALS = {
    "best": "which policy has the best overall mean of those that meet the requirement",
    "screen": "which policies meet the requirement",
}


def protocol_facts(protocol: Protocol, created: ev.Created | None) -> tuple[tuple[str, str], ...]:
    """Return what was fixed before the first sample, as (name, words)."""
    problem, procedure = protocol.problem, protocol.procedure
    rule = procedure.stopping_name
    more = f"; within {procedure.indifference:g} of the best is good enough" if procedure.indifference else ""
    by = "" if created is None or created.by is None else f"{created.by}, "
    facts = [
        ("Question", f"{GOALS[problem.goal]}{more}"),
        ("Requirement", requirement(protocol)),
        ("Risk of a wrong answer", f"{100 * procedure.delta:.4g}%" + _basis(rule)),
        ("Shares of the groups", _shares(problem.groups)),
        ("Ends at the latest after", f"{protocol.spec.cap:,} samples"),
        ("Created by", f"{by}{date_words(seconds_of(protocol.at))}"),
    ]
    if procedure.interval is not None:
        facts.insert(-1, ("Intervals", _intervals(protocol, procedure.interval)))
    return tuple(facts)


def _intervals(protocol: Protocol, settings: Intervals) -> str:
    """Return the settings of intervals in words."""
    length = "" if settings.length is None else f" of {settings.length}"
    delay = f", final {settings.delay} after their end" if settings.delay_seconds else ""
    units = sum(settings.volumes(protocol.problem).tolist())
    return (
        f"{units:,.0f} units expected in each{length}{delay}; every policy has at least {settings.floor:.2%}"
    )


def _shares(groups: Mapping[str, float]) -> str:
    """Return the shares of the groups; of many groups the first, and the range of the others."""
    said = [f"{name} {100 * share:.4g}%" for name, share in groups.items()]
    if len(said) <= MOST_SHARES:
        return ", ".join(said)
    low, high = min(groups.values()), max(groups.values())
    if math.isclose(low, high, rel_tol=1e-9):
        return f"{len(said)} groups, {100 * low:.4g}% each"
    more = f"{len(said) - MOST_SHARES} more groups; from {100 * low:.4g}% to {100 * high:.4g}% in all"
    return f"{', '.join(said[:MOST_SHARES])} and {more}"


def _conditions(rule: Polyhedron, groups: Sequence[str]) -> str:
    """Return linear conditions on the group means, as "old - young at least -0.1"; "" if there are many."""
    if len(rule.b) > MOST_CONDITIONS or len(groups) > MOST_SHARES:
        return ""
    said = []
    for row, bound in zip(rule.A, rule.b, strict=True):
        terms = [(weight, name) for weight, name in zip(row, groups, strict=True) if weight]
        terms.sort(key=lambda term: term[0] < 0)  # a condition reads better if it does not begin with a minus
        text = "".join(
            f" {'-' if weight < 0 else '+'} {'' if abs(weight) == 1 else f'{abs(weight):g} '}{name}"
            for weight, name in terms
        )
        said.append(f"{text.removeprefix(' + ').strip()} at least {bound:g}")
    return f": {'; '.join(said)}"


def _basis(rule: str) -> str:
    return "" if rule == "certified" else f", by the {rule} rule"


def requirement(protocol: Protocol) -> str:
    """Return the requirement and the guard-rails in one sentence."""
    problem = protocol.problem
    parts = []
    if not isinstance(problem.constraint, NoConstraint) or not problem.guardrails:
        rule = problem.constraint
        more = _conditions(rule, problem.group_names) if isinstance(rule, Polyhedron) else ""
        parts.append(f"{rule.describe()}{more}")
    parts += [f"{rail.constraint.describe()} ({rail.name})" for rail in problem.guardrails]
    return f"every policy must {', and '.join(parts)}"


def date_words(seconds: float) -> str:
    """Return a time such as "16 November 2026, 18:52 UTC"."""
    at = time.gmtime(seconds)
    return f"{at.tm_mday} {time.strftime('%B %Y, %H:%M', at)} UTC"


def alarms(health: Health, blind: bool) -> list[str]:
    """Return what needs attention, each as a sentence; for a blind user nothing about cells and tickets."""
    if blind:
        health = replace(health, sample_ratio_p=1.0, starved=(), oldest_pending=None)
    return [f"{found[:1].upper()}{found[1:]}." for found in health_findings(health)]


def expected_end(more: Mapping[str, int | None], samples: int, began: str, now: float) -> str:
    """Return when the experiment will have ended with a chance of 80%, at its pace so far; else ""."""
    left = more.get("0.8")
    if left is None:
        return ""
    running = now - seconds_of(began)
    if samples < 2 or running <= 0 or left * running / samples > LONGEST_PACE:
        return f"about {_rounded(left):,} more samples (80%)"
    at = time.gmtime(now + left * running / samples)
    is_today = at[:3] == time.gmtime(now)[:3]
    day = time.strftime("%H:%M UTC" if is_today else "%Y-%m-%d", at)
    return f"about {_rounded(left):,} more samples (80%): {day} at the pace so far"


def _rounded(value: int) -> int:
    """Return a number with two digits."""
    return int(float(f"{value:.2g}"))


def ending(view: View, latest: Mapping[str, ev.AnyEvent]) -> tuple[str, ...]:
    """Return who ended or paused the experiment, when and why."""
    said = []
    stopped, closed, paused = (latest.get(kind) for kind in ("stopped", "closed", "paused"))
    if isinstance(stopped, ev.Stopped):
        what = {"decided": "The stopping rule ended it", "futile": "The futility rule ended it"}.get(
            stopped.why, "It ended with its last sample"
        )
        said.append(f"{what} on {date_words(seconds_of(stopped.at))}.")
    if isinstance(closed, ev.Closed):
        said.append(
            f"Closed by {closed.by or 'a user'} on {date_words(seconds_of(closed.at))}: {closed.reason}"
        )
    elif isinstance(paused, ev.Paused) and view.paused and not said:
        said.append(
            f"Paused by {paused.by or 'a user'} on {date_words(seconds_of(paused.at))}: {paused.reason} "
            "No tickets are issued; outcomes are still accepted."
        )
    return tuple(said)


def next_steps(view: View, status: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what to do after the end; nothing while the experiment runs."""
    if view.stop is None and not view.closed:
        return ()
    last = "Download the report and the export, and audit the export before you publish."
    if not status["decided"]:
        return ("Nothing is decided. Start a new experiment, or judge these data together with others.", last)
    if status["answer"] is not None:
        return (f"Use {status['answer']} for everyone.", last)
    if status["allowed"] and view.protocol.problem.goal == "screen":
        return (f"These may be used: {', '.join(status['allowed'])}.", last)
    return ("Try other policies, or a requirement that one of these meets, in a new experiment.", last)


# letters from right to left, and marks that change the direction of what follows
RIGHT_TO_LEFT = ("R", "AL", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI")


def isolated(text: str, names: Iterable[str]) -> Markup:
    """Return text as HTML in which names written from right to left do not reorder their surroundings."""
    shown = escape(text)
    for name in sorted(set(names), key=len, reverse=True):
        if any(unicodedata.bidirectional(letter) in RIGHT_TO_LEFT for letter in name):
            shown = Markup(str(shown).replace(str(escape(name)), f"<bdi>{escape(name)}</bdi>"))
    return shown


def names_of(protocol: Protocol) -> tuple[str, ...]:
    """Return the names of policies, groups and guard-rails."""
    problem = protocol.problem
    return (*problem.policies, *problem.group_names, *(rail.name for rail in problem.guardrails))


def work_question(protocol: Protocol, worker: str, count_open: Callable[[str], int]) -> dict[str, Any]:
    """Return what the work page needs: how groups are chosen, the outcomes, and how many tickets are open."""
    problem = protocol.problem
    groups: list[str | None] = list(problem.groups) if problem.mode == "proportional" else [None]
    held = [(group, count_open(worker if group is None else f"{worker}, {group}")) for group in groups]
    return {
        "worker": worker,
        "mode": problem.mode,
        "groups": list(problem.groups),
        "binary": isinstance(problem.family, Bernoulli),
        "outcomes": problem.family.outcomes,
        "guardrails": [rail.name for rail in problem.guardrails],
        "shared": protocol.procedure.items is not None,
        "held": [(group, count) for group, count in held if count],
    }


def manage_choices(protocol: Protocol) -> dict[str, Any]:
    """Return what an administrator's forms need: whether there are tickets, guard-rails, items, policies."""
    study, present = protocol.study.problem, protocol.problem
    most = study.max_policies or 0
    return {
        "rails": [rail.name for rail in present.guardrails],
        "shared": protocol.procedure.items is not None,
        "tickets": protocol.procedure.interval is None,  # to pause, import and correct outcomes
        "policies": list(present.policies),
        "room": most > len(protocol.members.names),
        "changes": study.max_policies is not None,  # whether policies may join and leave
    }


LAST_EVENTS = 50  # events among which the latest that is no view is looked for
QUIET_KINDS = ("viewed", "snapshot", "answered")


def list_row(view: View, journal: Journal, now: float, blind: bool) -> dict[str, Any]:
    """Return the row of an experiment in the list; without what depends on outcomes for a blind user."""
    state, protocol = state_word(view), view.protocol
    shown = not blind and state in ("running", "paused") and is_evaluated(view)
    leader = int(view.state.clock[ANSWER])
    leads = shown and leader != NONE and not protocol.spec.screens
    evidence, needed = float(view.state.level[EVIDENCE]), float(view.state.level[NEEDED])
    known = shown and math.isfinite(evidence) and math.isfinite(needed) and needed > 0
    return {
        "experiment": protocol.experiment,
        "title": protocol.study.title,
        "state": state,
        "samples": int(view.state.clock[TOLD]),
        "pending": view.pending,
        "late": view.counts["late"],
        "alarms": alarms(health_of(view, now), blind),
        "leader": protocol.problem.policies[leader] if leads else None,
        "leaderless": not blind and state == "running" and not leads and not protocol.spec.screens,
        "progress": max(min(evidence / needed, 1.0), 0.0) if known else None,
        "answer_words": _answer(view),
        "names": names_of(protocol),
        "expected": "",
        **_last_event(view, journal, now),
    }


def _answer(view: View) -> str:
    """Return the decision in a few words; empty while there is none."""
    stop = view.stop
    if stop is None or stop.why != "decided":
        return "nothing is decided" if stop is not None or view.closed else ""
    if stop.allowed is not None:
        return f"allowed: {', '.join(stop.allowed) or 'none'}"
    return f"{stop.answer} is the answer" if stop.answer else "none of the policies meets the requirement"


def _last_event(view: View, journal: Journal, now: float) -> dict[str, Any]:
    """Return the kind and the age of the latest event that is no view."""
    last = view.head.seq
    kind, at = "views only", ""
    for row in journal.read(view.protocol.experiment, max(last - LAST_EVENTS, 0), last):
        event = msgspec.json.decode(row.record.body, type=_Stamp)
        if event.kind not in QUIET_KINDS:
            kind, at = event.kind, event.at
    return {
        "last_kind": kind.replace("_", " "),
        "last_at": at,
        "last_seconds": max(now - seconds_of(at), 0.0) if at else None,
    }


class _Stamp(msgspec.Struct):
    """The kind and the time of any event."""

    kind: str
    at: str


SORTS = ("newest", "alarms", "last event", "progress", "title")
STATES = ("running", "paused", "decided", "exhausted", "futile", "closed")


def sorted_rows(rows: Sequence[dict[str, Any]], sort: str) -> list[dict[str, Any]]:
    """Return the rows of the list in this order; `rows` are newest first."""
    if sort == "alarms":
        return sorted(rows, key=lambda row: not row["alarms"])
    if sort == "last event":
        return sorted(rows, key=lambda row: str(row["last_at"]), reverse=True)
    if sort == "progress":
        return sorted(
            rows, key=lambda row: -1.0 if row["progress"] is None else row["progress"], reverse=True
        )
    if sort == "title":
        return sorted(rows, key=lambda row: (row["title"] or row["experiment"]).casefold())
    return list(rows)


def matches(row: Mapping[str, Any], state: str, find: str) -> bool:
    """Return whether a row of the list has this state and contains these words."""
    words = f"{row['experiment']} {row['title']} {row['leader'] or ''}".casefold()
    if state == "alarm":
        return bool(row["alarms"]) and find.casefold() in words
    return state in ("", row["state"]) and find.casefold() in words
