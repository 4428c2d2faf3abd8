"""`evenhand serve`: the HTTP service and its dashboard.

`evenhand keys`: make, list and revoke the service's keys.
"""

from __future__ import annotations

import click

from evenhand.cli.options import json_option, print_json
from evenhand.errors import BadInput

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command("serve")
@click.option(
    "--journal", default="evenhand.db", show_default=True, help="A file, or a postgresql:// address."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; another than loopback needs a key.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port to listen on."
)
@click.option(
    "--name",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="A host name the service answers to beside loopback; repeat for more.",
)
def serve_command(journal: str, host: str, port: int, hosts: tuple[str, ...]) -> None:
    """Run the service: ask and tell over HTTP, and watch in a browser.

    One process writes a SQLite journal; several may share a postgresql:// one. Until a key is made (`evenhand
    keys create`) it listens on loopback only and asks nobody who they are.
    """
    serve(journal, host, port, hosts)


def serve(journal: str, host: str, port: int, hosts: tuple[str, ...] = ()) -> None:
    """Run until told to stop; requests in flight are finished first."""
    try:
        from evenhand.service import server
        from evenhand.service.app import Settings, create_app, structured_logs
        from evenhand.service.keys import any_key
    except ImportError:
        raise BadInput("the service needs its extra; install evenhand[service].") from None
    shown = "a PostgreSQL journal" if "://" in journal else journal  # an address may hold a password
    if host not in LOOPBACK and not any_key(journal):
        raise BadInput(
            f"without a key the service listens on loopback only; {host} is not. Make one with "
            f"`evenhand keys --journal {shown if shown == journal else 'ADDRESS'} create --role admin "
            "--name YOU`."
        )
    doors = server.listen_at(host, port)
    structured_logs()
    app = create_app(Settings(journal, (*hosts, host), warm=True))
    click.echo(f"evenhand serves {shown} at http://{host}:{doors[0].getsockname()[1]}; stop it with Ctrl-C.")
    server.run(app, doors)


ROLES = ("operator", "analyst", "admin")


@click.group("keys", invoke_without_command=True)
@click.option("--journal", default="evenhand.db", show_default=True, help="The journal the service serves.")
@json_option
@click.pass_context
def keys_command(context: click.Context, journal: str, as_json: bool) -> None:
    """Who may use the service. Operators ask and tell, blind; analysts see outcomes; admins steer."""
    context.obj = journal
    if context.invoked_subcommand is None:
        from evenhand.service.keys import Keys

        found = [vars(key) for key in Keys(journal).all()]
        if as_json:
            print_json(found)
            return
        for key in found:
            state = "revoked" if key["revoked"] else f"expires {key['expires']}" if key["expires"] else "good"
            click.echo(f"{key['id']}  {key['role']:9} {key['name']}  made {key['made']}  {state}")
        if not found:
            click.echo("There is no key: the service listens on loopback only and asks nobody who they are.")


@keys_command.command("create")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What its holder may do.")
@click.option("--name", required=True, help="Who holds it; stands in the log beside what they do.")
@click.option("--expires", metavar="TIME", help="When it ends, as 2027-01-31T00:00:00+00:00.")
@click.pass_obj
def create(journal: str, role: str, name: str, expires: str | None) -> None:
    """Make a key. It is shown once and kept as a hash."""
    from evenhand.service.keys import Keys

    click.echo(Keys(journal).create(role, name, expires))
    click.echo("Keep it now: it is not shown again.", err=True)


@keys_command.command("revoke")
@click.argument("identity", metavar="ID")
@click.pass_obj
def revoke(journal: str, identity: str) -> None:
    """Make a key useless from now on."""
    from evenhand.service.keys import Keys

    Keys(journal).revoke(identity)
    click.echo(f"Key {identity} is revoked.")
