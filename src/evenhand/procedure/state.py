"""`State`: everything a decision depends on, as arrays; `Work`: values computed from it.

State is a value: counts, sums, and the state of the sampling rule. Only `record`, `ask` and `drop` change it.
Work holds scratch and cached results, each with the number of changes of its policies' samples or outcomes
when it was computed; a new Work gives the same decisions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Annotated, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes, kernel
from evenhand.model.region import PerCell, PerGroup, PerPolicy
from evenhand.model.unit_families import EXPONENTIAL, GAUSSIAN
from evenhand.procedure.evidence.item_bets import item_rows
from evenhand.procedure.evidence.pair_bets import (
    bets_rows,
    pair_scratch,
    record_bets,
    record_bounded,
    record_gaussian_bets,
)
from evenhand.procedure.guardrail_spec import PerMetric, PerMetricCell
from evenhand.procedure.spec import MANY, Spec
from evenhand.theory.inner import work_size

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
PolicyCounts = Annotated[Ints, Axes("K")]
Stamps = Annotated[Ints, Axes(3, "K")]
PerBlock = Annotated[Array, Axes("blocks")]  # one number for each block of policies

# with more than MANY policies a posterior draw renews a window of MANY policies, not every cell
DRAWN_AT_ONCE = MANY
BLOCK = 256  # policies per block, see `policy_blocks`

# entries of State.clock
TOLD, ASKED, DECISIONS, STOPPED, ANSWER, CURSOR, STARTED, PENDING, SHORT, EMPTY, STAGE = range(11)
UPDATES, SEEN = 11, 12  # steps of the sampling rule's weights; TOLD at their last update
ITEMS, NEXT_CHECK = 13, 14  # shared items recorded; their number at which the stopping rule is checked next
RUNNING, DECIDED, EXHAUSTED, FUTILE = range(4)  # values of clock[STOPPED]
NONE = -1  # "none of the policies", as an answer and as a leader
SAMPLES, OUTCOMES = range(2)  # entries of Work.changes
# entries of State.level
EVIDENCE, NEEDED, WEAKEST, NOT_COMPUTED_TIMES = range(4)
# rows of State.bets, L rows of each: a cell's first outcome; the number of outcomes until one differed from
# it, and by how much; the sum and the sum of squares of all distances to it. In intervals `interval_sums`
# writes rows of the same meaning for an opening of many outcomes.
FIRST, LENGTH, LEAP, SHIFTED, SQUARES = range(5)


class State(NamedTuple):
    """Everything a decision depends on; arrays are (L, K), in unit scale."""

    n: PerCell  # observed outcomes
    s: PerCell  # their sum
    ss: PerCell  # the sum of their squares, for the digest of a state
    out: PerCell  # pending samples: asked for and neither told nor dropped
    track: PerCell  # state of the sampling rule: weights tracked so far
    w: PerCell  # state of the sampling rule: its current weights
    # (5 L, K) initial statistics of evidence where the outcomes' scale is unknown: FIRST, LENGTH, ...; then
    # the linear bets of `evidence.pair_bets`, where they are used
    bets: Annotated[Array, Axes(None, "K")]
    theta: PerCell  # the latest posterior draw of each cell
    clock: Annotated[Ints, Axes(16)]  # TOLD, ASKED, ...
    # EVIDENCE, NEEDED, WEAKEST: as of the last check; number of times evidence was not computed
    level: Annotated[Array, Axes(4)]
    # the outcomes of the guard-rails, which may be missing, so that each has its own counts
    rail_n: PerMetricCell
    rail_s: PerMetricCell
    rail_ss: PerMetricCell
    rail_bets: Annotated[Array, Axes("M", None, "K")]  # (M, 5 L, K)
    rail_theta: PerMetricCell


class Work(NamedTuple):
    """Scratch and cached results; never saved."""

    mean: PerCell  # (L, K) estimates
    v: PerCell  # (L, K) effective counts with which the alternatives were solved
    margin: PerPolicy  # (K,) how far inside its region each policy's estimate lies
    score: PerPolicy  # (K,) overall mean (less penalty) of each policy's estimate
    # where several answers may be acceptable, by the estimates:
    kept_margin: PerPolicy  # (K,) how far inside the loosened region each policy lies
    noise: PerCell  # (L, K) variance of one outcome
    score_sd: PerPolicy  # (K,) sum over groups of share times standard deviation of one outcome
    keep_time: PerPolicy  # (K,) estimated samples to show that k meets its own bounds
    fail_time: PerPolicy  # (K,) estimated samples to show that k fails
    # (5, K) the same for the latest draw from the posterior: score, margin, kept margin and both times
    drawn_standing: Annotated[Array, Axes(5, "K")]
    glr: PerPolicy  # (K,) likelihood ratio against each rival (of entering, if no policy is feasible)
    ahead: PerPolicy  # (K,) ln e-value that the leader is ahead of k
    up_to: PerPolicy  # (K,) the limit of its computation: above it, ahead[k] is a lower bound
    against: PerPolicy  # (K,) last evidence against alternative k: the smallest is evaluated first
    # (K, 3) where the search for ahead[k] ended, see `evidence.penalty`
    last: Annotated[Array, Axes("K", 3)]
    fails: PerPolicy  # (K,) ln e-value that k fails its requirement
    probability: PerCell  # (L, K) the distribution the last cell was drawn from
    lam_i: PerGroup  # (L,)
    lam_k: PerGroup  # (L,)
    lam_0: PerGroup  # (L,)
    drawn: PerPolicy  # (K,) score of each policy's posterior draw, -inf where it is infeasible
    most: PerPolicy  # (K,) upper bounds on the drawn scores
    middle: PerCell  # (L, K) centre of each cell's posterior
    spread: PerCell  # (L, K) largest distance of a posterior draw from there, per standard normal
    # (4, K ceil(L / 4)) the random words of a posterior draw, four groups per column
    words: Annotated[Words, Axes(4, None)]
    sample_changes: PolicyCounts  # (K,) number of changes of a policy's counts, pending samples included
    outcome_changes: PolicyCounts  # (K,) number of changes of its outcomes
    changes: Annotated[Ints, Axes(2)]  # SAMPLES, OUTCOMES: the numbers of changes of all policies
    weakest: Annotated[Array, Axes(2)]  # (2,) the last weakest alternative's ratio, and its evidence
    # (2, 3) the leader, the number of changes and the alternative then
    stamp_weakest: Annotated[Ints, Axes(2, 3)]
    # (K + 1,) number of policies to be estimated again (-1: all), and which
    queue: Annotated[Ints, Axes(None)]
    # (K + 1,) number of cells of each policy without a variance of their own; of all policies
    lacking: Annotated[Ints, Axes(None)]
    pooled: Annotated[Array, Axes(1)]  # (1,) the variance assumed for those cells
    lead: Annotated[Ints, Axes(1)]  # (1,) the leader by the estimates
    stamp_glr: Stamps  # (3, K) sample_changes[k], sample_changes[leader], leader when glr[k] was solved
    floor: PerPolicy  # (K,) glr[k] when it was solved, on the scale of `likelihood_bounds`
    bound_state: Annotated[Array, Axes(3)]  # OWNER, KEPT, LOST of `likelihood_bounds`
    # see `policy_blocks`; used with many policies only
    leaders: Annotated[Ints, Axes("blocks")]  # leader of each block by the estimates, or UNKNOWN
    top: PerBlock  # largest drawn score of each block; NaN: not known
    lowest: PerBlock  # lower bound on the floors of each block's rivals
    stale: Annotated[Ints, Axes("blocks")]  # 1 where `reach` must be computed again
    reach: Annotated[Array, Axes(8, "blocks")]  # least B_k(eta) of each block, for each multiplier eta
    own: Annotated[Array, Axes(8)]  # A_i(eta) + eta eps of the leader
    multipliers: Annotated[Array, Axes(8)]  # eta
    n_estimated: PerCell  # (L, K) number of outcomes when the estimates were made
    stamp_ahead: (
        Stamps  # (3, K) outcome_changes[k], outcome_changes[leader], leader when ahead[k] was computed
    )
    stamp_fails: PolicyCounts  # (K,) outcome_changes[k] when fails[k] was computed
    block: Annotated[Array, Axes("K", 7)]  # (K, 7) the fields of `evidence.gaussian.Block`
    stamp_block: PolicyCounts  # (K,) outcome_changes[k] when block[k] was computed
    met: Annotated[Array, Axes(1)]  # (1,) least evidence that the policy in stamp_met meets an atom
    stamp_met: Annotated[Ints, Axes(3)]  # (3,) that policy, its outcome_changes[k] then, and the atom
    spare: Annotated[Array, Axes(8, "L", "K")]  # (8, L, K) tables for the sampling rule
    # of the guard-rails: estimates, effective counts, variances of one outcome, as for the outcome above
    rail_mean: PerMetricCell
    rail_v: PerMetricCell
    rail_noise: PerMetricCell
    rail_lacking: Annotated[Ints, Axes("M", None)]  # (M, K + 1)
    rail_pooled: PerMetric
    rail_lam: Annotated[Array, Axes(2, "L")]  # (2, L) means of a policy and of the control in an alternative
    rail_weighed: PerMetricCell  # effective counts at the weights that a sampling rule considers
    scratch: Annotated[Array, Axes(None)]  # for the solvers of the alternatives


def new_state(spec: Spec) -> State:
    """Return the state before the first request."""
    shape = spec.phi.shape
    n, s, ss, out, track, w, theta = (np.zeros(shape) for _ in range(7))
    rows = 5 * shape[0]
    if spec.linear_bets or spec.shared_items:
        rows = (item_rows if spec.shared_items else bets_rows)(shape[0], shape[1], spec.bounded)
    bets, clock = np.zeros((rows, shape[1])), np.zeros(16, dtype=np.int64)
    rails = (spec.guardrails.code.shape[0], *shape)
    rail_n, rail_s, rail_ss, rail_theta = (np.zeros(rails) for _ in range(4))
    state = State(
        n, s, ss, out, track, w, bets, theta, clock, level=np.zeros(4), rail_n=rail_n, rail_s=rail_s,
        rail_ss=rail_ss, rail_bets=np.zeros((rails[0], 5 * shape[0], shape[1])), rail_theta=rail_theta,
    )  # fmt: skip
    state.clock[ANSWER] = NONE
    state.clock[EMPTY] = spec.phi.size
    state.w[:] = 1.0 / state.w.size
    return state


def with_policies(spec: Spec, state: State, kept: Sequence[int], pending: int) -> State:
    """Return the state for other policies: the kept columns first, then policies without samples.

    `spec` is that of the new policies, `pending` the number of open tickets. Initial samples that are lacking
    are to be drawn; the last evaluation of the stopping rule is forgotten, as it was about other policies.
    """
    found = new_state(spec)
    for name, axes in _axes_of_policies().items():
        old, new = getattr(state, name), getattr(found, name)
        stay = (kept if axis == "K" else range(size) for axis, size in zip(axes, old.shape, strict=True))
        new[tuple(slice(len(kept)) if axis == "K" else slice(None) for axis in axes)] = old[np.ix_(*stay)]
    found.w[:] = 1.0 / found.w.size
    found.clock[:], found.level[NOT_COMPUTED_TIMES] = state.clock, state.level[NOT_COMPUTED_TIMES]
    lacking = np.maximum(spec.initial - found.n - found.out, 0.0)
    answer = int(state.clock[ANSWER])
    found.clock[ANSWER] = list(kept).index(answer) if answer in kept else NONE
    found.clock[PENDING], found.clock[CURSOR], found.clock[STARTED] = pending, 0, spec.initial_total
    found.clock[SHORT], found.clock[EMPTY] = int(np.ceil(lacking).sum()), int((found.n == 0.0).sum())
    return found


def ready(spec: Spec, data: State) -> State:
    """Return the state of a procedure that has collected these data itself."""
    state = new_state(spec)
    for name in ("n", "s", "bets", "rail_n", "rail_s", "rail_bets"):
        getattr(state, name)[:] = getattr(data, name)
    state.clock[TOLD] = int(state.n.sum())
    state.clock[EMPTY] = int((state.n == 0).sum())
    state.clock[STARTED] = spec.initial_total
    state.clock[SHORT] = int(np.maximum(spec.initial - state.n, 0).sum())
    return state


@cache
def _axes_of_policies() -> dict[str, tuple[str | int | None, ...]]:
    """Return the axes of the tables of a state that have one for the policies."""
    hints = get_type_hints(State, include_extras=True)
    axes = {
        name: next(mark.lengths for mark in hint.__metadata__ if isinstance(mark, Axes))
        for name, hint in hints.items()
    }
    return {name: lengths for name, lengths in axes.items() if "K" in lengths}


def new_work(spec: Spec) -> Work:
    """Return empty scratch for this spec."""
    groups, policies = spec.phi.shape
    size = work_size(groups, spec.region.rows.shape[0]) + 16 * groups
    on_pairs = spec.linear_bets or spec.shared_items
    scratch = np.zeros(max(size, pair_scratch(groups)) if on_pairs else size)
    blocks = -(-policies // BLOCK)
    queue = np.zeros(policies + 1, dtype=np.int64)
    queue[0] = -1
    rails = spec.guardrails.code.shape[0]
    return Work(
        mean=np.zeros((groups, policies)),
        v=np.zeros((groups, policies)),
        margin=np.zeros(policies),
        score=np.zeros(policies),
        kept_margin=np.zeros(policies),
        noise=np.zeros((groups, policies)),
        score_sd=np.zeros(policies),
        keep_time=np.zeros(policies),
        fail_time=np.zeros(policies),
        drawn_standing=np.zeros((5, policies)),
        glr=np.zeros(policies),
        ahead=np.zeros(policies),
        up_to=np.full(policies, np.inf),
        against=np.zeros(policies),
        last=np.zeros((policies, 3)),
        fails=np.zeros(policies),
        probability=np.zeros((groups, policies)),
        lam_i=np.zeros(groups),
        lam_k=np.zeros(groups),
        lam_0=np.zeros(groups),
        drawn=np.full(policies, np.nan),
        most=np.zeros(policies),
        middle=np.zeros((groups, policies)),
        spread=np.zeros((groups, policies)),
        words=np.zeros((4, min(policies, DRAWN_AT_ONCE) * -(-groups // 4)), dtype=np.uint64),
        sample_changes=np.zeros(policies, dtype=np.int64),
        outcome_changes=np.zeros(policies, dtype=np.int64),
        changes=np.zeros(2, dtype=np.int64),
        weakest=np.zeros(2),
        stamp_weakest=np.full((2, 3), -9, dtype=np.int64),
        queue=queue,
        lacking=np.zeros(policies + 1, dtype=np.int64),
        pooled=np.ones(1),
        lead=np.full(1, NONE, dtype=np.int64),
        stamp_glr=np.full((3, policies), -9, dtype=np.int64),
        floor=np.full(policies, -np.inf),
        bound_state=np.array([NONE, 1.0, 0.0]),
        leaders=np.zeros(blocks, dtype=np.int64),
        top=np.full(blocks, np.nan),
        lowest=np.full(blocks, -np.inf),
        stale=np.ones(blocks, dtype=np.int64),
        reach=np.zeros((8, blocks)),
        own=np.zeros(8),
        multipliers=np.zeros(8),
        n_estimated=np.zeros((groups, policies)),
        stamp_ahead=np.full((3, policies), -9, dtype=np.int64),
        stamp_fails=np.full(policies, -1, dtype=np.int64),
        block=np.zeros((policies, 7)),
        stamp_block=np.full(policies, -1, dtype=np.int64),
        met=np.zeros(1),
        stamp_met=np.full(3, NONE, dtype=np.int64),
        spare=np.zeros((8, groups, policies)),
        rail_mean=np.zeros((rails, groups, policies)),
        rail_v=np.zeros((rails, groups, policies)),
        rail_noise=np.zeros((rails, groups, policies)),
        rail_lacking=np.zeros((rails, policies + 1), dtype=np.int64),
        rail_pooled=np.ones(rails),
        rail_lam=np.zeros((2, groups)),
        rail_weighed=np.zeros((rails, groups, policies)),
        scratch=scratch,
    )


@kernel
def mark_outcomes_changed(work: Work, k: int) -> None:
    """Mark policy k's outcomes as changed."""
    work.outcome_changes[k] += 1
    work.changes[OUTCOMES] += 1
    mark_samples_changed(work, k)


