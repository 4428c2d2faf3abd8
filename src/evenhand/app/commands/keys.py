"""`evenhand keys`: make, list and revoke the service's keys."""

from __future__ import annotations

import click

from evenhand.app.options import json_option, print_json

ROLES = ("operator", "analyst", "admin")


@click.group("keys", invoke_without_command=True)
@click.option("--journal", default="evenhand.db", show_default=True, help="The journal the service serves.")
@json_option
@click.pass_context
def command(context: click.Context, journal: str, as_json: bool) -> None:
    """Who may use the service. Operators ask and tell, blind; analysts see outcomes; admins steer."""
    context.obj = journal
    if context.invoked_subcommand is None:
        from evenhand.app.service.keys import Keys

        found = [vars(key) for key in Keys(journal).all()]
        if as_json:
            print_json(found)
            return
        for key in found:
            state = "revoked" if key["revoked"] else f"expires {key['expires']}" if key["expires"] else "good"
            click.echo(f"{key['id']}  {key['role']:9} {key['name']}  made {key['made']}  {state}")
        if not found:
            click.echo("There is no key: the service listens on loopback only and asks nobody who they are.")


@command.command("create")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What its holder may do.")
@click.option("--name", required=True, help="Who holds it; stands in the log beside what they do.")
@click.option("--expires", metavar="TIME", help="When it ends, as 2027-01-31T00:00:00+00:00.")
@click.pass_obj
def create(journal: str, role: str, name: str, expires: str | None) -> None:
    """Make a key. It is shown once and kept as a hash."""
    from evenhand.app.service.keys import Keys

    click.echo(Keys(journal).create(role, name, expires))
    click.echo("Keep it now: it is not shown again.", err=True)


@command.command("revoke")
@click.argument("identity", metavar="ID")
@click.pass_obj
def revoke(journal: str, identity: str) -> None:
    """Make a key useless from now on."""
    from evenhand.app.service.keys import Keys

    Keys(journal).revoke(identity)
    click.echo(f"Key {identity} is revoked.")
