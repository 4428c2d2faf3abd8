"""Faults 8 and 12: journals of earlier versions and other machines open, are derived again, and go on."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.export import Export
from tests.live.example_experiments import SetClock
from tests.live.forgeries import write_chain

HOME = Path(__file__).with_name("kept")
KEPT = sorted(HOME.glob("*/*.journal"))


def facts(kept: Path) -> dict[str, Any]:
    """What the program that wrote it said of it."""
    found: dict[str, Any] = json.loads(kept.with_name("facts.json").read_text())[kept.stem]
    return found


@pytest.fixture(params=KEPT, ids=lambda path: f"{path.parent.name} {path.stem}")
def kept(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture
def copy(kept: Path, tmp_path: Path) -> str:
    """To be written to; the kept one never is."""
    return str(shutil.copy(kept, tmp_path / "t.db"))


def test_there_are_kept_journals() -> None:
    assert len(KEPT) >= 3


def test_a_kept_journal_shows_what_it_showed_when_it_was_written(kept: Path, copy: str) -> None:
    with Experiment.open(copy, write=False) as trial:
        status = trial.status()
    close = ("evidence", "needed")
    expected = facts(kept)
    assert {name: getattr(status, name) for name in expected if name not in close} == {
        name: value for name, value in expected.items() if name not in close
    }
    assert {name: getattr(status, name) for name in close} == pytest.approx(
        {name: expected[name] for name in close}
    )


def test_every_decision_of_a_kept_journal_and_of_its_export_is_derived_again(kept: Path, copy: str) -> None:
    head = facts(kept)["head"]
    for source in (copy, str(kept.with_suffix(".jsonl"))):
        found = audit(source, head=head)
        assert found.identical, found.first_difference
        assert found.events == facts(kept)["events"]


def test_a_kept_journal_continues(kept: Path, copy: str) -> None:
    with Experiment.open(copy, clock=SetClock()) as trial:
        if trial.status().state == "running":
            group = "x" if trial.protocol.problem.mode == "proportional" else None
            trial.tell(trial.ask(1, group=group)[0], 1.0)
        else:
            trial.view("tester", "a look years later")
        assert trial.head.seq > facts(kept)["events"]
    assert audit(copy, head=facts(kept)["head"]).identical


def test_in_a_log_of_the_first_format_a_changed_outcome_shows_at_the_next_decision(tmp_path: Path) -> None:
    """Its outcomes carry no digest of what they lead to; the audit says which events may be at fault."""
    events = [json.loads(record.body) for record in Export(HOME / "0.1.0" / "everything.jsonl").read()]
    told = [place for place, event in enumerate(events) if event["kind"] == "told"]
    for place in told[5::40]:
        forged = [*events[:place], events[place] | {"outcome": 1.0 - events[place]["outcome"]}]
        found = audit(str(write_chain(tmp_path / "f.jsonl", forged + events[place + 1 :])))
        shows = next(i for i in range(place, len(events)) if events[i]["kind"] in ("asked", "snapshot"))
        assert found.first_different_event == shows + 1
        assert re.search(rf"it was changed, or .*\b{place + 1}\b", str(found.first_difference)), found


def test_the_number_of_threads_changes_nothing() -> None:
    """Each audit twice, one after the other and all at once."""
    exports = [str(path.with_suffix(".jsonl")) for path in KEPT] * 2
    alone = list(map(audit, exports))
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(audit, exports)) == alone


@pytest.mark.slow
def test_code_for_another_processor_derives_the_same_decisions(tmp_path: Path) -> None:
    """The kernels compiled for a plain processor of this kind, without the newer instructions of this one."""
    program = (
        "import sys; from evenhand.live.audit import audit\nfor path in sys.argv[1:]: print(*audit(path)[:2])"
    )
    settings = {"EVENHAND_CPU_NAME": "generic", "EVENHAND_CPU_FEATURES": "", "EVENHAND_CACHE": str(tmp_path)}
    exports = [path.with_suffix(".jsonl") for path in KEPT]
    found = subprocess.run(
        [sys.executable, "-c", program, *exports],
        env=os.environ | settings, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.splitlines() == [f"{facts(path)['events']} True" for path in KEPT]
    print(f"fault 8: {len(KEPT)} kept journals, every decision the same in code for a plain processor")
