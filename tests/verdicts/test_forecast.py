"""Forecasts: the same procedure, carried on from the data at hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import evenhand as eh
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.state import new_state
from evenhand.simulation.streams import scenario_uniforms
from evenhand.verdicts.counts import ready
from evenhand.verdicts.forecast import _possible_means, forecast
from evenhand.verdicts.judge import judge

PROBLEM = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, eh.Gaussian(0.5), eh.Floors(0.0))


def table(n: list[list[int]], means: list[list[float]], problem: eh.Problem = PROBLEM) -> pl.DataFrame:
    cells = [
        (p, g, n[k][i], means[k][i])
        for k, p in enumerate(problem.policies)
        for i, g in enumerate(problem.group_names)
    ]
    return pl.DataFrame(cells, schema=["policy", "group", "n", "mean"], orient="row")


def test_the_chances_come_in_order_and_the_shares_add_up() -> None:
    verdict = judge(PROBLEM, table([[30, 30], [30, 30]], [[0.4, 0.3], [0.2, 0.1]]))
    values = [verdict.more[c] or 0 for c in (0.5, 0.7, 0.8, 0.9)]
    assert values == sorted(values)
    assert values[0] > 0
    assert verdict.next is not None
    assert verdict.next.sum() == pytest.approx(1.0)
    assert (verdict.next >= 0).all()


def test_the_same_data_give_the_same_forecast() -> None:
    frame = table([[30, 30], [30, 30]], [[0.4, 0.3], [0.2, 0.1]])
    assert judge(PROBLEM, frame).more == judge(PROBLEM, frame).more
    assert judge(PROBLEM, frame, seed=1).more != judge(PROBLEM, frame).more


def test_more_data_of_the_same_kind_leave_less_to_do() -> None:
    few = judge(PROBLEM, table([[20, 20], [20, 20]], [[0.4, 0.3], [0.2, 0.1]])).more
    many = judge(PROBLEM, table([[80, 80], [80, 80]], [[0.4, 0.3], [0.2, 0.1]])).more
    assert (many[0.5] or 0) < (few[0.5] or 0)


@pytest.mark.parametrize(
    ("family", "probability"),
    [
        (eh.Bernoulli(), lambda n, s: stats.beta(s + 0.5, n - s + 0.5).cdf),
        (eh.Poisson(), lambda n, s: stats.gamma(s + 0.5, scale=1.0 / n).cdf),
        (eh.Exponential(), lambda n, s: stats.invgamma(n, scale=s).sf),
        (eh.Gaussian(0.5), lambda n, s: stats.norm(s / n, 0.5 / np.sqrt(n)).cdf),
    ],
    ids=["bernoulli", "poisson", "exponential", "gaussian"],
)
def test_means_are_drawn_from_the_posterior_under_jeffreys_prior(family: Any, probability: Any) -> None:
    """The posterior's distribution (or survival) function maps the drawn means to their uniforms."""
    problem = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, family, eh.NoConstraint())
    spec = compile_spec(problem, eh.Procedure())
    state = new_state(spec)
    state.n[:], state.s[:] = [[9.0, 4.0], [30.0, 2.0]], [[6.0, 1.0], [2.0, 1.5]]
    drawn, _ = _possible_means(problem, spec, state, 5, 3)
    uniforms = scenario_uniforms(5, 3, 4).reshape(2, 2)
    np.testing.assert_allclose(probability(state.n, state.s)(drawn), uniforms, rtol=1e-9)


def test_striding_from_nothing_agrees_with_the_simulator() -> None:
    """With the truth known, runs in strides stop when runs sample by sample do, within 5%."""
    means = [[0.5, 0.4], [0.2, 0.1]]
    exact = eh.simulate(PROBLEM, means, eh.Procedure(), replications=400, seed=3, workers=1)
    spec = compile_spec(PROBLEM, eh.Procedure())
    state = new_state(spec)
    found = forecast(PROBLEM, spec, state, replications=400, seed=3, means=means)
    assert found.more[0.5] == pytest.approx(exact.quantile(0.5), rel=0.05)
    assert found.more[0.9] == pytest.approx(exact.quantile(0.9), rel=0.08)


SHOP = eh.Problem(
    ["a", "b", "c"], {"x": 0.6, "y": 0.4}, eh.Gaussian(0.5),
    guardrails=[
        eh.Guardrail("errors", eh.Bernoulli(), eh.Caps(0.3)),
        eh.Guardrail("load", eh.Gaussian(0.5), eh.Caps(relative_to="a", margin=0.2)),
    ],
)  # fmt: skip
RAILS = {
    "errors": [[0.1, 0.1], [0.1, 0.1], [0.1, 0.6]],
    "load": [[0.0, 0.0], [-0.2, -0.3], [0.0, 0.0]],
}


