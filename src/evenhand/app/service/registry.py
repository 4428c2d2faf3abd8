"""The experiments of one journal, each opened once and shared by all requests."""

from __future__ import annotations

import re
import threading
from typing import Any

from evenhand.errors import BadInput, NotFound
from evenhand.live.experiment import Experiment
from evenhand.live.journal import Journal, open_journal
from evenhand.study import Study

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_EXPERIMENTS = 10_000


class Registry:
    """Experiments by their id."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.journal: Journal = open_journal(address, create=True)
        self._open: dict[str, Experiment] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        return self.journal.experiments()

    def get(self, name: str) -> Experiment:
        """The experiment of this id, opened on first use."""
        if not _ID.fullmatch(name):
            raise BadInput("an id must be 1 to 64 letters, digits, '-' or '_'.")
        with self._lock:
            found = self._open.get(name)
            if found is None:
                if name not in self.journal.experiments():
                    raise NotFound("there is no such experiment.")
                found = self._open[name] = Experiment.open(self.journal, name)
            return found

    def create(self, name: str, study: Study, seed: int, lease: float | None, by: str) -> Experiment:
        """A new experiment; the same id with the same study and seed again is the one that exists."""
        names = self.names()
        if name in names:
            there = self.get(name)
            if there.protocol.seed == seed and there.protocol.study.problem == study.problem:
                return there
            raise BadInput(f"there is an experiment {name!r} with another protocol; take another id.")
        if len(names) >= MOST_EXPERIMENTS:
            raise BadInput(
                f"a journal holds at most {MOST_EXPERIMENTS:,} experiments; start another journal."
            )
        with self._lock:
            made = Experiment.create(self.journal, study, seed=seed, name=name, lease=lease, by=by)
            self._open[name] = made
            return made

    def close(self) -> None:
        self.journal.close()


def blinded(status: dict[str, Any]) -> dict[str, Any]:
    """What an operator may see of a status before the end: enrolment, tickets and health, no outcomes."""
    kept = (
        "experiment",
        "title",
        "state",
        "samples",
        "pending",
        "late",
        "events",
        "head",
        "counts",
        "health",
    )
    seen = {key: status[key] for key in kept}
    if status["state"] in ("decided", "exhausted", "closed"):
        seen |= {"answer": status["answer"], "decided": status["decided"]}
    return seen
