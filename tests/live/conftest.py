"""A journal that several test files look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenhand.errors import EvenhandError
from evenhand.live.protocol import Protocol
from tests.live.example_experiments import coin, create, play


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal in which everything has happened, closed; with snapshots every fifty events."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Protocol, "snapshot_every", 50)
        address = tmp_path_factory.mktemp("whole") / "t.db"
        with create(str(address)) as trial:
            trial.import_data([("a", "x", 1), ("b", "y", 0)], key="import")
            asks = play(trial, 20)
            trial.amend(asks[3], 1 - coin(asks[3]), reason="typo", by="me")
            trial.drop(trial.ask(1, worker="w")[0], "lost")
            trial.pause("p")
            trial.resume()
            with pytest.raises(EvenhandError):
                trial.tell(asks[5], 1 - coin(asks[5]))
            late = trial.ask(2, key="k")
            asks += play(trial)
            trial.tell(late[0], 1)
            trial.amend(asks[30], 1 - coin(asks[30]), reason="typo", by="me")
            trial.view("me", "all")
            trial.finish("the end")
        return address
