"""`evenhand demo`: the whole story on the stroke trial.

The story that `evenhand demo` tells: a tempting policy, a plan, simulations, a live run, a report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.cli.extras import installed_extras
from evenhand.cli.terminal import heat_map, progress, say, section, table, verdict
from evenhand.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from evenhand.live.experiment import Experiment
    from evenhand.live.tickets import Ask
    from evenhand.simulation.simulate import Comparison
    from evenhand.study import Study
    from evenhand.theory.plan import Plan


STUDY, CELLS = "stroke.toml", "stroke_cells.csv"
MADE = (STUDY, CELLS, "report.html", "trial.db*")  # all that a demo leaves behind
PORT = 8765


@click.command("demo")
@click.option("-o", "--out", type=click.Path(file_okay=False), default="out/demo", show_default=True,
              help="Folder to write to.")  # fmt: skip
@click.option("--serve", is_flag=True, help="Leave the dashboard running with the trial in it.")
def demo_command(out: str, serve: bool) -> None:
    """The stroke trial as a story: plan, simulate, a live run that stops, a report.

    The policy with the best overall mean fails the elderly. See what finding that out must cost, how a rule
    that looks at groups compares with one that does not, and a live experiment that stops with a certified
    answer.
    """
    from evenhand.cli.terminal import console, say
    from evenhand.study import load

    folder, show = _fresh_folder(Path(out)), console()
    study = load(_put(folder))
    page = tell_story(show, study, folder)
    if page is None:
        say(show, f"Next: evenhand plan {folder / STUDY}")
        return
    say(show, f"Open {page}", style="bold")
    journal = folder / "trial.db"
    say(show, f"Next: evenhand status {journal}")
    say(show, f"      evenhand audit {journal}")
    say(show, f"      evenhand judge {folder / STUDY} {folder / CELLS}")
    if serve:
        _serve(show, journal)
    else:
        say(show, f"      evenhand serve --journal {journal}")


def _put(folder: Path) -> Path:
    """The demo's study and its counts, copied into the folder."""
    for name in (STUDY, CELLS):
        text = files("evenhand").joinpath("data", name).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
    return folder / STUDY


def _fresh_folder(folder: Path) -> Path:
    """The folder to write to; what an earlier demo left there goes, and nothing else."""
    left = {path for pattern in MADE for path in folder.glob(pattern)}
    others = sorted(path.name for path in set(folder.iterdir()) - left) if folder.is_dir() else []
    if others:
        raise BadInput(
            f"{folder} must be empty or hold an earlier demo; it holds {others[0]}. Name another with -o."
        )
    for path in left:
        path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _serve(show: Console, journal: Path) -> None:
    from evenhand.cli.serve import serve
    from evenhand.cli.terminal import say

    say(show, f"The dashboard runs at http://127.0.0.1:{PORT}; stop it with Ctrl-C.")
    serve(str(journal), "127.0.0.1", PORT)


SEED = 4
OURS, EQUAL = "evenhand's rule", "equal groups"


def tell_story(
    show: Console, study: Study, folder: Path, *, patients: int = 6_000, replications: int = 300
) -> Path | None:
    """Tell it about this study, step by step; the journal and the report go to the folder.

    An install without all dependencies hears the first half, and what the second needs.
    """
    _tempt(show, study)
    planned = _plan(show, study)
    compared = _simulate(show, study, patients, replications)
    lacking = [name for name in ("live", "report") if not installed_extras()[name]["installed"]]
    if lacking:
        say(show, f"\nThe live run and the report need more: install evenhand[{','.join(lacking)}].")
        return None
    from evenhand.reports.document import report

    with _run_live(show, study, folder / "trial.db") as trial:
        _step(show, "5. The report")
        return report(trial, compared, planned, title=study.title).save(folder / "report.html")


def _tempt(show: Console, study: Study) -> None:
    """The policy with the best overall mean, and whom it fails."""
    from evenhand.model.sentences import listed

    problem, means = study.problem, study.means()
    scores, feasible = problem.scores(means), problem.feasible(means)
    order = (-scores).argsort(kind="stable").tolist()
    say(show, study.title, style="bold")
    _step(show, "1. The tempting choice")
    say(show, f"Which policy may be given to everyone? It must {problem.constraint.describe()}.")
    rows = [
        [
            problem.policies[k],
            *(f"{mean:.4f}" for mean in means[k]),
            f"{scores[k]:.4f}",
            verdict("met" if feasible[k] else "failed"),
        ]
        for k in order
    ]
    section(show, "Means", table(["", *problem.group_names, "overall", "requirement"], rows))
    best, answer = problem.policies[order[0]], problem.answer(means)
    if answer is not None and answer != order[0]:
        said = f"{best} has the best overall mean, and falls short in {listed(_short(study, best))}."
        say(show, f"\n{said} Of those that do not, {problem.policies[answer]} is the best.")


