"""Judging data with an `item` column: outcomes on shared items are paired, and the verdict says so."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp

import evenhand as eh
from evenhand.cli.main import main
from evenhand.errors import BadInput
from evenhand.procedure.outcome_order import PAIRED
from evenhand.verdicts.shared_items import refuse_what_cannot_be_paired

NAMES = ["large", "tuned", "small"]
MEANS = {"large": 0.93, "tuned": 0.90, "small": 0.80}


def problem(family=None, constraint=None, **more):
    return eh.Problem(
        NAMES, {"en": 0.6, "de": 0.4}, family or eh.Bernoulli(), constraint or eh.Floors(0.85), **more
    )


def shared(items=1_500, seed=0, agree=0.8):
    """Every policy on every item; they agree on the hard ones."""
    rng = np.random.default_rng(seed)
    level, rows = rng.random(items), []
    for j in range(items):
        for name in NAMES:
            u = level[j] if rng.random() < agree else rng.random()
            rows.append((name, "en" if j % 2 else "de", f"item {j}", int(u < MEANS[name])))
    return pd.DataFrame(rows, columns=["policy", "group", "item", "outcome"])


def judged(frame, question=None, **options):
    return eh.judge(question or problem(), frame, replications=0, **options)


def test_shared_items_are_paired_and_decide_earlier():
    frame = shared()
    paired, apart = judged(frame), judged(frame.drop(columns="item"))
    assert (paired.answer, paired.decided, apart.decided) == ("large", True, False)
    assert paired.evidence > apart.evidence
    assert (paired.method, apart.method) == (PAIRED, "order-free rule")
    assert (paired.items, paired.shared_items, apart.items) == (1_500, 1_500, None)
    assert paired.to_dict()["method"] == PAIRED
    words = " ".join(paired.words())
    assert (
        "1,500 of 1,500 items were answered by more than one policy; policies are compared by paired" in words
    )
    assert "decided who answers an item before any outcome on it was seen" in words
    assert "item" not in " ".join(apart.words())
    json.dumps(paired.to_dict(), allow_nan=False)


def test_cells_of_binary_outcomes_do_not_depend_on_items():
    frame = shared(400)
    paired, apart = judged(frame), judged(frame.drop(columns="item"))
    assert paired.cells == apart.cells
    assert [p.verdict for p in paired.policies] == [p.verdict for p in apart.policies]


def test_policy_after_policy_is_the_same_as_item_after_item():
    frame = shared(300)
    blocks = frame.sort_values("policy", kind="stable")
    assert judged(blocks).evidence == judged(frame).evidence


@pytest.mark.parametrize("kind", ["csv", "parquet", "polars"])
def test_files_and_frames_agree(tmp_path, kind):
    frame = shared(200)
    expected = judged(frame)
    if kind == "polars":
        polars = pytest.importorskip("polars")
        data = polars.from_pandas(frame)
    else:
        data = tmp_path / f"data.{kind}"
        frame.to_csv(data, index=False) if kind == "csv" else frame.to_parquet(data)
    found = judged(data)
    assert found.to_dict() == expected.to_dict()


def test_a_column_of_another_name_holds_the_items():
    frame = shared(100).rename(columns={"item": "question"})
    assert judged(frame).method == "order-free rule"
    assert judged(frame, columns={"item": "question"}).method == PAIRED


def test_items_that_no_two_policies_share_change_nothing():
    frame = shared(300)
    frame["item"] = range(len(frame))
    found, expected = judged(frame), judged(frame.drop(columns="item"))
    assert found.shared_items == 0
    assert found.method == "order-free rule"
    assert (found.evidence, found.cells) == (expected.evidence, expected.cells)
    assert "No item was answered by two policies; the order-free rule was used." in found.words()


def test_items_answered_by_some_policies_only_are_used_too():
    frame = shared(2_000, seed=3)
    rng = np.random.default_rng(0)
    part = frame[rng.random(len(frame)) < 0.9]  # who answers does not depend on outcomes
    found, pairs_only = judged(part), judged(frame[frame["item"].map(part["item"].value_counts()) == 3])
    assert found.method == PAIRED
    assert found.samples == len(part)
    assert found.decided
    assert found.evidence > 0.5 * pairs_only.evidence


def test_an_item_with_two_outcomes_of_one_policy_is_refused():
    frame = pd.concat([shared(50), pd.DataFrame([("tuned", "de", "item 4", 0), ("tuned", "de", "item 4", 1)],
                                                columns=["policy", "group", "item", "outcome"])])  # fmt: skip
    with pytest.raises(BadInput, match=r"'tuned' has two outcomes on item 'item 4', [01] and [01]"):
        judged(frame)


def test_a_repeated_row_counts_once():
    frame = shared(50)
    twice = pd.concat([frame, frame.iloc[:10]])
    found = judged(twice)
    assert found.samples == 150
    assert "10 rows repeat an outcome of a policy on an item and count once." in found.words()
    assert found.evidence == judged(frame).evidence


def test_an_item_in_two_groups_is_refused():
    frame = shared(50)
    frame.loc[0, "group"] = "en"
    with pytest.raises(BadInput, match=r"item 'item 0' is in 'en' and in 'de'"):
        judged(frame)


def test_a_group_without_items_is_refused():
    frame = shared(50)
    with pytest.raises(BadInput, match=r"every group needs items; 'de' has none"):
        judged(frame[frame["group"] == "en"])


def test_a_missing_item_is_a_missing_value():
    frame = shared(60)
    frame.loc[3, "item"] = None
    with pytest.raises(BadInput, match="1 of 180 rows miss a value"):
        judged(frame)
    assert judged(frame, missing="drop").samples == 179


def test_items_sorted_by_outcome_are_refused():
    frame = shared(200)
    order = frame[frame["policy"] == "large"].sort_values("outcome")["item"]
    by_outcome = frame.set_index("item").loc[order].reset_index()
    with pytest.raises(BadInput, match=r"'large' in '.*' come sorted .* evidence of linear bets"):
        judged(by_outcome)


@pytest.mark.parametrize(
    ("question", "procedure", "fixed", "message"),
    [
        (
            problem(eh.Gaussian(1.0)),
            eh.Procedure(),
            False,
            "bernoulli, binomial or bounded; they are gaussian",
        ),
        (problem(constraint=eh.Penalty(0.8, 2.0)), eh.Procedure(), False, "must hold for each policy alone"),
        (problem(constraint=eh.Floors(relative_to="small")), eh.Procedure(), False, "for each policy alone"),
        (problem(), eh.Procedure(), True, "without the option for a fixed sample"),
        (problem(), eh.Procedure(stopping="stylised"), False, "must be certified; it is stylised"),
    ],
)
def test_what_is_not_valid_on_shared_items_is_refused(question, procedure, fixed, message):
    with pytest.raises(BadInput, match=message):
        refuse_what_cannot_be_paired(question, procedure, fixed)


def test_a_fixed_sample_of_shared_items_is_refused():
    with pytest.raises(BadInput, match="without the option for a fixed sample"):
        judged(shared(60), fixed=True)


def test_bounded_outcomes_of_small_variance_need_few_items():
    rng, rows = np.random.default_rng(0), []
    for j in range(900):
        for name, shift in (("large", 0.5), ("tuned", 0.0), ("small", -3.0)):
            rows.append((name, "en" if j % 2 else "de", j, rng.beta(20 + shift, 5 - shift)))
    frame = pd.DataFrame(rows, columns=["policy", "group", "item", "outcome"])
    question = problem(eh.Bounded(0.0, 1.0), eh.Floors(0.75))
    found, apart = judged(frame, question), judged(frame.drop(columns="item"), question)
    assert (found.answer, apart.decided) == ("large", False)
    # the verdict on a floor: prod (1 + lambda (x - C)), averaged over eight sizes
    x = frame[(frame.policy == "large") & (frame.group == "en")]["outcome"].to_numpy()
    low = next(c.low for c in found.cells if (c.policy, c.group) == ("large", "en"))
    lift = np.expm1(0.02 * 1.8 ** np.arange(8))
    bets = [np.log1p(rate / (1 + rate * low) * (x - low)).sum() for rate in lift]
    assert logsumexp(bets) - math.log(8) == pytest.approx(found.needed, abs=1e-9)


def test_0_and_1_as_bounded_outcomes_give_the_intervals_of_binary_ones():
    frame = shared(300)
    binary, bounded = judged(frame), judged(frame, problem(eh.Bounded(0.0, 1.0)))
    for one, other in zip(binary.cells, bounded.cells, strict=True):
        assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=1e-9)
        assert one.verdict == other.verdict
    assert bounded.evidence == pytest.approx(binary.evidence, abs=1e-9)


def test_an_indifference_asks_for_less():
    frame = shared(500)
    exact, close = judged(frame), judged(frame, procedure=eh.Procedure(indifference=0.02))
    assert close.evidence > exact.evidence + 1


def test_screening_uses_every_policy_alone():
    found = judged(shared(1_500), problem(goal="screen"))
    assert found.method == "order-free rule"
    assert (found.allowed, found.failed) == (("large", "tuned"), ("small",))
    assert any("every policy is judged by its own outcomes" in sentence for sentence in found.words())


def test_allowed_failed_and_open_are_those_of_the_same_outcomes_without_items():
    frame = shared(700)
    paired, apart = judged(frame), judged(frame.drop(columns="item"))
    assert paired.classes == apart.classes
    assert paired.failed == ("small",)


def test_no_answer_is_decided_too():
    found = judged(shared(1_000), problem(constraint=eh.Floors(0.99)))
    assert found.decided
    assert found.answer is None


STUDY = """
[problem]
policies = ["large", "tuned", "small"]
groups = { en = 0.6, de = 0.4 }
family = { name = "bernoulli" }
constraint = { kind = "floors", at_least = 0.85 }
"""


def test_the_command_pairs_items(tmp_path, capsys):
    (tmp_path / "study.toml").write_text(STUDY)
    shared().to_csv(tmp_path / "data.csv", index=False)
    arguments = ["judge", str(tmp_path / "study.toml"), str(tmp_path / "data.csv"), "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["answer"], found["method"], found["shared_items"]) == ("large", PAIRED, 1_500)


def test_a_live_experiment_refuses_to_import_shared_items(tmp_path, capsys):
    (tmp_path / "study.toml").write_text(STUDY)
    journal = str(tmp_path / "trial.db")
    assert main(["new", journal, str(tmp_path / "study.toml"), "--seed", "1"]) == 0
    frame = shared(5)
    frame.to_csv(tmp_path / "shared.csv", index=False)
    assert main(["import", journal, str(tmp_path / "shared.csv")]) == 2
    assert "item 'item 0' was answered by 'large' and by 'tuned'" in capsys.readouterr().err
    frame.assign(item=range(len(frame))).to_csv(tmp_path / "different.csv", index=False)
    assert main(["import", journal, str(tmp_path / "different.csv")]) == 0
    assert "15 outcomes recorded" in capsys.readouterr().out
