"""The loop of one GPU thread, as CUDA source: replications until none is left.

A thread starts the next replication as soon as its last one ends, and does not wait for the others of its
warp: the longest of 32 runs takes more than twice the mean. The threads of a block, all threads of a
multiprocessor, begin each batch of samples together: they run about the same code at the same time, and the
instruction caches hold a small part of the program only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from evenhand.compile.arrays import buffer_kind
from evenhand.compile.cuda_functions import STORED
from evenhand.compile.cuda_program import Root
from evenhand.compile.values import BOOL, FLOAT, INT
from evenhand.simulation.buffers import PER_CHECKPOINT, SUMS, Rows

NAME = "simulate"  # name of the kernel function
_KINDS = {
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
    rows = [f"{STORED[_KINDS.get(name, INT)]} *out_{name}" for name in Rows._fields]
    parameters = [*_PARAMETERS, *beginnings, *rows]
    return _LOOP.format(
        name=NAME,
        parameters=", ".join(parameters),
        copies="\n".join(_copy(name, array.size) for name, array in start.items()),
        means=_means(places["source.means"]) if drawn else "",
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


def _means(place: Place) -> str:
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