def _short(study: Study, policy: str) -> list[str]:
    """The groups where the policy misses its bound."""
    problem, k = study.problem, study.problem.policy_index(policy)
    means, region = problem.unit_means(study.means()), problem.standard.region
    misses = (means[:, k] < region.lo[:, k]) | (means[:, k] > region.hi[:, k])
    return [group for group, miss in zip(problem.group_names, misses, strict=True) if miss]


def _plan(show: Console, study: Study) -> Plan:
    """What finding that out must cost, and where the samples should go."""
    from evenhand.study.planned import plan_of

    planned = plan_of(study)
    risk = study.procedure.delta
    _step(show, "2. The plan")
    least = f"{planned.samples_at_least(risk):,.0f}"
    say(show, f"If nobody knew, finding it out at a risk of {100 * risk:g}% takes {least} samples on average")
    say(show, "at the very least, whatever the procedure. The best procedure takes them here:")
    problem = study.problem
    shown = heat_map(problem.policies, problem.group_names, planned.allocation, planned.answer)
    section(show, "Where samples should go", shown)
    return planned


def _simulate(show: Console, study: Study, patients: int, replications: int) -> Comparison:
    """How often the best estimate is right at a budget: evenhand's rule beside equal groups."""
    from evenhand.procedure.spec import Budget
    from evenhand.simulation.runs import rate
    from evenhand.simulation.simulate import compare

    _step(show, "3. Simulations")
    base = replace(study.procedure, stopping=Budget(patients), batch=1, max_samples=patients)
    studies = {
        OURS: replace(study, procedure=replace(base, sampling="ts-ids")),
        EQUAL: replace(study, procedure=replace(base, sampling="uniform")),
    }
    checkpoints = [patients * part // 6 for part in range(1, 7)]
    with progress("simulations", 2 * replications) as tick:
        found = compare(studies, replications, SEED, checkpoints, progress=lambda done, total: tick(done))
    ours, equal = (rate(found.runs[name].correct).rate for name in (OURS, EQUAL))
    say(show, f"With only {patients:,} samples the best estimate is right in {ours:.0%} of {replications}")
    say(show, f"runs by evenhand's rule, and in {equal:.0%} when every cell gets as many.")
    return found


def _run_live(show: Console, study: Study, journal: Path) -> Experiment:
    """A live experiment: tickets out, outcomes in, until the procedure says that it has decided."""
    from evenhand.live.experiment import Experiment

    _step(show, "4. A live run")
    say(show, "Tickets go out, outcomes come in (here drawn by the means above), all is written down.")
    trial = Experiment.create(str(journal), study, seed=SEED)
    treat, told = _nature(study), 0
    with progress("evidence, percent", 100) as tick:
        while asks := trial.ask(study.procedure.batch):
            trial.tell_all([(ask, treat(ask, told + i), None) for i, ask in enumerate(asks)])
            told += len(asks)
            view = trial.present()
            evidence, needed = view.state.level[:2].tolist()
            tick(round(100 * min(max(evidence / needed, 0.0), 1.0)) if needed > 0 else 0)
    status = trial.status()
    say(show, str(status.sentence), style="bold")
    say(show, f"The head of its log, {str(status.head)[:16]}…, seals every decision and outcome.")
    return trial


def _nature(study: Study) -> Callable[[Ask, int], float]:
    """What happens to a patient: well with the chance that the trial's counts tell."""
    from evenhand.procedure.randomness import OUTCOMES, uniform

    problem, means = study.problem, study.means()

    def treat(ask: Ask, number: int) -> float:
        k, g = problem.policy_index(ask.policy), problem.group_index(str(ask.group))
        return float(uniform(SEED, number, 0, 0, OUTCOMES) < means[k][g])

    return treat


def _step(show: Console, title: str) -> None:
    show.print()
    show.rule(title, align="left", style="dim")
