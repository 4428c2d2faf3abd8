"""Guard-rails in simulations: a policy that fails one is not chosen, but for the risk asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.errors import BadInput
from evenhand.model.families import Bernoulli, Exponential, Gaussian, GaussianUnknown, Poisson
from evenhand.model.guardrails import Guardrail
from evenhand.model.problem import Problem
from evenhand.model.requirements import All, Caps, Floors, Penalty
from evenhand.procedure.alternatives import weakest_by_likelihood
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.estimates import refresh
from evenhand.procedure.evidence import certified
from evenhand.procedure.spec import SAMPLING, Budget, Procedure, Spec
from evenhand.procedure.state import NONE, State, Work, new_state, new_work, record, record_guardrail
from evenhand.reports.document import report
from evenhand.simulation import engine
from evenhand.simulation.buffers import new_buffers, new_rows, new_trace
from evenhand.simulation.shards import prepare
from evenhand.simulation.simulate import simulate
from evenhand.study import Study, Truth
from evenhand.theory.alternatives import alternatives_to
from evenhand.theory.metrics import METRIC
from evenhand.theory.plan import plan
from tests.compile.plain import run_plain
from tests.simulation.boundary import RISK, TINY, most_errors

GROUPS = {"x": 0.6, "y": 0.4}
POLICIES = ["p0", "p1", "p2"]
MEANS = ((0.4, 0.5), (0.9, 0.8), (0.6, 0.7))
# p1 has the best mean, and too many complaints in group y
COMPLAINTS = ((0.10, 0.10), (0.10, 0.60), (0.10, 0.15))
ERRORS = Guardrail("errors", Bernoulli(), Caps(0.3))


def shop(*rails: Guardrail, **more: Any) -> Problem:
    return Problem(POLICIES, GROUPS, Gaussian(0.5), guardrails=rails or (ERRORS,), **more)


def truth(**tables: Any) -> Truth:
    return Truth(MEANS, guardrails=tables or {"errors": COMPLAINTS})


@pytest.mark.parametrize(
    "mode", ["active", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("proportional", "agnostic"))]
)
def test_the_best_policy_that_keeps_its_guard_rails_is_chosen(mode: str) -> None:
    runs = simulate(shop(mode=mode), truth(), Procedure(delta=0.1, max_samples=20_000), 40, seed=1)
    assert runs.stopped.all()
    assert runs.answers()["p2"] == runs.correct.mean() == 1.0
    assert "p2" in report(runs).markdown()


def test_the_mean_number_of_samples_comes_near_the_bound_of_the_plan() -> None:
    delta = 1e-6
    runs = simulate(shop(), truth(), Procedure(delta=delta, max_samples=50_000), 100, seed=3)
    least = plan(shop(), MEANS, guardrails={"errors": COMPLAINTS}).samples_at_least(delta)
    assert least < runs.samples.mean() < 2.5 * least


@pytest.mark.slow
def test_a_guard_rail_that_nothing_can_fail_hardly_costs_samples() -> None:
    # a cap of 1000 on complaints is met from the first samples on, but every condition must be shown
    wide = Guardrail("errors", Gaussian(0.1), Caps(1000.0))
    floors = Problem(POLICIES, GROUPS, Gaussian(0.5), Floors(-1000.0))
    procedure = Procedure(delta=0.1, max_samples=20_000)
    guarded = simulate(shop(wide), truth(errors=MEANS), procedure, 200, seed=5)
    alone = simulate(floors, MEANS, procedure, 200, seed=5)
    assert guarded.correct.mean() > 0.97
    assert guarded.samples.mean() < 1.15 * alone.samples.mean()


def test_no_policy_is_chosen_where_each_fails_a_guard_rail() -> None:
    high = np.full((3, 2), 0.2)
    high[:, 0] = 0.6
    runs = simulate(shop(), truth(errors=high.tolist()), Procedure(delta=0.1, max_samples=20_000), 40, seed=1)
    assert runs.answers()["none"] == 1.0
    assert runs.correct.all()


def test_bounds_relative_to_a_control_hold_in_a_guard_rail_alone() -> None:
    rail = Guardrail("errors", Bernoulli(), Caps(relative_to="p0", margin=0.1))
    runs = simulate(shop(rail), truth(), Procedure(delta=0.1, max_samples=50_000), 40, seed=1)
    assert runs.answers()["p2"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("sampling", SAMPLING)
def test_every_sampling_rule_decides_right(sampling: str) -> None:
    fixed = sampling in ("sequential-halving", "policy-track-and-stop")  # the latter ignores requirements
    stopping = Budget(4000) if fixed else "stylised"
    procedure = Procedure(sampling, stopping, delta=0.01, initial=10, max_samples=20_000)
    runs = simulate(shop(), truth(), procedure, 40, seed=2)
    assert runs.stopped.mean() > 0.9
    assert runs.correct.mean() > 0.9


@pytest.mark.parametrize("stopping", ["kaufmann-koolen", "stylised"])
def test_likelihood_rules_decide_right(stopping: str) -> None:
    procedure = Procedure("uniform", stopping, delta=0.01, initial=10, batch=50, max_samples=100_000)
    runs = simulate(shop(), truth(), procedure, 10, seed=2)
    assert runs.stopped.all()
    assert runs.correct.mean() > 0.9


@pytest.mark.slow
def test_policies_are_screened_by_their_guard_rails_too() -> None:
    asked = shop(goal="screen")
    runs = simulate(asked, truth(), Procedure(delta=0.1, max_samples=20_000), 40, seed=2)
    assert runs.answers() == {"p0": 1.0, "p1": 0.0, "p2": 1.0, "none": 0.0}


@pytest.mark.slow
def test_an_indifference_does_not_excuse_a_guard_rail() -> None:
    near = ((0.69, 0.7), (0.72, 0.7), (0.7, 0.7))
    procedure = Procedure(delta=0.1, indifference=0.1, max_samples=50_000)
    runs = simulate(shop(), Truth(near, guardrails={"errors": COMPLAINTS}), procedure, 60, seed=4)
    assert runs.stopped.all()
    assert runs.correct.mean() > 0.95
    assert runs.answers()["p1"] < 0.05


@pytest.mark.slow
def test_a_penalty_on_the_outcome_goes_with_guard_rails() -> None:
    asked = Problem(POLICIES, GROUPS, Gaussian(0.5), Penalty(0.6, 0.5), guardrails=(ERRORS,))
    runs = simulate(asked, truth(), Procedure(delta=0.1, max_samples=20_000), 30, seed=1)
    assert runs.answers()["p2"] > 0.95


RAILS = (
    Guardrail("errors", Bernoulli(), Caps(0.4)),
    Guardrail("delay", Poisson(), Caps(relative_to="p0", margin=0.5)),
    Guardrail("load", GaussianUnknown(), All(of=(Floors(-0.5), Caps(1.5)))),
    Guardrail("cost", Gaussian(0.3), Floors(relative_to="p0", margin=0.2)),
    Guardrail("wait", Exponential(), Caps(2.0)),
)


def recorded(spec: Spec, seed: int = 0, n: int = 12, missing: float = 0.0) -> tuple[State, Work]:
    """n samples of every cell, with outcomes of every guard-rail but for a share that is missing."""
    random, (groups, policies) = np.random.default_rng(seed), spec.phi.shape
    state, work = new_state(spec), new_work(spec)
    draws = {0: random.normal, 1: lambda: float(random.random() < 0.3), 2: lambda: float(random.poisson(1.0))}
    for k in range(policies):
        for g in range(groups):
            for _ in range(n):
                for j, code in enumerate(spec.guardrails.code):
                    x = float(draws[int(code)]() if int(code) in draws else random.exponential())
                    if random.random() >= missing:
                        run_plain(record_guardrail, spec, state, j, k, g, x)
                run_plain(record, spec, state, work, k, g, float(random.normal(0.5 + 0.2 * k, 0.5)), False)
    return state, work


def one_metric(rail: Guardrail, state: State, j: int) -> tuple[Spec, State, Work]:
    """The same outcomes of guard-rail j as the outcomes of a problem of its own."""
    alone = Problem(POLICIES, GROUPS, rail.family, rail.constraint)
    spec = compile_spec(alone, Procedure(delta=0.1))
    own = new_state(spec)._replace(
        n=state.rail_n[j].copy(), s=state.rail_s[j].copy(), ss=state.rail_ss[j].copy(),
        bets=state.rail_bets[j].copy(),
    )  # fmt: skip
    return spec, own, new_work(spec)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_evidence_is_the_least_and_the_average_over_the_conditions_of_all_metrics(missing: float) -> None:
    # the metrics one by one are the oracle; the ceiling of an unknown variance depends on their number
    rails = tuple(rail for rail in RAILS if rail.name != "load")
    asked = Problem(POLICIES, GROUPS, Gaussian(0.5), Floors(0.1), guardrails=rails)
    spec = compile_spec(asked, Procedure(delta=0.1))
    state, work = recorded(spec, missing=missing)
    plain = compile_spec(Problem(POLICIES, GROUPS, Gaussian(0.5), Floors(0.1)), Procedure(delta=0.1))
    alone = [(plain, new_state(plain)._replace(n=state.n, s=state.s), new_work(plain))]
    alone += [one_metric(rail, state, j) for j, rail in enumerate(rails)]
    for k in range(3):
        kept = [run_plain(certified.meets, *metric, k) for metric in alone]
        least, which = run_plain(certified.meets, spec, state, work, k)
        assert least == min(value for value, _ in kept)
        weakest = int(np.argmin([value for value, _ in kept]))
        assert which == kept[weakest][1] + weakest * METRIC
        atoms = [2, 2, 0 if k == 0 else 2, 0 if k == 0 else 2, 2]
        logs = [
            run_plain(certified.fails, *metric, k) + np.log(max(n, 1))
            for metric, n in zip(alone, atoms, strict=True)
        ]
        sums = [log for log, n in zip(logs, atoms, strict=True) if n]
        assert run_plain(certified.fails, spec, state, work, k) == pytest.approx(
            np.logaddexp.reduce(sums) - np.log(sum(atoms)), rel=1e-12
        )


@pytest.mark.parametrize("answer", [0, 1, 2, NONE])
def test_likelihood_ratios_are_those_of_the_plan_at_the_same_weights(answer: int) -> None:
    rails = tuple(rail for rail in RAILS if rail.name != "load")
    asked = Problem(POLICIES, GROUPS, Gaussian(0.5), Floors(0.1), guardrails=rails)
    spec = compile_spec(asked, Procedure(delta=0.1, stopping="stylised"))
    state, work = recorded(spec, seed=3)
    run_plain(refresh, spec, state, work, False)
    value, _ = run_plain(weakest_by_likelihood, spec, work, answer)
    tables = [work.rail_mean[j].T * rail.family.width + rail.family.low for j, rail in enumerate(rails)]
    against = alternatives_to(asked, work.mean.T.copy(), None if answer == NONE else answer, tables)
    found = against.solve_at(np.ascontiguousarray(state.n.T))
    assert value == pytest.approx(found.lower, rel=1e-7, abs=1e-9)


def test_guard_rails_of_every_family_and_missing_outcomes_are_estimated() -> None:
    spec = compile_spec(shop(*RAILS), Procedure(delta=0.1))
    state, work = recorded(spec, seed=1, missing=0.5)
    run_plain(refresh, spec, state, work, False)
    assert np.allclose(work.rail_mean, state.rail_s / state.rail_n)
    variance = state.rail_ss[2] / state.rail_n[2] - (state.rail_s[2] / state.rail_n[2]) ** 2
    n = state.rail_n[2]
    assert np.allclose(work.rail_v[2], n / (variance * n / (n - 1)))


def test_a_guard_rail_of_unknown_variance_is_refused_by_the_rule_that_needs_a_known_one() -> None:
    with pytest.raises(BadInput, match="proved for a variance that is known"):
        compile_spec(shop(UNSURE), Procedure(stopping="kaufmann-koolen"))
    assert compile_spec(shop(), Procedure(stopping="kaufmann-koolen"))


def test_a_truth_without_means_of_a_guard_rail_is_refused() -> None:
    with pytest.raises(BadInput, match="every guard-rail needs means"):
        prepare(Study(shop(), Procedure(), Truth(MEANS)), 1)


def written(path: Path, rows: list[tuple[Any, ...]]) -> str:
    path.write_text(
        "\n".join(["policy,group,outcome,errors", *(",".join(map(str, row)) for row in rows)]) + "\n"
    )
    return path.name


def test_samples_drawn_from_a_file_keep_their_guard_rails(tmp_path: Path) -> None:
    """Every sample in the file has an error exactly where its outcome is below 0; some errors are missing."""
    random, rows = np.random.default_rng(4), []
    for policy, mean in zip(POLICIES, (0.4, 0.6, 0.9), strict=True):
        for group in GROUPS:
            for number in range(50):
                x = round(random.normal(mean, 0.5), 4)
                rows.append((policy, group, x, "" if number % 10 == 0 else int(x < 0.0)))
    asked = Truth(data=written(tmp_path / "visits.csv", rows), folder=tmp_path)
    study = Study(shop(), Procedure(delta=0.1, max_samples=300), asked)
    means = study.guardrail_means()["errors"]
    mine = [row[3] for row in rows if row[:2] == ("p0", "x") and row[3] != ""]
    assert means[0][0] == pytest.approx(np.mean(mine))
    job = prepare(study, 3)
    trace, out = new_trace(300), new_rows(1, 0, job.spec.phi.shape)
    buffers = new_buffers(job.spec, job.source)
    engine.run_block(job.spec, job.source, 3, 0, buffers, np.zeros(0, dtype=np.int64), out, trace)
    known = {row[2]: row[3] for row in rows}
    told = [known[round(float(x), 4)] for x in trace.outcome[: out.samples[0]]]
    assert buffers.state.rail_s.sum() == sum(x for x in told if x != "")
    assert buffers.state.rail_n.sum() == sum(x != "" for x in told) < buffers.state.n.sum()
    assert plan(study).guardrails["errors"].shape == (3, 2)


def test_a_file_without_a_guard_rail_or_with_a_wrong_outcome_is_refused(tmp_path: Path) -> None:
    cells = [(policy, group) for policy in POLICIES for group in GROUPS]
    good = [(*cell, 0.5, 0) for cell in cells]
    for rows, message in (
        (
            [(*row[:3], 0.5) for row in good],
            "outcomes of guard-rail 'errors' must be 0 or 1; this one is 0.5",
        ),
        (
            [(*row[:3], "") for row in good],
            "every cell needs outcomes of 'errors' in bad.csv; 'p0' in 'x' has none",
        ),
    ):
        asked = Truth(data=written(tmp_path / "bad.csv", rows), folder=tmp_path)
        with pytest.raises(BadInput, match=message):
            simulate(Study(shop(), Procedure(max_samples=100), asked), replications=2)
    (tmp_path / "bare.csv").write_text("policy,group,outcome\np0,x,0.5\n")
    with pytest.raises(BadInput, match="'errors' is missing"):
        plan(Study(shop(), Procedure(), Truth(data="bare.csv", folder=tmp_path)))


LIMIT, BELOW, ABOVE = 0.3, [[0.3 - TINY, 0.1]] * 3, [[0.3 + TINY, 0.1]] * 3
GOOD = [[0.05, 0.05]] * 3
LATE = Guardrail("late", Poisson(), Caps(1.0))
BESIDE = Guardrail("errors", Bernoulli(), Caps(relative_to="p0", margin=0.1))
UNSURE = Guardrail("load", GaussianUnknown(), Caps(0.5))
FLAT, RISING = [[0.5, 0.5]] * 3, [[0.1, 0.1], [0.8, 0.8], [0.5, 0.5]]
BOUNDARIES: dict[str, tuple[Problem, Any, dict[str, Any]]] = {
    "the best fails a guard-rail, narrowly": (
        shop(), RISING, {"errors": [GOOD[0], ABOVE[0], GOOD[0]]},
    ),
    "all fail a guard-rail, narrowly": (shop(), RISING, {"errors": ABOVE}),
    "all keep a guard-rail, narrowly": (shop(), FLAT, {"errors": BELOW}),
    "two guard-rails at their bounds": (
        shop(ERRORS, LATE), RISING, {"errors": ABOVE, "late": [[1.0 + TINY, 0.5]] * 3},
    ),
    "beside a control": (
        shop(BESIDE), RISING, {"errors": [[0.2, 0.2], [0.3 + TINY, 0.2], [0.2, 0.2]]},
    ),
    "a variance that is not known": (
        shop(UNSURE), RISING, {"load": [[0.0, 0.0], [0.5 + TINY, 0.0], [0.0, 0.0]]},
    ),
    "equal means and all at the bound": (shop(), FLAT, {"errors": [[0.3 + TINY, 0.3 + TINY]] * 3}),
    "screening at the bound": (shop(goal="screen"), FLAT, {"errors": [ABOVE[0], BELOW[0], ABOVE[0]]}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDARIES)
def test_errors_stay_below_the_risk_near_a_guard_rails_boundary(name: str) -> None:
    asked, means, rails = BOUNDARIES[name]
    assert most_errors(asked, means, guardrails=rails) < RISK
