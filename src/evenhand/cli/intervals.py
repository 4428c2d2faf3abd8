"""`evenhand shares`, `tell-counts`, `close-interval` and `sync`: shares and counts of intervals."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.options import (
    columns_of,
    journal_argument,
    json_option,
    open_experiment,
    option_advice,
    print_json,
)
from evenhand.errors import BadInput, Conflict, EvenhandError, NotFound, shown_address
from evenhand.files import unescaped

if TYPE_CHECKING:
    from evenhand.live.experiment import Experiment
    from evenhand.procedure.assignment import Shares
    from evenhand.verdicts.interval_table import OutcomeSource
    from evenhand.verdicts.sync import Synced

valid_from_option = click.option(
    "--valid-from", metavar="TIME",
    help="When the next shares become valid, such as 2030-01-31T12:00:00Z; default: now.",
)  # fmt: skip
interval_option = click.option(
    "--interval", type=click.IntRange(min=1), metavar="N",
    help="Number of the interval; default: the oldest that is not closed.",
)  # fmt: skip


@click.command("shares")
@journal_argument
@click.option(
    "--next", "begin", is_flag=True,
    help="Begin the next interval first, where outcomes take longer than an interval.",
)  # fmt: skip
@valid_from_option
@click.option(
    "--sql", type=click.Choice(["duckdb", "postgresql"]), help="Print the assignment as an SQL expression."
)
@json_option
def shares_command(
    journal: str, name: str | None, begin: bool, valid_from: str | None, sql: str | None, as_json: bool
) -> None:
    """Print the current shares of an experiment in intervals.

    With --json it is the document by which servers assign units (`evenhand.assign`, or a few lines in any
    language). The SQL expression takes the columns unit and "group". Where every policy serves every unit
    (items = "shared") no unit is assigned, and the shares only number the interval.
    """
    if valid_from is not None and not begin:
        raise BadInput("--valid-from belongs to --next; without it no shares are published.")
    with open_experiment(journal, name, write=begin) as trial:
        shares = trial.publish_shares(valid_from=valid_from) if begin else trial.shares()
        shared = bool(trial.protocol.spec.shared_items)
    if sql is not None and shared:
        raise BadInput(
            "every policy serves every unit of this experiment; leave out --sql, as none is assigned."
        )
    if sql is not None:
        click.echo(shares.to_sql(dialect=sql))
    elif as_json:
        print_json(shares.to_dict())
    elif shared:
        click.echo(f"Interval {shares.version} began at {shares.valid_from}; every policy serves every unit.")
    else:
        _print_shares(shares)


def _print_shares(shares: Shares) -> None:
    from evenhand.cli.terminal import console, percent, print_sentence, section, table

    out = console()
    print_sentence(out, f"Version {shares.version} of the shares, valid from {shares.valid_from}.")
    policies = list(dict.fromkeys(name for ranges in shares.ranges.values() for name, _ in ranges))
    rows = [[name, *(percent(shares.share(group, name)) for group in shares.ranges)] for name in policies]
    section(out, "Shares", table(["policy", *shares.ranges], rows))


@click.command("tell-counts")
@journal_argument
@click.argument("file", type=click.Path(path_type=Path))
@interval_option
@click.option("--close", is_flag=True, help="Close the interval too: its counts are final.")
@valid_from_option
@click.option("--correct", is_flag=True, help="Replace the counts of an interval that is not closed.")
@click.option("--reason", help="The reason of a correction; recorded in the log.")
@click.option("--by", metavar="WHO", help="The author of a correction; recorded in the log.")
@json_option
def tell_counts_command(
    journal: str, name: str | None, file: Path, interval: int | None, close: bool, valid_from: str | None,
    correct: bool, reason: str | None, by: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Record the counts of an interval from FILE.

    FILE is CSV with the columns policy, group, n and sum (or successes, or mean), and for a guard-rail its
    sum in a column of its name and, if some are missing, their number in "NAME n"; or JSON with a list of
    such rows. With items = "shared" further rows, which name another policy in the column other, have the sum
    and the squares of the differences of the two on the same units. A column interval is checked. The same
    counts may be repeated; others are refused, unless they are a correction.
    """
    if correct and (reason is None or by is None or close):
        raise BadInput("a correction needs --reason and --by, and does not --close the interval.")
    if not correct and (reason is not None or by is not None):
        raise BadInput("--reason and --by belong to --correct.")
    with open_experiment(journal, name) as trial:
        number, rows = _read_counts(trial, file, interval)
        if correct:
            receipt = trial.correct_counts(number, rows, reason=reason or "", by=by or "")
        else:
            receipt = trial.tell_counts(number, rows, close=close, valid_from=valid_from)
        sentence = trial.status().sentence
    if as_json:
        print_json(receipt._asdict())
        return
    counted = "" if receipt.counted else f"; the experiment is {receipt.why}, so they do not count"
    closed = " The interval is closed." if receipt.closed else ""
    click.echo(f"{receipt.outcomes:,} outcomes of interval {receipt.interval} recorded{counted}.{closed}")
    click.echo(sentence)


