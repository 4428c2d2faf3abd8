"""Evidence grows with the data at any counts for the wider questions too: no verdict is lost with more data.

Bounds relative to a control, indifference and tolerance, screening, guard-rails, room for more policies, and
linear bets on the counts of an interval.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.model.requirements import Constraint
from evenhand.procedure.compile_spec import compile_spec
from evenhand.verdicts.judge import Verdict, judge_state
from tests.crossed import crossed
from tests.live.interval_experiments import create
from tests.procedure.stopping.counts import state_with_counts

GROUPS = {"x": 0.4, "y": 0.35, "z": 0.25}
COUNTS = 10.0 ** np.arange(2, 10)
FAMILIES = {
    "gaussian": eh.Gaussian(0.5), "gaussian-unknown": eh.GaussianUnknown(), "bernoulli": eh.Bernoulli(),
    "poisson": eh.Poisson(), "bounded": eh.Bounded(0.0, 1.0),
}  # fmt: skip
RAILS = (
    eh.Guardrail("rare", eh.Poisson(), eh.Caps(1.5)),
    eh.Guardrail("level", eh.Gaussian(1.0), eh.Floors(0.0)),
)


KINDS = [
    "relative floors", "relative ratio", "relative caps", "indifference", "screen", "guard-rails",
    "max_policies",
]  # fmt: skip


def question(kind: str, d: float) -> tuple[Constraint, dict[str, Any], dict[str, float]]:
    """Return the requirement, further arguments of the problem, and of the procedure."""
    rules: dict[str, tuple[Constraint, dict[str, Any], dict[str, float]]] = {
        "relative floors": (eh.Floors(relative_to="d", margin=0.02), {}, {}),
        "relative ratio": (eh.Floors(relative_to="d", ratio=0.95), {}, {}),
        "relative caps": (eh.Caps(relative_to="d", margin=0.14 + d), {}, {}),
        "indifference": (eh.Floors(0.5), {}, {"indifference": 2.0 * d, "tolerance": d}),
        "screen": (eh.Floors(0.54), {"goal": "screen"}, {}),
        "guard-rails": (eh.Floors(0.5), {"guardrails": RAILS}, {}),
        "max_policies": (eh.Floors(0.5), {"max_policies": 8}, {}),
    }
    return rules[kind]


def judged(family: str, kind: str, d: float, n: float) -> Verdict:
    constraint, more, near = question(kind, d)
    problem = eh.Problem(list("abcd"), GROUPS, FAMILIES[family], constraint, **more)
    procedure = eh.Procedure(delta=0.05, evidence="mixture", **near)  # counts have no order
    # a is the best, b worse by d in every group, c breaks its bound by d or more in y, d is the control
    means = np.array(
        [[0.62, 0.60, 0.61], [0.62 - d, 0.60 - d, 0.61 - d], [0.7, 0.5 - d, 0.65], [0.5, 0.56, 0.57]]
    )
    state, _ = state_with_counts(compile_spec(problem, procedure), n, means.T)
    if more.get("guardrails"):
        state.rail_n[:] = n
        state.rail_s[0], state.rail_s[1] = (
            n * np.array([1.5 - d, 1.3, 1.2, 1.5 + d]),
            n * np.array([d, 0.5, 0.5, -d]),
        )
    return judge_state(problem, procedure, state, replications=0)


@pytest.mark.parametrize("d", [0.05, 0.004])
@crossed("family", FAMILIES, "kind", KINDS)
def test_ten_times_the_data_takes_back_no_verdict(family: str, kind: str, d: float) -> None:
    grown = [judged(family, kind, d, n) for n in COUNTS]
    for one, more in itertools.pairwise(grown):
        assert more.decided or not one.decided
        assert not one.decided or more.answer == one.answer
        assert one.evidence < one.needed or more.evidence >= one.evidence - 1e-3
        rows = [[row.verdict for row in (*v.cells, *v.policies)] for v in (one, more)]
        rails = [[cell.verdict for rail in v.guardrails for cell in rail.cells] for v in (one, more)]
        for before, after in zip(rows[0] + rails[0], rows[1] + rails[1], strict=True):
            assert before in ("undecided", after)
    # a billion in each cell show 0.004: a hundred standard errors and more
    assert grown[-1].decided
    assert grown[-1].answer == (None if kind == "screen" else "a")


@pytest.mark.parametrize("evidence", ["mixture", "linear-bets"])
@pytest.mark.parametrize("d", [0.05, 0.004])
def test_an_interval_with_ten_times_the_units_is_decided_as_before(d: float, evidence: str) -> None:
    means = {"a": 0.6, "b": 0.6 - d, "c": 0.4 - d}
    problem = eh.Problem(
        list(means), {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.4), mode="proportional"
    )
    found = []
    for n in COUNTS.astype(int).tolist():
        trial = create(study=problem, procedure=eh.Procedure(evidence=evidence, max_samples=10**15))
        counts = {policy: dict.fromkeys("xy", (n, round(n * mean))) for policy, mean in means.items()}
        trial.tell_counts(1, counts, close=True)
        found.append(trial.status())
    decided = [status.decided for status in found]
    assert decided == sorted(decided)
    assert {status.answer for status in found if status.decided} == {"a"}
    values = [status.evidence for status in found if status.decided]
    assert values == sorted(values)
