"""Whole replications, compiled, against the same source run as plain Python: equal to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.compile.arguments import Target
from evenhand.compile.calling import Caller
from evenhand.procedure.decide import check
from evenhand.procedure.spec import FIRST_EVIDENCE
from evenhand.simulation import engine
from evenhand.simulation.buffers import new_body, new_rows, new_trace
from evenhand.simulation.shards import prepare
from evenhand.study import Study
from tests.compile import studies
from tests.compile.plain import run_plain
from tests.procedure.stopping.told import as_if_told

REPLICATIONS, TRACED, SEED = 2, 10, 5


def compared(study: Study) -> None:
    """Run both and compare everything that is written."""
    job = prepare(study, SEED, (8, 16))
    found = []
    for run in (engine.run_block, lambda *arguments: run_plain(engine.run_block, *arguments)):
        rows = new_rows(REPLICATIONS, 2, job.spec.phi.shape)
        # fewer are traced than told, and those of the last replication stay
        trace, body = new_trace(40), new_body(job.spec, job.source)
        run(job.spec, job.source, SEED, 0, body, np.array([8, 16]), rows, trace)
        found.append((rows, trace, body.state, body.desk))
    for one, other in zip(*found, strict=True):
        for name, a, b in zip(one._fields, one, other, strict=True):
            assert np.array_equal(a, b, equal_nan=True), name
    assert found[0][0].samples.min() >= 6


@pytest.mark.parametrize("name", studies.quick())
def test_every_member_of_every_set_is_compiled_to_what_python_computes(name: str) -> None:
    compared(studies.quick()[name])


@pytest.mark.parametrize("version", [FIRST_EVIDENCE, FIRST_EVIDENCE + 1])
@pytest.mark.parametrize("family", ["bernoulli", "poisson", "exponential", "gaussian-unknown"])
def test_evidence_at_large_counts_is_compiled_to_what_python_computes(family: str, version: int) -> None:
    study = studies.study(family)
    spec = prepare(study, SEED).spec._replace(evidence=version)
    # small differences, so that the search goes on by continuation in the counts
    means = np.array([[0.62, 0.615, 0.3], [0.61, 0.605, 0.26]])
    for n in (100.0, 1e4, 3e6):
        found = []
        for run in (check, lambda *arguments: run_plain(check, *arguments)):
            state, work = as_if_told(spec, n, means)
            run(spec, state, work)
            found.append((state, work))
        for one, other in zip(*found, strict=True):
            for name, a, b in zip(one._fields, one, other, strict=True):
                assert np.array_equal(a, b, equal_nan=True), (name, n)


def test_a_simulation_with_constant_lengths_gives_the_same() -> None:
    job = prepare(studies.study(), SEED)
    places = (("spec", "S"), ("source", "S"), ("body", "B"))
    constant = Caller(engine.run_block, Target(groups=places, packed=frozenset(("S", "B"))))
    found = []
    for run in (engine.run_block, lambda *arguments: constant(arguments, {})):
        rows, body = new_rows(REPLICATIONS, 0, job.spec.phi.shape), new_body(job.spec, job.source)
        run(job.spec, job.source, SEED, 0, body, np.zeros(0, dtype=np.int64), rows, new_trace(0))
        found.append((rows, body.state))
    for one, other in zip(*found, strict=True):
        for name, a, b in zip(one._fields, one, other, strict=True):
            assert np.array_equal(a, b, equal_nan=True), name


@pytest.mark.slow
@pytest.mark.parametrize("name", studies.covering())
def test_every_pair_of_members_is_compiled_to_what_python_computes(name: str) -> None:
    compared(studies.covering()[name])
