"""`evenhand demo`: the whole story on the stroke trial."""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from evenhand.live.experiment import Experiment
    from evenhand.sim.runs import Runs
    from evenhand.study import Study
    from evenhand.theory.plan import Plan

BUDGET = 6_000
REPLICATIONS = 300
SEED = 7


@click.command("demo")
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False),
    default="out/demo",
    show_default=True,
    help="Folder to write to.",
)
@click.option("--serve", is_flag=True, help="Leave the dashboard running with the trial in it.")
def command(out: str, serve: bool) -> None:
    """The stroke trial as a story: plan, simulate, a live run that stops, a report.

    The policy with the best overall mean fails the elderly. See what finding that out must cost, how a rule
    that looks at groups compares with one that does not, and a live experiment that stops with a certified
    answer.
    """
    from evenhand.app.terminal import console, say
    from evenhand.study import load
    from evenhand.theory.plan import plan

    folder = _fresh_folder(Path(out))
    study = load(_put(folder, "stroke.toml", "stroke_cells.csv"))
    show, journal = console(), folder / "trial.db"
    _introduce(show, study)
    planned = plan(study.problem, study.means())
    least = planned.samples_at_least(0.05)
    say(
        show,
        f"\nPlan. No procedure with a 5% risk can do with fewer than {least:,.0f} patients on average.",
    )
    runs = _simulate(show, study)
    lacking = _lacking("live", "report")
    if lacking:
        say(show, f"\nThe live run and the report need more than the base: install evenhand[{lacking}].")
        say(show, f"Next: evenhand plan {folder}/stroke.toml")
        return
    with _run_live(show, study, folder) as trial:
        page = _report(trial, runs, planned, study.title, folder)
    say(show, f"\nOpen {page} for the report.")
    say(
        show,
        f"Next: evenhand status {journal}, evenhand audit {journal}, evenhand plan {folder}/stroke.toml",
    )
    if serve:
        _serve(show, folder)


def _introduce(show: Console, study: Study) -> None:
    from evenhand.app.terminal import say, section, table, verdict

    problem, means = study.problem, study.means()
    scores, feasible = problem.scores(means), problem.feasible(means)
    order = (-scores).argsort(kind="stable")
    best = problem.policies[int(order[0])]
    say(show, f"{best} has the best overall mean of four treatments. It fails the patients of 80 and over.")
    rows = [
        [
            problem.policies[k],
            *(f"{mean:.4f}" for mean in means[k]),
            f"{scores[k]:.4f}",
            verdict("met" if feasible[k] else "failed"),
        ]
        for k in order
    ]
    section(
        show,
        "Patients well after 14 days; the floor is 5/6",
        table(["", *problem.group_names, "overall", "floor"], rows),
    )


def _simulate(show: Console, study: Study) -> Runs:
    """How often the answer is right after 6,000 patients: evenhand's rule against equal groups."""
    from evenhand.app.terminal import progress, say
    from evenhand.procedure.spec import Budget
    from evenhand.sim.runs import rate
    from evenhand.sim.simulate import simulate

    base = replace(study.procedure, stopping=Budget(BUDGET), batch=1, max_samples=BUDGET)
    found = {}
    for name in ("uniform", "ts-ids"):
        with progress(f"simulate {name}", REPLICATIONS) as tick:
            found[name] = simulate(
                study.problem, study.means(), replace(base, sampling=name), REPLICATIONS, SEED,
                checkpoints=range(1_000, BUDGET + 1, 1_000), progress=lambda done, total: tick(done),
            )  # fmt: skip
    shares = {name: rate(runs.correct).rate for name, runs in found.items()}
    say(
        show,
        f"\nSimulate. After {BUDGET:,} patients the answer is right in {shares['ts-ids']:.0%} "
        f"of {REPLICATIONS} runs; "
        f"with equal groups in {shares['uniform']:.0%}.",
    )
    return found["ts-ids"]


def _run_live(show: Console, study: Study, folder: Path) -> Experiment:
    """A live experiment: tickets out, outcomes in, until the procedure says that it has decided."""
    from evenhand.app.terminal import progress, say
    from evenhand.live.experiment import Experiment
    from evenhand.procedure.randomness import OUTCOMES, uniform

    means = {
        (policy, group): study.means()[k][g]
        for k, policy in enumerate(study.problem.policies)
        for g, group in enumerate(study.problem.group_names)
    }
    trial = Experiment.create(str(folder / "trial.db"), study, seed=SEED)
    told = 0
    with progress("live run", 60_000) as tick:
        while asks := trial.ask(study.procedure.batch):
            outcomes = []
            for ask in asks:
                assert ask.group is not None
                told += 1
                well = uniform(SEED, told, 0, 0, OUTCOMES) < means[ask.policy, ask.group]
                outcomes.append((ask, float(well), None))
            trial.tell_all(outcomes)
            tick(min(told, 60_000))
    status = trial.status()
    say(show, f"\nLive run. {status['sentence']} Head of its log: {str(status['head'])[:16]}.")
    return trial


def _report(trial: Experiment, runs: Runs, planned: Plan, title: str, folder: Path) -> Path:
    from evenhand.report.document import report

    return report(trial, runs, planned, title=title).save(folder / "report.html")


def _lacking(*extras: str) -> str:
    """Which of these extras are not installed, with commas between."""
    from evenhand.app.extras import installed_extras

    found = installed_extras()
    return ",".join(name for name in extras if not found[name]["installed"])


def _put(folder: Path, *names: str) -> Path:
    """Copy the demo's study into the folder; the first name is the study file."""
    for name in names:
        (folder / name).write_text(
            files("evenhand").joinpath("data", name).read_text(encoding="utf-8"), encoding="utf-8"
        )
    return folder / names[0]


def _fresh_folder(folder: Path) -> Path:
    """The folder to write to, emptied only where an earlier demo filled it."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / "stroke.toml").is_file():
            raise BadInput(
                f"{folder} must be empty or hold an earlier demo; it does not. Name another with -o."
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _serve(show: Console, folder: Path) -> None:
    from evenhand.app.commands.serve import serve
    from evenhand.app.terminal import say

    say(show, "The dashboard runs at http://127.0.0.1:8765; stop it with Ctrl-C.")
    serve(str(folder / "trial.db"), "127.0.0.1", 8765)