@kernel
def mark_samples_changed(work: Work, k: int) -> None:
    """Mark policy k's samples, observed or pending, as changed."""
    work.sample_changes[k] += 1
    work.changes[SAMPLES] += 1
    waiting = work.queue[0]
    if waiting < 0 or (waiting > 0 and work.queue[waiting] == k):
        return
    if waiting == work.queue.shape[0] - 1:
        work.queue[0] = -1
        return
    work.queue[waiting + 1] = k
    work.queue[0] = waiting + 1


@kernel
def ask(state: State, work: Work, k: int, g: int) -> None:
    """Count a requested sample of cell (k, g); it counts for the allocation from now on."""
    state.out[g, k] += 1.0
    state.clock[ASKED] += 1
    state.clock[PENDING] += 1
    mark_samples_changed(work, k)


@kernel
def drop(spec: Spec, state: State, work: Work, k: int, g: int) -> None:
    """Remove a pending sample of cell (k, g) that will have no outcome."""
    state.out[g, k] -= 1.0
    state.clock[PENDING] -= 1
    if state.n[g, k] + state.out[g, k] < spec.initial[g, k]:
        state.clock[SHORT] += 1  # the cell's initial samples are incomplete again
    mark_samples_changed(work, k)


@kernel
def ask_policy(spec: Spec, state: State, work: Work, k: int) -> None:
    """Count a requested sample of policy k (agnostic mode); its group comes with the outcome."""
    for g in range(spec.arrivals.shape[0]):
        state.out[g, k] += spec.arrivals[g]
    state.clock[ASKED] += 1
    state.clock[PENDING] += 1
    mark_samples_changed(work, k)


