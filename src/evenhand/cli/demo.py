"""`evenhand demo`: plan, simulate, run and report the International Stroke Trial.

The steps: the true means, the plan, simulations, a live run, a report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.cli.terminal import heat_map, print_sentence, progress, section, table, verdict
from evenhand.cli.tools import lacks_extra
from evenhand.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from evenhand.live.experiment import Experiment
    from evenhand.live.tickets import Ask
    from evenhand.simulation.simulate import Comparison
    from evenhand.study import Study
    from evenhand.theory.plan import Plan


STUDY, CELLS = "stroke.toml", "stroke_cells.csv"
OUTPUT_FILES = (STUDY, CELLS, "report.html", "trial.db*")  # every file that the demo writes
PORT = 8765


@click.command("demo")
@click.option("-o", "--out", type=click.Path(file_okay=False), default="out/demo", show_default=True,
              help="Folder to write to.")  # fmt: skip
@click.option("--serve", is_flag=True, help="Start the dashboard on the trial at the end.")
def demo_command(out: str, serve: bool) -> None:
    """Plan, simulate, run and report the International Stroke Trial.

    In this trial the policy with the best overall mean misses the floor among patients of 80 and over. The
    demo shows how many samples are needed to find that out, compares evenhand's sampling rule with equal
    sampling, and runs a live experiment until it stops with a certified answer.
    """
    from evenhand.cli.terminal import console, print_sentence
    from evenhand.study import load

    folder, show = _empty_folder(Path(out)), console()
    study = load(_copy_study(folder))
    page = run_demo(show, study, folder)
    if page is None:
        print_sentence(show, f"Next: evenhand plan {folder / STUDY}")
        return
    print_sentence(show, f"Open {page}", style="bold")
    journal = folder / "trial.db"
    print_sentence(show, f"Next: evenhand status {journal}")
    print_sentence(show, f"      evenhand audit {journal}")
    print_sentence(show, f"      evenhand judge {folder / STUDY} {folder / CELLS}")
    if serve:
        _serve(show, journal)
    else:
        print_sentence(show, f"      evenhand serve --journal {journal}")


def _copy_study(folder: Path) -> Path:
    """Copy the study file and its counts into the folder; return the path of the study file."""
    for name in (STUDY, CELLS):
        text = files("evenhand").joinpath("data", name).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
    return folder / STUDY


def _empty_folder(folder: Path) -> Path:
    """Create the folder or delete the files of an earlier demo in it; refuse any other file."""
    left = {path for pattern in OUTPUT_FILES for path in folder.glob(pattern)}
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
    from evenhand.cli.terminal import print_sentence

    print_sentence(show, f"The dashboard runs at http://127.0.0.1:{PORT}; stop it with Ctrl-C.")
    serve(str(journal), "127.0.0.1", PORT)


SEED = 4
OURS, EQUAL = "evenhand's rule", "equal sampling"


def run_demo(
    show: Console, study: Study, folder: Path, *, patients: int = 6_000, replications: int = 300
) -> Path | None:
    """Run all steps on this study; return the path of the report in `folder`.

    Return None after the simulations if an extra that the live run or the report needs is not installed.
    """
    _show_means(show, study)
    planned = _plan(show, study)
    _step(show, "3. Simulations")
    _simulate_to_the_end(show, study, replications=min(replications, 100))
    compared = _simulate(show, study, patients, replications)
    missing = [name for name in ("live", "report") if lacks_extra(name)]
    if missing:
        print_sentence(
            show, f"\nThe live run and the report need extras: install evenhand[{','.join(missing)}]."
        )
        return None
    from evenhand.reports.document import report

    with _run_live(show, study, folder / "trial.db") as trial:
        _step(show, "5. The report")
        return report(trial, compared, planned, title=study.title).save(folder / "report.html")


def _show_means(show: Console, study: Study) -> None:
    """Print the means, the policy with the best overall mean, and the groups where it fails."""
    from evenhand.model.phrases import listed

    problem, means = study.problem, study.means()
    scores, feasible = problem.scores(means), problem.feasible(means)
    order = (-scores).argsort(kind="stable").tolist()
    print_sentence(show, study.title, style="bold")
    _step(show, "1. The means")
    print_sentence(show, f"Which policy should everyone get? It must {problem.constraint.describe()}.")
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
        failing = f"{best} has the best overall mean, but fails in {listed(_failing_groups(study, best))}."
        print_sentence(
            show, f"\n{failing} Of the policies that do not, {problem.policies[answer]} is the best."
        )


def _failing_groups(study: Study, policy: str) -> list[str]:
    """Return the groups where the policy misses its bound."""
    problem, k = study.problem, study.problem.policy_index(policy)
    means, region = problem.unit_means(study.means()), problem.standard.region
    misses = (means[:, k] < region.lo[:, k]) | (means[:, k] > region.hi[:, k])
    return [group for group, miss in zip(problem.group_names, misses, strict=True) if miss]


def _plan(show: Console, study: Study) -> Plan:
    """Print the lower bound on the number of samples and the optimal allocation."""
    from evenhand.theory.plan import plan

    planned = plan(study)
    risk = study.procedure.delta
    _step(show, "2. The plan")
    least = f"{planned.samples_at_least(risk):,.0f}"
    print_sentence(
        show, f"If the means are unknown, any procedure with a risk of {100 * risk:g}% needs at least {least}"
    )
    print_sentence(
        show, "samples on average. This is a lower bound; simulations show below what evenhand's rule needs."
    )
    problem = study.problem
    shown = heat_map(problem.policies, problem.group_names, planned.allocation, planned.answer)
    section(show, "Where samples should go", shown)
    return planned


def _simulate_to_the_end(show: Console, study: Study, replications: int) -> None:
    """Print how many samples evenhand's rule needs until it has a certified answer."""
    from evenhand.simulation.simulate import simulate

    with progress("simulations to the end", replications) as update:
        runs = simulate(
            study, replications=replications, seed=SEED, progress=lambda done, total: update(done)
        )
    print_sentence(
        show,
        f"To a certified answer evenhand's rule needs {runs.samples.mean():,.0f} samples on average. Half",
    )
    print_sentence(
        show,
        f"of {replications} runs have decided by {runs.quantile(0.5):,} samples, 90% by "
        f"{runs.quantile(0.9):,}; {runs.correct.mean():.0%} of them are right.",
    )


