"""`evenhand warmup`: compile the kernels now, so that the first command does not wait for them."""

from __future__ import annotations

import time

import click


@click.command("warmup")
def command() -> None:
    """Compile and cache the kernels.

    Every command compiles what it needs when it first needs it. This compiles all of it now, in a minute or
    two; every later command loads it from disk.
    """
    from rich.console import Console

    from evenhand.app.extras import installed_extras
    from evenhand.app.kernels import load_all_kernels, load_live_kernels

    started = time.perf_counter()
    with Console(stderr=True).status("compiling"):
        load_all_kernels()
        if installed_extras()["live"]["installed"]:
            load_live_kernels()
    click.echo(f"The kernels are compiled and cached ({time.perf_counter() - started:.1f} s).")
    click.echo("Next: evenhand plan STUDY.toml")
