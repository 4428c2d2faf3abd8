"""Finite pools: the verdict is about the pool, and exact when the pool is used up."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import evenhand as eh
from evenhand.cli.main import main
from evenhand.errors import BadInput
from evenhand.verdicts.shared_items import POOLED

SIZE = 400  # items of each group


def problem(floor=0.8):
    return eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(floor))


def pool_of(seed, means=(0.90, 0.88), size=SIZE, agree=0.7):
    """The outcomes of both policies on every item of the pool, items in random order."""
    rng = np.random.default_rng(seed)
    level, own = rng.random(2 * size), rng.random((2, 2 * size))
    x = np.where(rng.random((2, 2 * size)) < agree, level, own) < np.array(means)[:, None]
    parts = [
        pd.DataFrame(
            {"policy": name, "group": np.where(np.arange(2 * size) % 2, "x", "y"),
             "item": np.arange(2 * size), "outcome": row.astype(float)}
        )
        for name, row in zip("ab", x, strict=True)
    ]  # fmt: skip
    return pd.concat(parts)


def judged(frame, **options):
    return eh.judge(problem(), frame, replications=0, **options)


def test_a_pool_decides_where_the_population_is_open():
    frame = pool_of(2)
    most = frame[frame["item"] < 600]
    population, pool = judged(most), judged(most, pool={"x": SIZE, "y": SIZE})
    assert pool.evidence > population.evidence
    assert (pool.method, pool.pool) == (POOLED, {"x": SIZE, "y": SIZE})
    assert "The verdict is about the pool of 800 items, of which 600 were answered" in " ".join(pool.words())
    for one, other in zip(pool.cells, population.cells, strict=True):
        assert one.high - one.low < other.high - other.low
    json.dumps(pool.to_dict(), allow_nan=False)


def test_a_pool_that_is_used_up_is_known_exactly():
    frame = pool_of(5, means=(0.9, 0.895))
    found, population = judged(frame, pool="data"), judged(frame)
    means = frame.groupby(["policy", "group"])["outcome"].mean()
    assert found.exact
    assert found.decided
    assert not population.decided
    scores = means.groupby("policy").mean()
    assert found.answer == scores.idxmax()
    for cell in found.cells:
        assert cell.low == cell.mean == cell.high == pytest.approx(means[cell.policy, cell.group])
        assert cell.verdict == ("met" if cell.mean >= 0.8 else "failed")


def test_evaluate_and_judge_agree_on_a_pool_that_is_used_up():
    outcomes = pool_of(5, means=(0.9, 0.895), size=30).reset_index(drop=True)
    # candidates that agree on every item are distinguished only by the whole pool
    outcomes["outcome"] = np.tile(outcomes[outcomes["policy"] == "a"]["outcome"], 2)
    by_item = {name: part.set_index("item")["outcome"] for name, part in outcomes.groupby("policy")}
    items = outcomes[outcomes["policy"] == "a"][["item", "group"]].to_dict("records")
    result = eh.evaluate(
        {name: (lambda item, known=known: known[item["item"]]) for name, known in by_item.items()},
        items, lambda output, item: float(output), at_least=0.8, family=eh.Bernoulli(), seed=1,
    )  # fmt: skip
    found = judged(outcomes, pool="data")
    assert result.exact
    assert found.exact
    assert (found.answer, found.decided) == (result.answer, result.decided)
    assert [vars(c) for c in found.cells] == [vars(c) for c in result.verdict.cells]
    assert found.policies == result.verdict.policies


def test_a_cell_that_can_no_longer_miss_its_floor_is_met():
    frame = pool_of(1, means=(0.99, 0.9))
    part = frame[frame["item"] < 720]
    found = judged(part, pool={"x": SIZE, "y": SIZE})
    cell = found.cells[0]
    assert cell.low >= part[(part.policy == "a") & (part.group == "x")]["outcome"].sum() / SIZE
    assert cell.verdict == "met"


def test_items_that_one_policy_answered_count_with_their_worst_difference():
    frame = pool_of(3, means=(0.95, 0.7))
    some = frame[(frame["policy"] == "a") | (frame["item"] < 700)]
    found, complete = judged(some, pool={"x": SIZE, "y": SIZE}), judged(frame, pool="data")
    assert (found.answer, complete.answer) == ("a", "a")
    assert "this verdict holds for one look" in " ".join(found.words())
    # as much as if b had been right on every item that it did not answer
    full = frame.copy()
    full.loc[(full["policy"] == "b") & (full["item"] >= 700), "outcome"] = 1.0
    assert judged(full, pool="data").answer == "a"


def test_the_better_policy_may_have_answered_fewer_items_than_the_other():
    """A leader that answered no item alone once ended in an error of types."""
    frame = pool_of(3, means=(0.95, 0.7))
    fewer = frame[(frame["policy"] == "b") | (frame["item"] < 700)]
    found = judged(fewer, pool={"x": SIZE, "y": SIZE})
    assert found.answer == judged(frame, pool="data").answer == "a"


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        ({"x": 10, "y": SIZE}, "'x' must hold every item that was answered; it has 10 items, and 400"),
        ({"x": SIZE}, "the pool of 'y' must be a whole number of at least 1; it is None"),
        ({"x": SIZE, "y": SIZE, "z": 3}, "there is no group 'z'"),
        ({"x": 400.5, "y": SIZE}, "must be a whole number"),
        ("all", "pool must give the number of items by group, or be 'data'; it is 'all'"),
    ],
)  # fmt: skip
def test_a_pool_that_does_not_fit_is_refused(pool, message):
    with pytest.raises(BadInput, match=message):
        judged(pool_of(0), pool=pool)


def test_a_pool_needs_items():
    with pytest.raises(BadInput, match="a pool needs data that name their items"):
        judged(pool_of(0).drop(columns="item"), pool={"x": SIZE, "y": SIZE})


def test_a_wrong_answer_about_a_tied_pool_is_rare():
    # the overall means of the pool differ by one item; half of it is answered in random order
    rng, wrong, runs = np.random.default_rng(0), 0, 100
    frame = pool_of(7, means=(0.9, 0.9), size=60)
    totals = frame.groupby("policy")["outcome"].sum()
    better = totals.idxmax()
    for _ in range(runs):
        order = rng.permutation(120)
        place = np.argsort(order)
        seen = frame[frame["item"].isin(order[:70])]
        seen = seen.assign(item=place[seen["item"]]).sort_values("item", kind="stable")
        found = eh.judge(problem(0.5), seen, 0.1, replications=0,
                         pool={"x": 60, "y": 60})  # fmt: skip
        wrong += found.decided and found.answer != better
    assert totals.nunique() == 2
    assert stats.binom.sf(wrong - 1, runs, 0.1) > 1e-6


STUDY = """
[problem]
policies = ["a", "b"]
groups = { x = 0.5, y = 0.5 }
family = { name = "bernoulli" }
constraint = { kind = "floors", at_least = 0.8 }
"""


def test_the_command_takes_a_pool(tmp_path, capsys):
    (tmp_path / "study.toml").write_text(STUDY)
    frame = pool_of(2)
    frame[frame["item"] < 600].to_csv(tmp_path / "data.csv", index=False)
    arguments = ["judge", str(tmp_path / "study.toml"), str(tmp_path / "data.csv"), "--json"]
    code = main([*arguments, "--pool", "x=400", "--pool", "y=400"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["decided"] else 3)
    assert found["pool"] == {"x": 400, "y": 400}
    assert found["evidence"] == pytest.approx(
        judged(frame[frame["item"] < 600], pool={"x": 400, "y": 400}).evidence
    )
    assert main([*arguments, "--pool", "x"]) == 2
    assert "--pool must be GROUP=N" in capsys.readouterr().err
    assert not math.isnan(found["evidence"])


def test_one_policy_may_have_answered_fewer_items_than_the_other():
    rng = np.random.default_rng(2)
    rows = [("a", "x", n, int(rng.random() < 0.9)) for n in range(60)]
    rows += [("b", "x", n, int(rng.random() < 0.3)) for n in range(40)]
    frame = pd.DataFrame(rows, columns=["policy", "group", "item", "outcome"])
    problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), None)
    for order in (["a", "b"], ["b", "a"]):
        asked = eh.Problem(order, problem.groups, problem.family, None)
        assert eh.judge(asked, frame, pool={"x": 80}, replications=0).answer == "a"


def test_a_mean_of_the_pool_that_equals_a_cap_meets_it():
    """One item of twenty is bad, the cap is a twentieth: what is known never shows that it is exceeded."""
    asked = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Caps(1 / 20))
    rows = [{"policy": p, "group": "x", "item": i, "outcome": int(i == 3)} for i in range(10) for p in "ab"]
    verdict = eh.judge(asked, pd.DataFrame(rows), pool={"x": 20}, replications=0)
    assert verdict.failed == ()
    worse = [{**row, "outcome": int(row["item"] in (3, 4))} for row in rows]
    assert eh.judge(asked, pd.DataFrame(worse), pool={"x": 20}, replications=0).failed == ("a", "b")
    rest = [{"policy": p, "group": "x", "item": i, "outcome": 0} for i in range(10, 20) for p in "ab"]
    exact = eh.judge(asked, pd.DataFrame(rows + rest), pool="data", replications=0)
    assert exact.allowed == ("a", "b")