def test_with_guard_rails_striding_agrees_with_the_simulator() -> None:
    means = [[0.3, 0.2], [0.6, 0.5], [0.9, 0.8]]
    truth = eh.Truth(means, guardrails=RAILS)
    exact = eh.simulate(SHOP, truth, eh.Procedure(), replications=400, seed=3, workers=1)
    spec = compile_spec(SHOP, eh.Procedure())
    found = forecast(SHOP, spec, new_state(spec), replications=400, seed=3, means=means, guardrails=RAILS)
    assert found.more[0.5] == pytest.approx(exact.quantile(0.5), rel=0.05)
    assert found.more[0.9] == pytest.approx(exact.quantile(0.9), rel=0.08)


def test_means_of_guard_rails_are_drawn_from_their_own_posteriors_and_leave_the_others_as_they_are() -> None:
    spec = compile_spec(SHOP, eh.Procedure())
    state = new_state(spec)
    state.n[:], state.s[:] = 20.0, 10.0
    state.rail_n[:], state.rail_s[:] = 12.0, 4.0
    drawn, rails = _possible_means(SHOP, spec, state, 5, 3)
    alone = eh.Problem(SHOP.policies, SHOP.groups, SHOP.family)
    plain = compile_spec(alone, eh.Procedure())
    own = new_state(plain)
    own.n[:], own.s[:] = state.n, state.s
    assert np.array_equal(drawn, _possible_means(alone, plain, own, 5, 3)[0])
    uniforms = scenario_uniforms(5, 3, 18).reshape(3, 2, 3)
    np.testing.assert_allclose(stats.beta(4.5, 8.5).cdf(rails[0]), uniforms[1], rtol=1e-9)
    np.testing.assert_allclose(stats.norm(1 / 3, 0.5 / np.sqrt(12)).cdf(rails[1]), uniforms[2], rtol=1e-9)


def test_guard_rails_of_every_family_are_forecast_and_missing_outcomes_stay_as_rare_as_they_were() -> None:
    rails = [
        eh.Guardrail("p", eh.Poisson(), eh.Caps(3.0)),
        eh.Guardrail("u", eh.GaussianUnknown(), eh.Caps(2.0)),
        eh.Guardrail("e", eh.Exponential(), eh.Caps(5.0)),
        eh.Guardrail("b", eh.Binomial(4), eh.Floors(2.2)),
    ]
    problem = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, eh.Gaussian(0.5), guardrails=rails)
    rng, rows = np.random.default_rng(2), []
    for number in range(80):
        policy = "ab"[number % 2]
        rows.append(
            {
                "policy": policy,
                "group": "xy"[number // 2 % 2],
                "outcome": rng.normal(0.3 * (policy == "b"), 0.5),
            }
            | {"p": rng.poisson(1.0), "u": rng.normal(1.0, 0.4), "e": rng.exponential(1.0)}
            | {"b": rng.binomial(4, 0.6) if number % 3 else None}
        )
    verdict = judge(problem, pl.DataFrame(rows), replications=30)
    assert verdict.forecast.runs == 30
    assert (verdict.more[0.5] or 0) > 0
    whole = judge(problem, pl.DataFrame([row | {"b": row["b"] or 2} for row in rows]), replications=30)
    assert whole.forecast.more != verdict.forecast.more


def test_a_guard_rail_without_outcomes_in_some_cell_is_said() -> None:
    rows = [
        {"policy": p, "group": g, "outcome": 0.1, "errors": None if (p, g) == ("a", "x") else 0, "load": 0.1}
        for p in "abc" for g in "xy" for _ in range(3)
    ]  # fmt: skip
    verdict = judge(SHOP, pl.DataFrame(rows))
    assert verdict.forecast.why_none == "1 of 6 cells have no outcome of some guard-rail yet"


def test_a_budget_is_forecast_to_the_sample() -> None:
    procedure = eh.Procedure(stopping=eh.Budget(500))
    verdict = judge(PROBLEM, table([[30, 30], [30, 30]], [[0.4, 0.3], [0.2, 0.1]]), procedure=procedure)
    assert verdict.more == dict.fromkeys((0.5, 0.7, 0.8, 0.9), 380)


FAMILIES = [
    (eh.Bernoulli(), 0.5), (eh.Binomial(4), 2.0), (eh.Bounded(0, 2), 1.0), (eh.Poisson(), 2.0),
    (eh.Gaussian(1.0), 0.0),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
@pytest.mark.parametrize(("family", "floor"), FAMILIES, ids=lambda x: getattr(x, "name", ""))
def test_every_family_and_mode_is_forecast(family: Any, floor: float, mode: str) -> None:
    problem = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, family, eh.Floors(floor), mode=mode)
    up, down = floor + 0.3, floor - 0.1
    verdict = judge(problem, table([[9, 1], [9, 9]], [[up, up], [down, down]], problem), replications=20)
    assert verdict.forecast.runs == 20
    assert verdict.more[0.5] is None or verdict.more[0.5] > 0


def test_unknown_variance_and_exponential_outcomes_are_forecast_from_rows() -> None:
    rng = np.random.default_rng(1)
    for family, draw in ((eh.GaussianUnknown(), rng.normal), (eh.Exponential(), None)):
        problem = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, family, eh.Floors(0.5))
        rows = [
            (p, g, float(draw(m, 0.3)) if draw is not None else float(rng.exponential(m)))
            for p, m in (("a", 1.5), ("b", 0.9))
            for g in ("x", "y")
            for _ in range(15)
        ]
        frame = pl.DataFrame(rows, schema=["policy", "group", "outcome"], orient="row")
        verdict = judge(problem, frame, replications=20)
        assert verdict.forecast.runs == 20
        state = ready(compile_spec(problem, eh.Procedure()), judge_state_of(problem, frame))
        assert state.n.sum() == 60


