"""`evenhand scan`: operating characteristics of a procedure over a box of means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.cli.options import (
    executor_options,
    json_option,
    open_executor_with_progress,
    print_json,
    replications_option,
    seed_option,
    study_argument,
)
from evenhand.errors import BadInput

if TYPE_CHECKING:
    from evenhand.simulation.scan import Scan

FORMS = (".json", ".png", ".svg", ".html", ".md", ".csv")
MOST_ROWS = 30  # of the table on a terminal
BOX_HELP = (
    "A mean that varies: POLICY/GROUP=LOW:HIGH, or LOW:HIGH:POINTS. May be repeated. "
    "All other means are those of [truth]."
)


@click.command("scan")
@study_argument
@click.option("--box", multiple=True, metavar="CELL=LOW:HIGH[:POINTS]", help=BOX_HELP)
@click.option(
    "--points", type=click.IntRange(min=1), help="Points of every range; default: 15 of one, 7 of two."
)
@replications_option(1000)
@seed_option
@click.option(
    "--worst",
    type=click.Choice(("error", "power", "samples")),
    help="Also search for the largest error, the smallest power or the most samples.",
)
@click.option(
    "--max-samples",
    type=click.IntRange(min=1),
    help="Samples at which a run ends undecided; default: that of the study, at most 50,000.",
)
@click.option(
    "--save", type=click.Path(), help="Write the scan to FILE.json, .csv, .png, .svg, .html or .md."
)
@executor_options
@json_option
def scan_command(
    study: str, box: tuple[str, ...], points: int | None, replications: int, seed: int, worst: str | None,
    max_samples: int | None, save: str | None, workers: int | None, processes: bool, dask: str | None,
    device: str, as_json: bool,
) -> None:  # fmt: skip
    """Show how a procedure behaves if the means are not those you expect.

    Simulates the study at every point of a grid over a box of means, and prints the chance of a wrong answer
    (error), of a right one (power) and of each answer, with exact 95% intervals, and the expected samples.
    Each interval is for its own point. Without --box, the mean that matters most in the plan varies.

    \b
    One mean, and two means on a finer grid:
        evenhand scan stroke.toml --box "Neither/80 and over=0.80:0.86"
        evenhand scan stroke.toml --box "Neither/80 and over=0.80:0.86:9" --box "Both/under 80=0.8:0.9:9"

    Near a floor or a tie no number of samples decides; --max-samples limits the runs there.
    """
    from evenhand.simulation.box import box_of, default_box, parse_box
    from evenhand.simulation.scan import runs_of, scan
    from evenhand.study import load

    loaded = load(study)
    loaded.means()  # raises an error that says what is missing
    target = None if save is None else _save_path(save)
    ranges = parse_box(loaded.problem, box) if box else default_box(loaded)
    total = runs_of(box_of(loaded.problem, ranges, points), replications, worst)
    with open_executor_with_progress("scan", total, workers, processes, dask, device, as_json) as work:
        found = scan(
            loaded, ranges, points=points, replications=replications, seed=seed, worst=worst,
            max_samples=max_samples, progress=work.progress, executor=work.executor, device=device,
        )  # fmt: skip
    if target is not None:
        _save(found, target)
    if as_json:
        print_json(found.to_dict())
        return
    _print_scan(found, target)


def _save_path(name: str) -> Path:
    """Return the path to write, after checking that it can be written."""
    from importlib.util import find_spec

    path = Path(name)
    if path.suffix.lower() not in FORMS:
        raise BadInput(f"a scan is saved as {', '.join(FORMS)}; got {path.name!r}.")
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {path.parent} to write {path.name} to; create it first.")
    if path.suffix.lower() in (".png", ".svg", ".html") and find_spec("matplotlib") is None:
        raise BadInput("figures need matplotlib; install evenhand[report].")
    return path


def _save(found: Scan, path: Path) -> None:
    """Write the scan in the form that the suffix names."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        text = json.dumps(found.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")
    elif suffix in (".html", ".md"):
        from evenhand.reports.document import report

        report(found).save(path)
    elif suffix == ".csv":
        from evenhand.reports.captioned_figures import scan_table, write_csv

        write_csv(scan_table(found), path)
    else:
        from evenhand.cli.figure_output import write_figure
        from evenhand.reports.figures.scan import scan_figure

        write_figure(scan_figure(found), "scan", path)


def _print_scan(found: Scan, target: Path | None) -> None:
    from evenhand.cli.terminal import console, count, print_sentence, section, table
    from evenhand.reports.simulation_sentences import scan

    out = console()
    for sentence in scan(found):
        print_sentence(out, sentence)
    columns = [one.label for one in found.box]
    columns += ["right answer", "error", "95% interval", "power", "95% interval", "undecided", "samples"]
    rows = []
    for point in found.points[:MOST_ROWS]:
        error, power = point.error, point.power
        rows.append(
            [
                *(f"{value:.4g}" for value in point.means),
                point.answer or "none",
                f"{error.rate:.2%}",
                f"{error.low:.2%} to {error.high:.2%}",
                f"{power.rate:.1%}",
                f"{power.low:.1%} to {power.high:.1%}",
                f"{point.undecided.rate:.1%}",
                count(point.samples.mean),
            ]
        )
    section(out, "Points of the box", table(columns, rows))
    out.print()
    hidden = len(found.points) - len(rows)
    if hidden:
        print_sentence(
            out, f"{hidden:,} more points; --json and --save have all, with the chance of each answer."
        )
    runs = len(found.points) * found.replications
    print_sentence(out, f"{runs:,} runs on the grid; {found.seconds:.1f} s in all.")
    print_sentence(out, "Next: draw it with --save scan.png" if target is None else f"Written: {target}")
