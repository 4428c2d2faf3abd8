"""`uniform`: sample the least-sampled cell, so that all counts stay equal."""

from __future__ import annotations

from evenhand.compile import kernel
from evenhand.procedure.sampling.draw_cell import certain, least_sampled
from evenhand.procedure.spec import ACTIVE, Spec
from evenhand.procedure.state import ASKED, State, Work


@kernel
def choose(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """Return the next cell to sample."""
    groups, policies = spec.phi.shape
    if spec.mode == ACTIVE and state.clock[ASKED] >= groups * policies:
        # all cells have equal counts whenever their number divides the requests: take them in order
        cell = state.clock[ASKED] % (groups * policies)
        return certain(spec, work, cell % policies, cell // policies)
    return least_sampled(spec, state, work, group)
