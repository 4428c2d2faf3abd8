"""Tracking and the ascent: the arithmetic that several rules share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.procedure.sampling.tracking import (
    begin_tracking,
    c_track,
    d_track,
    even_weight,
    mix_with_even,
    samples,
)
from evenhand.procedure.sampling.weight_ascent import climb_directed, climb_projected, project
from evenhand.procedure.state import ask
from tests.procedure.sampling.rule_run import RuleRun, rule_run
from tests.reference.algorithm_1 import nearest_in_simplex

numbers = st.floats(-50, 50, allow_nan=False)


@given(st.lists(numbers, min_size=1, max_size=30), st.floats(0.01, 5))
def test_the_projection_is_the_one_by_sorting(entries: list[float], total: float) -> None:
    x = np.array(entries)
    expected = total * nearest_in_simplex(x / total)
    project(x, total)
    assert x == pytest.approx(expected, abs=1e-9)


def table(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((3, 4))


def allowed(run: RuleRun, seed: int) -> np.ndarray:
    """Some weights the mode allows."""
    w = table(seed)
    if run.spec.mode == 0:
        return w / w.sum()
    if run.spec.mode == 1:
        return w / w.sum(axis=1, keepdims=True) * run.spec.arrivals[:, None]
    return np.outer(run.spec.arrivals, w[0] / w[0].sum())


def is_allowed(run: RuleRun, w: np.ndarray) -> bool:
    if run.spec.mode == 1 and not np.allclose(w.sum(axis=1), run.spec.arrivals):
        return False
    if run.spec.mode == 2 and not np.allclose(w, np.outer(run.spec.arrivals, w.sum(axis=0))):
        return False
    return bool(np.all(w >= 0) and w.sum() == pytest.approx(1.0))


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
@pytest.mark.parametrize("seed", range(5))
def test_both_climbs_stay_among_the_weights_the_mode_allows(mode: str, seed: int) -> None:
    run = rule_run("uniform", mode)
    w = allowed(run, seed)
    climb_projected(run.spec, w, table(seed + 10), 0.7)
    assert is_allowed(run, w)
    w = allowed(run, seed)
    climb_directed(run.spec, w, table(seed + 10), 0.9)
    assert is_allowed(run, w)
    mix_with_even(run.spec, w, 0.3, w)
    assert is_allowed(run, w)
    assert np.all(w >= 0.3 * np.array([[even_weight(run.spec, g)] for g in range(3)]))


def test_a_directed_step_gives_each_cell_the_evidence_it_carries() -> None:
    run = rule_run("uniform")
    w, c = allowed(run, 3), table(4)
    expected = 0.75 * w + 0.25 * w * c / (w * c).sum()
    climb_directed(run.spec, w, c, 0.25)
    assert w == pytest.approx(expected)


def test_c_tracking_stays_within_the_number_of_cells_of_the_weights_it_was_given() -> None:
    run = rule_run("uniform")
    begin_tracking(run.spec, run.state)
    owed = np.zeros((3, 4))
    for t in range(300):
        w = allowed(run, t)
        owed += w
        k, g = c_track(run.spec, run.state, run.work, w, -1)
        ask(run.state, run.work, k, g)
        assert np.abs(owed - run.counts.T).max() < owed.size
    assert np.allclose(owed, run.state.track)


def test_d_tracking_follows_constant_weights_to_within_a_cell() -> None:
    run = rule_run("uniform")
    w = allowed(run, 1)
    for _ in range(500):
        k, g = d_track(run.spec, run.state, run.work, w, -1)
        ask(run.state, run.work, k, g)
    assert np.abs(samples(run.state) * w - run.counts.T).max() <= 1.0 + 1e-9


@pytest.mark.parametrize("track", [c_track, d_track])
def test_where_groups_arrive_each_column_is_followed_by_itself(track) -> None:  # type: ignore[no-untyped-def]
    run = rule_run("uniform", "proportional")
    begin_tracking(run.spec, run.state)
    w = allowed(run, 2)
    for t in range(400):
        k, g = track(run.spec, run.state, run.work, w, t % 2)  # the third group never comes
        assert g == t % 2
        ask(run.state, run.work, k, g)
    for g in range(2):
        assert np.abs(200 * w[g] / w[g].sum() - run.counts[:, g]).max() <= 2.0
    assert run.counts[:, 2].sum() == 0
