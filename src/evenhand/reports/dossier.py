"""The design dossier: the simulation report that a board or a regulator asks for before a study runs.

A recipe (study, scenarios, replications, seed, cap) is fixed first; everything on the page is a function of
it. The page contains its recipe, so a dossier can be made again, bit for bit, from its own file.

The recipe of a dossier: study, scenarios, replications, seed and cap, fixed before the first run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, Undecidable
from evenhand.model.argument_checks import in_words
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.initial_samples import initial_table
from evenhand.procedure.spec import Budget
from evenhand.reports.captioned_figures import (
    allocation_picture,
    assumed_guardrail_pictures,
    duration_picture,
    floors_picture,
)
from evenhand.reports.document import Report
from evenhand.reports.dossier_scenarios import Scenario, scenario_grid
from evenhand.reports.figure_rows import (
    plain,
    shares,
    true_estimates,
    true_standings,
)
from evenhand.reports.page_parts import Field, Section, Strong, Table, Words, table
from evenhand.reports.sections.runs import duration_row
from evenhand.simulation.executors import Executor, given_or_new_executor
from evenhand.simulation.runs import Rate, Runs, rate, standard_error
from evenhand.simulation.simulate import simulate_study
from evenhand.study import Study, Truth
from evenhand.theory.plan import Plan, plan
from evenhand.verdicts.forecast_statement import CHANCES

Array = NDArray[np.float64]
ReportProgress = Callable[[int, int], None]


def dossier(
    recipe: Recipe, executor: Executor | None = None, progress: ReportProgress | None = None
) -> Report:
    """Run every scenario and return the report."""
    runs: dict[str, Runs] = {}
    with given_or_new_executor(executor, None) as crew:
        for number, (name, scenario) in enumerate(recipe.scenarios.items()):
            study = replace(recipe.study, truth=_truth(recipe.study, scenario))
            runs[name] = simulate_study(study, recipe.replications, recipe.seed, (), crew)
            if progress is not None:
                progress(number + 1, len(recipe.scenarios))
    laid = _DossierSection(recipe, runs)
    title = recipe.study.title or "Choosing one policy for everyone"
    return Report((laid.section(),), (recipe.study,), title, brand="design dossier", recipe=recipe.to_json())


@dataclass(frozen=True)
class _DossierSection:
    """Makes a section from the runs of every scenario."""

    recipe: Recipe
    runs: dict[str, Runs]

    def section(self) -> Section:
        study, base = self.recipe.study, next(iter(self.runs.values()))
        problem = study.problem
        means, rails = np.array(study.means()), study.guardrail_means()
        answer = None if problem.goal == "screen" else problem.answer(means, rails)
        leader = None if answer is None else problem.policies[answer]
        standings = true_standings(problem, means, leader, rails)
        durations = [duration_row(name, runs, None) for name, runs in self.runs.items()]
        worst, error = self.worst
        return Section(
            kind="dossier",
            title="Operating characteristics",
            lead=self.lead(),
            notes=self.notes(),
            pictures=(
                floors_picture(
                    true_estimates(problem, study.means(), standings), standings, "As assumed",
                    indifference=study.procedure.indifference,
                ),
                *assumed_guardrail_pictures(problem, rails, standings, "The assumed means"),
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
        """Return the scenario with the largest share of wrong answers."""
        name = max(self.runs, key=lambda name: (rate(self.runs[name].wrong).rate, name))
        return name, rate(self.runs[name].wrong)

    @cached_property
    def ideal(self) -> Plan | None:
        try:
            return plan(self.recipe.study, gap=1e-4)
        except Undecidable:
            return None

    def lead(self) -> Words:
        name, error = self.worst
        many, risk = f"{self.recipe.replications:,}", f"{100 * self.recipe.study.procedure.delta:g}%"
        found: Words = (
            "wrong answers in ", Strong(f"{error.rate:.2%}"), " of the runs at most (95% interval up to ",
            f"{error.high:.2%}): in the scenario “{name}”.",
        )  # fmt: skip
        if error.rate == 0:
            found = (Strong("no"), f" wrong answer was given (95% interval up to {error.high:.2%} in each).")
        tried: Words = ("In ", Strong(str(len(self.runs))), f" scenarios of {many} runs each, ")
        return (*tried, *found, " The risk asked for is ", Strong(risk), ".")

    def notes(self) -> tuple[Words, ...]:
        cap = self.recipe.study.procedure.max_samples
        cut = f"A run that has not decided after {cap:,} samples counts as undecided, at {cap:,} samples"
        before = "Scenarios, runs, seed and cap were fixed before the first run; this page contains them"
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
        rows: list[list[Field]] = []
        for name, scenario in self.recipe.scenarios.items():
            metrics = {"outcome": scenario.means, **scenario.guardrails}
            for metric, means in metrics.items():
                shown = [metric] if problem.guardrails else []
                rows += [[name, *shown, policy, *means[k]] for k, policy in enumerate(problem.policies)]
        columns = ["scenario", *(["metric"] if problem.guardrails else []), "policy", *problem.group_names]
        return table("The means of every scenario", columns, rows)

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
        """Return the table of what was fixed beforehand."""
        procedure = self.recipe.study.procedure
        rows: list[list[Field]] = [
            ["risk", f"{procedure.delta:g}"],
            ["requirement", self.recipe.study.problem.describe_requirement()],
            ["sampling rule", procedure.sampling_name],
            ["stopping rule", procedure.stopping_name],
            ["initial samples per cell", in_words(procedure.initial)],
            ["samples between looks", str(procedure.batch)],
            ["content hash of the study", self.recipe.study.content_hash],
        ]
        return table("What was fixed beforehand", ["what", "value"], rows)

    def right_answer(self, name: str) -> str:
        problem, (means, rails) = self.recipe.study.problem, self.recipe.scenarios[name]
        if problem.goal == "screen":
            allowed = [problem.policies[k] for k in np.flatnonzero(problem.feasible(means, rails))]
            return ", ".join(allowed) or "none"
        answer = problem.answer(means, rails)
        return "none" if answer is None else problem.policies[answer]

    def numbers(self, name: str) -> dict[str, Any]:
        told = self.runs[name].to_dict()
        del told["seconds"]  # the one number that differs from machine to machine
        return {"scenario": name, "right": self.right_answer(name)} | told


FORMAT = 1
CAP = 8.0  # the cap of runs, in multiples of the lower bound on samples for the assumed truth
LEAST_CAP = 1000


@dataclass(frozen=True)
class Recipe:
    """Everything that a dossier depends on, fixed before the first run."""

    study: Study  # its truth as means
    scenarios: Mapping[str, Scenario]
    replications: int
    seed: int

    def to_json(self) -> str:
        """Return one line of JSON, from which `from_json` makes an equal recipe."""
        content: dict[str, Any] = {
            "evenhand": "dossier", "format": FORMAT, "study": self.study.to_dict(),
            "scenarios": {name: scenario.means.tolist() for name, scenario in self.scenarios.items()},
            "replications": self.replications, "seed": self.seed,
        }  # fmt: skip
        if self.study.problem.guardrails:
            content["guardrails"] = {
                name: {rail: table.tolist() for rail, table in scenario.guardrails.items()}
                for name, scenario in self.scenarios.items()
            }
        return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        try:
            table = json.loads(text)
            if table["evenhand"] != "dossier" or table["format"] != FORMAT:
                raise KeyError("format")
            rails = table.get("guardrails", {})
            scenarios = {
                name: Scenario(np.array(means, dtype=float), _tables(rails.get(name, {})))
                for name, means in table["scenarios"].items()
            }
            return cls(
                Study.from_dict(table["study"]), scenarios, int(table["replications"]), int(table["seed"])
            )
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise BadInput(f"the recipe in this file cannot be read: {problem}.") from None


def new_recipe(
    study: Study,
    scenarios: Mapping[str, Truth] | None = None,
    replications: int = 200,
    seed: int = 1,
    max_samples: int | None = None,
) -> Recipe:
    """Return the recipe of a study: the usual scenarios unless others are given, and the cap of runs."""
    compile_spec(study.problem, study.procedure)  # refuses what cannot be simulated
    assumed = Scenario(np.array(study.means()), _tables(study.guardrail_means()))
    grid = (
        _with_possible_outcomes(study, scenario_grid(study.problem, assumed))
        if scenarios is None
        else {name: _scenario(study, truth) for name, truth in scenarios.items()}
    )
    chosen = _cap(study) if max_samples is None else max_samples
    procedure = replace(study.procedure, max_samples=chosen)
    fixed = replace(study, procedure=procedure, truth=_truth(study, assumed))
    return Recipe(fixed, grid, replications, seed)


def _scenario(study: Study, truth: Truth) -> Scenario:
    """Return the means of a given scenario; guard-rails that it does not name are as assumed."""
    rails = study.guardrail_means() if truth.guardrails is None else truth.guardrails
    tables = study.problem.check_guardrail_means(rails)
    names = [rail.name for rail in study.problem.guardrails]
    return Scenario(np.array(truth.cell_means(study.problem)), dict(zip(names, tables, strict=True)))


def _truth(study: Study, scenario: Scenario) -> Truth:
    """Return the truth of a scenario; all but the means is that of the study."""
    rails = {name: _rows(table) for name, table in scenario.guardrails.items()}
    given = study.truth or Truth(_rows(scenario.means))
    return Truth(
        _rows(scenario.means), lag=given.lag, dropout=given.dropout, sd=given.sd, outcomes=given.outcomes,
        guardrails=rails or None,
    )  # fmt: skip


def _with_possible_outcomes(study: Study, grid: dict[str, Scenario]) -> dict[str, Scenario]:
    """Return the scenarios with means in [0, 1] where outcomes are 0 or 1, for every family."""
    if study.truth is None or study.truth.outcomes is None:
        return grid
    return {name: one for name, one in grid.items() if np.all((one.means >= 0.0) & (one.means <= 1.0))}


def _tables(tables: Mapping[str, Any] | None) -> dict[str, Array]:
    return {name: np.array(table, dtype=float) for name, table in (tables or {}).items()}


def read_recipe(path: str | Path) -> Recipe:
    """Return the recipe inside the page of a dossier."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no text; give a study, or a dossier that evenhand made.") from None
    found = re.search(r'<script type="application/json" id="recipe">(.*?)</script>', text, flags=re.DOTALL)
    if found is None:
        raise BadInput(f"{path} contains no recipe; give a study, or a dossier that evenhand made.")
    return Recipe.from_json(found.group(1))


def _cap(study: Study) -> int:
    """Return the cap of runs: a multiple of the lower bound, at most the cap of the study."""
    if isinstance(study.procedure.stopping, Budget):
        return study.procedure.max_samples
    try:
        least = plan(study, gap=1e-3).samples_at_least(study.procedure.delta)
    except Undecidable:
        return study.procedure.max_samples
    room = int(initial_table(study.procedure.initial, study.problem).sum())
    wanted = max(round(CAP * least, -2), LEAST_CAP, 4 * room)
    return int(min(study.procedure.max_samples, wanted))


def _rows(means: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, np.asarray(means, dtype=float).tolist()))
