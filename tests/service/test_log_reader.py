"""What the dashboard reads from a log, some events at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

import evenhand as eh
from evenhand.live.experiment import Experiment
from evenhand.service import panel_content
from evenhand.service.panel_content import LogReader, chart


@pytest.fixture
def trial(tmp_path: Path) -> Experiment:
    problem = eh.Problem(["plain", "bold"], {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.3))
    return Experiment.create(str(tmp_path / "journal.db"), problem, eh.Procedure(delta=1e-6), seed=3)


def tell(trial: Experiment, count: int) -> None:
    for number in range(count):
        ask = trial.ask()
        assert ask is not None
        trial.tell(ask, int(number % 3 != 0))


def read(trial: Experiment, reader: LogReader | None = None) -> LogReader:
    reader = reader or LogReader(trial.protocol)
    while reader.seq < trial.head.seq:
        reader.take(trial.events(reader.seq))
    return reader


def test_the_curve_ends_with_the_evidence_that_the_rule_saw(trial: Experiment) -> None:
    tell(trial, 60)
    last = read(trial).points[-1]
    status = trial.status()
    assert last.samples == 60
    assert last.evidence == pytest.approx(status.evidence)
    assert last.needed == pytest.approx(status.needed)


def test_a_log_read_in_pieces_gives_the_curve_of_one_read_at_once(trial: Experiment) -> None:
    growing = LogReader(trial.protocol)
    for _ in range(6):
        tell(trial, 10)
        read(trial, growing)
    assert growing.points == read(trial).points


def test_a_correction_moves_the_whole_curve(trial: Experiment) -> None:
    ask = trial.ask()
    assert ask is not None
    trial.tell(ask, 1)
    tell(trial, 40)
    before = read(trial)
    trial.amend(ask, 0, reason="misread", by="me")
    after = read(trial, before)
    assert after.points == read(trial).points
    assert after.points[-1].evidence == pytest.approx(_again(trial))


def _again(trial: Experiment) -> float:
    """The evidence by the fold itself, which looks at once after a correction."""
    evidence = trial.status().evidence
    assert evidence is not None
    return float(evidence)


def test_a_long_log_keeps_few_points(trial: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel_content, "MOST_POINTS", 20)
    reader = LogReader(trial.protocol)
    for _ in range(12):
        tell(trial, 10)
        read(trial, reader)
    assert len(reader.points) <= 20
    samples = [point.samples for point in reader.points]
    assert samples == sorted(set(samples))
    columns = chart(reader.points)
    assert {len(columns[name]) for name in ("samples", "evidence", "needed", "weakest")} == {len(samples)}


def test_tickets_out_and_late_outcomes_are_known(trial: Experiment) -> None:
    asks = trial.ask(3)
    trial.drop(asks[0], "lost")
    trial.tell(asks[0], 1)
    trial.tell(asks[1], 1)
    reader = read(trial)
    assert len(reader.out) == 1
    assert [late.why for late in reader.late] == ["dropped"]
