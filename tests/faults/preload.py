"""Imported once by the fork server: loads every kernel that a live experiment needs."""

from __future__ import annotations

from tests.faults import processes
from tests.live.example_experiments import create, play

__all__ = ["processes"]

with create() as trial:
    first = play(trial, 30)[0]
    trial.amend(first, 0, reason="r", by="b")
    trial.amend(first, 1, reason="r", by="b")
    trial.status()
