"""`evenhand import`: count outcomes collected before."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.app.journals import journal_argument, opened
from evenhand.app.options import json_option, print_json
from evenhand.errors import BadInput


@click.command("import")
@journal_argument
@click.argument("data", type=click.Path())
@json_option
def command(journal: str, name: str | None, data: str, as_json: bool) -> None:
    """Count the outcomes in DATA.csv (policy, group, outcome), all of them or none."""
    from evenhand.study.data import lines

    with opened(journal, name) as trial:
        from evenhand.live.outcomes import parsed_outcome

        problem, rows = trial.protocol.problem, []
        for line in lines(Path(data), problem, ("outcome",)):
            try:
                outcome = parsed_outcome(line.fields["outcome"], problem.family)
            except BadInput as error:
                raise BadInput(f"{line.place}: {error}") from None
            rows.append((problem.policies[line.policy], problem.group_names[line.group], outcome))
        count = trial.import_data(rows, source=Path(data).name)
        status = trial.status()
    if as_json:
        print_json({"imported": count})
        return
    click.echo(f"{count:,} outcomes are in the log.")
    click.echo(status["sentence"])
