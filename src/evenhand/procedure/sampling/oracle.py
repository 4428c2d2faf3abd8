"""`oracle`: D-tracking of given weights, usually the optimal ones at the truth.

What a procedure could do that knew the answer's price beforehand but not the answer: a yardstick for
simulations, never a procedure for an experiment. It does not react to bad luck, so adaptive rules beat it
at moderate risks.
"""

from __future__ import annotations

from evenhand.compile import kernel
from evenhand.procedure.sampling.tracking import d_track
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, Work


@kernel
def choose(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """The next cell."""
    return d_track(spec, state, work, spec.weights, group)
