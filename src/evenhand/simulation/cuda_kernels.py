"""The three parts of a replication as one GPU thread runs them.

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
    """Prepare a replication and return the right answer."""
    return engine.begin(spec, source, source.means[0], body)


@kernel
def take_turn_alone(
    spec: Spec, source: Source, seed: int, replication: int, truth: int, body: Body,
    checkpoints: Checkpoints, rows: Rows, trace: Trace,
) -> bool:  # fmt: skip
    """Run a batch of samples; return whether the replication continues."""
    engine.take_turn(
        spec, source, source.means[0], seed, replication, truth, body, checkpoints, rows, 0, trace
    )
    return engine.is_running(spec, body.state)


@kernel
def finish_alone(
    spec: Spec, source: Source, seed: int, replication: int, truth: int, body: Body,
    checkpoints: Checkpoints, rows: Rows, trace: Trace,
) -> int:  # fmt: skip
    """Write the row of a replication; return 0."""
    engine.finish(spec, body, truth, rows, 0)
    return 0