@kernel
def return_policy(spec: Spec, state: State, work: Work, k: int) -> None:
    """Undo `ask_policy` (agnostic mode): the sample was dropped, or its outcome is known.

    In the second case call `record(..., was_out=False)` next.
    """
    for g in range(spec.arrivals.shape[0]):
        state.out[g, k] -= spec.arrivals[g]
    state.clock[PENDING] -= 1
    mark_samples_changed(work, k)


@kernel
def record(spec: Spec, state: State, work: Work, k: int, g: int, x: float, was_out: bool) -> None:
    """Record an outcome x (unit scale) of cell (k, g); eq:est_performance is s / n."""
    if spec.unknown_variance or spec.code == EXPONENTIAL:
        _record_shifted(state.bets, state.n[g, k], k, g, x)
    if spec.linear_bets and spec.code == GAUSSIAN:
        record_gaussian_bets(state.bets, state.n, spec.phi, spec.shares, k, g, x, 1.0)
    elif spec.linear_bets:
        record_bets(state.bets, state.n, state.s, spec.shares, spec.bounded, k, g, x)
    elif spec.shared_items and spec.bounded:
        record_bounded(state.bets, state.n.shape[0], k, g, x, 1.0)
    if state.n[g, k] == 0.0:
        state.clock[EMPTY] -= 1
    state.n[g, k] += 1.0
    state.s[g, k] += x
    state.ss[g, k] += x * x
    if was_out:
        state.out[g, k] -= 1.0
        state.clock[PENDING] -= 1
    state.clock[TOLD] += 1
    mark_outcomes_changed(work, k)


