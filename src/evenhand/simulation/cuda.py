"""Replications on an NVIDIA GPU: one thread each, compiled and launched through CuPy.

Samples, decisions and answers are those of the CPU for the same seed, but for runs in which a last digit
decides: functions of the mathematical library may differ in it. Rules that track an allocation often meet
cells that are equal by their formula, others rarely (`docs/decisions/gpu.md`).

The program is CUDA source of the parts of a replication, which all take the same arguments, and the loop of
one thread. Rows have one entry, and means are the table of the replication. A thread starts the next
replication as soon as its last one ends, and does not wait for the others of its warp: the longest of 32 runs
takes more than twice the mean. The threads of a block, all threads of a multiprocessor, begin each batch of
samples together: they run about the same code at the same time, and the instruction caches hold a small part
of the program only.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.compile.annotations import DTYPES
from evenhand.compile.argument_layout import Layout, Target
from evenhand.compile.arrays import buffer_kind
from evenhand.compile.cuda_functions import STORED
from evenhand.compile.cuda_program import CudaSource, Root, printed, specialised
from evenhand.compile.dispatch import KernelCaller
from evenhand.compile.values import BOOL, FLOAT, INT
from evenhand.errors import BadInput, CompilationFailed
from evenhand.procedure.spec import Spec
from evenhand.simulation import engine
from evenhand.simulation.buffers import (
    PER_CHECKPOINT,
    SUMS,
    Checkpoints,
    Rows,
    RunBuffers,
    Trace,
    new_buffers,
    new_rows,
    new_trace,
)
from evenhand.simulation.outcome_laws import drawn_means
from evenhand.simulation.shards import Job, Shard
from evenhand.simulation.streams import Source

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


@kernel
def begin_alone(
    spec: Spec, source: Source, seed: int, replication: int, truth: int, buffers: RunBuffers,
    checkpoints: Checkpoints, rows: Rows, trace: Trace,
) -> int:  # fmt: skip
    """Prepare a replication and return the right answer."""
    return engine.begin(spec, source, source.means[0], buffers)


@kernel
def run_batch_alone(
    spec: Spec, source: Source, seed: int, replication: int, truth: int, buffers: RunBuffers,
    checkpoints: Checkpoints, rows: Rows, trace: Trace,
) -> bool:  # fmt: skip
    """Run a batch of samples; return whether the replication continues."""
    engine.run_batch(
        spec, source, source.means[0], seed, replication, truth, buffers, checkpoints, rows, 0, trace
    )
    return engine.is_running(spec, buffers.state)


@kernel
def finish_alone(
    spec: Spec, source: Source, seed: int, replication: int, truth: int, buffers: RunBuffers,
    checkpoints: Checkpoints, rows: Rows, trace: Trace,
) -> int:  # fmt: skip
    """Write the row of a replication; return 0."""
    engine.finish(spec, buffers, truth, rows, 0)
    return 0


LOOP_NAME = "simulate"  # name of the kernel function
_C_KINDS = {
    "stopped": BOOL, "right": BOOL, "right_at": BOOL, "cost": FLOAT, "evidence": FLOAT, "near": FLOAT,
}  # fmt: skip


class Place(NamedTuple):
    """The place of an array in a thread's memory: buffer, first element and length."""

    buffer: str
    first: int
    size: int


def thread_loop(
    roots: Sequence[Root], start: Mapping[str, NDArray[Any]], places: Mapping[str, Place], drawn: bool
) -> str:
    """Return the source of the loop.

    Parameters of the kernel function: seed, number of the first replication, number of replications, a
    counter that starts at 0, the means of each replication, the initial contents of the thread's buffers, and
    the rows.
    """
    begin, turn, finish = (f"{root.name}({', '.join(['m', *root.passed])})" for root in roots)
    beginnings = [f"const {STORED[buffer_kind(name)]} *start_{name}" for name in start]
    rows = [f"{STORED[_C_KINDS.get(name, INT)]} *out_{name}" for name in Rows._fields]
    parameters = [*_PARAMETERS, *beginnings, *rows]
    return _LOOP.format(
        name=LOOP_NAME,
        parameters=", ".join(parameters),
        copies="\n".join(_copy(name, array.size) for name, array in start.items()),
        means=_means_lines(places["source.means"]) if drawn else "",
        begin=begin,
        turn=turn,
        finish=finish,
        written="\n".join(
            _written(name, places[f"rows.{name}"]) for name in Rows._fields if name not in SUMS
        ),
        sums="\n".join(_added(name, places[f"rows.{name}"]) for name in SUMS),
    )


def _copy(name: str, size: int) -> str:
    return f"    for (int i = 0; i < {size}; i++) OWN({name}, i) = start_{name}[i];"


def _means_lines(place: Place) -> str:
    target = f"OWN({place.buffer}, {place.first} + i)"
    return f"for (int i = 0; i < {place.size}; i++) {target} = means[row * {place.size} + i];"