def _read_counts(trial: Experiment, path: Path, interval: int | None) -> tuple[int, list[dict[str, Any]]]:
    """Return the interval and the rows of a file of counts."""
    rows = _read_json(path) if path.suffix.lower() == ".json" else _read_csv(path)
    named = {row.pop("interval") for row in rows if "interval" in row}
    status = trial.status().intervals
    if status is None:
        trial.shares()  # refuses an experiment with tickets
    assert status is not None
    wanted = interval or status.closed + 1
    if len(named) > 1 or (named and named != {wanted} and interval is not None):
        numbers = ", ".join(map(str, sorted(named, key=str)))
        raise BadInput(f"{path} must hold the counts of one interval, {wanted}; it holds those of {numbers}.")
    return (named.pop() if named else wanted), rows


def _read_json(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; give a CSV or JSON file of counts.") from None
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as problem:
        raise BadInput(f"{path} cannot be read as JSON: {problem}.") from None
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise BadInput(f"{path} must hold a list of rows with policy, group, n and sum.")
    return found


def _read_csv(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            titles = reader.fieldnames or []
            missing = next((title for title in ("policy", "group", "n") if title not in titles), None)
            if missing is not None:
                raise BadInput(f"{path} needs the columns policy, group, n and sum; {missing!r} is missing.")
            return [_parsed(path, reader.line_num, row) for row in reader]
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; give a CSV or JSON file of counts.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise BadInput(f"{path} cannot be read: {problem}.") from None


def _parsed(path: Path, line: int, row: dict[str, Any]) -> dict[str, Any]:
    """Return a line as names and numbers; an empty field is missing."""
    if None in row or None in row.values():
        raise BadInput(f"{path}, line {line}: a line needs as many fields as the header.")
    found: dict[str, Any] = {}
    for title, text in row.items():
        if title in ("policy", "group") or (title == "other" and text):
            found[title] = unescaped(text)
        elif text.strip():
            try:
                number = float(text)
            except ValueError:
                raise BadInput(f"{path}, line {line}: {title} must be a number; it is {text!r}.") from None
            found[title] = int(number) if number.is_integer() and "e" not in text.lower() else number
    return found


@click.command("close-interval")
@journal_argument
@interval_option
@valid_from_option
@json_option
def close_interval_command(
    journal: str, name: str | None, interval: int | None, valid_from: str | None, as_json: bool
) -> None:
    """Close an interval: its counts are final, and the stopping rule is evaluated.

    Intervals are closed in order. If the last one is closed and the experiment continues, the next shares are
    published.
    """
    with open_experiment(journal, name) as trial:
        receipt = trial.close_interval(interval, valid_from=valid_from)
        sentence = trial.status().sentence
    if as_json:
        print_json(receipt._asdict())
        return
    click.echo(f"Interval {receipt.interval} is closed, with {receipt.outcomes:,} outcomes.")
    click.echo(sentence)


@click.command("sync")
@journal_argument
@click.option(
    "--url", required=True,
    help="Where outcomes are: files, a folder or a pattern such as 'outcomes/*.parquet', or the address of a "
    "database.",
)  # fmt: skip
@click.option("--table", metavar="NAME", help="Table or view of the database.")
@click.option(
    "--column", "columns", multiple=True, metavar="NAME=COLUMN",
    help="Name of a column in the data, such as version=shares_version; may be repeated.",
)  # fmt: skip
@click.option("--every", metavar="TIME", help="Repeat at this interval, such as 10m, until interrupted.")
@click.option(
    "--all", "every_experiment", is_flag=True,
    help="Sync all experiments of the journal; the data need a column experiment. Several processes share "
    "the work.",
)  # fmt: skip
@json_option
def sync_command(
    journal: str, name: str | None, url: str, table: str | None, columns: tuple[str, ...], every: str | None,
    every_experiment: bool, as_json: bool,
) -> None:  # fmt: skip
    """Count the intervals that are due where the data are, close them, and publish the next shares.

    The data have a row for each unit: policy, group, outcome, and version (that of the shares that assigned
    it) or time (when it was assigned). With a column unit, every unit may occur once in an interval. Only
    intervals whose length and delay have passed are read, each of them once, so the command can be repeated,
    interrupted and run by cron. With --every the command ends when the experiment is over.
    """
    from evenhand.procedure.interval_settings import seconds_in
    from evenhand.verdicts.interval_table import OutcomeSource

    if every_experiment and name is not None:
        raise BadInput("--all syncs every experiment; leave out --experiment.")
    pause = None if every is None else seconds_in(every, "--every")
    if pause == 0.0:
        raise BadInput("--every must be more than 0.")
    source = OutcomeSource(url, table, columns_of(columns))
    while True:
        try:
            over = _sync_once(journal, name, source, every_experiment, as_json)
        except (BadInput, Conflict, NotFound) as problem:
            if pause is None or not _can_wait(problem):
                raise
            click.echo(f"evenhand: {problem}", err=True)
            over = False
        if over or pause is None:
            return
        time.sleep(pause)


def _can_wait(problem: EvenhandError) -> bool:
    """Return whether a later run may succeed: rows may still come, or be corrected."""
    from evenhand.verdicts.read_data import MissingColumn

    return not isinstance(problem, (MissingColumn, NotFound))


def _sync_once(
    journal: str, name: str | None, source: OutcomeSource, every_experiment: bool, as_json: bool
) -> bool:
    """Run one sync and print what it did; return whether all experiments are over."""
    from evenhand.live.journal import open_journal
    from evenhand.verdicts.sync import sync_all, sync_experiment

    with option_advice():
        if every_experiment:
            store = open_journal(journal, wait=0.5)
            try:
                found = list(sync_all(store, source))
            finally:
                store.close()
        else:
            with open_experiment(journal, name) as trial:
                found = [sync_experiment(trial, source)]
    if as_json:
        tables = [one.to_dict() for one in found]
        print_json(tables if every_experiment else tables[0])
    else:
        for one in found:
            click.echo(_sentence(one, every_experiment))
    if not as_json and not every_experiment and found[0].wait is None:
        click.echo(f"Next: evenhand report {shown_address(journal)} -o report.html")
    return all(one.wait is None and one.problem is None for one in found)


def _sentence(found: Synced, named: bool) -> str:
    """Return what a sync did in one sentence."""
    who = f"{found.experiment}: " if named else ""
    if found.problem is not None:
        return f"{who}{found.problem}"
    if found.closed:
        first, last = found.closed[0], found.closed[-1]
        which = f"interval {first}" if first == last else f"intervals {first} to {last}"
        done = f"{which} counted and closed with {found.outcomes:,} outcomes"
    else:
        done = "nothing was due"
    late = f"; {found.late:,} rows came after their interval was closed, and are not counted" * bool(
        found.late
    )
    if found.wait is None:
        ending = f"the experiment is {found.state}"
    else:
        ending = f"version {found.version} of the shares is current, next in {_duration(found.wait)}"
    text = f"{done}; {ending}{late}."
    return f"{who}{text[0].upper()}{text[1:]}"


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
