"""`evenhand ask`, `tell`, `drop`, `amend` and `import`: tickets and outcomes."""

from __future__ import annotations

import hashlib
import shlex
import sys
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.options import (
    journal_argument,
    json_option,
    metric_option,
    open_experiment,
    print_json,
    rail_names,
    read_batch,
    reason_options,
    shown_address,
    write_batch,
)
from evenhand.errors import BadInput
from evenhand.files import unescaped

if TYPE_CHECKING:
    from evenhand.live.experiment import Experiment
    from evenhand.live.tickets import Ask, Outcomes
    from evenhand.model.problem import Problem

    ToldRow = tuple[str, Outcomes, str | None]  # ticket, outcome, group


@click.command("ask")
@journal_argument
@click.option("-n", "count", type=click.IntRange(1), default=1, show_default=True, help="Number of tickets.")
@click.option("--group", metavar="G", help="Group of the unit that arrived (proportional mode).")
@click.option(
    "--worker", metavar="W", help="Name of the worker; it gets the same ticket until it tells the outcome."
)
@click.option("--key", metavar="K", help="Idempotency key: a repeated request gets the same answer.")
@json_option
def ask_command(
    journal: str,
    name: str | None,
    count: int,
    group: str | None,
    worker: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Get the next tickets: which policy to try in which group.

    With shared items a ticket names the group of an item and the policies that answer it.

    When piped to a file, the output is CSV with an empty outcome column; fill it in and pass it to `tell`.
    """
    with open_experiment(journal, name) as trial:
        asks = trial.ask(count, group=group, worker=worker, key=key)
        status, rails = None if asks else trial.status(), rail_names(trial)
    if as_json:
        print_json([ask.to_dict() for ask in asks])
    elif not sys.stdout.isatty():
        write_batch(asks, sys.stdout, rails)
    elif asks:
        _print(asks, journal)
    if status is not None:
        waiting = "All tickets are given out; tell their outcomes." if status.state == "running" else ""
        click.echo(f"No ticket: {status.sentence} {waiting}".rstrip(), err=True)


def _print(asks: list[Ask], journal: str) -> None:
    from evenhand.cli.terminal import console, table

    out = console()
    rows = [
        [ask.ticket, ", ".join(ask.policies) or ask.policy, ask.group or "told with the outcome"]
        for ask in asks
    ]
    shared = bool(asks[0].policies)
    out.print(table(["ticket", "policies" if shared else "policy", "group"], rows, numbers_from=3))
    outcome = " ".join(shlex.quote(f"{name}=OUTCOME") for name in asks[0].policies) or "OUTCOME"
    group = " --group GROUP" if asks[0].group is None else ""
    out.print(
        f"\nNext: evenhand tell {shown_address(journal)} {asks[0].ticket} {outcome}{group}", soft_wrap=True
    )


@click.command("tell", context_settings={"ignore_unknown_options": True})
@journal_argument
@click.argument("ticket")
@click.argument("outcome", nargs=-1)
@click.option("--group", metavar="G", help="Group of the unit (agnostic mode).")
@metric_option
@json_option
def tell_command(
    journal: str, name: str | None, ticket: str, outcome: tuple[str, ...], group: str | None,
    metric: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Record the outcome of TICKET, or all outcomes in a CSV file.

    For a shared item OUTCOME is POLICY=OUTCOME for every policy that the ticket names, POLICY=missing where
    there is none. In a file the ticket has a row for each of them, with the column policy; a ticket without
    any outcome is skipped.

    With one argument after JOURNAL, the argument is a CSV file with the columns ticket and outcome, as
    written by `ask`, and a column for each guard-rail. Lines without an outcome are skipped. Either all other
    lines are recorded or none; the error names the first line that is invalid.
    """
    with open_experiment(journal, name) as trial:
        if not outcome:
            result = _tell_file(trial, Path(ticket))
        else:
            told = _told(trial, outcome, _metrics(metric))
            result = trial.tell(ticket, told, group=group)._asdict()
        status = trial.status()
    if as_json:
        print_json(result)
    else:
        click.echo(_sentence(result))
        click.echo(status.sentence)


def _tell_file(trial: Experiment, path: Path) -> dict[str, Any]:
    """Record all outcomes of a file, or none; an error names the invalid line."""
    shared = trial.protocol.procedure.items is not None
    rows, places = _told_items(trial, path) if shared else _told_rows(trial, path)
    receipts = trial.tell_all(rows, places=places)
    counted = sum(receipt.counted for receipt in receipts)
    return {"told": len(receipts), "counted": counted, "late": len(receipts) - counted, "refused": []}


def _told_rows(trial: Experiment, path: Path) -> tuple[list[ToldRow], list[str]]:
    """Return the outcomes of a file and the place of each."""
    rows: list[ToldRow] = []
    places, names = [], rail_names(trial)
    for number, row in read_batch(path, names):
        place = f"{path}, line {number}"
        try:
            outcome = _parsed(trial, row["outcome"], {name: row[name] or "" for name in names})
        except BadInput as problem:
            raise BadInput(f"{place}: {problem}") from None
        rows.append((row["ticket"], outcome, _group(trial, row)))
        places.append(place)
    return rows, places


def _told_items(trial: Experiment, path: Path) -> tuple[list[ToldRow], list[str]]:
    """Return the outcomes on the items of a file, which have a row for each policy, and the place of each."""
    from evenhand.live.item_tickets import parsed_item

    tickets: dict[str, dict[str, str]] = {}
    places: dict[str, str] = {}
    for number, row in read_batch(path, shared=True):
        ticket, policy = row["ticket"] or "", unescaped(row["policy"] or "")
        place, told = f"{path}, line {number}", tickets.setdefault(ticket, {})
        if policy in told:
            raise BadInput(f"{place}: ticket {ticket} has a row for {policy!r} already.")
        told[policy] = row["outcome"] or ""
        places.setdefault(ticket, place)
    rows: list[ToldRow] = []
    for ticket, told in tickets.items():
        if any(text.strip() for text in told.values()):
            try:
                rows.append((ticket, parsed_item(told, trial.protocol.problem), None))
            except BadInput as problem:
                raise BadInput(f"{places[ticket]}: {problem}") from None
    return rows, [places[ticket] for ticket, _, _ in rows]


def _group(trial: Experiment, row: dict[str, str]) -> str | None:
    """Return the group of a line in agnostic mode; otherwise None: the ticket has the group."""
    if trial.protocol.problem.mode != "agnostic":
        return None
    return unescaped(row.get("group") or "") or None


def _told(trial: Experiment, given: tuple[str, ...], metrics: Mapping[str, str]) -> Outcomes:
    """Return the outcome in the arguments of a command: a number, or POLICY=OUTCOME for a shared item."""
    from evenhand.live.item_tickets import parsed_item

    if trial.protocol.procedure.items is None:
        if len(given) > 1:
            raise BadInput(f"give one outcome; there are {len(given)}: {' '.join(given)[:80]}.")
        return _parsed(trial, given[0], metrics)
    told: dict[str, str] = {}
    for text in given:
        name, sign, value = text.rpartition("=")
        if not sign or name in told:
            raise BadInput(
                f"outcomes on an item must be POLICY=OUTCOME, once for each policy; one is {text!r}."
            )
        told[name] = value
    return parsed_item(told, trial.protocol.problem)


def _parsed(trial: Experiment, text: str, metrics: Mapping[str, str]) -> Outcomes:
    from evenhand.live.input_checks import parsed_sample

    return parsed_sample(text, metrics, trial.protocol.problem)


def _metrics(given: tuple[str, ...]) -> dict[str, str]:
    """Return the texts of `--metric NAME=VALUE`, by name."""
    found: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or name in found:
            raise BadInput(f"--metric must be NAME=VALUE, once for every guard-rail; it is {text!r}.")
        found[name] = value
    return found


def _sentence(result: dict[str, Any]) -> str:
    if "told" in result:
        late = f", {result['late']} of them late and not counted" if result["late"] else ""
        return f"{result['told']} outcomes recorded{late}."
    if result["counted"]:
        return f"The outcome of {result['ticket']} is recorded."
    return f"The outcome of {result['ticket']} came late ({result['why']}): it is recorded but not counted."


@click.command("drop")
@journal_argument
@click.argument("ticket")
@reason_options(required=True)
@json_option
def drop_command(
    journal: str, name: str | None, ticket: str, reason: str, by: str | None, as_json: bool
) -> None:
    """Drop TICKET: it will have no outcome."""
    with open_experiment(journal, name) as trial:
        trial.drop(ticket, reason, by=by)
    if as_json:
        print_json({"ticket": ticket, "dropped": True})
    else:
        click.echo(f"{ticket} is dropped. A later outcome is recorded but not counted.")


@click.command("amend", context_settings={"ignore_unknown_options": True})
@journal_argument
@click.argument("ticket")
@click.argument("outcome", nargs=-1, required=True)
@click.option("--reason", required=True, help="The reason; recorded in the log.")
@click.option("--by", required=True, metavar="WHO", help="Your name; recorded in the log.")
@metric_option
@json_option
def amend_command(
    journal: str, name: str | None, ticket: str, outcome: tuple[str, ...], reason: str, by: str,
    metric: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Correct the outcome of TICKET; for a shared item OUTCOME is as in `tell`.

    The old outcome stays in the log. Estimates are recomputed from the corrected outcomes.
    """
    with open_experiment(journal, name) as trial:
        value = _told(trial, outcome, _metrics(metric))
        receipt = trial.amend(ticket, value, reason=reason, by=by)
        status = trial.status()
    if as_json:
        print_json(receipt._asdict())
        return
    from evenhand.live.events import outcome_text

    now = outcome_text(receipt.outcome)
    click.echo(f"The outcome of {ticket} is now {now}; the old outcome stays in the log.")
    click.echo(status.sentence)


@click.command("import")
@journal_argument
@click.argument("data", type=click.Path())
@click.option("--key", metavar="K", help="Idempotency key of this import; default: a hash of the file.")
@json_option
def import_command(journal: str, name: str | None, data: str, key: str | None, as_json: bool) -> None:
    """Add the outcomes in DATA.csv (policy, group, outcome, guard-rails), all of them or none.

    A file is counted once, even if it is imported again. For different data with identical content, give
    another --key.
    """
    path = Path(data)
    with open_experiment(journal, name) as trial:
        lines: array[int] = array("q")  # line number of each row in the file
        rows, before = _rows(path, trial.protocol.problem, lines), trial.head
        count = trial.import_data(
            rows,
            source=path.name,
            key=key or _content_key(path),
            place_of=lambda n: f"{path}, line {lines[n - 1]}",
        )
        already = trial.head == before
        status = trial.status()
    if as_json:
        print_json({"imported": count, "already": already})
        return
    known = " already: the file was imported before, nothing was added" if already else ""
    click.echo(f"{count:,} outcomes recorded{known}.")
    click.echo(status.sentence)


def _rows(path: Path, problem: Problem, lines: array[int]) -> Iterator[tuple[str, str, Outcomes]]:
    """Yield the rows of a file and append the line number of each to `lines`."""
    from evenhand.live.input_checks import parsed_number, parsed_sample
    from evenhand.model.problem import JOINED
    from evenhand.study.data_files import columns, group_columns, has_column

    names, places = [rail.name for rail in problem.guardrails], group_columns(problem)
    if problem.goal != "screen" and has_column(path, "item"):
        _refuse_shared_items(path)
    for line, (policy, *parts) in columns(path, ("policy", *places, "outcome", *names)):
        group = JOINED.join(part.strip() for part in parts[: len(places)]) if problem.by else parts[0]
        text, *fields = parts[len(places) :]
        outcome: Outcomes
        try:
            if names:
                outcome = parsed_sample(text, dict(zip(names, fields, strict=True)), problem)
            else:
                outcome = parsed_number(text, problem.family)
        except BadInput as error:
            raise BadInput(f"{path}, line {line}: {error}") from None
        lines.append(line)
        yield policy, group, outcome


def _refuse_shared_items(path: Path) -> None:
    """Refuse outcomes of different policies on one item: an experiment takes them for independent."""
    from evenhand.study.data_files import columns

    answered: dict[str, str] = {}
    for line, (policy, item) in columns(path, ("policy", "item")):
        first = answered.setdefault(item, policy)
        if first != policy:
            raise BadInput(
                f"{path}, line {line}: an experiment needs outcomes on different items; item {item!r} was "
                f"answered by {first!r} and by {policy!r}. `evenhand judge` compares them on shared items."
            )


def _content_key(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return f"content {hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem.strerror}.") from None
