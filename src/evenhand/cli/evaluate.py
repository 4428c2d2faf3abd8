"""`evenhand evaluate`: call candidates on items until the answer is certified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.cli.options import UNDECIDED, json_option, print_json, seed_option, study_argument
from evenhand.cli.report import check_page

if TYPE_CHECKING:
    from evenhand.evaluation.evaluate import Evaluation


@click.command("evaluate")
@study_argument
@click.option("--journal", metavar="FILE",
              help="File of the calls made; default: the name of the study with .calls.jsonl. If it exists, "
              "the evaluation continues from there.")  # fmt: skip
@click.option("--markdown", is_flag=True, help="Print a Markdown summary, for a pull request.")
@click.option("-o", "--report", "page", type=click.Path(), help="Also write a report to FILE.html.")
@seed_option
@json_option
def evaluate_command(
    study: str, journal: str | None, markdown: bool, page: str | None, seed: int, as_json: bool
) -> int:
    """Call the candidates of a study on its items until the answer is certified.

    The [evaluate] table of STUDY names items, candidates and grader. Every call that ends is written to the
    journal at once: after an interruption, the same command continues without making a call twice. Exit code
    0 means decided, 3 undecided.
    """
    from evenhand.evaluation.study_table import load_evaluation

    if page is not None:
        check_page(page)
    loaded = load_evaluation(study)
    path = Path(study).with_suffix(".calls.jsonl") if journal is None else Path(journal)
    from rich.console import Console

    result = loaded.run(path, seed, progress=not as_json and Console(stderr=True).is_terminal)
    title = loaded.study.title or Path(study).stem
    if page is not None:
        from evenhand.reports.document import report

        report(result, title=title).save(page)
    if as_json:
        print_json(result.to_dict())
    elif markdown:
        from evenhand.verdicts.deployment import markdown_summary

        click.echo(markdown_summary(title, result.verdict, result.words()), nl=False)
    else:
        _print(result, study, path)
    return 0 if result.decided else UNDECIDED


def _print(result: Evaluation, study: str, journal: Path) -> None:
    from evenhand.cli.judge import print_cells, print_deployment
    from evenhand.cli.terminal import console, print_sentence
    from evenhand.verdicts.deployment import deployment_sentence

    out = console()
    first, *rest = result.words()
    print_sentence(out, first, style="bold")
    print_deployment(out, result.verdict)
    out.print()
    for sentence in rest:
        if sentence != deployment_sentence(result.verdict):  # it is the table above
            print_sentence(out, sentence)
    print_cells(out, result.verdict)
    out.print()
    if result.interrupted:
        print_sentence(out, f"Next: evenhand evaluate {study}")
    else:
        print_sentence(out, f"The calls are in {journal}.")
