"""`Procedure` (sampling rule, stopping rule, risk) and its compiled form, `Spec`.

`Procedure` is the public and serialised form; kernels take a `Spec`. Each rule has an integer code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes, Static
from evenhand.errors import BadInput, is_one_of, nearest, shown
from evenhand.model.argument_checks import (
    as_python_numbers,
    check_positive,
    flag,
    is_number,
    whole_number,
)
from evenhand.model.families import GaussianUnknown
from evenhand.model.frozen_dict import plain
from evenhand.model.labels import written
from evenhand.model.mean_checks import checked_indifference, checked_tolerance
from evenhand.model.problem import MODES, Problem
from evenhand.model.region import PerCell, PerGroup, Region
from evenhand.procedure.guardrail_spec import GuardrailSpec
from evenhand.procedure.initial_samples import (
    checked_initial,
    checked_order,
)
from evenhand.procedure.interval_settings import Intervals

Ints = NDArray[np.int64]

SAMPLING = (
    "ts-ids", "ids", "track-and-stop", "exact-tracking", "frank-wolfe", "top-two", "uniform",
    "policy-track-and-stop", "two-stage", "ocba-co", "sequential-halving", "oracle",
)  # fmt: skip
SCREENING = ("ts-ids", "uniform", "oracle")  # the rules that serve where every policy is to be classified
STOPPING = ("certified", "stylised", "kaufmann-koolen", "budget", "calibrated")
EVIDENCE = MIXTURE, LINEAR_BETS = ("mixture", "linear-bets")  # how the certified rule compares overall means
ITEMS = ("shared",)  # how policies and items go together, where an item serves several policies
BY_EVIDENCE = ("certified", "budget")  # the stopping rules that use it; the others use likelihood ratios
LINEAR_FAMILIES = ("bernoulli", "binomial", "bounded", "gaussian")  # a known interval, or a known sd
LINEAR_POLICIES = 64  # linear bets are kept for every ordered pair of policies
MOST_BETS = 2_000_000  # numbers in a state, 16 MB: with more they are not the default

ACTIVE, PROPORTIONAL, AGNOSTIC = range(len(MODES))
(
    TS_IDS, IDS, TRACK_AND_STOP, EXACT_TRACKING, FRANK_WOLFE, TOP_TWO, UNIFORM,
    POLICY_TRACK_AND_STOP, TWO_STAGE, OCBA_CO, SEQUENTIAL_HALVING, ORACLE,
) = range(len(SAMPLING))  # fmt: skip
CERTIFIED, STYLISED, KAUFMANN_KOOLEN, BUDGET, CALIBRATED = range(len(STOPPING))


# version of the evidence bounds: since the second they hold at any counts, with a mixture (`tilts`)
FIRST_EVIDENCE, EVIDENCE_VERSION = 1, 2

MOST = 10**15  # upper limit for samples and other counts
UNPROVEN = (
    "stopping 'kaufmann-koolen' is proved for a variance that is known, and gaussian-unknown has none; "
    "take stopping = 'certified', or the family gaussian with its sd."
)
LEAST_RISK = 1e-300  # below, 1 / delta overflows


@dataclass(frozen=True)
class Budget:
    """Stop after a fixed number of samples, with the best feasible estimate and the confidence reached.

    Parameters
    ----------
    samples : int
        The number of samples, at least 1.

    Raises
    ------
    BadInput
        If `samples` is not a whole number of at least 1.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Procedure(stopping=eh.Budget(6000)).stopping_name
    'budget'
    """

    samples: int

    def __post_init__(self) -> None:
        whole_number(self.samples, "budget", 1, MOST)
        as_python_numbers(self, "samples")


@dataclass(frozen=True)
class Calibrated:
    """Stop when the likelihood-ratio evidence passes this threshold plus ln(1 + ln t).

    Parameters
    ----------
    threshold : float
        The threshold, positive; `calibrate` finds one.

    Raises
    ------
    BadInput
        If `threshold` is not a positive finite number.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Procedure(stopping=eh.Calibrated(3.1)).stopping_name
    'calibrated'
    """

    threshold: float

    def __post_init__(self) -> None:
        check_positive(self.threshold, "calibrated")
        as_python_numbers(self, "threshold")


@dataclass(frozen=True)
class TrackAndStop:
    """The sampling rule of the paper's Algorithm 1.

    Parameters
    ----------
    step : float
        The step alpha, positive.
    steps : int
        How many steps are made after every sample, at least 1.
    diminishing : bool
        Whether the step is divided by |c| sqrt(n), which converges and does not depend on the scale.

    Raises
    ------
    BadInput
        If a number is out of range.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Procedure(sampling=eh.TrackAndStop(diminishing=True)).sampling_name
    'track-and-stop'
    """

    step: float = 1.0
    steps: int = 1
    diminishing: bool = False

    def __post_init__(self) -> None:
        check_positive(self.step, "step")
        whole_number(self.steps, "steps", 1, MOST)
        flag(self.diminishing, "diminishing")
        as_python_numbers(self, "step", "steps", "diminishing")


@dataclass(frozen=True)
class Procedure:
    """How to sample and when to stop.

    Parameters
    ----------
    sampling : str or TrackAndStop
        The sampling rule: "ts-ids", "uniform", "top-two" and so on.
    stopping : str, Budget or Calibrated
        The stopping rule: "certified", "stylised", "kaufmann-koolen", a budget or a calibrated threshold.
    delta : float
        The risk of a wrong answer, strictly between 0 and 0.5.
    initial : int, list, table, dict or frame
        Samples of every cell before the rule chooses: one number, one per group, K x L, or by name.
    batch : int
        Samples between two checks of the stopping rule.
    max_samples : int
        The number of samples after which a run ends without a decision.
    leader : float
        The probability with which the leader is drawn from the posterior (ts-ids and top-two).
    tracking : {"c", "d"}
        How exact-tracking follows the weights.
    indifference : float
        A policy within this of the best is good enough.
    tolerance : float, list, dict or series
        How far outside its own floors and caps an answer may be: one number, one per group, or by group name.
    initial_order : {"declared", "random"}, optional
        The order of the initial samples within a round: that of the problem, or random by the seed. New live
        experiments use "random" unless given, everything else "declared".
    futility : float, optional
        End without a verdict when the estimated probability of a decision before `max_samples` is below this.
    evidence : {"mixture", "linear-bets"}, optional
        How the certified rule compares overall means. "linear-bets" is for Bernoulli, binomial, bounded and
        Gaussian outcomes of up to 64 policies, and uses the order of the outcomes. It is the default for
        bounded outcomes that come one by one, and for Gaussian ones except in the active mode; "mixture" is
        the default otherwise.
    interval : Intervals, optional
        Run in intervals: servers assign by published shares, and outcomes come as counts.
    items : {"shared"}, optional
        Several policies answer each item, as where one label serves all of them: a ticket names the group of
        the item and the policies that answer it. Unless given, every sample has an item of its own.

    Raises
    ------
    BadInput
        If a rule is not known or a number is out of range.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Procedure(delta=0.01).stopping
    'certified'
    """

    sampling: str | TrackAndStop = "ts-ids"
    stopping: str | Budget | Calibrated = "certified"
    delta: float = 0.05
    initial: Any = 2  # samples of every cell before the rule chooses; or one number per group or cell
    batch: int = 1
    max_samples: int = 1_000_000
    leader: float = 0.5  # probability that the leader is drawn from the posterior (ts-ids, top-two)
    tracking: str = "d"  # "c" or "d": how exact-tracking follows the weights
    indifference: float = 0.0  # a policy within this of the best is good enough
    tolerance: Any = 0.0  # how far outside its own floors and caps an answer may be; or one per group
    initial_order: str | None = None  # of the initial samples within a round: "declared" or "random"
    futility: float | None = None  # end when the estimated probability of a decision is below this
    evidence: str | None = None  # how the certified rule compares overall means; None: see `choose_evidence`
    interval: Intervals | None = None  # publish shares and take counts, interval by interval
    items: str | None = None  # "shared": several policies answer each item; None: every sample its own

    def __post_init__(self) -> None:
        if not isinstance(self.sampling, TrackAndStop):
            _known(self.sampling, SAMPLING, "sampling")
        if not isinstance(self.stopping, (Budget, Calibrated)):
            _known(self.stopping, STOPPING[:3], "stopping")
        check_risk(self.delta)
        object.__setattr__(self, "initial", checked_initial(self.initial, MOST))
        object.__setattr__(self, "initial_order", checked_order(self.initial_order))
        whole_number(self.batch, "batch", 1, MOST)
        whole_number(self.max_samples, "max_samples", 1, MOST)
        if not is_number(self.leader) or not 0 <= self.leader <= 1:
            raise BadInput(f"leader must be a number between 0 and 1; it is {shown(self.leader)}.")
        _known(self.tracking, ("c", "d"), "tracking")
        if self.evidence is not None:
            _known(self.evidence, EVIDENCE, "evidence")
        if self.evidence == LINEAR_BETS and self.stopping_name not in BY_EVIDENCE:
            raise BadInput(
                "evidence 'linear-bets' belongs to stopping 'certified' or a budget; the stopping is "
                f"{self.stopping_name!r}, which uses likelihood ratios."
            )
        if self.items is not None:
            _known(self.items, ITEMS, "items")
        self._check_futility()
        if self.interval is not None and not isinstance(self.interval, Intervals):
            raise BadInput(f"interval must be Intervals; it is {shown(self.interval)}.")
        object.__setattr__(self, "indifference", checked_indifference(self.indifference))
        object.__setattr__(self, "tolerance", checked_tolerance(self.tolerance))
        as_python_numbers(self, "delta", "batch", "max_samples", "leader")

    def _check_futility(self) -> None:
        if self.futility is None:
            return
        if not is_number(self.futility) or not 0 < self.futility < 1:
            raise BadInput(f"futility must lie strictly between 0 and 1; it is {shown(self.futility)}.")
        if isinstance(self.stopping, Budget):
            raise BadInput("futility ends a run that may not decide; a budget always ends with an answer.")
        as_python_numbers(self, "futility")

    @property
    def sampling_name(self) -> str:
        return "track-and-stop" if isinstance(self.sampling, TrackAndStop) else self.sampling

    @property
    def proves(self) -> bool:
        """Return whether statements on floors and policies are proved; true for a budget."""
        return self.stopping_name in ("certified", "kaufmann-koolen", "budget")

    @property
    def stopping_name(self) -> str:
        if isinstance(self.stopping, Budget):
            return "budget"
        return "calibrated" if isinstance(self.stopping, Calibrated) else self.stopping

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Procedure:
        """Return the procedure of the [procedure] table of a study file."""
        known = (
            "sampling",
            "stopping",
            "delta",
            "initial",
            "batch",
            "max_samples",
            "step",
            "steps",
            "diminishing",
            "leader",
            "tracking",
            "indifference",
            "tolerance",
            "initial_order",
            "futility",
            "evidence",
            "interval",
            "items",
        )
        for key in table:
            if key not in known:
                raise BadInput(f"unknown key {key!r} in [procedure]{nearest(key, known)}")
        values = {key: value for key, value in table.items() if key not in ("step", "steps", "diminishing")}
        step = {key: table[key] for key in ("step", "steps", "diminishing") if key in table}
        if step or values.get("sampling") == "track-and-stop":
            if values.get("sampling") != "track-and-stop":
                raise BadInput(
                    "step, steps and diminishing belong to track-and-stop; the sampling is another."
                )
            values["sampling"] = TrackAndStop(**step)
        if isinstance(values.get("stopping"), Mapping):
            values["stopping"] = _stopping(values["stopping"])
        if "interval" in values:
            values["interval"] = Intervals.from_dict(values["interval"])
        try:
            return cls(**values)
        except TypeError as problem:
            raise BadInput(f"[procedure] cannot be read: {problem}.") from None

    def to_dict(self) -> dict[str, Any]:
        """Return the [procedure] table; `from_dict` of it is equal to this."""
        table: dict[str, Any] = {"sampling": self.sampling_name, "stopping": self.stopping}
        if isinstance(self.sampling, TrackAndStop):
            table |= {
                "step": self.sampling.step,
                "steps": self.sampling.steps,
                "diminishing": self.sampling.diminishing,
            }
        if isinstance(self.stopping, Budget):
            table["stopping"] = {"budget": self.stopping.samples}
        elif isinstance(self.stopping, Calibrated):
            table["stopping"] = {"calibrated": self.stopping.threshold}
        for key in ("delta", "initial", "batch", "max_samples", "leader", "tracking"):
            table[key] = getattr(self, key)
        # later additions to the format are written only if not the default: older hashes stay valid
        if self.indifference:
            table["indifference"] = self.indifference
        if self.tolerance:
            table["tolerance"] = written(self.tolerance)
        if self.initial_order is not None:
            table["initial_order"] = self.initial_order
        if self.futility is not None:
            table["futility"] = self.futility
        if self.evidence is not None:
            table["evidence"] = self.evidence
        if self.interval is not None:
            table["interval"] = self.interval.to_dict()
        if self.items is not None:
            table["items"] = self.items
        return table | {"initial": plain(self.initial)}


# with more policies than this a step does not evaluate each of them
MANY = 256


class Spec(NamedTuple):
    """Problem and procedure as kernels take them; arrays are (L, K), in unit scale."""

    code: Static[int]
    shares: PerGroup  # (L,)
    phi: PerCell  # (L, K); all ones where the variance is unknown
    region: Region
    mode: Static[int]
    arrivals: PerGroup  # (L,)
    unknown_variance: Static[bool]
    sampling: Static[int]
    stopping: Static[int]
    delta: float
    initial: PerCell  # (L, K) samples of every cell before the rule chooses
    initial_total: int  # their sum
    # the rounds of initial samples, see `initial_samples.Rounds`
    initial_levels: Annotated[Ints, Axes(None, 3)]
    initial_cells: Annotated[Ints, Axes(None)]
    random_order: Static[bool]  # whether the order of cells within a round is random
    uneven: Static[bool]  # whether cells have different numbers of initial samples
    batch: int
    cap: int  # samples after which a run ends without a decision; the budget where the rule is a budget
    level: float  # the calibrated threshold, or the full budget, which may exceed the cap
    leader: float  # probability that the leader is drawn from the posterior
    step: float
    steps: int
    diminishing: Static[bool]
    c_tracking: Static[bool]
    weights: PerCell  # (L, K) allocation to track (oracle), else zeros
    evidence: Static[int]  # version of the bounds; FIRST_EVIDENCE for experiments created with it
    indifference: float  # by how much a rival must be ahead to count, in unit scale
    kept: Region  # what an answer itself must lie in: the region, loosened by the tolerance
    costs: PerCell  # (L, K) what one sample costs
    has_costs: Static[bool]  # do some samples cost more than others?
    screens: Static[bool]  # is every policy to be classified, rather than the best to be named?
    futility: float  # the least estimated probability of a decision before the cap, or 0
    has_futility: Static[bool]
    several: Static[bool]  # may more than one answer be acceptable? With an indifference or a tolerance
    guardrails: GuardrailSpec  # further outcomes of every sample and their bounds
    wrong_statements: float  # how many wrong statements share the risk delta, see `wrong_statements`
    many: Static[bool]  # more than MANY policies
    linear_bets: Static[bool]  # are overall means compared by linear bets? See `evidence.pair_bets`
    shared_items: Static[bool]  # do several policies answer the same item? See `item_steps`
    bounded: Static[bool]  # outcomes of any distribution in [0, 1], with bets at the bounds of single cells


def is_unproven(problem: Problem, procedure: Procedure) -> bool:
    """Return whether the rule lacks a proof: kaufmann-koolen with an unknown variance, of any metric.

    With an estimated variance the likelihood ratio passes its threshold too often: in 2% of runs at delta =
    0.1%.
    """
    families = (problem.family, *(rail.family for rail in problem.guardrails))
    return procedure.stopping_name == "kaufmann-koolen" and any(
        isinstance(family, GaussianUnknown) for family in families
    )


def proves(problem: Problem, procedure: Procedure) -> bool:
    """Return whether statements on floors and policies of this problem are proved."""
    return procedure.proves and not is_unproven(problem, procedure)


def _stopping(table: Mapping[str, Any]) -> Budget | Calibrated:
    if set(table) == {"budget"}:
        return Budget(table["budget"])
    if set(table) == {"calibrated"}:
        return Calibrated(table["calibrated"])
    raise BadInput(
        f"stopping as a table is {{ budget = samples }} or {{ calibrated = threshold }}; it is {dict(table)}."
    )


def check_risk(delta: object) -> None:
    """Check that delta is a valid risk."""
    if not is_number(delta) or not LEAST_RISK <= delta < 0.5:  # type: ignore[operator]
        raise BadInput(
            f"delta must lie strictly between 0 and 0.5, at {LEAST_RISK:g} or above; it is {shown(delta)}."
        )


def _known(name: object, names: tuple[str, ...], what: str) -> None:
    if not is_one_of(name, names):
        raise BadInput(
            f"{what} must be one of {', '.join(names)}; it is {shown(name)}{nearest(str(name), names)}"
        )
