"""Sentences about the status of an experiment, for the terminal, the dashboard and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenhand.live import events as ev
from evenhand.live.interval_status import is_odd
from evenhand.live.status import ALERT, Corrected, Health, Status
from evenhand.model.phrases import (
    bounds_sentence,
    classes_sentence,
    close_words,
    evidence_share,
    listed_policies,
    quantity,
    spent_sentence,
)
from evenhand.model.requirements import Caps, Floors, NoConstraint, Penalty
from evenhand.model.result_rows import Classes
from evenhand.procedure.spec import proves

if TYPE_CHECKING:
    from evenhand.live.projection import View

NOT_COMPUTED = (
    "The evidence could not be computed at the last look, which is a fault of the program: all outcomes are "
    "kept and nothing is decided by it. Please report it with an export of the experiment."
)
UNPROVEN = (
    "Its guarantee does not hold: kaufmann-koolen is proved for a variance that is known. Judge its data "
    "with stopping = 'certified'."
)
LINEAR_BETS = "Policies are compared by linear bets, which use the order of the outcomes."
INTERVAL_BETS = "Policies are compared by linear bets, whose size is fixed before an interval is counted."
OLDER_EVIDENCE = (
    "By the evidence of this version the data decide already; the experiment continues by that of the "
    "version that began it, so that an audit finds every step again. Judge its data to see the decision."
)


def sentence(view: View, status: Status, looked: bool, forecast: str) -> str:
    """Return the leader or answer, what is certified and open, the progress and the forecast."""
    if view.stop is not None:
        return " ".join(part for part in (_end(view, status), spent_sentence(status.spent)) if part)
    parts = [_leader(view, status, looked), _progress(status) if looked else "", forecast]
    parts.append(spent_sentence(status.spent))
    if view.closed:
        parts.append("The experiment was closed without a decision.")
    elif view.paused:
        parts.append("The experiment is paused.")
    return " ".join(part for part in parts if part)


def _end(view: View, status: Status) -> str:
    assert view.stop is not None
    samples, risk = f"{view.stop.samples:,} samples", f"{100 * view.protocol.procedure.delta:.4g}%"
    note = "" if status.corrected is None else _correction(status, status.corrected)
    if view.stop.why != "decided":
        ended = f"All {samples} are used"
        if view.stop.why == "futile":
            ended = f"Ended without a verdict after {samples}, because {_futile(view)}"
        if _screens(view):
            return f"{ended}; not every policy is classified. {_classes(view, status)}{note}"
        leader = f"{status.leader} leads" if status.leader else "no policy leads"
        return f"{ended} and nothing is decided; {leader}.{note}"
    rule = view.protocol.procedure.stopping_name
    basis = f"certified at risk {risk}" if rule == "certified" else f"by the {rule} rule at risk {risk}"
    if rule == "budget":
        basis = "the best estimate when the budget was used"
    if view.stop.allowed is not None:
        return f"{_screened(view, view.stop.allowed)}: {basis}, after {samples}.{note}"
    if view.stop.answer is None:
        return f"None of the policies meets the requirement: {basis}, after {samples}.{note}"
    procedure = view.protocol.procedure
    if procedure.indifference or procedure.tolerance:
        what = close_words(procedure.indifference, bool(procedure.tolerance))
        basis = f"it {what}, {basis}"
    return f"{view.stop.answer} is the answer: {basis}, after {samples}.{note}"


def changes_sentence(view: View) -> str:
    """Return which policies joined and left, and which the answer is about."""
    joined = [event.policy for event in view.changes if isinstance(event, ev.PolicyAdded)]
    left = [event.policy for event in view.changes if isinstance(event, ev.PolicyWithdrawn)]
    parts = [
        f"{listed_policies(names)} {verb}" for names, verb in ((joined, "joined"), (left, "left")) if names
    ]
    number, over = len(view.protocol.problem.policies), view.stop is not None or view.closed
    present = "one policy" if number == 1 else f"{number} policies"
    return (
        f"{' and '.join(parts)} during the experiment; the answer {'is' if over else 'will be'} about the "
        f"{present} present at the end, and nothing is claimed about one that left."
    )


def _futile(view: View) -> str:
    """Return the futility rule in words."""
    procedure = view.protocol.procedure
    return (
        f"the estimated chance of a decision within {procedure.max_samples:,} samples fell below "
        f"{100 * (procedure.futility or 0.0):g}%,"
    )


def _screens(view: View) -> bool:
    return view.protocol.problem.goal == "screen"


def _classes(view: View, status: Status) -> str:
    proved = proves(view.protocol.problem, view.protocol.procedure)
    return classes_sentence(Classes(status.allowed, status.failed, status.open), proved)


def _screened(view: View, allowed: list[str]) -> str:
    """Return how many policies were classified as allowed when the experiment stopped, and which."""
    policies = view.protocol.problem.policies
    verb = "is" if len(allowed) == 1 else "are"
    names = f" ({listed_policies(allowed)})" if allowed else ""
    return f"{len(allowed)} of {len(policies)} policies {verb} allowed{names}"


def _correction(status: Status, now: Corrected) -> str:
    """Return the effect of corrections on a decision that was valid when it was made."""
    evidence, needed, leads = now.evidence, now.needed, now.leader or "no policy"
    if not needed or evidence is None:
        return " Outcomes were corrected since."
    if status.decided and evidence >= needed and now.leader == status.answer:
        return " Outcomes were corrected since; the evidence still suffices."
    return (
        f" Outcomes were corrected since; with them {leads} leads and the evidence is {evidence:.3g} of "
        f"{needed:.3g} needed."
    )


def _leader(view: View, status: Status, looked: bool) -> str:
    leader = status.leader
    if looked and _screens(view):
        return _classes(view, status)
    if leader is not None:
        return f"{leader} leads. {_requirement(view, status, leader)}".strip()
    if not looked:
        so_far = quantity(status.samples, "outcome")
        nothing = "nothing is classified yet" if _screens(view) else "no policy leads yet"
        return f"The start is under way: {so_far} so far, {nothing}."
    return "No policy seems to meet the requirement so far."


def _requirement(view: View, status: Status, leader: str) -> str:
    """Return what is certified, refuted and open of the leader's requirement."""
    constraint = view.protocol.problem.constraint
    if isinstance(constraint, (NoConstraint, Penalty)):
        return ""
    if isinstance(constraint, (Floors, Caps)) or view.protocol.problem.control is not None:
        return bounds_sentence(status.cells, leader, proves(view.protocol.problem, view.protocol.procedure))
    verdict = next(policy.verdict for policy in status.policies if policy.policy == leader)
    return {"met": "Its requirement is certified.", "failed": "Its requirement is refuted."}.get(
        verdict, "Its requirement is still open."
    )


