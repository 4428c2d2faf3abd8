"""Wrong answers where policies join and leave at the worst moments; the certified rule's bound must hold."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand.live.protocol import Protocol
from evenhand.live.replay import Replay
from evenhand.live.replay_kernels import TELL
from evenhand.procedure.state import ANSWER, DECIDED, NONE, STOPPED
from tests.live.example_experiments import create

DELTA, TINY = 0.1, 0.001
MOST = 5
PROBLEM = eh.Problem(
    ["p0", "p1", "p2"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(0.3), max_policies=MOST
)
# p1 is slightly worse than p0, and p2 narrowly misses its floor
BEGIN = ((0.5, 0.5), (0.5 - TINY, 0.5 - TINY), (0.9, 0.3 - TINY))


@cache
def protocol() -> Protocol:
    procedure = eh.Procedure(delta=DELTA, max_samples=10**6, initial_order="declared")
    with create(study=PROBLEM, procedure=procedure) as trial:
        return trial.protocol


def best(means: dict[str, tuple[float, float]]) -> str | None:
    """The right answer among these policies, from their true means."""
    allowed = {name: mean for name, mean in means.items() if min(mean) >= 0.3}
    return max(allowed, key=lambda name: sum(allowed[name])) if allowed else None


class Adversary:
    """Changes the policies, by the true means, while the right answer leads; a wrong leader is left alone.

    First a policy joins that is slightly better than the leader, then one that narrowly misses its floor;
    then the best policy leaves as long as two others stay.
    """

    def __init__(self) -> None:
        self.protocol = protocol()
        self.means = dict(zip(PROBLEM.policies, BEGIN, strict=True))

    def change(self, leader: str | None) -> bool:
        """Change the policies; return False if nothing is left to do."""
        right, count = best(self.means), len(self.protocol.members.names)
        if leader != right:
            return False
        if count < MOST:
            name, (x, y) = f"p{count}", self.means[right] if right else (0.5, 0.5)
            self.means[name] = (x + TINY, y + TINY) if count % 2 else (0.9, 0.3 - TINY)
            self.protocol = self.protocol.with_policy(name)
        elif right is not None and len(self.means) > 2:
            del self.means[right]
            self.protocol = self.protocol.without_policy(right)
        else:
            return False
        return True


AT_ONCE = 10  # tickets that are out together
APART = 50  # samples between two changes, at least


def is_wrong(run: int, samples: int, wrong_statements: float | None = None) -> bool:
    """Return whether a run of the live procedure stops with a wrong answer against the adversary.

    `wrong_statements` replaces the number that the threshold is made of.
    """
    adversary, draw = Adversary(), np.random.default_rng([16, run])
    replay = Replay(replace(adversary.protocol, seed=run))
    replay.same_build = True
    _lower(replay, wrong_statements)
    changed = 0
    for seq in range(0, samples, AT_ONCE):
        present = adversary.protocol.members.present
        for cell in replay.choose(AT_ONCE, -1):
            outcome = float(draw.random() < adversary.means[present[cell.policy]][cell.group])
            replay.queue(seq, TELL, cell.policy, cell.group, -1, outcome)
        replay.flush()
        due = not replay.has_stopped and seq - changed >= APART
        if due and adversary.change(_leader(replay, present)):
            replay.change_policies(seq, adversary.protocol, 0)
            _lower(replay, wrong_statements)
            changed = seq
        if replay.has_stopped:
            assert replay.state.clock[STOPPED] == DECIDED
            return _leader(replay, adversary.protocol.members.present) != best(adversary.means)
    return False


def _leader(replay: Replay, present: tuple[str, ...]) -> str | None:
    answer = int(replay.state.clock[ANSWER])
    return None if answer == NONE else present[answer]


def _lower(replay: Replay, wrong_statements: float | None) -> None:
    if wrong_statements is not None:
        replay.spec = replay.spec._replace(wrong_statements=wrong_statements)


def upper_bound(wrong: int, runs: int) -> float:
    """The exact 99% upper bound on the probability of what happened in so many of the runs."""
    return float(stats.beta.ppf(0.99, wrong + 1, runs - wrong))


def test_few_runs_are_seldom_wrong() -> None:
    wrong = sum(is_wrong(run, 300) for run in range(6))
    assert stats.binom.sf(wrong - 1, 6, DELTA) > 1e-6


@pytest.mark.slow
def test_wrong_answers_are_rare_against_an_adversary() -> None:
    runs = 2_000
    wrong = sum(is_wrong(run, 600) for run in range(runs))
    print(f"{wrong} of {runs} runs are wrong; the 99% upper bound is {upper_bound(wrong, runs):.4f}")
    assert upper_bound(wrong, runs) <= DELTA


@pytest.mark.slow
def test_a_threshold_that_is_too_low_is_found_out() -> None:
    """The positive control: with a threshold of ln 2 the same runs are wrong too often."""
    runs = 400
    wrong = sum(is_wrong(run, 600, wrong_statements=2 * DELTA) for run in range(runs))
    assert stats.binom.sf(wrong - 1, runs, DELTA) < 1e-6
