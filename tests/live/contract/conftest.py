"""The places that the contract is checked in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import evenhand as eh
from tests.live.contract.places import Local, Place, Remote
from tests.service.service_process import Running


@pytest.fixture(scope="session")
def contract_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A real service on loopback, in a process of its own."""
    folder = tmp_path_factory.mktemp("contract")
    with Running(str(folder / "journal.db"), folder / "log") as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where the experiment of a test is kept."""
    if request.param == "sqlite":
        return Local(str(tmp_path / "journal.db"))
    if request.param == "postgres":
        return Local(request.getfixturevalue("postgres_url"))
    return Remote(eh.connect(request.getfixturevalue("contract_service").url))
