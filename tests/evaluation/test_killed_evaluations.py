"""Fault 58: an evaluation interrupted by kill -9 at any call. Nothing paid for is lost or paid twice."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.evaluation.killed_evaluations import CALLS, kill_at_every_step
from tests.faults.processes import Process

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are forked and killed")


def recorded(journal: str) -> dict[tuple[str, str], float]:
    """Return the outcomes of the whole lines of a journal by candidate and item."""
    lines = journal.splitlines(keepends=True)[1:]
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return {(row["policy"], row["item"]): row["outcome"] for row in rows}


@pytest.mark.parametrize(("concurrency", "stride"), [pytest.param(1, 1, marks=pytest.mark.slow), (3, 4)])
def test_an_evaluation_killed_at_any_step_loses_no_recorded_call_and_pays_none_twice(
    tmp_path: Path, concurrency: int, stride: int
) -> None:
    process = Process(kill_at_every_step, tmp_path, concurrency, stride)
    lives = list(process.heard())
    assert process.end() == 0
    *_, undisturbed = lives
    assert not undisturbed[0]
    expected = recorded(undisturbed[3])
    assert CALLS <= len(expected) < CALLS + 2 * concurrency  # items are asked ahead
    again = 0
    for killed, at_kill, paid, journal, verdict in lives[:-1]:
        assert killed
        counts = Counter(tuple(line.split()) for line in paid.splitlines())
        before = recorded(at_kill)
        assert all(counts[call] == 1 for call in before)  # what was recorded is not called again
        twice = [call for call, times in counts.items() if times > 1]
        assert max(counts.values()) <= 2
        assert len(twice) <= concurrency  # calls that ran, or whose line was not written, at the kill
        found = recorded(journal)
        assert len(found) >= CALLS
        assert all(found[call] == expected[call] for call in found.keys() & expected.keys())
        assert verdict == undisturbed[4]
        again += len(twice)
    print(
        f"fault 58: {len(lives) - 1} kills with at most {concurrency} calls at a time: no recorded call was "
        f"lost or made again; {again} calls that had not been recorded were"
    )
    assert len(lives) > 2 * CALLS // stride  # several calls may be recorded in one step
