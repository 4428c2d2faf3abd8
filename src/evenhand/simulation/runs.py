"""`Runs`: the results of many replications of a study, with rates, intervals and quantiles."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.errors import BadInput
from evenhand.files import file_path
from evenhand.model.argument_checks import share, whole_number
from evenhand.procedure.compile_spec import recorded, settled
from evenhand.procedure.outcome_order import evidence_method
from evenhand.procedure.state import NONE
from evenhand.result import Result
from evenhand.simulation.buffers import SHARE_UNIT, Rows
from evenhand.study import Study

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

QUANTILES = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
CONFIDENCE = 0.95
FORMAT = 1


class Rate(NamedTuple):
    """A share of replications with its exact (Clopper-Pearson) interval."""

    rate: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class Runs(Result):
    """The results of many replications of one study, a row each.

    `simulate` returns them. A run that reached the cap undecided counts at the cap.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli())
    >>> runs = eh.simulate(problem, [[0.9], [0.2]], replications=20, seed=1, workers=1)
    >>> runs.answers()["a"]
    1.0
    """

    study: Study
    seed: int
    checkpoints: tuple[int, ...]
    rows: Rows
    seconds: float

    @property
    def replications(self) -> int:
        return int(self.rows.samples.shape[0])

    @property
    def samples(self) -> Ints:
        """Return the number of samples of each run."""
        return self.rows.samples

    @property
    def stopped(self) -> Flags:
        """Return which runs decided before the cap. def:delta_PAC."""
        return self.rows.stopped

    @property
    def answer(self) -> Ints:
        """Return the answer of each run; -1 for none."""
        return self.rows.answer

    @property
    def correct(self) -> Flags:
        """Return which runs ended with an acceptable answer; without an indifference only the best is."""
        return self.rows.right

    @property
    def exactly_best(self) -> Flags:
        """Return which runs ended with the best answer, or screened every policy correctly."""
        if self.study.problem.goal == "screen":
            return self.rows.right
        return self.rows.answer == self.rows.truth

    @property
    def wrong(self) -> Flags:
        """Return which runs decided on a wrong answer; undecided runs are not wrong. def:delta_PAC."""
        return self.rows.stopped & ~self.correct

    @property
    def cost(self) -> Array | None:
        """Return the cost of each run; None if the problem has no costs, or older runs no record of it."""
        known = self.study.problem.costs is not None and not np.isnan(self.rows.cost).any()
        return self.rows.cost if known else None

    @property
    def intervals(self) -> Array | None:
        """Return how many intervals began in each run; None where the study has none."""
        settings = self.study.procedure.interval
        if settings is None:
            return None
        return self.rows.asked / max(round(float(settings.volumes(self.study.problem).sum())), 1)

    @property
    def items(self) -> Ints | None:
        """Return the number of items of each run; None where policies do not share items."""
        return None if self.study.procedure.items is None else self.rows.asked

    @property
    def policies_per_item(self) -> float:
        """Return how many policies had an outcome on an item, on average."""
        return float(np.mean(self.samples / self.rows.asked))

    @property
    def assigned(self) -> Ints:
        """Return the number of units that were assigned in each run, counted or not."""
        return self.rows.asked

    def _items(self) -> dict[str, Any]:
        """Return the items of a run, and how many policies had an outcome on one."""
        assert self.items is not None
        return _mean_and_error(np.asarray(self.items, dtype=float)) | {"policies": self.policies_per_item}

    def _intervals(self) -> dict[str, Any]:
        assert self.intervals is not None
        return {
            "number": _mean_and_error(self.intervals),
            "assigned": _mean_and_error(np.asarray(self.assigned, dtype=float)),
        }

    @property
    def allocation(self) -> Array:
        """Return the mean share of samples of every cell, K x L."""
        return np.ascontiguousarray(self.rows.shares.T, dtype=np.float64) * (SHARE_UNIT / self.replications)

    def quantile(self, chance: float) -> int:
        """Return the number of samples by which this share of runs had ended."""
        return int(np.quantile(self.samples, share(chance, "chance"), method="inverted_cdf"))

    def decided_by(self, chance: float) -> int | None:
        """Return the number of samples by which this share of runs had decided, or None."""
        samples = np.where(self.stopped, self.samples, np.inf)
        found = float(np.quantile(samples, share(chance, "chance"), method="inverted_cdf"))
        return int(found) if np.isfinite(found) else None

    def answers(self) -> dict[str, float]:
        """Return how often each policy was the answer, and how often none was.

        With goal "screen": how often each was found to meet the requirement, and how often none was.
        """
        policies = self.study.problem.policies
        if self.study.problem.goal == "screen":
            found = (self.rows.allowed / self.replications).tolist()
            return dict(zip((*policies, "none"), [*found, float(np.mean(self.answer == NONE))], strict=True))
        counts = np.bincount(self.answer - NONE, minlength=len(policies) + 1) / self.replications
        return dict(zip((*policies, "none"), [*counts[1:].tolist(), float(counts[0])], strict=True))

    def at_checkpoint(self, number: int) -> Rate:
        """Return how often the best feasible estimate was right then; ended runs keep their answer."""
        last = len(self.checkpoints) - 1
        if last < 0:
            raise BadInput("these runs have no checkpoints; give some to `simulate`.")
        return rate(self.rows.right_at[:, whole_number(number, "the number of a checkpoint", 0, last)])

    def to_dict(self) -> dict[str, Any]:
        """Return what `evenhand simulate --json` prints."""
        samples = self.samples
        return {
            "replications": self.replications,
            "seed": self.seed,
            "correct": rate(self.correct)._asdict(),
            "exactly_best": float(self.exactly_best.mean()),
            "wrong": rate(self.wrong)._asdict(),
            "stopped": float(self.stopped.mean()),
            "samples": {
                "mean": float(samples.mean()),
                "se": standard_error(samples),
                "sd": standard_error(samples) * self.replications**0.5,
                "quantiles": {str(chance): self.quantile(chance) for chance in QUANTILES},
            },
            **({} if self.cost is None else {"cost": _mean_and_error(self.cost)}),
            **({} if self.intervals is None else {"intervals": self._intervals()}),
            **({} if self.items is None else {"items": self._items()}),
            "answers": self.answers(),
            "allocation": self.allocation.tolist(),
            "checkpoints": [
                {"samples": samples, "correct": self.at_checkpoint(number)._asdict()}
                for number, samples in enumerate(self.checkpoints)
            ],
            "method": evidence_method(self.study.problem, self.study.procedure),
            "seconds": self.seconds,
        }

    def save(self, path: str | Path) -> None:
        """Write everything to one npz file, with the study as JSON, atomically."""
        study = self.study
        study = replace(study, procedure=settled(study.problem, study.procedure))
        header = {
            "study": study.to_dict(),
            "seed": self.seed,
            "checkpoints": list(self.checkpoints),
            "seconds": self.seconds,
        }
        write_npz(file_path(path), header, self.rows)

    @classmethod
    def load(cls, path: str | Path) -> Runs:
        """Return the runs that `save` wrote."""
        header, rows = read_npz(file_path(path))
        study = Study.from_dict(header["study"])
        return cls(
            replace(study, procedure=recorded(study.problem, study.procedure)),
            header["seed"],
            tuple(header["checkpoints"]),
            rows,
            header["seconds"],
        )


def _mean_and_error(numbers: Array) -> dict[str, float]:
    return {"mean": float(numbers.mean()), "se": standard_error(numbers)}


def standard_error(numbers: ArrayLike) -> float:
    """Return the standard error of the mean; 0 for a single value."""
    table = np.asarray(numbers, dtype=float)
    return float(table.std(ddof=1)) / len(table) ** 0.5 if len(table) > 1 else 0.0


def rate(hits: Flags) -> Rate:
    """Return the share of hits with its exact interval."""
    return exact_rate(int(np.count_nonzero(hits)), int(hits.shape[0]))


def exact_rate(hits: int, trials: int, confidence: float = CONFIDENCE) -> Rate:
    """Return hits / trials with its Clopper-Pearson interval at this coverage."""
    from scipy.special import betaincinv

    tail = (1.0 - confidence) / 2.0
    low = float(betaincinv(hits, trials - hits + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 1.0 - tail)) if hits < trials else 1.0
    return Rate(hits / trials, low, high)


def write_npz(path: Path, header: dict[str, Any], rows: Rows) -> None:
    """Write rows and a JSON header to one file, atomically."""
    text = np.frombuffer(json.dumps({"format": FORMAT} | header, allow_nan=False).encode(), dtype=np.uint8)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez_compressed(file, header=text, **rows._asdict())
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as problem:
        raise BadInput(f"{path} cannot be written: {problem.strerror}.") from None


def _only_the_best_is_right(file: Any) -> dict[str, Any]:
    """Return the fields that files saved by earlier releases lack: only the best answer is right."""
    right_at = file["checkpoints"] == file["truth"][:, np.newaxis]
    unknown = np.full(file["answer"].shape, np.nan)
    return {
        "right": file["answer"] == file["truth"],
        "right_at": right_at,
        "cost": unknown,
        "allowed": file["shares"][0] * 0,
    }


def read_npz(path: Path) -> tuple[dict[str, Any], Rows]:
    """Return what `write_npz` wrote."""
    try:
        # opened here: where the content is not an archive, np.load would leave its own file open
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes())
            rows = Rows(
                **(
                    _only_the_best_is_right(file)
                    | {name: file[name] for name in file.files if name != "header"}
                )
            )
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; give a file of saved runs.") from None
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem}.") from None
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        # NumPy's message would suggest loading it unsafely
        raise BadInput(
            f"{path} must be saved runs of a simulation; it is another file, or damaged."
        ) from None
    if header.get("format") != FORMAT:
        raise BadInput(f"{path} has format {header.get('format')}; this version reads format {FORMAT}.")
    return header, rows
