"""Jobs: everything a worker needs to run replications of a study; and their shards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.compile.dispatch import make_ready
from evenhand.compile.fingerprint import fingerprint
from evenhand.errors import BadInput, EvenhandError, NotComputed, shown
from evenhand.procedure.compile_spec import check_start, compile_spec
from evenhand.procedure.spec import ORACLE, Spec
from evenhand.simulation import engine
from evenhand.simulation.buffers import SUMS, Rows, Trace, new_buffers, new_rows, new_trace
from evenhand.simulation.executors import Executor
from evenhand.simulation.interval_engine import (
    IntervalPlan,
    new_open_counts,
    new_virtual_buffers,
    plan_of_intervals,
    run_interval_block,
)
from evenhand.simulation.item_engine import ItemLaw, item_law, own_scratch, run_item_block
from evenhand.simulation.outcome_laws import Draw, DrawnTruth, compile_truth, drawn_means
from evenhand.simulation.runs import Runs
from evenhand.simulation.streams import Source
from evenhand.study import Study

# finished replications and all replications
Progress = Callable[[int, int], None]

MOST_REPLICATIONS = 2**32  # the replication is one 32-bit word of every random number's address
CPU, CUDA = "cpu", "cuda"  # devices
LONGEST_SHARD = 64
LONGEST_SHARD_ON_GPU = 2**24  # the last runs of a shard leave most of the GPU idle
MOST_BYTES_ON_GPU = 2**30  # of the rows and means of a shard
SHARDS_PER_WORKER = 16


@dataclass(frozen=True, eq=False)
class Job:
    """A compiled study, ready to run any of its replications."""

    study: Study
    spec: Spec
    source: Source
    seed: int
    checkpoints: tuple[int, ...]
    draw: Draw | None
    code: str  # hash of the kernels: rows from other kernels would not be comparable bit for bit
    device: str = CPU
    intervals: IntervalPlan | None = None  # where the study runs in intervals
    items: ItemLaw | None = None  # where several policies answer the same item


@dataclass(frozen=True, eq=False)
class Shard:
    """Consecutive replications of a job, starting at `first`."""

    job: Job
    first: int
    count: int


def prepare(
    study: Study,
    seed: int,
    checkpoints: Sequence[int] = (),
    drawn: DrawnTruth | None = None,
    device: str = CPU,
) -> Job:
    """Check and compile a study; `drawn` replaces its truth by means for each replication.

    `device` is cpu, or cuda for an NVIDIA GPU.
    """
    check_device(device)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise BadInput(f"seed must be a whole number from 0 to 2^63 - 1; it is {shown(seed)}.")
    if drawn is None:
        study.means()  # raises an error that says what is missing
    truth = study.truth if drawn is None else drawn.first(study.problem, int(seed))
    assert truth is not None
    spec = compile_spec(study.problem, study.procedure)
    if spec.sampling == ORACLE:
        spec = _with_oracle_weights(study, drawn)
    check_start(spec)
    study.problem.check_truth(truth.cell_means(study.problem), truth.guardrail_means(study.problem))
    source = compile_truth(study.problem, truth)
    draw = None if drawn is None else drawn.draw
    intervals = plan_of_intervals(study, spec, source)
    items = item_law(study, source, drawn is None)
    if device == CUDA and (intervals is not None or items is not None):
        what = "intervals" if items is None else "shared items"
        raise BadInput(f"{what} are simulated on the device cpu only; the device is cuda.")
    at = _ordered(checkpoints)
    return Job(study, spec, source, int(seed), at, draw, code_version(), device, intervals, items)


def run_shard(shard: Shard) -> Rows:
    """Return the rows of one shard: a pure function of it."""
    job = shard.job
    if job.code != code_version():
        raise EvenhandError(
            "this worker has other kernels than the program that asked; install the same evenhand on both."
        )
    if job.device == CUDA:
        from evenhand.simulation.cuda import run_on_gpu

        rows = run_on_gpu(shard)
    else:
        rows = new_rows(shard.count, len(job.checkpoints), job.spec.phi.shape)
        _run(job, shard.first, shard.count, rows, new_trace(0))
    unknown = np.flatnonzero(np.isnan(rows.evidence))
    if unknown.size:
        raise NotComputed(
            f"the evidence in replication {shard.first + int(unknown[0])} could not be computed at every "
            "look; that is a fault of the program, not a lack of evidence. Please report it with the study "
            "and the seed."
        )
    return rows


def arguments_of(job: Job) -> tuple[Any, ...]:
    """Return arguments of the loop with no replications, to compile it for this job."""
    rows = new_rows(0, len(job.checkpoints), job.spec.phi.shape)
    return _arguments(job, job.source, 0, rows, new_trace(0))


def run_job(job: Job, replications: int, executor: Executor, progress: Progress | None = None) -> Runs:
    """Return the rows of all replications of a job; they do not depend on the executor."""
    check_replications(replications)
    begun = time.perf_counter()
    shards = cut(job, replications, _shard_size(job, replications, executor.workers))
    if job.device == CPU:
        # compiled here, where Ctrl-C is handled, and not by every worker at once
        make_ready(_loop(job), *arguments_of(job))
    rows = new_rows(replications, len(job.checkpoints), job.spec.phi.shape)
    done = 0
    for number, part in executor.run(run_shard, shards):
        if len(shards) == 1 and job.device == CUDA:
            rows = part  # a copy of a gigabyte would take a noticeable part of the time
        else:
            put(rows, part, shards[number].first)
        done += shards[number].count
        if progress is not None:
            progress(done, replications)
    return Runs(job.study, job.seed, job.checkpoints, rows, time.perf_counter() - begun)


def trace_job(job: Job, replication: int, most: int | None = None) -> tuple[Rows, Trace]:
    """Return one replication sample by sample, or every n-th if there are more than `most`."""
    if replication < 0 or replication >= MOST_REPLICATIONS:
        raise BadInput(f"replications are numbered from 0; there is no number {replication}.")
    if job.intervals is not None:
        raise BadInput("a trace shows samples one by one; the study runs in intervals.")
    if job.items is not None:
        raise BadInput("a trace shows samples one by one; several policies of the study answer each item.")
    rows = run_shard(Shard(job, replication, 1))
    # the run is deterministic, so a first pass gives its length
    samples = int(rows.samples[0])
    every = 1 if most is None else -(-samples // most)
    trace = new_trace(samples // every, every)
    _run(job, replication, 1, new_rows(1, len(job.checkpoints), job.spec.phi.shape), trace)
    return rows, trace


def cut(job: Job, replications: int, size: int) -> list[Shard]:
    """Return shards of this size; the last may be smaller."""
    return [Shard(job, first, min(size, replications - first)) for first in range(0, replications, size)]


def put(rows: Rows, part: Rows, first: int) -> None:
    """Copy the rows of a shard to their place and add its shares."""
    here = slice(first, first + part.samples.shape[0])
    for name in Rows._fields:
        own, other = getattr(rows, name), getattr(part, name)
        if name in SUMS:
            own[:] += other
        else:
            own[here] = other


def part_of(progress: Progress | None, number: int, parts: int) -> Progress | None:
    """Return a progress callback for one of several equal parts."""
    if progress is None:
        return None
    report = progress
    return lambda done, total: report(number * total + done, parts * total)


def code_version() -> str:
    """Return a hash of the loop, of everything it calls, and of the compiler's version."""
    return "".join(map(fingerprint, (engine.run_block, run_interval_block, run_item_block)))


