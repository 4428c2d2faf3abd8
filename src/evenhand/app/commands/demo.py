"""`evenhand demo`: the whole story on the stroke trial."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

STUDY, CELLS = "stroke.toml", "stroke_cells.csv"
MADE = (STUDY, CELLS, "report.html", "trial.db*")  # all that a demo leaves behind
PORT = 8765


@click.command("demo")
@click.option("-o", "--out", type=click.Path(file_okay=False), default="out/demo", show_default=True,
              help="Folder to write to.")  # fmt: skip
@click.option("--serve", is_flag=True, help="Leave the dashboard running with the trial in it.")
def command(out: str, serve: bool) -> None:
    """The stroke trial as a story: plan, simulate, a live run that stops, a report.

    The policy with the best overall mean fails the elderly. See what finding that out must cost, how a rule
    that looks at groups compares with one that does not, and a live experiment that stops with a certified
    answer.
    """
    from evenhand.app.story import tell_story
    from evenhand.app.terminal import console, say
    from evenhand.study import load

    folder, show = _fresh_folder(Path(out)), console()
    study = load(_put(folder))
    page = tell_story(show, study, folder)
    if page is None:
        say(show, f"Next: evenhand plan {folder / STUDY}")
        return
    say(show, f"Open {page}", style="bold")
    journal = folder / "trial.db"
    say(show, f"Next: evenhand status {journal}")
    say(show, f"      evenhand audit {journal}")
    say(show, f"      evenhand judge {folder / STUDY} {folder / CELLS}")
    if serve:
        _serve(show, journal)
    else:
        say(show, f"      evenhand serve --journal {journal}")


def _put(folder: Path) -> Path:
    """The demo's study and its counts, copied into the folder."""
    for name in (STUDY, CELLS):
        text = files("evenhand").joinpath("data", name).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
    return folder / STUDY


def _fresh_folder(folder: Path) -> Path:
    """The folder to write to; what an earlier demo left there goes, and nothing else."""
    left = {path for pattern in MADE for path in folder.glob(pattern)}
    others = sorted(path.name for path in set(folder.iterdir()) - left) if folder.is_dir() else []
    if others:
        raise BadInput(
            f"{folder} must be empty or hold an earlier demo; it holds {others[0]}. Name another with -o."
        )
    for path in left:
        path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _serve(show: Console, journal: Path) -> None:
    from evenhand.app.commands.serve import serve
    from evenhand.app.terminal import say

    say(show, f"The dashboard runs at http://127.0.0.1:{PORT}; stop it with Ctrl-C.")
    serve(str(journal), "127.0.0.1", PORT)
