"""The design dossier: the simulation report that a board or a regulator asks for before a study runs.

A recipe (study, scenarios, replications, seed, cap) is fixed first; everything on the page is a function of
it. The page carries its recipe, so a dossier can be made again, bit for bit, from its own file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from evenhand.errors import Undecidable
from evenhand.report.document import Report
from evenhand.report.pictures import allocation_picture, duration_picture, floors_picture
from evenhand.report.recipe import Recipe
from evenhand.report.rows import plain
from evenhand.report.sections import Field, Section, Strong, Table, Words, table
from evenhand.report.sources.common import CHANCES, shares, true_estimates, true_standings
from evenhand.report.sources.runs import duration_row
from evenhand.sim.executors import Executor, lent_or_own
from evenhand.sim.runs import Rate, Runs, rate, standard_error
from evenhand.sim.simulate import simulate_study
from evenhand.study import Truth
from evenhand.theory.plan import Plan, plan

Tell = Callable[[int, int], None]


def dossier(recipe: Recipe, executor: Executor | None = None, tell: Tell | None = None) -> Report:
    """Run every scenario and lay out what came of it."""
    runs: dict[str, Runs] = {}
    with lent_or_own(executor, None) as crew:
        for number, (name, means) in enumerate(recipe.scenarios.items()):
            study = replace(recipe.study, truth=Truth(means=means))
            runs[name] = simulate_study(study, recipe.replications, recipe.seed, (), crew)
            if tell is not None:
                tell(number + 1, len(recipe.scenarios))
    laid = _Laid(recipe, runs)
    title = recipe.study.title or "Choosing one policy for everyone"
    return Report((laid.section(),), (recipe.study,), title, brand="design dossier", recipe=recipe.to_json())


@dataclass(frozen=True)
class _Laid:
    """Runs by scenario, laid out as a section."""

    recipe: Recipe
    runs: dict[str, Runs]

    def section(self) -> Section:
        study, base = self.recipe.study, next(iter(self.runs.values()))
        problem = study.problem
        answer = problem.answer(np.array(study.means()))
        standings = true_standings(
            problem, study.means(), None if answer is None else problem.policies[answer]
        )
        durations = [duration_row(name, runs, None) for name, runs in self.runs.items()]
        worst, error = self.worst
        return Section(
            kind="dossier",
            title="Operating characteristics",
            lead=self.lead(),
            notes=self.notes(),
            pictures=(
                floors_picture(true_estimates(problem, study.means(), standings), standings, "As assumed"),
                duration_picture(durations, "How long it takes, by scenario"),
                allocation_picture(
                    shares(problem, base.allocation, None if self.ideal is None else self.ideal.allocation),
                    standings, "Where samples go if the assumption is true", "the best allocation",
                ),
            ),
            tables=(self.errors(), self.samples(), self.scenarios(), self.allocation(), self.fixed()),
            numbers={
                "replications": self.recipe.replications,
                "seed": self.recipe.seed,
                "worst": {"scenario": worst, "error": error._asdict()},
                "scenarios": [self.numbers(name) for name in self.runs],
                "durations": plain(durations),
            },
            highlights=(
                ("largest error seen", f"{error.rate:.2%}"),
                ("risk asked for", f"{100 * study.procedure.delta:g}%"),
                ("scenarios", str(len(self.runs))),
                ("runs of each", f"{self.recipe.replications:,}"),
            ),
            facts=(("seed", str(self.recipe.seed)), ("cap", f"{study.procedure.max_samples:,} samples")),
            code="evenhand report --dossier THIS-FILE.html -o again.html",
        )  # fmt: skip

    @cached_property
    def worst(self) -> tuple[str, Rate]:
        """The scenario with the largest share of wrong answers."""
        name = max(self.runs, key=lambda name: (rate(self.runs[name].wrong).rate, name))
        return name, rate(self.runs[name].wrong)

    @cached_property
    def ideal(self) -> Plan | None:
        try:
            return plan(self.recipe.study.problem, self.recipe.study.means(), gap=1e-4)
        except Undecidable:
            return None

    def lead(self) -> Words:
        name, error = self.worst
        many, risk = f"{self.recipe.replications:,}", f"{100 * self.recipe.study.procedure.delta:g}%"
        found: Words = (
            "wrong answers came in ", Strong(f"{error.rate:.2%}"), " of the runs at most (95% interval up ",
            f"to {error.high:.2%}): in the scenario “{name}”.",
        )  # fmt: skip
        if error.rate == 0:
            found = (Strong("no"), f" wrong answer was given (95% interval up to {error.high:.2%} in each).")
        tried: Words = ("In ", Strong(str(len(self.runs))), f" scenarios of {many} runs each, ")
        return (*tried, *found, " The risk asked for is ", Strong(risk), ".")

    def notes(self) -> tuple[Words, ...]:
        cap = self.recipe.study.procedure.max_samples
        cut = f"A run that has not decided after {cap:,} samples counts as undecided, at {cap:,} samples"
        before = "Scenarios, runs, seed and cap were fixed before the first run; this page carries them"
        said: list[Words] = [(f"{cut}; near a boundary most runs end so. {before}.",)]
        if self.ideal is not None:
            least = self.ideal.samples_at_least(self.recipe.study.procedure.delta)
            said.append(
                (f"As assumed, no procedure with this risk needs fewer than {least:,.0f} on average.",)
            )
        return tuple(said)

    def errors(self) -> Table:
        rows: list[list[Field]] = []
        for name, runs in self.runs.items():
            wrong = rate(runs.wrong)
            right = self.right_answer(name)
            interval = f"{wrong.low:.1%} to {wrong.high:.1%}"
            rows.append([name, right, wrong.rate, interval, 1.0 - float(runs.stopped.mean())])
        columns = ["scenario", "right answer", "error", "95% interval", "share at the cap"]
        return table("Wrong answers, with exact 95% intervals", columns, rows)

    def samples(self) -> Table:
        rows: list[list[Field]] = []
        for name, runs in self.runs.items():
            quantiles: list[Field] = [runs.quantile(chance) for chance in CHANCES]
            rows.append([name, float(runs.samples.mean()), standard_error(runs.samples), *quantiles])
        columns = ["scenario", "mean samples", "standard error", *(f"{chance:.0%} by" for chance in CHANCES)]
        return table("Samples until the decision", columns, rows)

    def scenarios(self) -> Table:
        problem = self.recipe.study.problem
        rows: list[list[Field]] = [
            [name, policy, *means[k]]
            for name, means in self.recipe.scenarios.items()
            for k, policy in enumerate(problem.policies)
        ]
        return table("The means of every scenario", ["scenario", "policy", *problem.group_names], rows)

    def allocation(self) -> Table:
        problem = self.recipe.study.problem
        rows: list[list[Field]] = [
            [name, policy, *runs.allocation[k].tolist()]
            for name, runs in self.runs.items()
            for k, policy in enumerate(problem.policies)
        ]
        columns = ["scenario", "policy", *(f"share, {group}" for group in problem.group_names)]
        return table("Where the samples went, on average", columns, rows)

    def fixed(self) -> Table:
        """What was fixed beforehand."""
        procedure = self.recipe.study.procedure
        rows: list[list[Field]] = [
            ["risk", f"{procedure.delta:g}"],
            ["requirement", self.recipe.study.problem.constraint.describe()],
            ["sampling rule", procedure.sampling_name],
            ["stopping rule", procedure.stopping_name],
            ["initial samples per cell", str(procedure.initial)],
            ["samples between looks", str(procedure.batch)],
            ["content hash of the study", self.recipe.study.content_hash],
        ]
        return table("What was fixed beforehand", ["what", "value"], rows)

    def right_answer(self, name: str) -> str:
        problem = self.recipe.study.problem
        answer = problem.answer(np.array(self.recipe.scenarios[name]))
        return "none" if answer is None else problem.policies[answer]

    def numbers(self, name: str) -> dict[str, Any]:
        told = self.runs[name].to_dict()
        del told["seconds"]  # the one number that differs from machine to machine
        return {"scenario": name, "right": self.right_answer(name)} | told
