"""The commands on a live experiment, except those on its tickets (`ask_tell`)."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.cli.options import (
    UNDECIDED,
    journal_argument,
    json_option,
    new_file,
    open_experiment,
    print_json,
    reason_options,
    study_argument,
)
from evenhand.errors import BadInput, StorageFailed, shown_address

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from evenhand.live.hash_chain import Head
    from evenhand.live.interval_status import IntervalStatus
    from evenhand.live.journal import Journal
    from evenhand.live.status import Status


@click.command("new")
@click.argument("journal")
@study_argument
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), help="Seed of all random draws; default: a random one."
)
@click.option(
    "--experiment", "name", default="main", show_default=True, help="Name of the experiment in the journal."
)
@click.option(
    "--lease", type=float, metavar="SECONDS", help="Expire a ticket after this time; default: never."
)
@click.option("--by", metavar="WHO", help="Your name; recorded in the log.")
@json_option
def new_command(
    journal: str, study: str, seed: int | None, name: str, lease: float | None, by: str | None, as_json: bool
) -> None:
    """Create a live experiment from a study file.

    JOURNAL is a file to create, or a postgresql:// address. The study, the seed and the software versions are
    recorded in the first event and cannot be changed.
    """
    from evenhand.study import load

    if journal == ":memory:":
        raise BadInput("a journal in memory would be lost when this command ends; name a file to create.")
    loaded = load(study)
    from evenhand.live.experiment import Experiment

    chosen = secrets.randbits(48) if seed is None else seed
    with Experiment.create(journal, loaded, seed=chosen, name=name, lease=lease, by=by) as trial:
        head = str(trial.head)
    following = "ask" if loaded.procedure.interval is None else "shares"
    if as_json:
        print_json({"journal": shown_address(journal), "experiment": name, "seed": chosen, "head": head})
        return
    click.echo(f"The protocol is frozen in {shown_address(journal)} (seed {chosen}, head {head}).")
    click.echo(f"Next: evenhand {following} {shown_address(journal)}")


@click.command("pause")
@journal_argument
@reason_options(required=True)
@json_option
def pause_command(journal: str, name: str | None, reason: str, by: str | None, as_json: bool) -> None:
    """Issue no tickets until `resume`. Outcomes are still accepted."""
    with open_experiment(journal, name) as trial:
        trial.pause(reason, by=by)
    if as_json:
        print_json({"paused": True})
    else:
        click.echo(f"Paused. Next: evenhand resume {shown_address(journal)}")


@click.command("resume")
@journal_argument
@reason_options(required=False)
@json_option
def resume_command(journal: str, name: str | None, reason: str | None, by: str | None, as_json: bool) -> None:
    """Issue tickets again after `pause`."""
    with open_experiment(journal, name) as trial:
        trial.resume(reason or "resumed", by=by)
    if as_json:
        print_json({"paused": False})
    else:
        click.echo(f"Resumed. Next: evenhand ask {shown_address(journal)}")


@click.command("finish")
@journal_argument
@reason_options(required=True)
@json_option
def finish_command(journal: str, name: str | None, reason: str, by: str | None, as_json: bool) -> None:
    """End the experiment permanently, decided or not; outcomes that still come are kept as late."""
    _finish(journal, name, reason, by, as_json)


_author_option = click.option("--by", required=True, metavar="WHO", help="Your name; recorded in the log.")
_reason_option = click.option("--reason", required=True, help="The reason; recorded in the log.")


@click.command("add-policy")
@journal_argument
@click.argument("policy", metavar="POLICY")
@_reason_option
@_author_option
@json_option
def add_policy_command(
    journal: str, name: str | None, policy: str, reason: str, by: str, as_json: bool
) -> None:
    """Let a policy join the experiment.

    The study must have room for it: max_policies is the number of policies that may ever take part. The new
    policy gets its initial samples next, and can be the answer.
    """
    with open_experiment(journal, name) as trial:
        trial.add_policy(policy, reason=reason, by=by)
        members, most = trial.protocol.members, trial.protocol.problem.max_policies
        in_tickets = trial.protocol.procedure.interval is None
    if as_json:
        print_json({"policy": policy, "added": True, "policies": list(members.present)})
        return
    click.echo(f"{policy} joined; {len(members.names)} of {most} policies have taken part.")
    click.echo(f"Next: evenhand {'ask' if in_tickets else 'shares'} {shown_address(journal)}")


@click.command("withdraw")
@journal_argument
@click.argument("policy", metavar="POLICY")
@_reason_option
@_author_option
@json_option
def withdraw_command(
    journal: str, name: str | None, policy: str, reason: str, by: str, as_json: bool
) -> None:
    """Remove a policy from the experiment permanently.

    It is not sampled any more and cannot be the answer. Outcomes of its open tickets are kept as late. The
    study must say max_policies.
    """
    with open_experiment(journal, name) as trial:
        trial.withdraw(policy, reason=reason, by=by)
        status, present = trial.status(), trial.protocol.members.present
    if as_json:
        done = {"decided": status.decided, "answer": status.answer}
        print_json({"policy": policy, "withdrawn": True, "policies": list(present), **done})
        return
    click.echo(f"{policy} was withdrawn; {len(present)} policies remain. {status.sentence}")
    click.echo(f"Next: evenhand {'report' if status.decided else 'ask'} {shown_address(journal)}")


@click.command("close", deprecated=True)
@journal_argument
@reason_options(required=False)
@json_option
def close_command(journal: str, name: str | None, reason: str | None, by: str | None, as_json: bool) -> None:
    """End the experiment: the earlier name of `finish`, which the next release removes."""
    _finish(journal, name, reason or "closed", by, as_json)


def _finish(journal: str, name: str | None, reason: str, by: str | None, as_json: bool) -> None:
    with open_experiment(journal, name) as trial:
        trial.finish(reason, by=by)
        status = trial.status()
    if as_json:
        print_json({"closed": True, "decided": status.decided, "answer": status.answer, "head": status.head})
        return
    click.echo(f"Closed. {status.sentence}")
    click.echo(f"Next: evenhand export {shown_address(journal)} -o experiment.jsonl")


@click.command("status")
@journal_argument
@click.option("--check", is_flag=True, help="Exit with code 3 while nothing is decided.")
@json_option
def status_command(journal: str, name: str | None, check: bool, as_json: bool) -> int:
    """Show the leader, what is certified, what is open and a forecast of further samples.

    Only reads, so it works while another process writes. The forecast assumes Jeffreys' prior on the means.
    """
    with open_experiment(journal, name, write=False) as trial:
        from evenhand.verdicts.forecast import experiment_forecast

        status = trial.status(experiment_forecast)
    if as_json:
        print_json(status.to_dict())
    else:
        shown = shown_address(journal)
        _print_status(status, shown if name is None else f"{shown} --experiment {name}")
    return UNDECIDED if check and not status.decided else 0


def _print_status(status: Status, journal: str) -> None:
    from evenhand.cli.terminal import console, print_sentence, section, table, verdict
    from evenhand.live.status_sentences import counts_sentence, health_sentence
    from evenhand.model.phrases import quantity, requirement_words

    out = console()
    if status.title:
        print_sentence(out, status.title, style="bold")
    print_sentence(out, status.sentence)
    titled = [("Cells", status.cells), *((f"Guard-rail {r.name}", r.cells) for r in status.guardrails)]
    for title, cells in titled:
        relative = any(bound is not None for cell in cells for bound in cell.relative)
        rows: list[list[str | Text]] = [
            [
                cell.policy,
                cell.group,
                f"{cell.n:,}",
                "" if cell.mean is None else f"{cell.mean:.4g}",
                *([requirement_words(cell)] if relative else []),
                verdict(cell.verdict),
            ]
            for cell in cells
        ]
        columns = ["policy", "group", "samples", "mean", *(["bound"] if relative else []), "requirement"]
        section(out, title, table(columns, rows, numbers_from=2))
    if status.intervals is not None:
        _print_intervals(out, status.intervals)
    out.print()
    forecast = "" if status.forecast is None else status.forecast["statement"]
    for sentence in (counts_sentence(status), forecast, health_sentence(status.health)):
        if sentence:
            print_sentence(out, sentence)
    print_sentence(out, f"{quantity(status.events, 'event')}, head {status.head}")
    following = {"running": f"ask {journal}", "paused": f"resume {journal}"}
    if status.intervals is not None:
        following["running"] = f"shares {journal}"
    print_sentence(out, f"Next: evenhand {following.get(status.state, f'report {journal} -o report.html')}")


def _print_intervals(out: Console, found: IntervalStatus) -> None:
    """Print the current shares, and for each group the units and the test of the shares."""
    from evenhand.cli.terminal import percent, section, table

    groups = list(found.shares)
    units: list[list[str | Text]] = [
        [group, f"{found.expected[group]:,.0f}", f"{found.units[group]:,}" if found.closed else ""]
        for group in groups
    ]
    columns = ["group", "units expected", "in the last interval"]
    if not found.shared:
        policies = list(found.shares[groups[0]])
        rows: list[list[str | Text]] = [
            [policy, *(percent(found.shares[group].get(policy, 0.0)) for group in groups)]
            for policy in policies
        ]
        section(out, f"Shares, version {found.number}", table(["policy", *groups], rows))
        units = [
            [*row, f"{found.sample_ratios[group]:.2g}"] for row, group in zip(units, groups, strict=True)
        ]
        columns.append("p of the shares")
    section(out, "Units of an interval", table(columns, units))


NOT_INTACT = 4


@click.command("audit")
@click.argument("source", metavar="JOURNAL-or-EXPORT")
@click.option("--head", metavar="HASH", help="A hash noted earlier: the log must still contain that event.")
@click.option(
    "--experiment",
    "name",
    metavar="NAME",
    help="Name of the experiment; needed only if the journal holds several.",
)
@json_option
def audit_command(source: str, head: str | None, name: str | None, as_json: bool) -> int:
    """Recompute every allocation, estimate, evidence value and the stop from the log.

    Prints that everything is identical, or names the first event that does not follow from the events before
    it (exit code 4). Makes all checks that the writer makes, and checks that the journal holds the last event
    written to it.
    """
    from evenhand.live.audit import audit

    found = audit(source, head, name)
    if as_json:
        print_json(found._asdict())
    elif found.identical:
        click.echo(f"Identical: {found.events:,} events, every decision recomputed. Head {found.head}.")
        if found.builds > 1:
            click.echo(f"The log was written by {found.builds:,} builds; each change is an event.")
        if found.other_digits:
            click.echo(
                f"{found.other_digits:,} asks and snapshots of other builds differ here in their last digits."
            )
        if found.close_decisions:
            click.echo(
                f"{found.close_decisions:,} decisions of other builds depend on rounding; to recompute these "
                "too, audit the log on the machine where they were made."
            )
    else:
        click.echo(f"Not identical: {found.first_difference}")
    return 0 if found.identical else NOT_INTACT


@click.command("export")
@journal_argument
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(("log", "csv", "parquet")),
    default="log",
    show_default=True,
    help="The whole log as JSON lines, or the outcomes that count as a table.",
)
@json_option
def export_command(journal: str, name: str | None, output: str | None, kind: str, as_json: bool) -> None:
    """Write protocol, events and head as JSON lines, or the outcomes as a table.

    With -o, --json prints the number of events and the head. `evenhand transfer` copies an export to a
    journal. A table has the outcomes that count with their latest corrections; `evenhand judge` reads it.
    """
    from evenhand.live.export import write_export
    from evenhand.live.journal import open_journal
    from evenhand.live.load_log import only_experiment

    if kind != "log":
        _export_table(journal, name, output, kind, as_json)
        return
    # before the journal is opened: closing another handle on the file would drop SQLite's locks on it
    target = None if output is None else new_file(output, b'{"evenhand":"export"', "an export")
    store = open_journal(journal, write=False)
    try:
        chosen = only_experiment(store, name)
        if target is None:
            write_export(store, chosen, sys.stdout.buffer)
            return
        head = _write_export(store, chosen, target)
    finally:
        store.close()
    if as_json:
        print_json({"file": output, "events": head.seq, "head": str(head)})
        return
    click.echo(f"{head.seq:,} events written to {output}, head {head}.")
    click.echo(f"Next: evenhand audit {output} --head {head}")


def _export_table(journal: str, name: str | None, output: str | None, kind: str, as_json: bool) -> None:
    """Write the outcomes that count into a file or to standard output."""
    from evenhand.files import whole_file
    from evenhand.live.export import write_outcomes
    from evenhand.live.journal import open_journal
    from evenhand.live.load_log import only_experiment

    first = {"csv": b"policy,group,outcome", "parquet": b"PAR1"}[kind]
    target = None if output is None else new_file(output, first, "a table of outcomes")
    store = open_journal(journal, write=False)
    try:
        chosen = only_experiment(store, name)
        if target is None:
            write_outcomes(store, chosen, sys.stdout.buffer, kind)
            return
        with whole_file(target) as file:
            count = write_outcomes(store, chosen, file, kind)
    except OSError as problem:
        raise StorageFailed(f"{output} cannot be written: {problem.strerror}.") from None
    finally:
        store.close()
    if as_json:
        print_json({"file": output, "outcomes": count})
        return
    click.echo(f"{count:,} outcomes written to {output}.")
    click.echo(f"Next: evenhand judge STUDY {output}")


def _write_export(store: Journal, experiment: str, target: Path) -> Head:
    """Write the export atomically, so that a file of this name is always complete."""
    from evenhand.files import whole_file
    from evenhand.live.export import write_export

    try:
        with whole_file(target) as file:
            return write_export(store, experiment, file)
    except OSError as problem:
        raise StorageFailed(f"{target} cannot be written: {problem.strerror}.") from None


@click.command("transfer")
@click.argument("export", type=click.Path(path_type=Path))
@click.argument("journal")
@json_option
def transfer_command(export: Path, journal: str, as_json: bool) -> None:
    """Copy an export into a journal, for example from SQLite to PostgreSQL.

    JOURNAL is a file to create, or a postgresql:// address; it may hold other experiments. The export is
    audited first. Events, keys and hashes are unchanged, so the experiment can continue in the new journal.
    Do not continue it in both journals.
    """
    from evenhand.live.transfer import transfer

    if journal == ":memory:":
        raise BadInput("a journal in memory would be lost when this command ends; name a file to create.")
    found = transfer(export, journal)
    if as_json:
        print_json({"journal": shown_address(journal), **found._asdict()})
        return
    shown = shown_address(journal)
    click.echo(f"{found.events:,} events of {found.experiment!r} copied to {shown}, head {found.head}.")
    click.echo(f"Next: evenhand status {shown}")
