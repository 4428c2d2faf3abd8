"""`evenhand serve` and `keys`: run the HTTP service and its dashboard, manage its keys."""

from __future__ import annotations

import tomllib
from pathlib import Path

import click

from evenhand.cli.options import json_option, print_json
from evenhand.errors import BadInput, nearest

LOOPBACK = ("127.0.0.1", "localhost", "::1")


NAMES = {
    "journal": "journal", "host": "host", "port": "port", "name": "hosts", "proxy": "proxies",
    "prefix": "prefix", "webhook": "webhooks",
}  # fmt: skip


def _read_config(context: click.Context, _: click.Parameter, path: str | None) -> None:
    """Take the settings of a TOML file as defaults: options and environment come first."""
    if path is None:
        return
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise BadInput(f"the settings in {path} cannot be read: {problem}.") from None
    for name in table:
        if name not in NAMES:
            raise BadInput(f"{path}: there is no setting {name!r}{nearest(name, tuple(NAMES))}")
    context.default_map = {NAMES[name]: value for name, value in table.items()}


@click.command("serve")
@click.option(
    "--config",
    is_eager=True,
    expose_value=False,
    callback=_read_config,
    envvar="EVENHAND_CONFIG",
    metavar="FILE",
    help="TOML file with these settings by name; options and the environment come first.",
)
@click.option(
    "--journal",
    default="evenhand.db",
    show_default=True,
    envvar="EVENHAND_JOURNAL",
    help="A file, or a postgresql:// address.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    envvar="EVENHAND_HOST",
    help="Address to listen on; any address but loopback requires a key.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    envvar="EVENHAND_PORT",
    help="Port to listen on.",
)
@click.option(
    "--name",
    "hosts",
    multiple=True,
    metavar="HOST",
    envvar="EVENHAND_NAME",
    help="Host name that the service accepts besides loopback; may be repeated.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    envvar="EVENHAND_PROXY",
    help="Address or network of a proxy whose X-Forwarded headers are believed; may be repeated.",
)
@click.option(
    "--prefix",
    default="",
    metavar="PATH",
    envvar="EVENHAND_PREFIX",
    help="Path below which users reach the service through a proxy, as /trials.",
)
@click.option(
    "--webhook",
    "webhooks",
    multiple=True,
    metavar="ORIGIN",
    envvar="EVENHAND_WEBHOOK",
    help="Origin that webhooks may call, as https://hooks.example.org; may be repeated.",
)
def serve_command(
    journal: str,
    host: str,
    port: int,
    hosts: tuple[str, ...],
    proxies: tuple[str, ...],
    prefix: str,
    webhooks: tuple[str, ...],
) -> None:
    """Run the HTTP service and the dashboard.

    Only one process can write a SQLite journal; several can share a postgresql:// journal. Until a key exists
    (`evenhand keys create`) the service listens on loopback only and needs no authentication.
    """
    serve(journal, host, port, hosts, proxies, prefix, webhooks)


def serve(
    journal: str,
    host: str,
    port: int,
    hosts: tuple[str, ...] = (),
    proxies: tuple[str, ...] = (),
    prefix: str = "",
    webhooks: tuple[str, ...] = (),
) -> None:
    """Run until interrupted; requests in progress are finished first."""
    try:
        from evenhand.service import server
        from evenhand.service.app import Settings, create_app, structured_logs
        from evenhand.service.keys import any_key
        from evenhand.service.path_prefix import checked_prefix
        from evenhand.service.webhooks import checked_origins
    except ImportError:
        raise BadInput("the service needs its extra; install evenhand[service].") from None
    shown = "a PostgreSQL journal" if "://" in journal else journal  # an address may contain a password
    prefix = checked_prefix(prefix)
    checked_origins(webhooks)
    remote = [f"{name} is not" for name in (host, *hosts) if name not in LOOPBACK]
    remote += [f"the proxy {name} would forward requests of others" for name in proxies]
    if remote and not any_key(journal):
        raise BadInput(
            f"without a key the service answers on loopback only; {remote[0]}. Create one with "
            f"`evenhand keys --journal {shown if shown == journal else 'ADDRESS'} create --role admin "
            "--name YOU`."
        )
    sockets = server.listen_at(host, port)
    structured_logs()
    app = create_app(Settings(journal, (*hosts, host), proxies, webhooks, prefix, warm=True))
    port = sockets[0].getsockname()[1]
    click.echo(f"evenhand serves {shown} at http://{host}:{port}{prefix}; stop it with Ctrl-C.")
    server.run(app, sockets, proxies)


ROLES = ("operator", "analyst", "admin")


@click.group("keys", invoke_without_command=True)
@click.option(
    "--journal",
    default="evenhand.db",
    show_default=True,
    envvar="EVENHAND_JOURNAL",
    help="The journal the service serves.",
)
@json_option
@click.pass_context
def keys_command(context: click.Context, journal: str, as_json: bool) -> None:
    """List, create and revoke keys.

    An operator asks and tells but sees no results. An analyst also sees results. An admin also changes state.
    """
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
            click.echo("There is no key: the service listens on loopback only and needs no authentication.")


@keys_command.command("create")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What the key allows.")
@click.option("--name", required=True, help="Owner of the key; recorded in the log with each action.")
@click.option("--expires", metavar="TIME", help="When the key expires, as 2027-01-31T00:00:00+00:00.")
@click.pass_obj
def create(journal: str, role: str, name: str, expires: str | None) -> None:
    """Create a key. It is shown once; only its hash is stored."""
    from evenhand.service.keys import Keys

    click.echo(Keys(journal).create(role, name, expires))
    click.echo("Save it now: it is not shown again.", err=True)


@keys_command.command("revoke")
@click.argument("identity", metavar="ID")
@click.pass_obj
def revoke(journal: str, identity: str) -> None:
    """Revoke a key. It stops working immediately."""
    from evenhand.service.keys import Keys

    Keys(journal).revoke(identity)
    click.echo(f"Key {identity} is revoked.")
