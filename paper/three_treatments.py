"""example:2: three treatments, where finding the feasible set first would be a waste."""

from __future__ import annotations

from collections.abc import Callable

from evenhand.paper import contestants, instances
from evenhand.paper.contestants import Setting

from evenhand.procedure.spec import Procedure
from evenhand.reports.page_parts import Section, Strong, table
from evenhand.theory.plan import plan

EPSILONS = (0.5, 0.1, 0.01)
DELTA = 0.05
TWO_STAGE = "feasibility first, then best"
STEPS = 2 * len(EPSILONS)


def section(setting: Setting, tick: Callable[[str], None]) -> Section:
    """Treatment B is infeasible by epsilon but far from best: nobody needs to know whether it is feasible."""
    rows, numbers = [], {}
    for epsilon in EPSILONS:
        problem, means = instances.three_treatments(epsilon)
        stylised = Procedure(
            stopping="stylised", delta=DELTA, initial=contestants.INITIAL, max_samples=contestants.CAP
        )
        procedures = {
            TWO_STAGE: Procedure(
                "two-stage", "stylised", DELTA, contestants.INITIAL, max_samples=contestants.CAP
            ),
            contestants.DEFAULT: stylised,
        }
        found = contestants.run(
            problem,
            means,
            procedures,
            setting,
            lambda name, epsilon=epsilon: tick(f"(example) epsilon {epsilon:g}: {name}"),  # type: ignore[misc]
        )
        rows.append(
            [
                f"{epsilon:g}",
                plan(problem, means).time_high,
                *(contestants.mean_and_error(runs) for runs in found.values()),
            ]
        )
        numbers[f"{epsilon:g}"] = {name: contestants.numbers(runs) for name, runs in found.items()}
    return Section(
        "runs",
        "The three treatments of section 2",
        (
            "Deciding first who is feasible costs ever more as ",
            Strong("epsilon"),
            " shrinks; weighing both questions together does not.",
        ),
        tables=(
            table(
                f"Mean samples ± standard error at risk {DELTA:g}",
                ["epsilon", "T*", TWO_STAGE, contestants.DEFAULT],
                rows,
            ),
        ),
        numbers=numbers,
    )
