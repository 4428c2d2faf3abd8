"""Calibration over a box: a threshold whose error is at most delta for all means in the box.

The box is cut into tiles. Floors and caps are edges of tiles, so inside a tile the same policies meet their
requirement. Where different policies are best in parts of a tile, each part is treated by itself: the wrong
answers of a part are all answers but one. One point of every part is simulated. The tilt bound
(`box_tiles.allowed_at_point`) gives the largest error at the point for which it is at most delta on the part.

The rank of the order statistic that becomes the threshold is fixed before any run, as in `calibrate`, with
the 5% of the confidence divided among all parts. So with 95% confidence in the simulation the error is at
most delta everywhere in the box, for this sampling rule and runs of up to `horizon` samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.errors import BadInput, NotComputed
from evenhand.model import region as regions
from evenhand.model.argument_checks import callable_or_none, instance_of, whole_number
from evenhand.model.families import Bernoulli
from evenhand.model.problem import Problem
from evenhand.result import Result
from evenhand.simulation.box import Box, box_of, tables_of
from evenhand.simulation.box_tiles import (
    Part,
    check_family,
    check_inside,
    parts_of,
)
from evenhand.simulation.calibrate import HORIZON, OUT_OF_REACH, endless, most_errors, rounded_up
from evenhand.simulation.executors import Executor, given_or_new_executor
from evenhand.simulation.runs import Rate, exact_rate
from evenhand.simulation.scan import MOST_RUNS, simulate_points
from evenhand.simulation.shards import CPU, Progress
from evenhand.study import Study, Truth

MOST_RANGES = 3
LEAST_ALLOWED = 1e-9  # no feasible number of runs can show smaller errors


@dataclass(frozen=True)
class Tile:
    """A part of the box in which one answer is right, and what was found at its point.

    Attributes
    ----------
    low, high : tuple of float
        The smallest and largest means of the ranged cells.
    point : tuple of float
        The means at which the runs were simulated.
    answer : str, optional
        The answer that is right in this part; None for none of the policies.
    allowed : float
        The largest error at the point that proves an error of at most delta in the part.
    error : Rate
        The share of runs at the point that reach the threshold with a wrong answer, and its 95% interval.
    needs : float
        The threshold that this part needs by itself.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    point: tuple[float, ...]
    answer: str | None
    allowed: float
    error: Rate
    needs: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain names and numbers."""
        return {
            "low": list(self.low), "high": list(self.high), "point": list(self.point),
            "answer": self.answer, "allowed": self.allowed, "error": self.error._asdict(),
            "needs": self.needs,
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class BoxCalibration(Result):
    """A threshold with an error of at most delta on a whole box of means; `calibrate_box` returns one.

    Attributes
    ----------
    threshold : float
        The threshold, for `Procedure(stopping=Calibrated(threshold), max_samples=horizon)`.
    delta : float
        The risk of the study.
    replications, seed, horizon : int
        Runs at the point of every tile, the seed, and the largest number of samples of a run.
    box : tuple
        The ranges of means.
    tiles : tuple of Tile
        The parts of the box and what each of them needs.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Gaussian(1.0))
    >>> study = eh.Study(problem, eh.Procedure(delta=0.2), eh.Truth(means=[[0.0], [0.5]]))
    >>> found = eh.calibrate_box(study, {"b": {"x": (0.2, 0.6)}}, 200, seed=1, horizon=20, workers=1)
    >>> found.threshold > 0, found.worst.answer
    (True, 'b')
    """

    threshold: float
    delta: float
    replications: int
    seed: int
    horizon: int
    box: Box
    tiles: tuple[Tile, ...]

    @property
    def worst(self) -> Tile:
        """Return the tile that needs the highest threshold."""
        return max(self.tiles, key=lambda tile: tile.needs)

    def to_dict(self) -> dict[str, Any]:
        """Return plain names and numbers, as `evenhand calibrate --box --json` prints them."""
        return {
            "calibrated": self.threshold,
            "worst": self.worst.to_dict(),
            "box": [
                {"policy": one.policy, "group": one.group, "low": one.low, "high": one.high}
                for one in self.box
            ],
            "tiles": [tile.to_dict() for tile in self.tiles],
            "delta": self.delta,
            "replications": self.replications,
            "seed": self.seed,
            "horizon": self.horizon,
        }  # fmt: skip


def calibrate_box(
    study: Study,
    box: Mapping[str, Any],
    replications: int = 2000,
    seed: int = 0,
    horizon: int = HORIZON,
    tiles: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    device: str = CPU,
) -> BoxCalibration:
    """Return a threshold at which the error is at most the risk of the study for all means in a box.

    Proved with 95% confidence in the simulation, for this problem and sampling rule, for runs of up to
    `horizon` samples and outcomes of the problem's family. See docs/decisions/box-calibration.md.

    Parameters
    ----------
    study : Study
        The problem, the procedure with its risk, and the means of the cells that are not ranged.
    box : mapping
        The ranges of up to three means: {policy: {group: (low, high)}}.
    replications : int
        Runs at the point of every tile.
    seed : int
        The seed of all random numbers.
    horizon : int
        Samples of every run; the threshold holds for runs of up to this length.
    tiles : int, optional
        Tiles per mean. By default enough that at least a third of the risk is allowed at a point.
    workers : int, optional
        The number of threads; one per core unless given.
    progress : callable, optional
        Called as progress(done, all) when runs finish.
    executor : Executor, optional
        An executor of your own instead of threads.
    device : {"cpu", "cuda"}
        Where the runs are computed; "cuda" is an NVIDIA GPU.

    Returns
    -------
    BoxCalibration
        The threshold, and what every tile of the box needs.

    Raises
    ------
    BadInput
        If the family, the requirement or the size of the box is not covered by the proof.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.3))
    >>> study = eh.Study(problem, eh.Procedure(delta=0.2), eh.Truth(means=[[0.5], [0.6]]))
    >>> found = eh.calibrate_box(study, {"b": {"x": (0.2, 0.4)}}, 200, seed=1, horizon=20, workers=1)
    >>> {tile.answer for tile in found.tiles}
    {'a'}
    """
    instance_of(study, Study, "study")
    for value, what in ((replications, "replications"), (horizon, "horizon")):
        whole_number(value, what, 1)
    for optional_value, what in ((workers, "workers"), (tiles, "tiles")):
        if optional_value is not None:
            whole_number(optional_value, what, 1)
    callable_or_none(progress, "progress")
    ranges, parts = parts_of_box(study, box, horizon, tiles)
    if len(parts) * replications > MOST_RUNS:
        raise BadInput(
            f"a calibration can have {MOST_RUNS:,} runs; {len(parts):,} tiles of the box would have "
            f"{len(parts) * replications:,}. Give fewer replications, a smaller horizon or a smaller box."
        )
    ranks = _ranks(parts, replications)
    tables = tables_of(study, ranges, np.array([part.point for part in parts]))
    with given_or_new_executor(executor, workers, device) as chosen:
        rows = simulate_points(
            endless(study, study.truth, horizon), tables, replications, seed, chosen, progress, device
        )
    _check_answers(study.problem, parts, rows.truth[::replications].tolist())
    peaks = rows.near.reshape(len(parts), replications) + OUT_OF_REACH
    needs = [rounded_up(float(np.sort(peak)[-1 - rank])) for peak, rank in zip(peaks, ranks, strict=True)]
    threshold = max(needs)
    found = tuple(
        Tile(part.low, part.high, part.point, part.answer, part.allowed,
             exact_rate(int(np.count_nonzero(peak >= threshold)), replications), need)
        for part, peak, need in zip(parts, peaks, needs, strict=True)
    )  # fmt: skip
    return BoxCalibration(threshold, study.procedure.delta, replications, seed, horizon, ranges, found)


def parts_of_box(
    study: Study, box: Mapping[str, Any], horizon: int, tiles: int | None
) -> tuple[Box, list[Part]]:
    """Return the checked ranges of a box and its parts."""
    ranges = _checked(study, box)
    return ranges, parts_of(study, ranges, horizon, tiles)


def _checked(study: Study, box: Mapping[str, Any]) -> Box:
    """Return the ranges; refuse what the proof does not cover."""
    problem, procedure = study.problem, study.procedure
    check_family(problem.family)
    reasons = {
        "the goal is to screen": problem.goal == "screen",
        "the requirement is not made of floors and caps": problem.standard.region.kind != regions.BOX,
        "an indifference or a tolerance is given": procedure.indifference > 0 or bool(procedure.tolerance),
        "the oracle rule depends on the means": procedure.sampling_name == "oracle",
        "samples come in intervals": procedure.interval is not None,
        "the truth gives outcomes of another kind": study.truth is not None
        and _has_other_outcomes(study.truth, problem),
    }
    for reason, holds in reasons.items():
        if holds:
            raise BadInput(f"a box is not proved where {reason}; calibrate on scenarios instead.")
    ranges = box_of(problem, box, 2)
    study.means()  # raises an error that says what is missing
    ranged = [one for one in ranges if one.low < one.high]
    if len(ranged) > MOST_RANGES:
        raise BadInput(
            f"a box is proved for up to {MOST_RANGES} unknown means; this one has {len(ranged)}. "
            "Fix the others."
        )
    for one in ranged:
        check_inside(problem.family, one.low, one.high, f"the range of {one.policy!r} in {one.group!r}")
    return ranges


def _has_other_outcomes(truth: Truth, problem: Problem) -> bool:
    """Return whether outcomes are not drawn from the family of the problem."""
    by_count = truth.cells is not None and not isinstance(problem.family, Bernoulli)
    return by_count or truth.outcomes is not None or truth.data is not None or truth.sd is not None


def _check_answers(problem: Problem, parts: list[Part], answers: list[int]) -> None:
    """Refuse to continue where the runs of a part counted other answers as wrong than the part does."""
    names = [problem.policies[answer] if answer >= 0 else None for answer in answers]
    if names != [part.answer for part in parts]:
        raise NotComputed(
            "the right answer at the point of a tile is not that of the tile; please report it."
        )


def _ranks(parts: list[Part], replications: int) -> list[int]:
    """Return, for every part, how many wrong runs still prove the error allowed at its point."""
    known: dict[float, int] = {}
    for part in parts:
        if part.allowed < LEAST_ALLOWED:
            raise BadInput(
                "the tiles of the box are too large to prove anything at this horizon; give more tiles per "
                "mean, or no number of tiles to have it chosen."
            )
        if part.allowed not in known:
            known[part.allowed] = most_errors(replications, part.allowed, len(parts), "tiles")
    return [known[part.allowed] for part in parts]
