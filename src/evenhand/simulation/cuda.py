"""Replications on an NVIDIA GPU: one thread each, compiled and launched through CuPy.

Samples, decisions and answers are those of the CPU for the same seed. Functions of the mathematical library
may differ in the last digit, and so may the recorded evidence.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, CompilationFailed
from evenhand.simulation.buffers import Rows, new_rows
from evenhand.simulation.cuda_source import LOOP_NAME, Simulation, simulation_of
from evenhand.simulation.outcome_laws import drawn_means
from evenhand.simulation.shards import Job, Shard

BLOCK = 896  # threads in a block: faster on an H200 than 640, 768, 832 and 1,024
BLOCKS = 1  # blocks per multiprocessor
MOST_MEMORY = 511 * 1024  # bytes of local memory that a thread can have
# the same arithmetic as on the CPU: no fused multiply-add
OPTIONS = ("--std=c++17", "--fmad=false", f"-DBLOCK={BLOCK}", f"-DBLOCKS={BLOCKS}")
USE_CPU = "Use the device cpu."
MOST_PROGRAMS = 4  # kept on the device


def check_device() -> None:
    """Raise an error unless a GPU can be used."""
    _cupy()


def run_on_gpu(shard: Shard) -> Rows:
    """Return the rows of one shard; several threads may call this at once, each for its own shard."""
    cupy = _cupy()
    job = shard.job
    loaded = _program_of(job)
    rows = new_rows(shard.count, len(job.checkpoints), job.spec.phi.shape)
    try:
        with _stream(cupy) as stream:  # the GPU runs other shards while this one is copied
            found = _launch(cupy, loaded, shard, rows)
            for array in rows:
                array.fill(0)  # the memory of the rows is taken while the GPU runs
            stream.synchronize()  # a copy that waits for a kernel may keep other threads from a launch
            _fill(rows, found)
    except cupy.cuda.memory.OutOfMemoryError as problem:
        raise _no_memory(loaded.simulation) from problem
    except cupy.cuda.driver.CUDADriverError as problem:
        if "OUT_OF_MEMORY" in str(problem):
            raise _no_memory(loaded.simulation) from problem
        raise
    return rows


_idle_streams: list[Any] = []


@contextmanager
def _stream(cupy: Any) -> Iterator[Any]:
    """Make a stream current that no other thread uses; CuPy keeps memory for each stream."""
    try:
        stream = _idle_streams.pop()
    except IndexError:
        stream = cupy.cuda.Stream(non_blocking=True)
    try:
        with stream:
            yield stream
    finally:
        _idle_streams.append(stream)


def _fill(rows: Rows, found: list[Any]) -> None:
    """Copy rows from the device."""
    for own, array in zip(rows, found, strict=True):
        if own.size:
            array.get(out=np.ravel(own).view(_stored(own)))


def _launch(cupy: Any, loaded: LoadedKernel, shard: Shard, rows: Rows) -> list[Any]:
    """Run all replications of a shard; return the rows, still on the device."""
    job = shard.job
    out = [cupy.zeros(max(array.size, 1), _stored(array)) for array in rows]
    numbers = [np.int64(number) for number in (job.seed, shard.first, shard.count)]
    counter = cupy.zeros(1, np.int64)
    blocks = min(loaded.processors * BLOCKS, -(-shard.count // BLOCK))
    arguments = (*numbers, counter, cupy.asarray(_means(shard)), *loaded.start, *out)
    loaded.function((blocks,), (BLOCK,), arguments)
    return [array[: own.size] for array, own in zip(out, rows, strict=True)]


def _means(shard: Shard) -> NDArray[np.float64]:
    """Return the means of each replication, where they are drawn."""
    job = shard.job
    if job.draw is None:
        return np.zeros(1)
    source = drawn_means(job.study.problem, job.source, job.draw, job.seed, shard.first, shard.count)
    return np.ravel(source.means)


class LoadedKernel(NamedTuple):
    """A compiled program on the device."""

    function: Any
    start: list[Any]
    processors: int
    simulation: Simulation


_programs: dict[bytes, LoadedKernel] = {}  # by everything that the source depends on
_programs_lock = threading.Lock()


def _program_of(job: Job) -> LoadedKernel:
    """Return the program of a job; jobs with equal specifications share one."""
    key = pickle.dumps((job.spec, job.source, job.checkpoints, job.draw is None))
    with _programs_lock:
        if key not in _programs:
            if len(_programs) == MOST_PROGRAMS:
                del _programs[next(iter(_programs))]
            _programs[key] = _loaded(job)
        return _programs[key]


def _loaded(job: Job) -> LoadedKernel:
    """Compile the program of a job and load it on the device."""
    cupy = _cupy()
    simulation = simulation_of(job)
    if simulation.source.bytes_per_thread > MOST_MEMORY:
        raise _no_memory(simulation)
    try:
        module = cupy.RawModule(code=simulation.source.text, options=OPTIONS)
        function = module.get_function(LOOP_NAME)
    except cupy.cuda.compiler.CompileException as problem:
        raise CompilationFailed(f"the program for the GPU could not be compiled: {problem}") from problem
    for name, table in simulation.source.filled.items():
        memory = module.get_global(name)
        cupy.ndarray(table.shape, _stored(table), memory)[...] = cupy.asarray(table)
    start = [cupy.asarray(array.view(_stored(array))) for array in simulation.start.values()]
    cupy.cuda.Device().synchronize()  # shards run on streams that do not wait for these copies
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
    return LoadedKernel(function, start, int(properties["multiProcessorCount"]), simulation)


def _stored(array: NDArray[Any]) -> Any:
    """Return the array with bools stored as bytes."""
    return np.uint8 if array.dtype == np.bool_ else array.dtype


def _no_memory(simulation: Simulation) -> BadInput:
    kilobytes = -(-simulation.source.bytes_per_thread // 1024)
    return BadInput(
        f"the GPU has too little memory: this study needs {kilobytes} kB for each run, "
        f"and many run at once. {USE_CPU}"
    )


def _cupy() -> Any:
    """Return CuPy, or raise an error where it finds no GPU."""
    try:
        import cupy
    except ImportError:
        raise BadInput(f"the device cuda needs CuPy: install evenhand[gpu]. {USE_CPU}") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as problem:
        raise BadInput(f"the device cuda needs an NVIDIA GPU and its driver ({problem}). {USE_CPU}") from None
    if count == 0:
        raise BadInput(f"the device cuda needs an NVIDIA GPU; there is none. {USE_CPU}")
    return cupy
