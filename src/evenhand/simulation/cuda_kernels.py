"""The three parts of a replication as one thread of a graphics processor runs them.

All three take the same arguments. Rows have one entry, and means are the table of this replication.
"""

from __future__ import annotations

from evenhand.compile import kernel
from evenhand.procedure.spec import Spec
from evenhand.simulation import engine
from evenhand.simulation.buffers import Body, Checkpoints, Rows, Trace
from evenhand.simulation.streams import Source


@kernel
def begin_alone(
    spec: Spec, source: Source, seed: int, replication: int, truth: int, body: Body,
    checkpoints: Checkpoints, rows: Rows, trace: Trace,
) -> int:  # fmt: skip
    """Make everything ready for a replication; the answer that would be right."""
    return engine.begin(spec, source, source.means[0], body)


@kernel
def take_turn_alone(
    spec: Spec, source: Source, seed: int, replication: int, truth: int, body: Body,
    checkpoints: Checkpoints, rows: Rows, trace: Trace,
) -> bool:  # fmt: skip
    """Go on by a batch of samples; is there more to do?"""
    engine.take_turn(
        spec, source, source.means[0], seed, replication, truth, body, checkpoints, rows, 0, trace
    )
    return engine.is_running(spec, body.state)


@kernel
def finish_alone(
    spec: Spec, source: Source, seed: int, replication: int, truth: int, body: Body,
    checkpoints: Checkpoints, rows: Rows, trace: Trace,
) -> int:  # fmt: skip
    """Write the row of a replication; 0."""
    engine.finish(body, truth, rows, 0)
    return 0