def check_device(device: str) -> None:
    """Refuse a device that is unknown or cannot be used here."""
    if device not in (CPU, CUDA):
        raise BadInput(f"the device must be cpu or cuda; it is {device!r}.")
    if device == CUDA:
        from evenhand.simulation import cuda

        cuda.check_device()


def _shard_size(job: Job, replications: int, workers: int) -> int:
    if job.device == CUDA:
        return min(LONGEST_SHARD_ON_GPU, max(1, MOST_BYTES_ON_GPU // _bytes_per_run(job)), replications)
    return max(1, min(LONGEST_SHARD, replications // (workers * SHARDS_PER_WORKER)))


def _bytes_per_run(job: Job) -> int:
    """Return the size of a run's row, and of its means where they are drawn."""
    one, none = (new_rows(count, len(job.checkpoints), job.spec.phi.shape) for count in (1, 0))
    row = sum(array.nbytes for array in one) - sum(array.nbytes for array in none)
    return row + (0 if job.draw is None else job.spec.phi.nbytes)


def check_replications(replications: int) -> None:
    if not 1 <= replications <= MOST_REPLICATIONS:
        raise BadInput(f"replications must be at least 1 and at most 2^32; they are {replications}.")


def _run(job: Job, first: int, count: int, rows: Rows, trace: Trace) -> None:
    source = job.source
    if job.draw is not None:
        source = drawn_means(job.study.problem, source, job.draw, job.seed, first, count)
    _loop(job)(*_arguments(job, source, first, rows, trace))


def _loop(job: Job) -> Callable[..., None]:
    """Return the compiled loop of a job."""
    if job.items is not None:
        return run_item_block
    return engine.run_block if job.intervals is None else run_interval_block


def _arguments(job: Job, source: Source, first: int, rows: Rows, trace: Trace) -> tuple[Any, ...]:
    """Return the arguments of the loop."""
    checkpoints: NDArray[np.int64] = np.array(job.checkpoints, dtype=np.int64)
    buffers = new_buffers(job.spec, source)
    if job.items is not None:
        law = own_scratch(job.items)
        return job.spec, law, source, job.seed, first, buffers, checkpoints, rows
    if job.intervals is None:
        return job.spec, source, job.seed, first, buffers, checkpoints, rows, trace
    opened, virtual = new_open_counts(job.spec, job.intervals), new_virtual_buffers(job.spec)
    return (
        job.spec, job.intervals, source, job.seed, first, buffers, opened, virtual, checkpoints, rows,
    )  # fmt: skip


def _with_oracle_weights(study: Study, drawn: DrawnTruth | None) -> Spec:
    """Return the spec with the optimal allocation of the truth as weights."""
    from evenhand.theory.plan import plan

    if drawn is not None:
        raise BadInput(
            "the oracle rule follows one truth; it cannot follow means drawn for each replication."
        )
    return compile_spec(study.problem, study.procedure, plan(study).allocation)


def _ordered(checkpoints: Sequence[int]) -> tuple[int, ...]:
    for value in checkpoints:
        if isinstance(value, bool) or int(value) != value or value < 1:
            raise BadInput(
                f"checkpoints must be whole numbers of samples, at least 1; one is {shown(value)}."
            )
    return tuple(sorted({int(value) for value in checkpoints}))
