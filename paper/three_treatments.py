"""example:2: three treatments, where finding the feasible set first wastes samples."""

from __future__ import annotations

from collections.abc import Callable

from evenhand.paper import instances, methods
from evenhand.paper.methods import Setting

from evenhand.procedure.spec import Procedure
from evenhand.reports.page_parts import Section, Strong, table
from evenhand.theory.plan import plan

EPSILONS = (0.5, 0.1, 0.01)
DELTA = 0.05
TWO_STAGE = "feasibility first, then best"
PROCEDURES = {
    name: Procedure(sampling, "stylised", DELTA, methods.INITIAL, max_samples=methods.CAP)
    for name, sampling in ((TWO_STAGE, "two-stage"), (methods.DEFAULT, Procedure().sampling))
}
STEPS = len(PROCEDURES) * len(EPSILONS)


def section(setting: Setting, on_done: Callable[[str], None]) -> Section:
    """Run three epsilons: B is infeasible by epsilon, but far from best, so it does not matter."""
    rows, numbers = [], {}
    for epsilon in EPSILONS:
        problem, means = instances.three_treatments(epsilon)
        found = methods.run(
            problem,
            means,
            PROCEDURES,
            setting,
            lambda name, epsilon=epsilon: on_done(f"(example) epsilon {epsilon:g}: {name}"),  # type: ignore[misc]
        )
        rows.append(
            [
                f"{epsilon:g}",
                plan(problem, means).time_high,
                *(methods.mean_and_error(runs) for runs in found.values()),
            ]
        )
        numbers[f"{epsilon:g}"] = {name: methods.numbers(runs) for name, runs in found.items()}
    return Section(
        "runs",
        "The three treatments of section 2",
        (
            "Deciding feasibility first needs more and more samples as ",
            Strong("epsilon"),
            " decreases; deciding both questions together does not.",
        ),
        tables=(
            table(
                f"Mean samples ± standard error at risk {DELTA:g}",
                ["epsilon", "T*", TWO_STAGE, methods.DEFAULT],
                rows,
            ),
        ),
        numbers=numbers,
    )
