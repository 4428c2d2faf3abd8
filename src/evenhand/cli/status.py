"""`evenhand status`: the state of an experiment as sentences and tables."""

from __future__ import annotations

from typing import Any

import click

from evenhand.cli.journal_options import journal_argument, opened
from evenhand.cli.options import UNDECIDED, json_option, print_json


@click.command("status")
@journal_argument
@click.option("--check", is_flag=True, help="Exit with code 3 while nothing is decided.")
@json_option
def status_command(journal: str, name: str | None, check: bool, as_json: bool) -> int:
    """Show the leader, what is certified, what is open and a forecast of further samples.

    Only reads, so it works while another process writes. The forecast assumes Jeffreys' prior on the means.
    """
    with opened(journal, name, write=False) as trial:
        from evenhand.verdicts.forecast import experiment_forecast

        status = trial.status(experiment_forecast)
    if as_json:
        print_json(status)
    else:
        _print(status, journal if name is None else f"{journal} --experiment {name}")
    return UNDECIDED if check and not status["decided"] else 0


def _print(status: dict[str, Any], journal: str) -> None:
    from evenhand.cli.terminal import console, print_sentence, section, table, verdict

    out = console()
    if status["title"]:
        print_sentence(out, status["title"], style="bold")
    print_sentence(out, status["sentence"])
    rows = [
        [
            cell["policy"],
            cell["group"],
            f"{cell['n']:,}",
            "" if cell["mean"] is None else f"{cell['mean']:.4g}",
            verdict(cell["verdict"]),
        ]
        for cell in status["cells"]
    ]
    section(out, "Cells", table(["policy", "group", "samples", "mean", "requirement"], rows, numbers_from=2))
    out.print()
    for sentence in (_counts(status), status["forecast"]["statement"], _health(status["health"])):
        if sentence:
            print_sentence(out, sentence)
    events = "1 event" if status["events"] == 1 else f"{status['events']:,} events"
    print_sentence(out, f"{events}, head {status['head']}")
    following = {"running": f"ask {journal}", "paused": f"resume {journal}"}
    print_sentence(
        out, f"Next: evenhand {following.get(status['state'], f'report {journal} -o report.html')}"
    )


def _counts(status: dict[str, Any]) -> str:
    """Return a sentence with the numbers of outcomes, open tickets and the evidence."""
    counts = (
        f"{status['state'].capitalize()}: {status['samples']:,} outcomes, {status['pending']:,} open tickets"
    )
    late = f", {status['late']:,} late and not counted" if status["late"] else ""
    if not status["needed"] or status["evidence"] is None:
        return f"{counts}{late}."
    return f"{counts}{late}; evidence {status['evidence']:.3g}, needed {status['needed']:.3g}."


def _health(health: dict[str, Any]) -> str:
    """Return a sentence with the health checks that failed, or that all passed."""
    if health["well"]:
        return f"Health: allocation as intended (sample-ratio p = {health['sample_ratio_p']:.2g})."
    found = []
    if health["sample_ratio_p"] < 0.001:
        found.append(f"allocation differs from the intended one (p = {health['sample_ratio_p']:.2g})")
    if health["starved"]:
        first = health["starved"][0]
        others = f" and {len(health['starved']) - 1} more cells" if len(health["starved"]) > 1 else ""
        found.append(f"{first['policy']} in {first['group']}{others} short of initial samples")
    if health["pending_too_long"]:
        age = _duration(health["oldest_pending_seconds"])
        found.append(f"ticket {health['oldest_pending']} has been open for {age}: tell or drop it")
    if health["clock_back"]:
        found.append(f"the clock went back {health['clock_back']} times")
    return f"Health: {'; '.join(found)}."


def _duration(seconds: float) -> str:
    for name, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