def _simulate(show: Console, study: Study, patients: int, replications: int) -> Comparison:
    """Compare evenhand's rule with equal sampling at a fixed budget."""
    from evenhand.procedure.spec import Budget
    from evenhand.simulation.runs import rate
    from evenhand.simulation.simulate import compare

    base = replace(study.procedure, stopping=Budget(patients), batch=1, max_samples=patients)
    studies = {
        OURS: replace(study, procedure=replace(base, sampling="ts-ids")),
        EQUAL: replace(study, procedure=replace(base, sampling="uniform")),
    }
    checkpoints = [patients * part // 6 for part in range(1, 7)]
    with progress("simulations", 2 * replications) as update:
        found = compare(studies, replications, SEED, checkpoints, progress=lambda done, total: update(done))
    ours, equal = (rate(found.runs[name].correct).rate for name in (OURS, EQUAL))
    print_sentence(
        show, f"With only {patients:,} samples the best estimate is right in {ours:.0%} of {replications}"
    )
    print_sentence(
        show, f"runs with evenhand's rule, and in {equal:.0%} with the same number of samples in every cell."
    )
    return found


def _run_live(show: Console, study: Study, journal: Path) -> Experiment:
    """Run a live experiment until it stops; outcomes are drawn from the study's means."""
    from evenhand.live.experiment import Experiment

    _step(show, "4. A live run")
    print_sentence(
        show, "Every ticket and outcome is recorded. Here outcomes are drawn from the means above."
    )
    trial = Experiment.create(str(journal), study, seed=SEED)
    draw_outcome, told = _outcome_generator(study), 0
    with progress("evidence, percent", 100) as update:
        while asks := trial.ask(study.procedure.batch):
            trial.tell_all([(ask, draw_outcome(ask, told + i), None) for i, ask in enumerate(asks)])
            told += len(asks)
            view = trial.present()
            evidence, needed = view.state.level[:2].tolist()
            update(round(100 * min(max(evidence / needed, 0.0), 1.0)) if needed > 0 else 0)
    status = trial.status()
    print_sentence(show, str(status.sentence), style="bold")
    print_sentence(show, f"The hash of its log, {str(status.head)[:16]}…, covers every decision and outcome.")
    return trial


def _outcome_generator(study: Study) -> Callable[[Ask, int], float]:
    """Return a function that draws a Bernoulli outcome with the mean of the ticket's cell."""
    from evenhand.procedure.randomness import OUTCOMES, uniform

    problem, means = study.problem, study.means()

    def draw_outcome(ask: Ask, number: int) -> float:
        k, g = problem.policy_index(ask.policy), problem.group_index(str(ask.group))
        return float(uniform(SEED, number, 0, 0, OUTCOMES) < means[k][g])

    return draw_outcome


def _step(show: Console, title: str) -> None:
    show.print()
    show.rule(title, align="left", style="dim")
