"""Simulated runs in which several policies answer each item, and what they need."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import evenhand as eh
from evenhand.cli.main import main
from evenhand.errors import BadInput
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.item_steps import ask_item, check_after_item, next_item, record_item
from evenhand.procedure.outcome_order import PAIRED
from evenhand.procedure.randomness import OUTCOMES, standard_normal, uniform
from evenhand.procedure.state import RUNNING, STOPPED, new_state, new_work
from evenhand.simulation.agreement import difficulty_share
from evenhand.simulation.shards import Shard, prepare, run_shard
from evenhand.simulation.simulate import follow
from evenhand.study import dumps

NAMES, SHARES = ["large", "tuned", "small"], {"en": 0.6, "de": 0.4}
MEANS = ((0.95, 0.93), (0.92, 0.91), (0.85, 0.70))
SEED = 5


def study(truth: dict[str, Any] | None = None, family: Any = None, **procedure: Any) -> eh.Study:
    problem = eh.Problem(NAMES, SHARES, family or eh.Bernoulli(), eh.Floors(0.8))
    settings = {"delta": 0.1, "initial": 3, "items": "shared", "max_samples": 60_000} | procedure
    return eh.Study(problem, eh.Procedure(**settings), eh.Truth(**{"means": MEANS} | (truth or {})))


def replayed(asked: eh.Study, agreement: float | None = None) -> pd.DataFrame:
    """Replication 0 by the rule's own functions and the addresses of the random numbers."""
    spec = compile_spec(asked.problem, asked.procedure)
    state, work, means = new_state(spec), new_work(spec), np.array(MEANS)
    rho = 0.0 if agreement is None else difficulty_share(means, np.array([0.6, 0.4]), agreement)
    answers, drawn, rows, item = np.zeros(3, dtype=bool), [0, 0], [], 0
    while state.clock[STOPPED] == RUNNING:
        g = next_item(spec, state, work, -1, answers)
        ask_item(state, work, g, answers)
        outcomes = np.full(3, math.nan)
        z = standard_normal(SEED, drawn[g], 6 + g, 0, OUTCOMES)
        for k in np.flatnonzero(answers):
            chance = norm.cdf((norm.ppf(means[k, g]) - math.sqrt(rho) * z) / math.sqrt(1 - rho))
            outcomes[k] = float(uniform(SEED, drawn[g], k * 2 + g, 0, OUTCOMES) < chance)
            rows.append((NAMES[k], list(SHARES)[g], f"item {item}", outcomes[k]))
        record_item(spec, state, work, g, answers, outcomes, True)
        check_after_item(spec, state, work)
        drawn[g], item = drawn[g] + 1, item + 1
    return pd.DataFrame(rows, columns=["policy", "group", "item", "outcome"])


@pytest.mark.parametrize("agreement", [None, 0.88])
def test_a_simulated_run_and_the_judge_of_its_outcomes_agree(agreement: float | None) -> None:
    asked = study({"agreement": agreement})
    rows = run_shard(Shard(prepare(asked, SEED), 0, 1))
    frame = replayed(asked, agreement)
    verdict = eh.judge(asked, frame, replications=0)
    assert (verdict.decided, verdict.answer, verdict.method) == (True, NAMES[int(rows.answer[0])], PAIRED)
    assert verdict.evidence == pytest.approx(float(rows.evidence[0]), abs=1e-9)
    assert verdict.samples == int(rows.samples[0])
    assert verdict.items == int(rows.asked[0])
    assert (frame.groupby("item").size() < 3).any()  # a policy that fails is not asked any more


def test_a_policy_that_is_shown_to_fail_answers_no_more_items() -> None:
    frame = replayed(study({"agreement": 0.88}))
    last = {name: int(part.item.str[5:].astype(int).max()) for name, part in frame.groupby("policy")}
    assert last["small"] < last["large"] == last["tuned"]


def test_policies_that_agree_more_need_fewer_items() -> None:
    runs = [
        eh.simulate(study({"agreement": share}), replications=40, seed=1, workers=1) for share in (0.82, 0.88)
    ]
    assert runs[1].items.mean() < 0.7 * runs[0].items.mean()
    for one in runs:
        assert one.stopped.all()
        assert one.correct.all()
        assert one.samples.max() <= 3 * one.items.max()
    found = runs[0].to_dict()
    assert found["method"] == PAIRED
    assert found["items"]["mean"] == runs[0].items.mean()
    assert found["items"]["policies"] == pytest.approx(float(np.mean(runs[0].samples / runs[0].items)))


def test_lost_outcomes_cost_items_and_nothing_else() -> None:
    whole, lossy = (
        eh.simulate(study({"agreement": 0.88, "dropout": lost}), replications=60, seed=2, workers=1)
        for lost in (0.0, 0.3)
    )
    assert lossy.correct.all()
    assert lossy.items.mean() > whole.items.mean()


@pytest.mark.parametrize("family", [eh.Binomial(trials=4), eh.Bounded(0.0, 2.0)], ids=["binomial", "bounded"])
def test_other_bounded_outcomes_are_simulated(family: Any) -> None:
    means = [[0.9 * family.width, 0.8 * family.width], [0.5 * family.width, 0.4 * family.width]]
    problem = eh.Problem(["a", "b"], SHARES, family, eh.Floors(0.6 * family.width))
    procedure = eh.Procedure(delta=0.1, items="shared", max_samples=20_000)
    runs = eh.simulate(problem, means, procedure, replications=20, seed=1, workers=1)
    assert runs.stopped.all()
    assert runs.correct.all()


