"""The CUDA source of a job: the specialised parts of a replication and the thread loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.compile.annotations import DTYPES
from evenhand.compile.arguments import Layout, Target
from evenhand.compile.arrays import buffer_kind
from evenhand.compile.calling import Caller
from evenhand.compile.cuda_program import Source, printed, specialised
from evenhand.simulation.buffers import new_body, new_rows, new_trace
from evenhand.simulation.cuda_kernels import begin_alone, finish_alone, take_turn_alone
from evenhand.simulation.cuda_loop import Place, thread_loop
from evenhand.simulation.shards import Job

KERNELS: tuple[Any, ...] = (begin_alone, take_turn_alone, finish_alone)
SHARED, OWN = "S", "B"
# arrays shared by all threads are compiled in; those that a replication writes belong to a thread
PLACES = (
    ("spec", SHARED), ("source", SHARED), ("checkpoints", SHARED), ("body", OWN), ("body.blank", SHARED),
    ("rows", OWN), ("trace", OWN),
)  # fmt: skip


@dataclass(frozen=True)
class Simulation:
    """The source of a job, and the initial contents of each thread's memory."""

    source: Source
    start: dict[str, NDArray[Any]]


def simulation_of(job: Job) -> Simulation:
    """Return the CUDA source of a job; it does not depend on the seed or on drawn means."""
    places = PLACES + ((("source.means", OWN),) if job.draw is not None else ())
    target = Target("cuda", places, frozenset((SHARED, OWN)), (), frozenset(SHARED), frozenset(SHARED))
    caller = Caller(KERNELS[0], target)
    values = caller.values(_arguments(job))
    layout = caller.layout(values)
    program, roots = specialised(KERNELS, caller.types, layout)
    contents = _contents(layout, values)
    start = {name: content for name, content in contents.items() if name[0] == OWN}
    tables = {name: content for name, content in contents.items() if name[0] == SHARED}
    source = printed(program, {name: content.size for name, content in start.items()}, tables)
    start = {name: start[name] for name in source.memory}
    loop = thread_loop(roots, start, _places(layout), job.draw is not None)
    return Simulation(Source(source.text + loop, source.memory, source.filled), start)


def _arguments(job: Job) -> tuple[Any, ...]:
    """Return the arguments of a replication's parts, without seed, number and right answer."""
    rows = new_rows(1, len(job.checkpoints), job.spec.phi.shape)
    body = new_body(job.spec, job.source)
    checkpoints = np.array(job.checkpoints, dtype=np.int64)
    return job.spec, job.source, 0, 0, 0, body, checkpoints, rows, new_trace(0)


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
