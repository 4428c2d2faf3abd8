"""Where an experiment can be kept: a SQLite file, PostgreSQL, and a service that is reached over HTTP."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import evenhand as eh
from evenhand.live.experiment import Experiment
from evenhand.service.client import RemoteExperiment, Service

Trial = Experiment | RemoteExperiment
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Local:
    """A journal of one's own."""

    address: str

    def create(self, *arguments: Any, **options: Any) -> Trial:
        return eh.Experiment.create(self.address, *arguments, **options)

    def open(self, name: str | None = None) -> Trial:
        return eh.Experiment.open(self.address, name)


@dataclass(frozen=True)
class Remote:
    """A service; what it needs beyond a journal is its address."""

    service: Service

    def create(self, *arguments: Any, **options: Any) -> Trial:
        return self.service.create(*arguments, **options)

    def open(self, name: str | None = None) -> Trial:
        return self.service.open(name)


Place = Local | Remote


def new_name() -> str:
    """A name that no experiment of this session has."""
    return f"contract-{next(_numbers)}"
