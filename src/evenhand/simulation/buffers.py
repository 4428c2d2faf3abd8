"""Arrays that a replication writes: summary rows, a trace, pending samples and scratch."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes
from evenhand.model.region import PerCell
from evenhand.procedure.guardrail_spec import PerMetricCell
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, Work, new_state, new_work
from evenhand.simulation.streams import Source

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
# one entry for each replication, traced sample, pending-sample slot or checkpoint
RunInts = Annotated[Ints, Axes("count")]
RunNumbers = Annotated[Array, Axes("count")]
RunFlags = Annotated[Flags, Axes("count")]
TracedInts = Annotated[Ints, Axes("traced")]
TracedNumbers = Annotated[Array, Axes("traced")]
SlotInts = Annotated[Ints, Axes("slots")]
Checkpoints = Annotated[Ints, Axes("checkpoints")]

# shares are summed as integer multiples of this, so that the sum does not depend on the order
SHARE_UNIT = 2.0**-36
CACHE_LINE = 128  # bytes of a cache line, with its neighbour


class Rows(NamedTuple):
    """The results of a block of replications: one entry each, and the sum of their shares."""

    samples: RunInts  # observed outcomes
    asked: RunInts  # requested samples, pending or lost ones included
    stopped: RunFlags  # whether the rule decided before the cap
    answer: RunInts  # policy, or NONE
    truth: RunInts  # the best answer
    right: RunFlags  # whether the answer is the best, or acceptable
    cost: RunNumbers  # cost of the observed samples
    evidence: RunNumbers  # of the weakest alternative, at the end
    near: RunNumbers  # largest evidence minus threshold, over new peaks with a wrong answer; -inf without
    checkpoints: Annotated[Ints, Axes("count", "checkpoints")]  # (count, checkpoints) the answer at each
    right_at: Annotated[Flags, Axes("count", "checkpoints")]  # (count, checkpoints) whether it is acceptable
    allowed: Annotated[Ints, Axes("K")]  # (K,) runs that classified the policy as allowed, where they screen
    shares: Annotated[Ints, Axes("L", "K")]  # (L, K) sum of shares of samples, in SHARE_UNITs


SUMS = ("allowed", "shares")  # added up over replications
PER_CHECKPOINT = ("checkpoints", "right_at")


class Trace(NamedTuple):
    """Every n-th observed sample of one replication; length 0 without a trace."""

    every: int
    policy: TracedInts
    group: TracedInts
    outcome: TracedNumbers  # in the user's units
    evidence: TracedNumbers
    needed: TracedNumbers
    weakest: TracedInts
    answer: TracedInts


class PendingSamples(NamedTuple):
    """Pending samples, linked by the ask after which they are due; and scratch."""

    policy: SlotInts
    group: SlotInts
    outcome: Annotated[Array, Axes("slots")]
    lost: Annotated[Flags, Axes("slots")]
    after: SlotInts  # the next sample due at the same ask, or -1
    first: SlotInts  # first sample due at an ask, or -1
    last: SlotInts
    drawn: Annotated[Ints, Axes("L", "K")]  # (L, K) outcomes drawn so far: the address of the next one
    mean: PerCell  # (L, K) scratch
    truth: PerCell  # (L, K) the true means of this replication, in unit scale
    rail_outcome: Annotated[Array, Axes("slots", "M")]  # of pending samples
    rail_mean: PerMetricCell  # scratch
    rail_truth: PerMetricCell  # the true means of the guard-rails, in unit scale
    clock: Annotated[Ints, Axes(2)]  # SETTLED, REACHED
    peak: Annotated[Array, Axes(2)]  # PEAK, NEAR


SETTLED, REACHED = range(2)  # asks whose due samples have been settled; checkpoints passed
PEAK, NEAR = range(2)  # the largest margin so far; the largest that was a new peak of a wrong answer


class RunBuffers(NamedTuple):
    """All arrays that a replication writes; reused for the next."""

    state: State
    blank: State
    work: Work
    pending: PendingSamples


def new_buffers(spec: Spec, source: Source) -> RunBuffers:
    """Allocate the arrays for one replication at a time."""
    slots = source.lag_most + spec.batch + 1
    whole = [np.zeros(slots, dtype=np.int64) for _ in range(5)]
    rails = spec.guardrails.phi.shape
    pending = PendingSamples(
        policy=whole[0], group=whole[1], outcome=np.zeros(slots), lost=np.zeros(slots, dtype=np.bool_),
        after=whole[2], first=whole[3], last=whole[4], drawn=np.zeros(spec.phi.shape, dtype=np.int64),
        mean=np.zeros(spec.phi.shape), truth=np.zeros(spec.phi.shape),
        rail_outcome=np.zeros((slots, rails[0])), rail_mean=np.zeros(rails), rail_truth=np.zeros(rails),
        clock=np.zeros(2, dtype=np.int64), peak=np.zeros(2),
    )  # fmt: skip
    return _contiguous(RunBuffers(new_state(spec), new_state(spec), new_work(spec), pending))


def _contiguous(buffers: RunBuffers) -> RunBuffers:
    """Return copies of the arrays in one contiguous allocation.

    It avoids false sharing of cache lines between the arrays of different threads.
    """
    size = sum(_lines(array) for part in buffers for array in part)
    memory = np.zeros(size + CACHE_LINE, dtype=np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    parts: list[Any] = []
    for part in buffers:
        arrays: list[Any] = []
        for array in part:
            place = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
            place[...] = array
            arrays.append(place)
            start += _lines(array)
        parts.append(type(part)(*arrays))
    return RunBuffers(*parts)


def _lines(array: NDArray[Any]) -> int:
    """Return the bytes of the cache lines that hold the array."""
    return -(-array.nbytes // CACHE_LINE) * CACHE_LINE


def new_rows(count: int, checkpoints: int, shape: tuple[int, ...]) -> Rows:
    """Return empty rows for this number of replications; `shape` is (L, K)."""
    whole = [np.zeros(count, dtype=np.int64) for _ in range(4)]
    return Rows(
        samples=whole[0], asked=whole[1], stopped=np.zeros(count, dtype=np.bool_), answer=whole[2],
        truth=whole[3], right=np.zeros(count, dtype=np.bool_),
        cost=np.zeros(count), evidence=np.zeros(count), near=np.zeros(count),
        checkpoints=np.zeros((count, checkpoints), dtype=np.int64),
        right_at=np.zeros((count, checkpoints), dtype=np.bool_),
        allowed=np.zeros(shape[1], dtype=np.int64), shares=np.zeros(shape, dtype=np.int64),
    )  # fmt: skip


def new_trace(length: int, every: int = 1) -> Trace:
    """Return an empty trace for this number of samples."""
    whole = [np.zeros(length, dtype=np.int64) for _ in range(4)]
    real = [np.zeros(length) for _ in range(3)]
    return Trace(every, whole[0], whole[1], real[0], real[1], real[2], whole[2], whole[3])
