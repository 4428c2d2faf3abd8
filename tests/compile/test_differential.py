"""Whole replications, compiled, against the same source run as plain Python: equal to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.compile.argument_layout import Target
from evenhand.compile.dispatch import KernelCaller
from evenhand.procedure.decide import check
from evenhand.procedure.spec import FIRST_EVIDENCE
from evenhand.simulation import engine
from evenhand.simulation.buffers import new_buffers, new_rows, new_trace
from evenhand.simulation.interval_engine import new_open_counts, new_virtual_buffers, run_interval_block
from evenhand.simulation.item_engine import own_scratch, run_item_block
from evenhand.simulation.shards import prepare
from evenhand.study import Study
from tests.compile import studies
from tests.compile.plain import run_plain
from tests.procedure.stopping.counts import state_with_counts

REPLICATIONS, TRACED, SEED = 2, 10, 5


def compared(study: Study) -> None:
    """Run both and compare everything that is written."""
    job = prepare(study, SEED, (8, 16))
    found = []
    for run in (engine.run_block, lambda *arguments: run_plain(engine.run_block, *arguments)):
        rows = new_rows(REPLICATIONS, 2, job.spec.phi.shape)
        # fewer are traced than told, and those of the last replication stay
        trace, buffers = new_trace(40), new_buffers(job.spec, job.source)
        run(job.spec, job.source, SEED, 0, buffers, np.array([8, 16]), rows, trace)
        found.append((rows, trace, buffers.state, buffers.pending))
    for one, other in zip(*found, strict=True):
        for name, a, b in zip(one._fields, one, other, strict=True):
            assert np.array_equal(a, b, equal_nan=True), name
    assert found[0][0].samples.min() >= 6


def compared_in_intervals(study: Study) -> None:
    """Run both in intervals and compare everything that is written."""
    job = prepare(study, SEED, (15, 30))
    assert job.intervals is not None
    found = []
    for run in (run_interval_block, lambda *arguments: run_plain(run_interval_block, *arguments)):
        rows, buffers = new_rows(REPLICATIONS, 2, job.spec.phi.shape), new_buffers(job.spec, job.source)
        opened, virtual = new_open_counts(job.spec, job.intervals), new_virtual_buffers(job.spec)
        run(
            job.spec, job.intervals, job.source, SEED, 0, buffers, opened, virtual, np.array([15, 30]), rows
        )  # fmt: skip
        found.append((rows, buffers.state, buffers.pending, opened, virtual.state))
    for one, other in zip(*found, strict=True):
        for field, a, b in zip(one._fields, one, other, strict=True):
            assert np.array_equal(a, b, equal_nan=True), field
    assert found[0][0].samples.min() >= 15


def compared_on_items(study: Study) -> None:
    """Run both on shared items and compare everything that is written."""
    job = prepare(study, SEED, (15, 30))
    assert job.items is not None
    found = []
    for run in (run_item_block, lambda *arguments: run_plain(run_item_block, *arguments)):
        rows, buffers = new_rows(REPLICATIONS, 2, job.spec.phi.shape), new_buffers(job.spec, job.source)
        law = own_scratch(job.items)
        run(job.spec, law, job.source, SEED, 0, buffers, np.array([15, 30]), rows)
        found.append((rows, buffers.state, buffers.pending, law))
    for one, other in zip(*found, strict=True):
        for field, a, b in zip(one._fields, one, other, strict=True):
            assert np.array_equal(a, b, equal_nan=True), field
    assert found[0][0].samples.min() >= 15


@pytest.mark.parametrize("name", studies.on_items())
def test_shared_items_are_compiled_to_what_python_computes(name: str) -> None:
    compared_on_items(studies.on_items()[name])


@pytest.mark.parametrize("name", studies.quick())
def test_every_member_of_every_set_is_compiled_to_what_python_computes(name: str) -> None:
    compared(studies.quick()[name])


@pytest.mark.parametrize("name", studies.in_intervals())
def test_runs_in_intervals_are_compiled_to_what_python_computes(name: str) -> None:
    compared_in_intervals(studies.in_intervals()[name])


@pytest.mark.parametrize("version", [FIRST_EVIDENCE, FIRST_EVIDENCE + 1])
@pytest.mark.parametrize("family", ["bernoulli", "poisson", "exponential", "gaussian-unknown"])
def test_evidence_at_large_counts_is_compiled_to_what_python_computes(family: str, version: int) -> None:
    study = studies.study(family)
    spec = prepare(study, SEED).spec._replace(evidence=version)
    # small differences, so that the search uses continuation in the counts
    means = np.array([[0.62, 0.615, 0.3], [0.61, 0.605, 0.26]])
    for n in (100.0, 1e4, 3e6):
        found = []
        for run in (check, lambda *arguments: run_plain(check, *arguments)):
            state, work = state_with_counts(spec, n, means)
            run(spec, state, work)
            found.append((state, work))
        for one, other in zip(*found, strict=True):
            for name, a, b in zip(one._fields, one, other, strict=True):
                assert np.array_equal(a, b, equal_nan=True), (name, n)


def test_a_simulation_with_constant_lengths_gives_the_same() -> None:
    job = prepare(studies.study(), SEED)
    places = (("spec", "S"), ("source", "S"), ("buffers", "B"))
    constant = KernelCaller(engine.run_block, Target(groups=places, packed=frozenset(("S", "B"))))
    found = []
    for run in (engine.run_block, lambda *arguments: constant(arguments, {})):
        rows, buffers = new_rows(REPLICATIONS, 0, job.spec.phi.shape), new_buffers(job.spec, job.source)
        run(job.spec, job.source, SEED, 0, buffers, np.zeros(0, dtype=np.int64), rows, new_trace(0))
        found.append((rows, buffers.state))
    for one, other in zip(*found, strict=True):
        for name, a, b in zip(one._fields, one, other, strict=True):
            assert np.array_equal(a, b, equal_nan=True), name


@pytest.mark.slow
@pytest.mark.parametrize("name", studies.covering())
def test_every_pair_of_members_is_compiled_to_what_python_computes(name: str) -> None:
    compared(studies.covering()[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", studies.in_intervals_slow())
def test_longer_runs_in_intervals_are_compiled_to_what_python_computes(name: str) -> None:
    compared_in_intervals(studies.in_intervals_slow()[name])
