"""Calibration over a box: the tilt bound against exact error probabilities, and the parts of a box."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm, poisson

import evenhand as eh
from evenhand.errors import BadInput
from evenhand.model.families import Bernoulli, Family, Gaussian, Poisson
from evenhand.model.problem import Problem
from evenhand.simulation.box import box_of
from evenhand.simulation.box_tiles import (
    EXPONENTS,
    allowed_at_point,
    natural_scale,
    parts_of,
    tilt_cost,
)
from evenhand.study import Study, Truth, dumps
from tests.cli.conftest import Run, run  # noqa: F401

ADAPTIVE_SAMPLES = 9


def two_policies(family: Family, floor: float | None = None) -> Problem:
    return Problem(["a", "b"], {"x": 1.0}, family, None if floor is None else eh.Floors(floor))


def costs_of(problem: Problem, k: int, point: float, low: float, high: float) -> Any:
    return tilt_cost(natural_scale(problem, k, 0), *(np.array([value]) for value in (point, low, high)))


def bound_on_tile(costs: Any, samples: int, error: float) -> float:
    """Return the bound on the error over a tile, given the error at its point: min f^(1 - 1/q) exp(n c)."""
    with np.errstate(divide="ignore", over="ignore"):
        logs = np.log(error) * (1 - 1 / EXPONENTS) + samples * costs[:, 0]
    return math.exp(min(logs.min(), 0.0))


def adaptive_paths() -> dict[tuple[int, int, int, int], float]:
    """Return the number of paths that err, by samples and successes of both arms when they stop.

    Play the winner: stay with an arm after a success, change after a failure. Stop when one arm is two
    successes ahead. The event: the run names the first arm.
    """
    found: dict[tuple[int, int, int, int], float] = {}
    for path in itertools.product((0, 1), repeat=ADAPTIVE_SAMPLES):
        arm, n, s = 0, [0, 0], [0, 0]
        for outcome in path:
            n[arm] += 1
            s[arm] += outcome
            if abs(s[0] - s[1]) >= 2:
                break
            arm = arm if outcome else 1 - arm
        if s[0] - s[1] >= 2:
            # a path that stops early is met once for each of its continuations
            key = (n[0], s[0], n[1], s[1])
            found[key] = found.get(key, 0.0) + 0.5 ** (ADAPTIVE_SAMPLES - sum(n))
    return found


PATHS = adaptive_paths()


def exact_error(means: tuple[float, float]) -> float:
    """Sum the probabilities of all paths that err."""
    p, q = means
    return math.fsum(
        paths * p**x * (1 - p) ** (m - x) * q**y * (1 - q) ** (n - y) for (m, x, n, y), paths in PATHS.items()
    )


def test_the_enumeration_is_that_of_the_design() -> None:
    """Against a simulation of the same rule, with an exact binomial interval of 1e-6."""
    random, errors, runs = np.random.default_rng(3), 0, 20_000
    for draws in random.random((runs, ADAPTIVE_SAMPLES)):
        arm, s = 0, [0, 0]
        for draw in draws:
            outcome = draw < (0.4, 0.6)[arm]
            s[arm] += outcome
            if abs(s[0] - s[1]) >= 2:
                errors += s[0] > s[1]
                break
            arm = arm if outcome else 1 - arm
    low, high = binom.ppf([5e-7, 1 - 5e-7], runs, exact_error((0.4, 0.6)))
    assert low <= errors <= high


@pytest.mark.parametrize("point", [(0.3, 0.6), (0.5, 0.5), (0.15, 0.85), (0.4, 0.45)])
@pytest.mark.parametrize("half", [0.02, 0.08, 0.14])
def test_the_bound_holds_for_an_adaptive_design(point: tuple[float, float], half: float) -> None:
    problem = two_policies(Bernoulli())
    costs = np.maximum(*(costs_of(problem, k, point[k], point[k] - half, point[k] + half) for k in (0, 1)))
    bound = bound_on_tile(costs, ADAPTIVE_SAMPLES, exact_error(point))
    offsets = np.linspace(-half, half, 9)
    largest = max(exact_error((point[0] + x, point[1] + y)) for x in offsets for y in offsets)
    assert exact_error(point) < largest <= bound <= 1.0
    # for each exponent by itself too, not only for the best
    logs = np.log(exact_error(point)) * (1 - 1 / EXPONENTS) + ADAPTIVE_SAMPLES * costs[:, 0]
    assert np.all(np.exp(np.minimum(logs, 50)) >= largest)


def test_a_smaller_number_of_samples_would_not_be_a_bound() -> None:
    """The test above can fail: with a third of the samples the same formula is below the exact error."""
    problem, point, half = two_policies(Bernoulli()), (0.3, 0.6), 0.14
    costs = np.maximum(*(costs_of(problem, k, point[k], point[k] - half, point[k] + half) for k in (0, 1)))
    small = bound_on_tile(costs, ADAPTIVE_SAMPLES // 5, exact_error(point))
    assert small < exact_error((point[0] + half, point[1] - half))


@pytest.mark.parametrize(
    ("family", "point", "low", "high", "error"),
    [
        (Bernoulli(), 0.5, 0.46, 0.55, lambda p: binom.sf(64, 100, p)),
        (eh.Binomial(4), 2.0, 1.9, 2.15, lambda m: binom.sf(229, 400, m / 4)),
        (Poisson(), 1.0, 0.9, 1.12, lambda m: poisson.sf(124, 100 * m)),
        (Gaussian(2.0), 0.0, -0.2, 0.3, lambda m: norm.sf(0.5, m, 0.2)),
    ],
)
def test_the_bound_holds_for_a_fixed_sample(
    family: Any, point: float, low: float, high: float, error: Any
) -> None:
    """100 samples of one cell; the chance that their sum is large, from SciPy."""
    costs = costs_of(two_policies(family), 0, point, low, high)
    bound = bound_on_tile(costs, 100, error(point))
    largest = max(error(mean) for mean in np.linspace(low, high, 21))
    assert largest <= bound <= min(1.0, 30 * largest)  # and it is of use
    allowed = float(allowed_at_point(costs, 100, bound)[0])
    assert allowed == pytest.approx(error(point), rel=1e-6)


def test_tiles_that_are_far_too_wide_allow_no_error_without_a_warning() -> None:
    costs = costs_of(two_policies(Poisson()), 0, 30.0, 1e-3, 3e4)
    assert float(allowed_at_point(costs, 10_000, 0.1)[0]) == 0.0
    assert bound_on_tile(costs, 10_000, 0.1) == 1.0


def test_the_bound_for_gaussian_outcomes_has_a_closed_form() -> None:
    """With L = -ln f and D = n (distance / sd)^2 / 2 the best exponent gives exp(-(sqrt L - sqrt D)^2)."""
    costs = costs_of(two_policies(Gaussian(0.5)), 0, 1.0, 0.99, 1.02)
    level, distance = -math.log(0.003), 400 * (0.02 / 0.5) ** 2 / 2
    wanted = math.exp(-((math.sqrt(level) - math.sqrt(distance)) ** 2))
    assert bound_on_tile(costs, 400, 0.003) == pytest.approx(wanted, rel=1e-3)


def study_of(family: Family, means: Any, floor: float | None = None, **procedure: Any) -> Study:
    given = {"delta": 0.2} | procedure
    return Study(two_policies(family, floor), eh.Procedure(**given), Truth(means=means))


def test_the_parts_cover_the_box_with_the_right_answers() -> None:
    study = study_of(Bernoulli(), [[0.5], [0.6]], 0.3)
    box = box_of(study.problem, {"a": {"x": (0.2, 0.6)}, "b": {"x": (0.25, 0.7)}})
    parts = parts_of(study, box, 30)
    assert {part.answer for part in parts} == {"a", "b", None}
    random = np.random.default_rng(1)
    for means in random.uniform([0.2, 0.25], [0.6, 0.7], (400, 2)):
        answer = study.problem.answer(means[:, np.newaxis])
        name = None if answer is None or answer < 0 else study.problem.policies[answer]
        inside = [p for p in parts if np.all(means >= p.low) and np.all(means <= p.high)]
        assert name in {part.answer for part in inside}
    for part in parts:
        answer = study.problem.answer(np.array(part.point)[:, np.newaxis])
        assert part.answer == (None if answer is None or answer < 0 else study.problem.policies[answer])


def test_policies_that_tie_in_the_whole_box_are_covered() -> None:
    problem = Problem(["a", "b", "c"], {"x": 1.0}, Bernoulli())
    study = Study(problem, eh.Procedure(delta=0.2, initial=2), Truth(means=[[0.5], [0.5], [0.5]]))
    parts = parts_of(study, box_of(problem, {"b": {"x": (0.4, 0.6)}}), 30)
    for mean in np.linspace(0.4, 0.6, 101):  # a and c tie; where b is worse each of them is right
        inside = {part.answer for part in parts if part.low[0] <= mean <= part.high[0]}
        assert ("a" in inside) if mean < 0.5 - 1e-6 else ("b" in inside) if mean > 0.5 + 1e-6 else inside
    found = eh.calibrate_box(study, {"b": {"x": (0.4, 0.6)}}, 300, seed=2, horizon=30, workers=2)
    procedure = eh.Procedure(delta=0.2, initial=2, stopping=eh.Calibrated(found.threshold), max_samples=30)
    for mean in (0.42, 0.47, 0.499):
        runs = eh.simulate(problem, [[0.5], [mean], [0.5]], procedure, 400, 9, workers=2)
        wrong = runs.stopped & (runs.answer != 0) & (runs.answer != 2)
        assert binom.sf(np.count_nonzero(wrong) - 1, 400, 0.2) > 1e-7


def test_means_on_the_floor_are_a_tile_of_their_own() -> None:
    study = study_of(Bernoulli(), [[0.5], [0.6]], 0.3)
    parts = parts_of(study, box_of(study.problem, {"a": {"x": (0.2, 0.3)}, "b": {"x": (0.1, 0.1)}}), 20)
    assert [part.answer for part in parts][-1] == "a"
    assert parts[-1].low == parts[-1].high == (0.3, 0.1)
    assert {part.answer for part in parts[:-1]} == {None}


def test_more_samples_need_smaller_tiles() -> None:
    study = study_of(Gaussian(1.0), [[0.0], [0.5]])
    box = box_of(study.problem, {"b": {"x": (-1.0, 1.0)}})
    few, many = (len(parts_of(study, box, horizon)) for horizon in (25, 400))
    assert 3 * few <= many <= 5 * few  # the width of a tile falls with the root of the samples
    assert all(part.allowed >= 0.2 / 3 for part in parts_of(study, box, 400))


@pytest.fixture(scope="module")
def found() -> eh.BoxCalibration:
    study = study_of(Bernoulli(), [[0.5], [0.5]], 0.3, initial=2)
    box = {"a": {"x": (0.35, 0.6)}, "b": {"x": (0.25, 0.5)}}
    return eh.calibrate_box(study, box, 300, seed=2, horizon=30, workers=2)


def test_fresh_runs_anywhere_in_the_box_err_at_most_delta(found: eh.BoxCalibration) -> None:
    stopping = eh.Calibrated(found.threshold)
    procedure = eh.Procedure(delta=0.2, initial=2, stopping=stopping, max_samples=30)
    random = np.random.default_rng(5)
    points = [*random.uniform([0.35, 0.25], [0.6, 0.5], (6, 2)), found.worst.point]
    for means in points:
        runs = eh.simulate(
            two_policies(Bernoulli(), 0.3), [[means[0]], [means[1]]], procedure, 400, 9, workers=2
        )
        assert binom.sf(np.count_nonzero(runs.wrong) - 1, 400, 0.2) > 1e-7


def test_guard_rails_with_means_as_assumed_leave_out_policies_in_the_whole_box() -> None:
    rail = eh.Guardrail("errors", Bernoulli(), eh.Caps(0.3))
    problem = Problem(["a", "b", "c"], {"x": 1.0}, Bernoulli(), guardrails=[rail])
    errors = {"errors": [[0.1], [0.1], [0.6]]}  # c is better than the others, and errs too often
    truth = Truth([[0.5], [0.5], [0.9]], guardrails=errors)
    study = Study(problem, eh.Procedure(delta=0.2, initial=2), truth)
    box = {"a": {"x": (0.3, 0.6)}}
    assert {part.answer for part in parts_of(study, box_of(problem, box), 30)} == {"a", "b"}
    found = eh.calibrate_box(study, box, 200, seed=2, horizon=30, workers=2)
    procedure = eh.Procedure(delta=0.2, initial=2, stopping=eh.Calibrated(found.threshold), max_samples=30)
    for mean in (0.32, 0.45, 0.55, found.worst.point[0]):
        means = Truth([[mean], [0.5], [0.9]], guardrails=errors)
        runs = eh.simulate(problem, means, procedure, 400, 9, workers=2)
        assert binom.sf(np.count_nonzero(runs.wrong) - 1, 400, 0.2) > 1e-7


def test_the_result_says_what_is_proved(found: eh.BoxCalibration) -> None:
    assert found.threshold == max(tile.needs for tile in found.tiles) == found.worst.needs
    text = repr(found)
    assert "everywhere in the box of a, x and b, x" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100
    assert len(found.to_frame()) == len(found.tiles)
    found.plot()
    assert "<svg" in found._repr_html_()


@pytest.mark.parametrize(
    ("study", "box", "words"),
    [
        (study_of(eh.Exponential(), [[1.0], [2.0]]), {"a": {"x": (0.5, 1.0)}}, "this one is exponential"),
        (study_of(Bernoulli(), [[0.4], [0.5]]), {"a": {"x": (0.0, 0.5)}}, "strictly between 0 and 1"),
        (
            study_of(Bernoulli(), [[0.4], [0.5]], indifference=0.1),
            {"a": {"x": (0.3, 0.5)}},
            "an indifference or a tolerance is given; calibrate on scenarios",
        ),
        (
            study_of(Bernoulli(), [[0.4], [0.5]], sampling="oracle"),
            {"a": {"x": (0.3, 0.5)}},
            "the oracle rule depends on the means",
        ),
    ],
)
def test_what_is_not_proved_is_refused(study: Study, box: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        eh.calibrate_box(study, box, 100, horizon=20)


def test_boxes_that_are_too_large_are_refused_with_advice() -> None:
    groups = {"x": 0.5, "y": 0.5}
    problem = Problem(["a", "b"], groups, Gaussian(1.0), eh.Gap(0.5))
    truth = Truth(means=[[0.0, 0.1], [0.2, 0.3]])
    with pytest.raises(BadInput, match="not made of floors and caps"):
        eh.calibrate_box(Study(problem, truth=truth), {"a": {"x": (0.0, 1.0)}}, horizon=20)
    free = Study(Problem(["a", "b"], groups, Gaussian(1.0)), truth=truth)
    everything = {name: {"x": (0.0, 1.0), "y": (0.0, 1.0)} for name in "ab"}
    with pytest.raises(BadInput, match=r"up to 3 unknown means; this one has 4\. Fix the others"):
        eh.calibrate_box(free, everything, horizon=20)
    with pytest.raises(BadInput, match="20,000 tiles; this one needs"):
        eh.calibrate_box(free, {"a": {"x": (0.0, 9.0), "y": (0.0, 9.0)}}, horizon=5_000)
    with pytest.raises(BadInput, match="tiles of the box are too large"):
        eh.calibrate_box(free, {"a": {"x": (0.0, 9.0)}}, horizon=5_000, tiles=2)


def test_the_command_calibrates_a_box(run: Run, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "coins.toml"
    path.write_text(dumps(study_of(Bernoulli(), [[0.5], [0.5]], 0.3)))
    command = ("calibrate", str(path), "--box", "a/x=0.4:0.5", "--horizon", "20", "--replications", "100")
    code, out, err = run(*command)
    assert (code, err) == (0, "")
    assert "proved for this design" in out
    table = json.loads(run(*command, "--json")[1])
    assert {"calibrated", "worst", "box", "tiles", "horizon"} <= set(table)
    assert f"calibrated = {table['calibrated']:g}" in out
    for wrong in (("calibrate", str(path)), (*command, "--scenarios", "s.toml")):
        code, _, err = run(*wrong)
        assert (code, err.count("\n")) == (2, 1)
        assert "exactly one of them" in err
