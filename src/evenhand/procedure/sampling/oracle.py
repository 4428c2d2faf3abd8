"""`oracle`: D-tracking of given weights, usually the optimal ones at the truth.

A benchmark for simulations only: its weights need the true means. It does not adapt to the outcomes, so
adaptive rules do better at moderate risks.
"""

from __future__ import annotations

from evenhand.compile import kernel
from evenhand.procedure.sampling.tracking import d_track
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, Work


@kernel
def choose(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """Return the next cell to sample."""
    return d_track(spec, state, work, spec.weights, group)
