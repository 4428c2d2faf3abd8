"""The evidence that compares overall means: the default for a problem, and what is recorded of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.procedure.compile_spec import compile_spec, evidence_of, recorded, settled
from evenhand.procedure.outcome_order import LINEAR, ORDER_FREE
from evenhand.simulation.executors import Serial
from evenhand.simulation.runs import Runs, read_npz, write_npz
from evenhand.simulation.simulate import run_one_by_one

MEANS = [[0.7, 0.6], [0.5, 0.4]]


def problem(family: eh.Family | None = None, **more: Any) -> eh.Problem:
    parts: dict[str, Any] = {
        "policies": ["a", "b"], "groups": {"x": 0.6, "y": 0.4}, "constraint": eh.Floors(0.2),
    }  # fmt: skip
    return eh.Problem(family=family or eh.Bounded(0.0, 1.0), **(parts | more))


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
@pytest.mark.parametrize("stopping", ["certified", eh.Budget(100)])
def test_bounded_outcomes_have_linear_bets_by_default(mode: str, stopping: Any) -> None:
    asked, procedure = problem(mode=mode), eh.Procedure(stopping=stopping)
    assert evidence_of(asked, procedure) == "linear-bets"
    spec = compile_spec(asked, procedure)
    assert (spec.linear_bets, spec.bounded) == (True, True)
    mixture = compile_spec(asked, replace(procedure, evidence="mixture"))
    assert (mixture.linear_bets, mixture.bounded) == (False, False)


@pytest.mark.parametrize("mode", ["proportional", "agnostic"])
def test_gaussian_outcomes_have_linear_bets_by_default_where_the_rule_cannot_choose_the_group(
    mode: str,
) -> None:
    asked = problem(eh.Gaussian(1.0), mode=mode)
    assert evidence_of(asked, eh.Procedure()) == "linear-bets"
    spec = compile_spec(asked, eh.Procedure())
    assert (spec.linear_bets, spec.bounded) == (True, False)
    assert evidence_of(asked, eh.Procedure(interval=eh.Intervals(volume=100))) == "mixture"
    assert evidence_of(problem(eh.Gaussian(1.0)), eh.Procedure()) == "mixture"


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
@pytest.mark.parametrize("family", [eh.Bernoulli(), eh.Binomial(4), eh.Poisson(), eh.GaussianUnknown()])
def test_other_families_have_the_mixture_by_default(family: eh.Family, mode: str) -> None:
    assert evidence_of(problem(family, mode=mode), eh.Procedure()) == "mixture"


@pytest.mark.parametrize(
    ("more", "procedure"),
    [
        ({"constraint": eh.Penalty(0.5, 1.0)}, {}),
        ({"max_policies": 4}, {}),
        ({"policies": [f"p{k}" for k in range(65)]}, {}),
        ({"policies": [f"p{k}" for k in range(64)], "groups": {f"g{g}": 1 / 16 for g in range(16)}}, {}),
        ({"mode": "proportional"}, {"interval": eh.Intervals(volume=100)}),
        ({}, {"stopping": "stylised"}),
        ({}, {"stopping": "kaufmann-koolen"}),
    ],
)
def test_the_mixture_is_the_default_where_linear_bets_do_not_serve(
    more: dict[str, Any], procedure: dict[str, Any]
) -> None:
    asked, chosen = problem(**more), eh.Procedure(**procedure)
    assert evidence_of(asked, chosen) == "mixture"
    assert not compile_spec(asked, chosen).linear_bets


def test_a_new_record_names_linear_bets_and_an_older_one_keeps_the_mixture() -> None:
    asked, binary, plain = problem(), problem(eh.Bernoulli()), eh.Procedure()
    assert settled(asked, plain).evidence == "linear-bets"
    assert settled(binary, plain) == plain
    assert recorded(asked, plain).evidence == "mixture"
    assert recorded(binary, plain) == plain
    for evidence in ("mixture", "linear-bets"):
        named = eh.Procedure(evidence=evidence)
        assert settled(asked, named) == recorded(asked, named) == named


def test_a_simulation_uses_the_default_and_saves_its_name(tmp_path: Path) -> None:
    default, linear, mixture = (
        eh.simulate(problem(), MEANS, eh.Procedure(max_samples=400, evidence=evidence), 5, seed=3)
        for evidence in (None, "linear-bets", "mixture")
    )
    assert np.array_equal(default.samples, linear.samples)
    assert not np.array_equal(default.samples, mixture.samples)
    assert [runs.to_dict()["method"] for runs in (default, mixture)] == [LINEAR, ORDER_FREE]
    path = tmp_path / "runs.npz"
    default.save(path)
    assert Runs.load(path).to_dict()["method"] == LINEAR
    header, rows = read_npz(path)
    del header["study"]["procedure"]["evidence"], header["format"]  # as an earlier release saved it
    write_npz(path, header, rows)
    assert Runs.load(path).to_dict()["method"] == ORDER_FREE


def test_a_verdict_on_bounded_rows_says_that_the_order_was_not_used() -> None:
    rng = np.random.default_rng(1)
    data = {k: {g: rng.beta(8, 4 + 2 * j, 50) for g in "xy"} for j, k in enumerate("ab")}
    said = "compared by the order-free rule"
    found = eh.judge(problem(), data, replications=0)
    assert found.method == ORDER_FREE
    assert any(said in sentence for sentence in found.words())
    binary = {k: {g: np.round(x) for g, x in row.items()} for k, row in data.items()}
    assert not any(said in sentence for sentence in eh.judge(problem(eh.Bernoulli()), binary).words())


def test_the_cost_of_intervals_is_compared_for_the_same_evidence() -> None:
    asked = problem(eh.Gaussian(1.0), mode="proportional")
    procedure = eh.Procedure(interval=eh.Intervals(volume=100), max_samples=2_000)
    study = eh.Study(asked, procedure, eh.Truth(means=MEANS))
    with Serial() as executor:
        told = run_one_by_one(study, eh.simulate(study, replications=4, seed=2), executor)
    mixture = replace(study, procedure=replace(procedure, interval=None, evidence="mixture"))
    linear = replace(study, procedure=replace(procedure, interval=None))
    plain, other = (eh.simulate(one, replications=4, seed=2).assigned.mean() for one in (mixture, linear))
    assert told.assigned == plain != other