def _progress(status: Status) -> str:
    evidence, needed = status.evidence, status.needed
    if not needed or evidence is None:
        return ""
    return f"{evidence_share(evidence, needed)}."


def counts_sentence(status: Status) -> str:
    """Return the numbers of outcomes and tickets, and the evidence."""
    waiting = quantity(status.pending, "open ticket")
    if status.intervals is not None:
        waiting = quantity(len(status.intervals.open), "open interval")
    counts = f"{status.state.capitalize()}: {quantity(status.samples, 'outcome')}, {waiting}"
    late = f", {status.late:,} late and not counted" if status.late else ""
    if not status.needed or status.evidence is None:
        return f"{counts}{late}."
    return f"{counts}{late}; evidence {status.evidence:.3g}, needed {status.needed:.3g}."


def health_sentence(health: Health) -> str:
    """Return what needs attention, or that nothing does."""
    if health.well and health.sample_ratio_p is None:  # a blind caller
        return "Health: nothing needs attention."
    if health.well:
        return f"Health: allocation as intended (sample-ratio p = {health.sample_ratio_p:.2g})."
    return f"Health: {'; '.join(health_findings(health))}."


def health_findings(health: Health) -> list[str]:
    """Return each finding that needs attention in words."""
    return list(health_alarms(health).values())


def health_alarms(health: Health) -> dict[str, str]:
    """Return each finding that needs attention in words, by its kind."""
    found = {}
    if health.sample_ratio_p is not None and health.sample_ratio_p < ALERT:
        found["allocation"] = f"allocation differs from the intended one (p = {health.sample_ratio_p:.2g})"
    if health.starved:
        first = health.starved[0]
        others = f" and {len(health.starved) - 1} more cells" if len(health.starved) > 1 else ""
        found["starved"] = f"{first.policy} in {first.group}{others} short of initial samples"
    if health.pending_too_long and health.oldest_pending_seconds is not None:
        age = _duration(health.oldest_pending_seconds)
        ticket = f"ticket {health.oldest_pending}" if health.oldest_pending else "a ticket"
        found["open-ticket"] = f"{ticket} has been open for {age}: tell or drop it"
    if health.clock_back:
        times = "once" if health.clock_back == 1 else f"{health.clock_back} times"
        found["clock"] = f"the clock went back {times}"
    if health.overdue is not None:
        found["overdue"] = f"the counts of interval {health.overdue} are overdue: run sync or tell them"
    if is_odd(health.volume_ratio):
        found["volume"] = f"the last interval had {health.volume_ratio:.2g} times the expected units"
    return found


def _duration(seconds: float) -> str:
    for name, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
