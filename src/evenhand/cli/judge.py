"""`evenhand judge`: verdicts and decision from existing data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from evenhand.cli.options import UNDECIDED, columns_of, json_option, option_advice, print_json, study_argument
from evenhand.cli.report import check_page
from evenhand.errors import BadInput
from evenhand.verdicts.forecast_statement import RUNS, SEED

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from evenhand.study import Study
    from evenhand.verdicts.judge import Verdict


@click.command("judge")
@study_argument
@click.argument("data", type=click.Path())
@click.option("--delta", type=float, help="Risk of a wrong answer; default: the study's.")
@click.option("--floor", type=float, help="Use this floor in every group instead of the study's requirement.")
@click.option("--missing", type=click.Choice(["fail", "drop"]), default="fail", show_default=True,
              help="Rows with a missing value: refuse the data, or drop and count the rows.")  # fmt: skip
@click.option("--column", "columns", multiple=True, metavar="NAME=COLUMN",
              help="Name of a column in the data, such as group=subpopulation; may be repeated.")  # fmt: skip
@click.option("--table", metavar="NAME",
              help="Table or view that holds the outcomes, if DATA is a database address.")  # fmt: skip
@click.option("--pool", "pools", multiple=True, metavar="GROUP=N",
              help="Number of items of a group in the pool from which items were drawn, each at most once; "
              "give it for every group. `--pool data`: all items in DATA. The verdict is then about the "
              "pool, not about the population from which its items come.")  # fmt: skip
@click.option("--ordered", is_flag=True,
              help="The rows are in the order in which their outcomes came: policies are compared by linear "
              "bets, as in a live experiment, where the family and the requirement allow.")  # fmt: skip
@click.option("--order-by", "order_by", metavar="COLUMN",
              help="The same, for rows that are first sorted by this column, numbers or times. Rows with "
              "equal values keep their order.")  # fmt: skip
@click.option("--fixed-sample", is_flag=True,
              help="Use p-values instead of e-values. Valid only if the size of every cell was fixed before "
              "any outcome was seen and the data are analysed once. The probability of a wrong answer is at "
              "most delta at every sample size; no large-sample approximation.")  # fmt: skip
@click.option("--replications", type=click.IntRange(min=0), default=RUNS, show_default=True,
              help="Simulated continuations of the data for the forecast of further samples; 0: no "
              "forecast. The forecast assumes Jeffreys' prior on the means.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=SEED, show_default=True,
              help="Seed of the forecast; `status` and `report` use the default.")  # fmt: skip
@click.option("--markdown", is_flag=True, help="Print a Markdown summary, for a pull request.")
@click.option("-o", "--report", "page", type=click.Path(), help="Also write a report to FILE.html.")
@json_option
def judge_command(
    study: str, data: str, delta: float | None, floor: float | None, missing: str, columns: tuple[str, ...],
    table: str | None, pools: tuple[str, ...], ordered: bool, order_by: str | None, fixed_sample: bool,
    replications: int, seed: int, markdown: bool, page: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Decide from existing data which policy meets the requirement and is best.

    DATA is CSV, Parquet or JSON lines: a file, a folder or a pattern such as 'outcomes/*.parquet'; or the
    address of a database, with --table. Its columns are policy, group and outcome; or policy, group, n and
    mean or successes. With a column item, policies are compared on the items that both answered. Where
    DuckDB is installed, it counts large files.

    The verdict of every cell and policy is met, failed or undecided. Verdicts, intervals and the decision all
    come from the study's stopping rule, so they are consistent. Exit code 0 means decided, 3 undecided. "None
    of the policies" is also a decision, so a script must check the answer in --json too.
    """
    from evenhand.study import load
    from evenhand.verdicts.judge import judge

    if page is not None:
        check_page(page)
    loaded = _with_floor(load(study), floor)
    with option_advice():
        verdict = judge(
            loaded, data, delta, missing=missing, columns=columns_of(columns), table=table,
            pool=_pool(pools), ordered=ordered if order_by is None else order_by, fixed=fixed_sample,
            replications=replications, seed=seed,
        )  # fmt: skip
    if page is not None:
        from evenhand.reports.document import report

        report(verdict).save(page)
    if as_json:
        print_json(verdict.to_dict())
    elif markdown:
        from evenhand.verdicts.deployment import markdown_summary

        click.echo(markdown_summary(loaded.title or study, verdict, verdict.words()), nl=False)
    else:
        _print(verdict, study, data, page)
    return 0 if verdict.decided else UNDECIDED