def _written(name: str, place: Place) -> str:
    if name not in PER_CHECKPOINT:
        return f"            out_{name}[row] = OWN({place.buffer}, {place.first});"
    source = f"OWN({place.buffer}, {place.first} + i)"
    return (
        f"            for (int i = 0; i < {place.size}; i++) out_{name}[row * {place.size} + i] = {source};"
    )


def _added(name: str, place: Place) -> str:
    """Return source that adds the sums over all replications of a thread, as integers."""
    source = f"OWN({place.buffer}, {place.first} + i)"
    return f"    for (int i = 0; i < {place.size}; i++) add(out_{name} + i, {source});"


_PARAMETERS = (
    "whole seed", "whole first", "whole count", "whole *counter", "const real *means",
)  # fmt: skip

_LOOP = """
#ifdef __CUDACC__
FUNCTION whole next(whole *counter) {{ return (whole)atomicAdd((word *)counter, 1ULL); }}
FUNCTION void add(whole *sum, whole part) {{ atomicAdd((word *)sum, (word)part); }}
#define ANY_IN_BLOCK(condition) __syncthreads_or(condition)
#define LAUNCHED __global__ void __launch_bounds__(BLOCK, BLOCKS)
#else
FUNCTION whole next(whole *counter) {{ return (*counter)++; }}
FUNCTION void add(whole *sum, whole part) {{ *sum += part; }}
#define ANY_IN_BLOCK(condition) (condition)
#define LAUNCHED void
#endif

extern "C" LAUNCHED {name}({parameters}) {{
    Memory memory, *m = &memory;
{copies}
    whole row = next(counter), truth = 0;
    bool over = true;
    while (ANY_IN_BLOCK(row < count)) {{
        const bool active = row < count;
        const whole replication = first + row;
        if (active && over) {{
            {means}
            truth = {begin};
        }}
        if (active) over = !{turn};
        if (active && over) {{
            {finish};
{written}
            row = next(counter);
        }}
    }}
{sums}
}}
"""

KERNELS: tuple[Any, ...] = (begin_alone, run_batch_alone, finish_alone)
SHARED, OWN = "S", "B"
# arrays shared by all threads are compiled in; those that a replication writes belong to a thread
PLACES = (
    ("spec", SHARED), ("source", SHARED), ("checkpoints", SHARED),
    ("buffers", OWN), ("buffers.blank", SHARED), ("rows", OWN), ("trace", OWN),
)  # fmt: skip


@dataclass(frozen=True)
class Simulation:
    """The source of a job, and the initial contents of each thread's memory."""

    source: CudaSource
    start: dict[str, NDArray[Any]]


def simulation_of(job: Job) -> Simulation:
    """Return the CUDA source of a job; it does not depend on the seed or on drawn means."""
    places = PLACES + ((("source.means", OWN),) if job.draw is not None else ())
    target = Target("cuda", places, frozenset((SHARED, OWN)), (), frozenset(SHARED), frozenset(SHARED))
    caller = KernelCaller(KERNELS[0], target)
    values = caller.values(_arguments(job))
    layout = caller.layout(values)
    program, roots = specialised(KERNELS, caller.types, layout)
    contents = _contents(layout, values)
    start = {name: content for name, content in contents.items() if name[0] == OWN}
    tables = {name: content for name, content in contents.items() if name[0] == SHARED}
    source = printed(program, {name: content.size for name, content in start.items()}, tables)
    start = {name: start[name] for name in source.memory}
    loop = thread_loop(roots, start, _places(layout), job.draw is not None)
    return Simulation(CudaSource(source.text + loop, source.memory, source.filled), start)


def _arguments(job: Job) -> tuple[Any, ...]:
    """Return the arguments of a replication's parts, without seed, number and right answer."""
    rows = new_rows(1, len(job.checkpoints), job.spec.phi.shape)
    buffers = new_buffers(job.spec, job.source)
    checkpoints = np.array(job.checkpoints, dtype=np.int64)
    return job.spec, job.source, 0, 0, 0, buffers, checkpoints, rows, new_trace(0)


def _contents(layout: Layout, values: list[Any]) -> dict[str, NDArray[Any]]:
    """Return the initial contents of the buffers."""
    contents = {name: np.zeros(size, DTYPES[buffer_kind(name)]) for name, size in layout.sizes.items()}
    for leaf, place in layout.places.items():
        array = np.ravel(values[leaf])
        contents[layout.buffers[leaf]][place : place + array.size] = array
    return contents


def _places(layout: Layout) -> dict[str, Place]:
    """Return the places of the arrays, by path."""
    return {
        layout.leaves[leaf].path: Place(layout.buffers[leaf], place, int(np.prod(layout.shapes[leaf])))
        for leaf, place in layout.places.items()
    }