def judge_state_of(problem: eh.Problem, frame: pl.DataFrame):  # type: ignore[no-untyped-def]
    from evenhand.verdicts.read_data import read

    return read(problem, frame).state


def test_runs_cut_off_by_max_samples_are_not_counted_as_decided() -> None:
    """A near tie and 2,000 samples at most: less than half of the runs decide by then."""
    frame = table([[30, 30], [30, 30]], [[0.21, 0.2], [0.2, 0.2]])
    verdict = judge(PROBLEM, frame, procedure=eh.Procedure(delta=1e-6, max_samples=2000))
    assert verdict.forecast.horizon == 2000 - 120
    assert verdict.forecast.unfinished is not None
    assert verdict.forecast.unfinished > 0.5
    assert verdict.more == dict.fromkeys((0.5, 0.7, 0.8, 0.9))
    assert any("Even 1,880 more samples would probably not decide." in words for words in verdict.words())
    assert verdict.forecast.rows() == [(f"{c}%", "not within 1,880") for c in (50, 70, 80, 90)]


def test_a_share_of_runs_that_decides_is_found_whatever_the_others_do() -> None:
    from evenhand.verdicts.forecast import _quantiles

    further = np.array([5.0, 3.0, np.inf, 4.0, 8.0, 7.0, 6.0, 1.0, np.inf, 2.0])
    # by hand: of ten runs eight decide, the fifth, seventh and eighth at 5, 7 and 8
    assert _quantiles(further) == {0.5: 5, 0.7: 7, 0.8: 8, 0.9: None}


@pytest.mark.parametrize(
    ("n", "options", "why"),
    [
        ([[9, 0], [9, 9]], {}, "1 of 4 cells have no outcome yet"),
        ([[9, 9], [9, 9]], {"replications": 0}, "none was asked for"),
        ([[9, 9], [9, 9]], {"fixed": True}, "one look at a fixed sample is not continued"),
        (
            [[9, 9], [9, 9]],
            {"procedure": eh.Procedure(max_samples=36)},
            "there are 36 samples and max_samples allows 36; raise it to look further",
        ),
    ],
)
def test_a_forecast_that_cannot_be_made_says_why(n: Any, options: dict[str, Any], why: str) -> None:
    verdict = judge(PROBLEM, table(n, [[0.2, 0.2], [0.1, 0.2]]), **options)
    told = verdict.to_dict()
    assert told["more"] == {"0.5": None, "0.7": None, "0.8": None, "0.9": None}
    assert told["forecast"]["why_none"] == why
    assert told["horizon"] is None


def test_while_a_cell_is_empty_the_next_samples_go_there() -> None:
    verdict = judge(PROBLEM, table([[9, 0], [9, 1]], [[0.2, 0.2], [0.1, 0.2]]))
    assert verdict.next is not None
    assert verdict.next.tolist() == [[0.0, 2 / 3], [0.0, 1 / 3]]


def test_data_that_decide_need_no_more() -> None:
    verdict = judge(PROBLEM, table([[900, 900], [900, 900]], [[0.9, 0.9], [0.1, 0.1]]), replications=0)
    assert verdict.decided
    assert verdict.more == dict.fromkeys((0.5, 0.7, 0.8, 0.9), 0)


def test_what_the_procedure_did_before_does_not_change_the_forecast() -> None:
    """The same outcomes, once collected by a live experiment and once read from a table."""
    from evenhand.verdicts.forecast import experiment_forecast
    from tests.live.example_experiments import create, endless, even, play

    for sampling in ("ts-ids", "exact-tracking"):
        procedure = eh.Procedure(sampling=sampling, initial=2, delta=0.45, max_samples=160)
        trial = create(study=endless(), procedure=procedure)
        play(trial, 60, even)
        view = trial.present()
        state = view.state
        cells = [
            (policy, group, int(state.n[g, k]), int(state.s[g, k]))
            for k, policy in enumerate("abc")
            for g, group in enumerate("xy")
        ]
        frame = pl.DataFrame(cells, schema=["policy", "group", "n", "successes"], orient="row")
        verdict = judge(endless(), frame, procedure=procedure)
        assert verdict.forecast.unfinished not in (None, 1.0)
        assert experiment_forecast(view) == verdict.forecast
