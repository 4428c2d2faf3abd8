"""Print one simulated run step by step, as lines or JSON, and draw its evidence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.options import print_json

if TYPE_CHECKING:
    from evenhand.simulation.buffers import Rows, Trace
    from evenhand.study import Study

# the figure is about this many pixels wide, so more steps would not be visible
MAX_DRAWN_STEPS = 2000


def show_trace(study: Study, seed: int, replication: int, target: Path | None, as_json: bool) -> None:
    """Print every step of one replication; draw its evidence if `target` is given."""
    from evenhand.simulation.simulate import follow

    rows, trace = follow(study, seed, replication)
    if target is not None:
        from evenhand.cli.figure_output import draw_evidence

        draw_evidence(study, follow(study, seed, replication, MAX_DRAWN_STEPS)[1], target)
    steps = steps_of(study, trace)
    if as_json:
        print_json(_result(study, seed, replication, rows) | {"steps": steps})
        return
    for step in steps:
        click.echo(_line(step, study.problem.goal == "screen"))
    click.echo(_ending(study, replication, rows))
    if target is not None:
        click.echo(f"Written: {target}")


def steps_of(study: Study, trace: Trace) -> list[dict[str, Any]]:
    """Return every sample with evidence, threshold and leader; None before the first check."""
    policies, groups = study.problem.policies, study.problem.group_names
    steps = []
    for number in range(len(trace.policy)):
        evidence, needed = float(trace.evidence[number]), float(trace.needed[number])
        checked = needed != 0.0
        answer = int(trace.answer[number])
        steps.append(
            {
                "samples": (number + 1) * trace.every,
                "policy": policies[trace.policy[number]],
                "group": groups[trace.group[number]],
                "outcome": float(trace.outcome[number]),
                "evidence": evidence if checked and math.isfinite(evidence) else None,
                "needed": needed if checked and math.isfinite(needed) else None,
                "leader": policies[answer] if checked and answer >= 0 else None,
            }
        )
    return steps


def _result(study: Study, seed: int, replication: int, rows: Rows) -> dict[str, Any]:
    answer = int(rows.answer[0])
    screened: dict[str, Any] = {}
    if study.problem.goal == "screen":
        called = zip(study.problem.policies, rows.allowed, strict=True)
        screened = {"allowed": [name for name, allowed in called if allowed]}
    return {
        "replication": replication,
        "seed": seed,
        "answer": study.problem.policies[answer] if answer >= 0 else None,
        "correct": bool(rows.right[0]),
        "stopped": bool(rows.stopped[0]),
        "samples": int(rows.samples[0]),
    } | screened


def _line(step: dict[str, Any], screens: bool) -> str:
    line = f"{step['samples']:>8,}  {step['policy']} | {step['group']}  {step['outcome']:.6g}"
    if step["evidence"] is None:
        return line
    needed = "" if step["needed"] is None else f" of {step['needed']:.3f}"
    leads = "" if screens else f"  leads: {step['leader'] or 'none'}"
    return f"{line}  evidence {step['evidence']:.3f}{needed}{leads}"


def _ending(study: Study, replication: int, rows: Rows) -> str:
    result = _result(study, 0, replication, rows)
    how = "decided" if result["stopped"] else "reached the cap undecided"
    right = "right" if result["correct"] else "wrong"
    answer = result["answer"] or "none of the policies meets the requirement"
    if result.get("allowed"):
        answer = f"the requirement is met by {', '.join(result['allowed'])} only"
    return f"Replication {replication} {how} after {result['samples']:,} samples: {answer} ({right})."
