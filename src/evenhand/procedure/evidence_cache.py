"""Evidence that is computed again only when the outcomes it depends on have changed.

Stored in Work with the number of changes of the policy's outcomes (`Work.outcome_changes`).
"""

from __future__ import annotations

from evenhand.compile import kernel
from evenhand.model.region import PENALTY
from evenhand.model.unit_families import GAUSSIAN
from evenhand.procedure.evidence import certified, gaussian
from evenhand.procedure.guardrails import has_control
from evenhand.procedure.log_space import known
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import OUTCOMES, State, Work


@kernel
def ahead(spec: Spec, state: State, work: Work, i: int, k: int, enough: float) -> float:
    """Do what `certified.ahead` does, with stored quantities of both policies where it is Gaussian."""
    if spec.code == GAUSSIAN and not spec.unknown_variance and spec.region.kind != PENALTY:
        return known(
            gaussian.ahead_by_blocks(spec, _block(spec, state, work, i), _block(spec, state, work, k))
        )
    return certified.ahead(spec, state, work, i, k, enough)


@kernel
def _block(spec: Spec, state: State, work: Work, k: int) -> gaussian.Block:
    """Return the quantities of policy k that the Gaussian evidence needs."""
    if work.stamp_block[k] != work.outcome_changes[k]:
        work.stamp_block[k] = work.outcome_changes[k]
        found = gaussian.block(state.n[:, k], state.s[:, k], spec.phi[:, k], spec.shares)
        work.block[k, 0], work.block[k, 1], work.block[k, 2] = found.dot, found.alpha, found.beta
        work.block[k, 3], work.block[k, 4], work.block[k, 5] = found.gamma, found.penalty, found.reach
        work.block[k, 6] = 1.0 if found.blind else 0.0
    return gaussian.Block(
        work.block[k, 0], work.block[k, 1], work.block[k, 2], work.block[k, 3], work.block[k, 4],
        work.block[k, 5], work.block[k, 6] != 0.0,
    )  # fmt: skip


@kernel
def meets(spec: Spec, state: State, work: Work, i: int) -> tuple[float, int]:
    """Do what `certified.meets` does; the result for the last policy is stored."""
    # bounds relative to a control depend on its outcomes too
    changes = work.changes[OUTCOMES] if has_control(spec) else work.outcome_changes[i]
    if work.stamp_met[0] != i or work.stamp_met[1] != changes:
        found, which = certified.meets(spec, state, work, i)
        work.met[0] = found
        work.stamp_met[0], work.stamp_met[1], work.stamp_met[2] = i, changes, which
    return work.met[0], work.stamp_met[2]
