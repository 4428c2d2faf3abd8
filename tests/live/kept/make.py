"""Make the journals that are kept: one set for each released version, never made again for an old one.

    python -m tests.live.kept.make

Everything that can happen in an experiment happens in one of them. `facts.json` says how each ended, so that
a later version can be held to it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import evenhand as eh
from evenhand.errors import Conflict
from evenhand.live.experiment import Experiment
from evenhand.live.export import write_export
from evenhand.live.protocol import Protocol
from tests.live.example_experiments import SetClock, coin, create, play, problem

HOME = Path(__file__).parent
FACTS = ("answer", "decided", "samples", "pending", "evidence", "needed", "head", "events", "late", "counts")


def everything(address: str) -> Experiment:
    """Active sampling to its decision, with every kind of event on the way."""
    clock = SetClock()
    trial = create(address, clock=clock, lease=600, by="the maker")
    trial.import_data([("a", "x", 1), ("b", "y", 0)], source="before.csv", key="import")
    asks = play(trial, 20)
    trial.amend(asks[3], 1 - coin(asks[3]), reason="typo", by="nurse 4")
    trial.drop(trial.ask(1, worker="w")[0], "withdrew", by="site 3")
    trial.pause("monitoring visit", by="board")
    trial.resume("all is well", by="board")
    trial.ask(1, worker="dead")
    clock.waited += 601
    trial.sweep()
    clock.wall -= 3600
    try:
        trial.tell(asks[5], 1 - coin(asks[5]))
    except Conflict:
        trial.view("board", "estimates")
    late = trial.ask(2, key="two")
    asks += play(trial)
    trial.tell(late[0], 1)
    trial.amend(asks[30], 1 - coin(asks[30]), reason="typo", by="nurse 4")
    trial.finish("done", by="sponsor")
    return trial


def arrivals(address: str) -> Experiment:
    """Units that come by themselves, real outcomes, a gap; still running."""
    study = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, eh.Gaussian(1.0), eh.Gap(2.0), mode="proportional")
    trial = create(address, study=study, procedure=eh.Procedure("top-two", delta=1e-6))
    for number in range(80):
        [ask] = trial.ask(1, group="xxyxy"[number % 5], worker=f"patient {number}")
        trial.tell(ask, 0.25 * (number % 9) - (ask.policy == "b"))
    trial.ask(2, group="y", worker="patient 80")
    return trial


def unseen_groups(address: str) -> Experiment:
    """Groups known only with the outcome, batches, another rule; runs out of samples."""
    procedure = eh.Procedure("track-and-stop", stopping="stylised", delta=1e-9, batch=5, max_samples=100)
    trial = create(address, study=problem("agnostic"), procedure=procedure)
    while asks := trial.ask(5):
        trial.tell_all([(ask, coin(ask), "xxy"[place % 3]) for place, ask in enumerate(asks)])
    return trial


LIVES: dict[str, Callable[[str], Experiment]] = {
    "everything": everything, "arrivals": arrivals, "unseen-groups": unseen_groups,
}  # fmt: skip


def main() -> None:
    folder = HOME / eh.__version__
    folder.mkdir()
    Protocol.snapshot_every = 50  # type: ignore[assignment,method-assign]
    facts = {}
    for name, live in LIVES.items():
        path = folder / f"{name}.journal"
        with live(str(path)) as trial, (folder / f"{name}.jsonl").open("wb") as file:
            status = trial.status()
            write_export(trial._journal, "main", file)
        facts[name] = {fact: getattr(status, fact) for fact in FACTS}
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        path.with_name(f"{path.name}.lock").unlink()
    (folder / "facts.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