def test_policies_are_classified_on_shared_items() -> None:
    problem = eh.Problem(NAMES, SHARES, eh.Bernoulli(), eh.Floors(0.8), goal="screen")
    procedure = eh.Procedure(delta=0.1, items="shared", max_samples=100_000)
    runs = eh.simulate(problem, MEANS, procedure, replications=20, seed=1, workers=1)
    assert runs.stopped.all()
    assert runs.correct.all()


def test_groups_that_arrive_are_taken_as_they_come() -> None:
    problem = eh.Problem(
        NAMES, SHARES, eh.Bernoulli(), eh.Floors(0.8), mode="proportional", arrivals={"en": 0.9, "de": 0.1}
    )
    procedure = eh.Procedure(delta=0.1, items="shared")
    runs = eh.simulate(problem, eh.Truth(means=MEANS, agreement=0.88), procedure, 20, seed=1, workers=1)
    assert runs.correct.all()
    assert runs.allocation.sum(axis=0) == pytest.approx([0.9, 0.1], abs=0.03)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"family": eh.Poisson()}, "outcomes must be bernoulli, binomial or bounded; they are poisson"),
        ({"mode": "agnostic"}, "the group of an item must be known when it is asked for"),
        ({"procedure": {"stopping": "stylised"}}, "the stopping rule must be certified; it is stylised"),
        ({"procedure": {"sampling": "top-two"}}, "the sampling is 'top-two'"),
        ({"procedure": {"evidence": "mixture"}}, "there is no evidence; leave it out"),
        ({"procedure": {"futility": 0.1}}, "there is no futility; leave it out"),
        ({"max_policies": 5}, "policies cannot join or leave"),
        ({"guardrails": [eh.Guardrail("cost", eh.Poisson(), eh.Caps(3.0))]}, "leave the guard-rails out"),
        ({"constraint": eh.Penalty(floor=0.5, gamma=1.0)}, "must hold for each policy alone"),
        ({"policies": [f"p{k}" for k in range(200)]}, "too much memory; 200 policies and 2 groups"),
    ],
)
def test_what_does_not_go_together_with_shared_items_is_refused(change: dict[str, Any], says: str) -> None:
    arguments = {"family": eh.Bernoulli(), "constraint": eh.Floors(0.5), "policies": NAMES} | change
    settings = arguments.pop("procedure", {})
    problem = eh.Problem(arguments.pop("policies"), SHARES, **arguments)
    with pytest.raises(BadInput) as refusal:
        compile_spec(problem, eh.Procedure(items="shared", **settings))
    assert says in str(refusal.value)
    assert str(refusal.value).startswith("with items = 'shared' ")


def test_truths_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(BadInput, match=r"agreement must be possible at the assumed means, between 0\.789"):
        eh.simulate(study({"agreement": 0.5}), replications=1)
    with pytest.raises(BadInput, match="agreement must be a share between 0 and 1; it is 2"):
        study({"agreement": 2})
    with pytest.raises(BadInput, match="without a lag"):
        eh.simulate(study({"lag": 3}), replications=1)
    with pytest.raises(BadInput, match="at one table of means"):
        eh.simulate(study(), lambda seed, replication: MEANS, replications=1)
    with pytest.raises(BadInput, match="a trace shows samples one by one"):
        follow(study(), 1, 0)
    with pytest.raises(BadInput, match=r"items must be one of shared; it is 'own'"):
        eh.Procedure(items="own")


def test_the_command_line_tells_items(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "study.toml"
    path.write_text(dumps(study({"agreement": 0.88})))
    assert eh.load(path).procedure.items == "shared"
    assert eh.load(path).truth.agreement == 0.88
    assert main(["simulate", str(path), "--replications", "20", "--seed", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "A run took " in said
    assert "of 3 policies answered an item." in said
    assert main(["simulate", str(path), "--replications", "20", "--seed", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"]["mean"] > 100
    assert main(["plan", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "In this study several policies answer each item" in said
    assert "If the policies answer the same items, and two of them agree on 88% of these" in said


# the instance of one label for all policies: floors .85, bar 80
LABELS = (
    (0.93, 0.91, 0.90, 0.92),
    (0.92, 0.90, 0.87, 0.90),
    (0.96, 0.95, 0.80, 0.94),
    (0.90, 0.88, 0.89, 0.86),
)


@pytest.mark.slow
@pytest.mark.parametrize(("agreement", "most"), [(0.9121, 6_200), (0.9455, 3_600)])
def test_one_label_for_all_policies_takes_few_labels(agreement: float, most: int) -> None:
    """The first two policies agree on 93% (96%) of the items of the first group."""
    problem = eh.Problem(list("abcd"), dict(zip("wxyz", (0.4, 0.3, 0.2, 0.1), strict=True)), eh.Bernoulli(),
                         eh.Floors(0.85))  # fmt: skip
    procedure = eh.Procedure(delta=0.05, initial=5, items="shared")
    runs = eh.simulate(problem, eh.Truth(means=LABELS, agreement=agreement), procedure, 600, seed=3)
    assert runs.correct.mean() >= 0.95
    assert runs.items.mean() <= most
