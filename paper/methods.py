"""The procedures compared in each experiment, and how their results are formatted.

They are the paper's Algorithm 1 as printed and with a converging step, baselines, and evenhand's rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evenhand.paper import published
from evenhand.paper.trial_data import Trial

from evenhand.model.problem import Problem
from evenhand.procedure.spec import Budget, Procedure, TrackAndStop
from evenhand.simulation.runs import Runs, rate, standard_error
from evenhand.simulation.simulate import simulate

INITIAL = 5  # samples per cell before the rule takes over, as in the paper
CAP = 20_000  # Algorithm 1 with constant step often does not stop; such runs count with CAP samples

LITERAL = "Algorithm 1, constant step"
CONVERGING = "Algorithm 1, converging step"
DEFAULT = "evenhand, same threshold"
CERTIFIED = "evenhand, certified"
POLICY_LEVEL = "policy-level Track-and-Stop"
UNIFORM = "uniform"
MATCHED = "evenhand, Bernoulli model"
LESS_RIGHT = "evenhand less right: p"  # column heading of `less_right`
RIGHT = (
    "Share correct with its exact 95% interval; p: one-sided Fisher's exact test of whether evenhand is less "
    "often right than published"
)
FEWER = (LITERAL, MATCHED)  # the first often does not stop; the second is not part of the paper


@dataclass(frozen=True)
class Setting:
    """Options of the experiments; the procedures in FEWER get `literal` replications."""

    replications: int = 3000
    literal: int = 300
    seed: int = 1
    workers: int | None = None
    trial: Trial | None = None  # the stroke trial, recomputed from its public file
    seconds: dict[str, float] = field(default_factory=dict)  # run time of each procedure
    device: str = "cpu"  # where runs are computed: cpu, or cuda for an NVIDIA GPU


def fixed_confidence(delta: float) -> dict[str, Procedure]:
    """Return the procedures that run until they stop, at risk delta."""
    stylised = Procedure(stopping="stylised", delta=delta, initial=INITIAL, max_samples=CAP)
    return {
        DEFAULT: stylised,
        CERTIFIED: Procedure(delta=delta, max_samples=CAP),
        CONVERGING: replace(stylised, sampling=TrackAndStop(step=1.0, diminishing=True)),
        LITERAL: replace(stylised, sampling=TrackAndStop(step=1.0)),
    }


def fixed_budget(samples: int, batch: int, steps: int, initial: int) -> dict[str, Procedure]:
    """Return the procedures that stop after `samples` samples with the best feasible estimate."""
    base = Procedure(stopping=Budget(samples), initial=INITIAL, batch=batch, max_samples=samples)
    return {
        DEFAULT: replace(base, initial=initial),
        CONVERGING: replace(base, sampling=TrackAndStop(step=1.0, steps=steps, diminishing=True)),
        LITERAL: replace(base, sampling=TrackAndStop(step=1.0, steps=steps)),
        POLICY_LEVEL: replace(base, sampling="policy-track-and-stop"),
        UNIFORM: replace(base, sampling="uniform"),
    }


def run(
    problem: Problem,
    truth: Any,
    procedures: dict[str, Procedure],
    setting: Setting,
    on_done: Callable[[str], None],
    checkpoints: Sequence[int] = (),
) -> dict[str, Runs]:
    """Simulate every procedure on common random numbers; call `on_done` after each."""
    found = {}
    for name, procedure in procedures.items():
        count = min(setting.literal, setting.replications) if name in FEWER else setting.replications
        found[name] = simulate(
            problem,
            truth,
            procedure,
            count,
            setting.seed,
            checkpoints,
            setting.workers,
            device=setting.device,
        )
        setting.seconds[name] = setting.seconds.get(name, 0.0) + found[name].seconds
        on_done(name)
    return found


def run_times(setting: Setting) -> tuple[float, float]:
    """Return the seconds of evenhand and the baselines, and of Algorithm 1 with either step."""
    theirs = sum(setting.seconds.get(name, 0.0) for name in (LITERAL, CONVERGING))
    return sum(setting.seconds.values()) - theirs, theirs


def headings(found: dict[str, Runs]) -> list[str]:
    """Return the names as column headings, with the number of runs for procedures in FEWER."""
    return [f"{name} ({runs.replications:,} runs)" if name in FEWER else name for name, runs in found.items()]


def numbers(runs: Runs) -> dict[str, Any]:
    """Return the part of a procedure's results that results.json holds."""
    kept = runs.to_dict()
    return {
        key: kept[key]
        for key in ("replications", "correct", "wrong", "stopped", "samples", "allocation", "checkpoints")
    }


def mean_and_error(runs: Runs) -> str:
    """Format the mean samples, its standard error, and how many runs reached the cap: 208 ± 1."""
    samples, error = runs.samples, standard_error(runs.samples)
    unfinished = int((~runs.stopped).sum())
    note = f" ({unfinished} of {len(samples)} reached {CAP:,})" if unfinished else ""
    return f"{samples.mean():,.0f} ± {error:.1f}{note}"


def share(hits: Any) -> str:
    """Format a share with its exact 95% interval: 0.787 [0.768, 0.805]."""
    found = rate(hits)
    return f"{found.rate:.3f} [{found.low:.3f}, {found.high:.3f}]"


def against(samples: Any, printed: float, error: float) -> str:
    """Format mean samples divided by the published mean, with standard error: 0.757 ± 0.014."""
    mean = float(samples.mean())
    relative = math.hypot(standard_error(samples) / mean, error / printed)
    return f"{mean / printed:.3f} ± {mean / printed * relative:.3f}"


def errors_printed(share: str) -> int:
    """Return the most errors that a printed share correct allows: 1 for "1.000"."""
    whole, _, digits = share.partition(".")
    unit = 10 ** len(digits)
    wrong = unit - int(whole + digits)
    return (2 * wrong + 1) * published.REPLICATIONS // (2 * unit)


def less_right(errors: int, replications: int, printed: str) -> float:
    """Return the one-sided p-value of Fisher's exact test: is evenhand less often right?

    The paper is given the largest number of errors that its printed digits allow.
    """
    from scipy.stats import hypergeom

    both = errors + errors_printed(printed)
    p: float = hypergeom.sf(errors - 1, replications + published.REPLICATIONS, both, replications)
    return p
