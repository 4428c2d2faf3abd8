"""Guard-rails in evaluations and on shared items: a candidate that breaks one is not the answer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

import evenhand as eh
from evenhand.cli.main import main
from evenhand.errors import BadInput
from evenhand.evaluation.pool import open_pool
from evenhand.evaluation.sampling import SharedItems

SIZE = 600
POOL = [{"group": "de" if i % 2 else "en", "x": i} for i in range(SIZE)]
RIGHT = {"a": 0.9, "b": 0.75, "c": 0.97}
TOXIC = {"a": 0.02, "b": 0.02, "c": 0.3}  # c is best, and too often toxic
RAIL = eh.Guardrail("toxic", eh.Bernoulli(), eh.Caps(0.15))


def output(name: str, i: int) -> tuple[bool, bool]:
    """Whether a candidate is right on an item, and whether it is toxic."""
    return (
        random.Random(f"right {name} {i}").random() < RIGHT[name],
        random.Random(f"toxic {name} {i}").random() < TOXIC[name],
    )


OUTPUTS = {name: [output(name, i) for i in range(SIZE)] for name in RIGHT}
CANDIDATES = {name: (lambda item, name=name: list(OUTPUTS[name][item["x"]])) for name in RIGHT}


def score(output: Any, item: Any) -> dict[str, float]:
    return {"outcome": float(output[0]), "toxic": float(output[1])}


def evaluated(rail: eh.Guardrail = RAIL, **options: Any) -> eh.Evaluation:
    chosen = {"at_least": 0.5, "family": eh.Bernoulli(), "seed": 1, "score": score} | options
    return eh.evaluate(CANDIDATES, POOL, guardrails=[rail], **chosen)


@pytest.mark.parametrize("about", ["pool", "population"])
@pytest.mark.parametrize("family", [eh.Bernoulli(), eh.Bounded(0.0, 1.0)], ids=lambda family: family.name)
def test_the_best_candidate_that_keeps_its_guard_rail_is_the_answer(about: str, family: eh.Family) -> None:
    found = evaluated(about=about, family=family)
    assert (found.answer, found.verdict.failed) == ("a", ("c",))
    (rail,) = found.verdict.guardrails
    verdicts = {(cell.policy, cell.group): cell.verdict for cell in rail.cells}
    assert verdicts["a", "en"] == verdicts["a", "de"] == "met"
    assert "failed" in (verdicts["c", "en"], verdicts["c", "de"])
    for cell in rail.cells:
        answers = [OUTPUTS[cell.policy][i][1] for i in range(SIZE) if POOL[i]["group"] == cell.group]
        assert cell.low - 1e-9 <= np.mean(answers) <= cell.high + 1e-9
    assert found.calls < 3 * SIZE


def test_bounds_relative_to_a_candidate_and_counts_are_sampled_cell_by_cell() -> None:
    beside = eh.Guardrail("toxic", eh.Bernoulli(), eh.Caps(relative_to="a", margin=0.1))
    assert evaluated(beside, max_samples=5000).answer == "a"
    counted = eh.Guardrail("toxic", eh.Poisson(), eh.Caps(0.15))
    assert evaluated(counted, failures="drop", max_samples=5000).answer == "a"


def test_a_pool_that_is_used_up_gives_an_exact_verdict_on_every_metric() -> None:
    near = eh.Guardrail("toxic", eh.Bernoulli(), eh.Caps(0.05))
    few = POOL[:40]
    found = eh.evaluate(
        {"a": CANDIDATES["a"], "twin": CANDIDATES["a"]}, few, score, at_least=0.5, family=eh.Bernoulli(),
        guardrails=[near], delta=1e-9, seed=1,
    )  # fmt: skip
    assert found.verdict.exact
    for cell in found.verdict.guardrails[0].cells:
        share = np.mean([OUTPUTS["a"][row["x"]][1] for row in few if row["group"] == cell.group])
        assert (cell.low, cell.mean, cell.high) == pytest.approx((share, share, share))
        assert cell.verdict == ("met" if share <= 0.05 else "failed")


def test_a_journal_holds_the_guard_rails_and_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    whole = evaluated(journal=path)
    lines = path.read_text().splitlines()
    assert json.loads(lines[1])["guardrails"] == {"toxic": 0.0}
    (tmp_path / "half.jsonl").write_text("\n".join(lines[: len(lines) // 2]) + "\n")
    again = evaluated(journal=tmp_path / "half.jsonl")
    assert again.verdict.to_dict() == whole.verdict.to_dict()


def test_a_failed_call_counts_as_the_worst_outcome_of_every_metric(tmp_path: Path) -> None:
    def broken(item: Any) -> Any:
        if item["x"] % 4 == 0:
            raise ValueError("no answer")
        return [True, False]

    found = eh.evaluate(
        {"a": CANDIDATES["a"], "d": broken}, POOL, score, at_least=0.5, family=eh.Bernoulli(),
        guardrails=[RAIL], retries=0, seed=1,
    )  # fmt: skip
    (cell,) = (c for c in found.verdict.guardrails[0].cells if (c.policy, c.group) == ("d", "en"))
    assert found.verdict.failed == ("d",)
    assert cell.mean > 0.3  # half of the items in en


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": None, "target": "x"}, "needs score(output, item), a function that returns the outcome"),
        ({"rail": eh.Guardrail("toxic", eh.Poisson(), eh.Caps(1.0))}, "no worst outcome of 'toxic'"),
        (
            {"rail": eh.Guardrail("toxic", eh.Bernoulli(), eh.All((eh.Floors(0.1), eh.Caps(0.9))))},
            "bounds on one side",
        ),
    ],
)
def test_what_cannot_be_graded_is_refused_in_one_sentence(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as refusal:
        evaluated(**options)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda out, item: 1.0, "must return a mapping of outcome, toxic to numbers"),
        (lambda out, item: {"outcome": 1.0}, "'toxic' is missing"),
        (lambda out, item: {"outcome": 1, "toxic": 0, "x": 1}, "'x' is none of these"),
        (lambda out, item: {"outcome": 1, "toxic": None}, "score of toxic must return a number"),
        (lambda out, item: {"outcome": 1, "toxic": 0.5}, "scores of toxic must be 0 or 1"),
    ],
)
def test_scores_that_are_nonsense_interrupt_the_run_in_one_sentence(score: Any, message: str) -> None:
    result = evaluated(score=score, backoff=0.001)
    assert "failed on 10 items in a row" in result.interrupted
    assert message in result.interrupted


def test_a_study_file_evaluates_guard_rails_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models.py").write_text(
        "def good(item): return int(item['x'])\n"
        "def rude(item): return int(item['x']) + 1000\n"
        "def grade(output, item):\n"
        "    return {'outcome': float(output % 1000 == int(item['x'])), 'toxic': float(output >= 1000)}\n"
    )
    lines = ["group,x", *(f"{'en' if i % 2 else 'de'},{i}" for i in range(400))]
    (tmp_path / "items.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "study.toml").write_text(
        '[problem]\npolicies = ["good", "rude"]\ngroups = { en = 0.5, de = 0.5 }\n'
        'family = { name = "bernoulli" }\nconstraint = { kind = "floors", at_least = 0.5 }\n'
        '[[problem.guardrails]]\nname = "toxic"\nfamily = { name = "bernoulli" }\n'
        'constraint = { kind = "caps", at_most = 0.2 }\n'
        '[evaluate]\nitems = "items.csv"\ngrader = "models:grade"\n'
        'policies = { good = "models:good", rude = "models:rude" }\n'
    )
    assert main(["evaluate", str(tmp_path / "study.toml"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["answer"], found["failed"]) == ("good", ["rude"])
    assert main(["evaluate", str(tmp_path / "study.toml"), "--report", str(tmp_path / "page.html")]) == 0
    assert "Guard-rail toxic" in capsys.readouterr().out
    assert "toxic" in (tmp_path / "page.html").read_text()


PROBLEM = eh.Problem(["a", "c"], {"en": 0.5, "de": 0.5}, eh.Bernoulli(), eh.Floors(0.5), guardrails=[RAIL])


def frame(items: int) -> pd.DataFrame:
    rows = [
        {"policy": name, "group": POOL[i]["group"], "item": i}
        | {"outcome": int(OUTPUTS[name][i][0]), "toxic": int(OUTPUTS[name][i][1])}
        for i in range(items)
        for name in PROBLEM.policies
    ]
    return pd.DataFrame(rows)


def test_data_with_items_are_judged_by_every_metric_and_repeated_rows_count_once() -> None:
    found = eh.judge(PROBLEM, frame(300), replications=0)
    assert (found.answer, found.failed, found.shared_items) == ("a", ("c",), 300)
    twice = eh.judge(PROBLEM, pd.concat([frame(300), frame(300)]), replications=0)
    assert twice.guardrails == found.guardrails
    assert twice.repeated == 600
    pooled = eh.judge(PROBLEM, frame(300), pool={"en": 300, "de": 300}, replications=0)
    assert (pooled.answer, pooled.failed) == ("a", ("c",))
    # a part of the pool is known, so the intervals are narrower
    assert pooled.guardrails[0].cells[0].high < found.guardrails[0].cells[0].high
    exact = eh.judge(PROBLEM, frame(300), pool="data", replications=0)
    assert exact.exact
    assert exact.guardrails[0].cells[3].verdict == "failed"


def test_contradictions_and_dependent_comparisons_are_refused() -> None:
    other = frame(40)
    other["toxic"] = 1 - other["toxic"]
    with pytest.raises(BadInput, match="'a' has two outcomes of toxic on item"):
        eh.judge(PROBLEM, pd.concat([frame(40), other]), replications=0)
    beside = eh.Guardrail("toxic", eh.Bernoulli(), eh.Caps(relative_to="a", margin=0.1))
    for goal in ("best", "screen"):
        asked = eh.Problem(
            PROBLEM.policies, PROBLEM.groups, eh.Bernoulli(), eh.Floors(0.5), goal=goal, guardrails=[beside]
        )
        with pytest.raises(BadInput, match="the bounds of guard-rails must hold for each policy alone"):
            eh.judge(asked, frame(40), replications=0)
    counted = eh.Problem(
        PROBLEM.policies, PROBLEM.groups, eh.Bernoulli(),
        guardrails=[eh.Guardrail("toxic", eh.Poisson(), eh.Caps(0.3))],
    )  # fmt: skip
    assert eh.judge(counted, frame(200), replications=0).method.startswith("paired")
    with pytest.raises(BadInput, match="outcomes of guard-rails must be bernoulli, binomial or bounded too"):
        eh.judge(counted, frame(40), pool="data")


DELTA, RUNS, ITEMS = 0.1, 300, 60
# toxic answers of the best candidate in x and y, out of 60; the cap is 12 of 60
BOUNDARIES = {
    "the best breaks its guard-rail by one item": (13, "b"),
    "the best keeps it by nothing": (12, "a"),
}


@pytest.mark.slow
@pytest.mark.parametrize("about", ["pool", "population"])
@pytest.mark.parametrize("name", BOUNDARIES)
def test_a_wrong_answer_at_the_boundary_of_a_guard_rail_is_rare(name: str, about: str) -> None:
    toxic, right = BOUNDARIES[name]
    rail = eh.Guardrail("toxic", eh.Bernoulli(), eh.Caps(12 / 60))
    problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), guardrails=[rail])
    pool = open_pool([{"group": "xy"[n // ITEMS]} for n in range(2 * ITEMS)], "group", None)
    rng, wrong = np.random.default_rng(3), 0
    for seed in range(RUNS):
        # right answers and toxic ones are opposed: the metrics of an item depend on each other
        order = [rng.permutation(ITEMS) for _ in range(4)]
        outcomes = np.zeros((2, 2, 2 * ITEMS))  # metric, policy, item
        for k, (many, bad) in enumerate(((55, (toxic, 2)), (40, (2, 2)))):
            for g in range(2):
                here = g * ITEMS + order[2 * k + g]
                outcomes[0, k, here[:many]] = 1.0
                outcomes[1, k, here[: bad[g]]] = 1.0
        sampling = SharedItems(problem, eh.Procedure(delta=DELTA), pool, seed, about, True)
        while not sampling.finished and (asked := sampling.next()) is not None:
            sampling.record(asked, {k: tuple(outcomes[:, k, asked.item]) for k in asked.policies})
        if sampling.result is not None and sampling.result.decided:  # without the intervals of a verdict
            wrong += sampling.result.leader != problem.policy_index(right)
            continue
        verdict = sampling.verdict()
        wrong += verdict.decided and verdict.answer != right
    assert beta.ppf(0.999, wrong + 1, RUNS - wrong) <= DELTA