def _with_floor(study: Study, floor: float | None) -> Study:
    if floor is None:
        return study
    from evenhand.model.requirements import Floors

    return replace(study, problem=replace(study.problem, constraint=Floors(floor)))


def _pool(given: tuple[str, ...]) -> dict[str, int] | str | None:
    if not given:
        return None
    if given == ("data",):
        return "data"
    found = {}
    for pair in given:
        group, sign, size = pair.rpartition("=")
        if not sign or not size.isdigit():
            raise BadInput(f"--pool must be GROUP=N, such as adults=800, or data; got {pair!r}.")
        found[group] = int(size)
    return found


def _print(verdict: Verdict, study: str, data: str, page: str | None) -> None:
    from evenhand.cli.terminal import console, print_sentence, section, table
    from evenhand.model.phrases import bound_word
    from evenhand.verdicts.verdict_sentences import looser, under_other_bounds

    out = console()
    first, *rest = verdict.words()
    print_sentence(out, first, style="bold")
    for sentence in filter(None, [*rest, looser(verdict)]):
        print_sentence(out, sentence)
    print_deployment(out, verdict)
    print_cells(out, verdict)
    if verdict.forecast.runs:
        section(out, "Further samples", table(["chance of a decision", "samples"], verdict.forecast.rows()))
        print_sentence(out, verdict.forecast.basis())
        _print_next(out, verdict)
    if others := under_other_bounds(verdict):
        word = bound_word(verdict.cells)
        section(out, f"The same data under another {word}", table([word, "answer"], others))
    out.print()
    if page is not None:
        print_sentence(out, f"Open {page} for the report.")
    elif verdict.ordered:
        print_sentence(out, "Next: add -o report.html for a report.")
    else:
        print_sentence(out, f"Next: evenhand report {study} {data} -o report.html")


def print_deployment(out: Console, verdict: Verdict) -> None:
    """Print which policies may be deployed, which fail, which are undecided, and the best."""
    from evenhand.cli import terminal
    from evenhand.verdicts.deployment import deployment_rows

    if rows := deployment_rows(verdict):
        terminal.section(out, "Which may be deployed", terminal.table(["", ""], rows, numbers_from=2))


def print_cells(out: Console, verdict: Verdict) -> None:
    """Print the estimates and verdicts of every cell and policy."""
    from evenhand.cli import terminal
    from evenhand.model.phrases import requirement_words

    relative = verdict.problem.control is not None
    columns = ["policy", "group", "samples", "mean", "interval", *(["requirement"] if relative else [])]
    columns.append("verdict")
    titled = [("Cells", verdict.cells), *((f"Guard-rail {r.name}", r.cells) for r in verdict.guardrails)]
    for title, cells in titled:
        rows: list[list[str | Text]] = [
            [c.policy, c.group, f"{c.n:,}", _number(c.mean), f"{_number(c.low)} to {_number(c.high)}",
             *([requirement_words(c)] if relative else []), terminal.verdict(c.verdict)]
            for c in cells
        ]  # fmt: skip
        terminal.section(out, title, terminal.table(columns, rows, numbers_from=2))
    placed = sorted(verdict.policies, key=lambda p: p.place)
    policies: list[list[str | Text]] = [
        [f"{p.place}", p.policy, _number(p.mean), terminal.verdict(p.verdict)] for p in placed
    ]
    terminal.section(
        out, "Policies", terminal.table(["", "policy", "overall", "requirement"], policies, numbers_from=2)
    )


def _print_next(out: Console, verdict: Verdict) -> None:
    from evenhand.cli.terminal import heat_map, section

    if verdict.next is not None:
        names = verdict.problem.policies
        shown = heat_map(names, verdict.problem.group_names, verdict.next, verdict.leader)
        section(out, "Where to sample next", shown)


def _number(value: float | None) -> str:
    if value is None:
        return "open"
    if 0 < abs(value) < 0.001:
        return f"{value:.2e}"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.1f}"
