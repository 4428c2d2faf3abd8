"""`evenhand serve`: the HTTP service and its dashboard."""

from __future__ import annotations

import click

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
def command(journal: str, host: str, port: int, hosts: tuple[str, ...]) -> None:
    """Run the service: ask and tell over HTTP, and watch in a browser.

    One process writes a SQLite journal; several may share a postgresql:// one. Until a key is made (`evenhand
    keys create`) it listens on loopback only and asks nobody who they are.
    """
    serve(journal, host, port, hosts)


def serve(journal: str, host: str, port: int, hosts: tuple[str, ...] = ()) -> None:
    """Run until told to stop; requests in flight are finished first."""
    try:
        from evenhand.app.service import serving
        from evenhand.app.service.build import Settings, create_app, structured_logs
        from evenhand.app.service.keys import any_key
    except ImportError:
        raise BadInput("the service needs its extra; install evenhand[service].") from None
    shown = "a PostgreSQL journal" if "://" in journal else journal  # an address may hold a password
    if host not in LOOPBACK and not any_key(journal):
        raise BadInput(
            f"without a key the service listens on loopback only; {host} is not. Make one with "
            f"`evenhand keys --journal {shown if shown == journal else 'ADDRESS'} create --role admin "
            "--name YOU`."
        )
    doors = serving.listen_at(host, port)
    structured_logs()
    app = create_app(Settings(journal, (*hosts, host), warm=True))
    click.echo(f"evenhand serves {shown} at http://{host}:{doors[0].getsockname()[1]}; stop it with Ctrl-C.")
    serving.run(app, doors)
