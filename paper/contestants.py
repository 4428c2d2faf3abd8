"""Who runs in each experiment.

The paper's algorithm to the letter and with a step that converges, and evenhand's rules.
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
CAP = 20_000  # Algorithm 1 with its constant step often does not stop; it ends here and counts so

LITERAL = "Algorithm 1, constant step"
CONVERGING = "Algorithm 1, converging step"
DEFAULT = "evenhand, same threshold"
CERTIFIED = "evenhand, certified"
POLICY_LEVEL = "policy-level Track-and-Stop"
UNIFORM = "uniform"
MATCHED = "evenhand, Bernoulli model"
LESS_RIGHT = "evenhand less right: p"  # the head of a column of `less_right`
RIGHT = (
    "Share correct with its exact 95% interval; p: how likely so many errors of evenhand's are, were it as "
    "often right as published (Fisher's exact test)"
)
FEWER = (LITERAL, MATCHED)  # one often does not stop; the other is beside the paper's question


@dataclass(frozen=True)
class Setting:
    """How thoroughly to run: replications, and how many of them the contestants in FEWER get."""

    replications: int = 3000
    literal: int = 300
    seed: int = 1
    workers: int | None = None
    trial: Trial | None = None  # the stroke trial rebuilt from its public file
    seconds: dict[str, float] = field(default_factory=dict)  # what each contestant took, in all experiments


def fixed_confidence(delta: float) -> dict[str, Procedure]:
    """Run until the rule stops, at risk delta."""
    stylised = Procedure(stopping="stylised", delta=delta, initial=INITIAL, max_samples=CAP)
    return {
        DEFAULT: stylised,
        CERTIFIED: Procedure(delta=delta, max_samples=CAP),
        CONVERGING: replace(stylised, sampling=TrackAndStop(step=1.0, diminishing=True)),
        LITERAL: replace(stylised, sampling=TrackAndStop(step=1.0)),
    }


def fixed_budget(samples: int, batch: int, steps: int, initial: int) -> dict[str, Procedure]:
    """Run for so many samples, then name the best feasible estimate."""
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
    tick: Callable[[str], None],
    checkpoints: Sequence[int] = (),
) -> dict[str, Runs]:
    """Every contestant on common random numbers; those in FEWER get fewer replications."""
    found = {}
    for name, procedure in procedures.items():
        count = min(setting.literal, setting.replications) if name in FEWER else setting.replications
        found[name] = simulate(problem, truth, procedure, count, setting.seed, checkpoints, setting.workers)
        setting.seconds[name] = setting.seconds.get(name, 0.0) + found[name].seconds
        tick(name)
    return found


def took(setting: Setting) -> tuple[float, float]:
    """Seconds of evenhand's rows and the baselines, and of Algorithm 1 with either step."""
    theirs = sum(setting.seconds.get(name, 0.0) for name in (LITERAL, CONVERGING))
    return sum(setting.seconds.values()) - theirs, theirs


def headings(found: dict[str, Runs]) -> list[str]:
    """The contestants as column heads, with the number of runs where it is not that of the rest."""
    return [f"{name} ({runs.replications:,} runs)" if name in FEWER else name for name, runs in found.items()]


def numbers(runs: Runs) -> dict[str, Any]:
    """What is kept of a contestant's runs in results.json."""
    kept = runs.to_dict()
    return {
        key: kept[key]
        for key in ("replications", "correct", "wrong", "stopped", "samples", "allocation", "checkpoints")
    }


def mean_and_error(runs: Runs) -> str:
    """Mean samples, its standard error, and how many runs reached the cap: 208 ± 1."""
    samples, error = runs.samples, standard_error(runs.samples)
    unfinished = int((~runs.stopped).sum())
    note = f" ({unfinished} of {len(samples)} reached {CAP:,})" if unfinished else ""
    return f"{samples.mean():,.0f} ± {error:.1f}{note}"


def share(hits: Any) -> str:
    """A share with its exact 95% interval: 0.787 [0.768, 0.805]."""
    found = rate(hits)
    return f"{found.rate:.3f} [{found.low:.3f}, {found.high:.3f}]"


def against(samples: Any, printed: float, error: float) -> str:
    """Our mean samples over the published, with the standard error of both: 0.757 ± 0.014."""
    mean = float(samples.mean())
    relative = math.hypot(standard_error(samples) / mean, error / printed)
    return f"{mean / printed:.3f} ± {mean / printed * relative:.3f}"


def errors_printed(share: str) -> int:
    """The most errors of the paper's replications that a printed share correct allows: 1 for "1.000"."""
    whole, _, digits = share.partition(".")
    unit = 10 ** len(digits)
    wrong = unit - int(whole + digits)
    return (2 * wrong + 1) * published.REPLICATIONS // (2 * unit)


def less_right(errors: int, replications: int, printed: str) -> float:
    """How likely so many errors are, were we as right as the paper: Fisher's exact test, one-sided.

    Against the most errors that the paper's digits allow.
    """
    from scipy.stats import hypergeom

    both = errors + errors_printed(printed)
    p: float = hypergeom.sf(errors - 1, replications + published.REPLICATIONS, both, replications)
    return p
