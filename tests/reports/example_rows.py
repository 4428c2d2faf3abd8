"""Rows, sections and reports made by hand, for tests of how they look."""

from __future__ import annotations

import evenhand as eh
from evenhand.model.result_rows import CellRow, PolicyRow
from evenhand.reports.captioned_figures import (
    allocation_picture,
    duration_picture,
    evidence_picture,
    floors_picture,
    success_picture,
)
from evenhand.reports.document import Report
from evenhand.reports.figure_rows import Bar, Duration, Evidence, IntervalShares, Share, Success
from evenhand.reports.page_parts import Section, Strong, table
from evenhand.study import Study, Truth

POLICIES = ("Aspirin only", "Heparin only", "Both", "Neither")
GROUPS = ("under 80", "80 and over")
MEANS = ((0.8925, 0.8429), (0.8751, 0.7980), (0.8705, 0.7843), (0.9013, 0.8248))
VERDICTS = (("met", "undecided"), ("met", "undecided"), ("met", "failed"), ("met", "undecided"))


def estimates(policies: tuple[str, ...] = POLICIES, groups: tuple[str, ...] = GROUPS) -> list[CellRow]:
    return [
        CellRow(
            p, g, 1000 + 10 * k, MEANS[k][i], MEANS[k][i] - 0.02, MEANS[k][i] + 0.02, VERDICTS[k][i], 5 / 6
        )
        for k, p in enumerate(policies)
        for i, g in enumerate(groups)
    ]


def standings(policies: tuple[str, ...] = POLICIES) -> list[PolicyRow]:
    overall, verdicts = (0.8785, 0.8534, 0.8462, 0.8797), ("undecided", "undecided", "failed", "undecided")
    places = (2, 3, 4, 1)
    return [PolicyRow(p, overall[k], verdicts[k], places[k], leads=k == 0) for k, p in enumerate(policies)]


def shares(policies: tuple[str, ...] = POLICIES, groups: tuple[str, ...] = GROUPS) -> list[Share]:
    values = (0.01, 0.41, 0.02, 0.06, 0.01, 0.03, 0.05, 0.41)
    cells = [(p, g) for p in policies for g in groups]
    return [Share(p, g, values[i], values[i] * 0.9) for i, (p, g) in enumerate(cells)]


def interval_shares() -> list[IntervalShares]:
    """Shares of twenty intervals; the last policy joins in the fifth."""
    rows = []
    for number in range(1, 21):
        present = POLICIES if number > 4 else POLICIES[:3]
        weights = {p: 1.0 + (7 * number + 3 * k) % 5 for k, p in enumerate(present)}
        row = {p: w / sum(weights.values()) for p, w in weights.items()}
        rows.append(IntervalShares(number, dict.fromkeys(GROUPS, row)))
    return rows


def evidences(name: str = "Neither") -> list[Evidence]:
    return [
        Evidence(
            20 * t,
            0.04 * t - 1.0,
            4.38,
            "Aspirin only's floor in 80 and over" if t > 60 else f"against {name}",
        )
        for t in range(1, 120)
    ]


def durations(name: str = "ts-ids, certified") -> list[Duration]:
    bars = tuple(Bar(1000.0 * i, 1000.0 * (i + 1), (7 * i) % 11) for i in range(20))
    marks = ((0.5, 9000.0), (0.7, 12000.0), (0.8, 14000.0), (0.9, 17000.0))
    return [Duration(name, bars, marks, 0.02, 6000.0), Duration("uniform", bars, marks)]


def successes(name: str = "ts-ids") -> list[Success]:
    return [
        Success(n, t, 0.5 + t / 20000, 0.48 + t / 20000, 0.52 + t / 20000)
        for n in (name, "uniform")
        for t in (3000, 6000)
    ]


def made(
    policies: tuple[str, ...] = POLICIES, groups: tuple[str, ...] = GROUPS, title: str = "Stroke trial"
) -> Report:
    """A report with every picture, under any names."""
    problem = eh.Problem(
        list(policies), dict(zip(groups, (0.7177, 0.2823), strict=True)), eh.Bernoulli(), eh.Floors(5 / 6)
    )
    study = Study(problem, eh.Procedure(), Truth(means=MEANS), title)
    verdict = Section(
        kind="verdict", title="What the data say",
        lead=("Undecided. ", Strong(policies[0]), f" leads; its floor is open for {groups[1]}."),
        notes=(("Each interval holds the true mean with probability at least 98.12%.",),),
        pictures=(
            floors_picture(estimates(policies, groups), standings(policies)),
            evidence_picture(evidences(policies[3])),
            allocation_picture(shares(policies, groups), standings(policies)),
        ),
        tables=(table("Further samples", ["chance", "further samples"], [["50%", 1200], ["80%", 3400]]),),
        numbers={"evidence": 2.67, "policies": list(policies)},
        highlights=(("answer", policies[0]), ("risk", "5%")), progress=0.61,
        facts=(("head of the log", "9f3a" * 16), ("worker", policies[1])),
        code="evenhand judge study.toml data.csv",
    )  # fmt: skip
    runs = Section(
        kind="runs", title=f"Runs of {policies[2]}", lead=("The answer was right in ", Strong("98.1%"), "."),
        pictures=(duration_picture(durations(policies[0])), success_picture(successes(policies[1]))),
    )  # fmt: skip
    return Report((verdict, runs), (study,), title)