@kernel
def record_guardrail(spec: Spec, state: State, j: int, k: int, g: int, x: float) -> None:
    """Record an outcome x (unit scale) of guard-rail j in cell (k, g); call `record` for its sample next."""
    if spec.guardrails.unknown_variance[j] or spec.guardrails.code[j] == EXPONENTIAL:
        _record_shifted(state.rail_bets[j], state.rail_n[j, g, k], k, g, x)
    state.rail_n[j, g, k] += 1.0
    state.rail_s[j, g, k] += x
    state.rail_ss[j, g, k] += x * x


@kernel
def record_guardrails(spec: Spec, state: State, k: int, g: int, outcomes: Array) -> None:
    """Record the outcomes of all guard-rails of a sample, (M,) in unit scale; NaN where one is missing."""
    if spec.guardrails.present:
        for j in range(spec.guardrails.code.shape[0]):
            if not math.isnan(outcomes[j]):
                record_guardrail(spec, state, j, k, g, outcomes[j])


@kernel
def remove_outcomes(state: State, k: int, g: int) -> None:
    """Remove all outcomes of cell (k, g); the caller updates `clock`."""
    state.n[g, k], state.s[g, k], state.ss[g, k] = 0.0, 0.0, 0.0
    for part in range(5):
        state.bets[part * state.n.shape[0] + g, k] = 0.0
    for j in range(state.rail_n.shape[0]):
        state.rail_n[j, g, k], state.rail_s[j, g, k], state.rail_ss[j, g, k] = 0.0, 0.0, 0.0
        for part in range(5):
            state.rail_bets[j, part * state.n.shape[0] + g, k] = 0.0


@kernel
def _record_shifted(bets: Array, n: float, k: int, g: int, x: float) -> None:
    """Record the distance of a cell's (n + 1)-th outcome to its first, without cancellation or a scale."""
    groups = bets.shape[0] // 5
    if n == 0.0:
        bets[FIRST * groups + g, k] = x
        return
    away = x - bets[FIRST * groups + g, k]
    if away != 0.0 and bets[LENGTH * groups + g, k] == 0.0:
        bets[LENGTH * groups + g, k] = n + 1.0
        bets[LEAP * groups + g, k] = away
    bets[SHIFTED * groups + g, k] += away
    bets[SQUARES * groups + g, k] += away * away
