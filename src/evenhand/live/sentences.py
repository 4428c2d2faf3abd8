"""The sentence that a status opens with: something a person can act on."""

from __future__ import annotations

from evenhand.live.projection import View
from evenhand.live.status import Corrected, Status
from evenhand.model.requirements import Caps, Floors, NoConstraint, Penalty
from evenhand.procedure.spec import proves

NOT_COMPUTED = (
    "The evidence could not be computed at the last look, which is a fault of the program: all outcomes are "
    "kept and nothing is decided by it. Please report it with an export of the experiment."
)
UNPROVEN = (
    "Its guarantee does not hold: kaufmann-koolen is proved for a variance that is known. Judge its data "
    "with stopping = 'certified'."
)
OLDER_EVIDENCE = (
    "By the evidence of this version the data decide already; the experiment goes on by that of the version "
    "that began it, so that an audit finds every step again. Judge its data to see the decision."
)


def sentence(view: View, status: Status, looked: bool, forecast: str) -> str:
    """Who leads or won, what is certified and what is open, how far and (`forecast`) how much longer."""
    if view.stop is not None:
        return _end(view, status)
    parts = [_leader(view, status, looked), _progress(status) if looked else "", forecast]
    if view.closed:
        parts.append("The experiment was closed without a decision.")
    elif view.paused:
        parts.append("The experiment is paused.")
    return " ".join(part for part in parts if part)


def _end(view: View, status: Status) -> str:
    assert view.stop is not None
    samples, risk = f"{view.stop.samples:,} samples", f"{100 * view.protocol.procedure.delta:.4g}%"
    note = "" if status.corrected is None else _correction(status, status.corrected)
    if view.stop.why == "exhausted":
        leader = f"{status.leader} leads" if status.leader else "no policy leads"
        return f"All {samples} are used and nothing is decided; {leader}.{note}"
    rule = view.protocol.procedure.stopping_name
    basis = f"certified at risk {risk}" if rule == "certified" else f"by the {rule} rule at risk {risk}"
    if rule == "budget":
        basis = "the best estimate when the budget was used"
    if view.stop.answer is None:
        return f"None of the policies meets the requirement: {basis}, after {samples}.{note}"
    return f"{view.stop.answer} is the answer: {basis}, after {samples}.{note}"


def _correction(status: Status, now: Corrected) -> str:
    """What the corrections did to a decision that was right to take when it was taken."""
    evidence, needed, leads = now.evidence, now.needed, now.leader or "nobody"
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
    if leader is not None:
        return f"{leader} leads. {_requirement(view, status, leader)}".strip()
    if not looked:
        so_far = "1 outcome" if status.samples == 1 else f"{status.samples:,} outcomes"
        return f"The start is under way: {so_far} so far, no policy leads yet."
    return "No policy seems to meet the requirement so far."


def _requirement(view: View, status: Status, leader: str) -> str:
    """What is certified, refuted and open of the leader's floors, caps or other requirement."""
    constraint = view.protocol.problem.constraint
    if isinstance(constraint, (NoConstraint, Penalty)):
        return ""
    if isinstance(constraint, (Floors, Caps)):
        noun = "floor" if isinstance(constraint, Floors) else "cap"
        found: dict[str, list[str]] = {"met": [], "failed": [], "undecided": []}
        for cell in status.cells:
            if cell.policy == leader:
                found[cell.verdict].append(cell.group)
        said = {"met": "met for", "failed": "missed for", "undecided": "still open for"}
        if proves(view.protocol.problem, view.protocol.procedure):
            said |= {"met": "certified for", "failed": "refuted for"}
        return (
            f"Its {noun} is "
            + ", ".join(f"{said[v]} {_listed(groups)}" for v, groups in found.items() if groups)
            + "."
        )
    verdict = next(policy.verdict for policy in status.policies if policy.policy == leader)
    return {"met": "Its requirement is certified.", "failed": "Its requirement is refuted."}.get(
        verdict, "Its requirement is still open."
    )


def _progress(status: Status) -> str:
    evidence, needed = status.evidence, status.needed
    if not needed or evidence is None:
        return ""
    return f"{max(min(evidence / needed, 1.0), 0.0):.0%} of the evidence needed."


def _listed(names: list[str]) -> str:
    if len(names) > 6:
        return f"{len(names)} groups"
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
