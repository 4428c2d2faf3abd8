"""Rows in the order in which their outcomes came are judged by the evidence of a live experiment."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats

import evenhand as eh
from evenhand.cli.main import main
from evenhand.errors import BadInput
from evenhand.procedure.outcome_order import IN_ORDER_RULE, LINEAR, ORDER_FREE, PAIRED
from evenhand.simulation.simulate import follow
from evenhand.study import dumps

GROUPS = {"x": 0.6, "y": 0.4}
NAMES = ["a", "b", "c"]
IN_ORDER = "the rows are in the order in which they were observed"
# a family, means (K x L) and floors; in every run the answer is "a"
CASES: dict[str, tuple[Any, list[list[float]], float]] = {
    "bernoulli": (eh.Bernoulli(), [[0.9, 0.85], [0.5, 0.5], [0.4, 0.2]], 0.5),
    "binomial": (eh.Binomial(4), [[3.2, 3.0], [2.0, 2.0], [1.5, 1.5]], 1.0),
    "bounded": (eh.Bounded(-1.0, 3.0), [[2.2, 2.4], [1.0, 1.0], [0.4, 0.6]], 0.0),
    "gaussian": (eh.Gaussian(1.0), [[1.4, 1.2], [0.1, 0.0], [-0.6, 0.0]], -2.0),
}


def study(case: str, **procedure: Any) -> eh.Study:
    family, means, floor = CASES[case]
    problem = eh.Problem(NAMES, GROUPS, family, eh.Floors(floor), mode="proportional")
    settings = {"delta": 0.1, "evidence": "linear-bets", "max_samples": 20_000} | procedure
    return eh.Study(problem, eh.Procedure(**settings), eh.Truth(means=means))


def simulated(asked: eh.Study, seed: int = 4) -> tuple[float, pd.DataFrame]:
    """The evidence at the stop of a simulated run, and its outcomes in their order."""
    rows, trace = follow(asked, seed, 0, asked.procedure.max_samples)
    samples = int(rows.samples[0])
    assert asked.problem.policies[int(rows.answer[0])] == "a"
    frame = pd.DataFrame(
        {
            "policy": [NAMES[k] for k in trace.policy[:samples]],
            "group": [list(GROUPS)[g] for g in trace.group[:samples]],
            "outcome": trace.outcome[:samples],
        }
    )
    return float(rows.evidence[0]), frame


def judged(problem: eh.Problem, data: Any, **options: Any) -> eh.Verdict:
    return eh.judge(problem, data, **({"delta": 0.1, "replications": 0, "ordered": True} | options))


@pytest.mark.parametrize("case", CASES)
def test_the_evidence_is_that_of_the_simulated_run_to_the_last_bit(case: str) -> None:
    asked = study(case)
    evidence, frame = simulated(asked)
    verdict = judged(asked.problem, frame)
    assert (verdict.evidence, verdict.answer, verdict.method) == (evidence, "a", LINEAR)
    assert f"Policies are compared by {LINEAR}. This holds if {IN_ORDER}." in verdict.words()


def test_the_evidence_is_that_of_a_live_experiment_and_of_its_exported_table(tmp_path: Path) -> None:
    asked, rng = study("gaussian"), np.random.default_rng(4)
    with eh.Experiment.create(tmp_path / "trial.db", asked, seed=4) as trial:
        while ask := trial.ask(group="x" if rng.random() < 0.6 else "y"):
            trial.tell(ask, rng.normal(1.4 if ask.policy == "a" else 0.0))
        live = trial.status()
    table = tmp_path / "outcomes.csv"
    assert main(["export", str(tmp_path / "trial.db"), "--format", "csv", "-o", str(table)]) == 0
    assert live.answer == "a"
    for ordered in (True, "told_at"):
        verdict = judged(asked.problem, table, ordered=ordered)
        assert (verdict.evidence, verdict.answer) == (live.evidence, "a")


@pytest.mark.parametrize("case", CASES)
def test_the_order_of_rows_counts_only_where_it_is_said_to_be_known(case: str) -> None:
    asked = study(case)
    frame = simulated(asked)[1]
    shuffled = frame.sample(frac=1.0, random_state=1)
    problem = asked.problem
    assert judged(problem, frame).evidence != judged(problem, shuffled).evidence
    without = [judged(problem, data, ordered=False) for data in (frame, shuffled)]
    assert without[0].evidence == pytest.approx(without[1].evidence, rel=1e-9)
    assert without[0].method == ORDER_FREE


def orders(n: int) -> dict[str, list[Any]]:
    """Columns that give the order of n rows."""
    begin = dt.datetime(2026, 11, 19, 8, 30)
    times = [begin + dt.timedelta(seconds=7 * j) for j in range(n)]
    return {
        "numbers": list(range(n)),
        "negative": [-5.5 + j for j in range(n)],
        "nanoseconds": [10**18 + j for j in range(n)],  # of which floating point would make equal values
        "times": times,
        "with a zone": [t.replace(tzinfo=dt.UTC) for t in times],
        "written": [t.isoformat() for t in times],
        "written, Zulu": [t.isoformat() + "Z" for t in times],
    }


@pytest.mark.parametrize("kind", orders(1))
@pytest.mark.parametrize("form", ["pandas", "polars", "csv", "jsonl", "parquet"])
def test_rows_are_sorted_by_a_column_of_numbers_or_times(kind: str, form: str, tmp_path: Path) -> None:
    asked = study("bounded")
    evidence, frame = simulated(asked)
    frame["came"] = orders(len(frame))[kind]
    shuffled = frame.sample(frac=1.0, random_state=1)
    path: Any = tmp_path / f"rows.{form}"
    if form == "csv":
        shuffled.to_csv(path, index=False)
    elif form == "jsonl":
        shuffled.to_json(path, orient="records", lines=True, date_format="iso")
    elif form == "parquet":
        shuffled.to_parquet(path)
    elif form == "polars":
        path = pl.from_pandas(shuffled)
    else:
        path = shuffled
    verdict = judged(asked.problem, path, ordered="came")
    assert (verdict.evidence, verdict.ordered) == (evidence, "came")
    assert any("the rows, sorted by 'came', are in the order" in said for said in verdict.words())


def test_rows_with_equal_values_keep_their_order() -> None:
    asked = study("bounded")
    evidence, frame = simulated(asked)
    frame["day"] = np.arange(len(frame)) // 10
    moved = pd.concat([frame[frame["day"] % 2 == 1], frame[frame["day"] % 2 == 0]])
    assert judged(asked.problem, moved, ordered="day").evidence == evidence


@pytest.mark.parametrize("address", ["sqlite", "duckdb"])
def test_a_table_of_a_database_is_sorted_by_a_column(address: str, tmp_path: Path) -> None:
    asked = study("gaussian")
    evidence, frame = simulated(asked)
    frame["came"] = range(len(frame))
    shuffled = frame.sample(frac=1.0, random_state=1)
    url = f"{address}:///{tmp_path / 'rows.db'}"
    if address == "duckdb":
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect(str(tmp_path / "rows.db")) as engine:
            engine.execute("CREATE TABLE rows AS SELECT * FROM shuffled")
    else:
        import sqlalchemy as sa

        shuffled.to_sql("rows", sa.create_engine(url), index=False)
    assert judged(asked.problem, url, table="rows", ordered="came").evidence == evidence
    with pytest.raises(BadInput, match="the rows of a table have no order of their own; name the column"):
        judged(asked.problem, url, table="rows")


def test_large_files_are_read_in_their_order(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(0), 60_000  # more than 1 MB, which DuckDB would count
    frame = pd.DataFrame(
        {
            "policy": rng.choice(NAMES, n),
            "group": rng.choice(list(GROUPS), n),
            "outcome": np.round(rng.normal(size=n), 6),
        }
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)
    problem = study("gaussian").problem
    found = [judged(problem, data).evidence for data in (frame, tmp_path / "rows.csv")]
    assert found[0] == found[1]


def test_families_without_linear_bets_keep_their_rule_and_say_so() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"policy": rng.choice(NAMES, 300), "group": rng.choice(list(GROUPS), 300), "outcome": 1.0}
    )
    frame["outcome"] = rng.poisson(3.0, 300)
    counted = judged(eh.Problem(NAMES, GROUPS, eh.Poisson(), eh.Floors(1.0)), frame)
    assert counted.method == ORDER_FREE
    assert any("by the order-free rule: it does not use the order" in said for said in counted.words())
    frame["outcome"], frame["came"] = rng.normal(size=300), range(300)
    unknown = eh.Problem(NAMES, GROUPS, eh.GaussianUnknown(), eh.Floors(-1.0))
    plain, shuffled = judged(unknown, frame, ordered=False), frame.sample(frac=1.0, random_state=3)
    assert judged(unknown, shuffled, ordered="came").evidence == plain.evidence
    assert judged(unknown, shuffled, ordered=False).evidence != plain.evidence
    assert plain.method == IN_ORDER_RULE


def test_a_study_that_names_the_mixture_keeps_it() -> None:
    asked = study("bounded", evidence="mixture")
    frame = simulated(study("bounded"))[1]
    verdict = eh.judge(asked, frame, replications=0, ordered=True)
    assert verdict.method == ORDER_FREE
    assert verdict.evidence == eh.judge(asked, frame, replications=0).evidence


def test_guard_rails_and_one_policy_are_judged_in_order() -> None:
    rng, n = np.random.default_rng(0), 900
    frame = pd.DataFrame({"policy": rng.choice(NAMES, n), "group": rng.choice(list(GROUPS), n)})
    frame["outcome"] = rng.normal(np.where(frame["policy"] == "a", 1.5, 0.0))
    frame["cost"] = rng.poisson(1.0, n)
    rails = [eh.Guardrail("cost", eh.Poisson(), eh.Caps(2.0))]
    problem = eh.Problem(NAMES, GROUPS, eh.Gaussian(1.0), eh.Floors(-2.0), guardrails=rails)
    verdict = judged(problem, frame)
    assert (verdict.answer, verdict.method) == ("a", LINEAR)
    alone = eh.Problem(["a"], GROUPS, eh.Bounded(-9.0, 9.0), eh.Floors(-2.0), goal="screen")
    assert judged(alone, frame[frame["policy"] == "a"]).allowed == ("a",)


def with_items(n: int = 800) -> tuple[eh.Problem, pd.DataFrame]:
    """Outcomes of two policies on the same items, and the order in which items were drawn."""
    rng = np.random.default_rng(5)
    level, rows = rng.random(n), []
    for name, accuracy in (("a", 0.93), ("b", 0.8)):
        x = np.where(rng.random(n) < 0.8, level, rng.random(n)) < accuracy
        rows.append(
            pd.DataFrame(
                {
                    "policy": name,
                    "group": np.where(np.arange(n) % 2, "x", "y"),
                    "item": range(n),
                    "outcome": x,
                }
            )
        )
    return eh.Problem(["a", "b"], GROUPS, eh.Bernoulli(), eh.Floors(0.5)), pd.concat(rows)


def test_items_are_taken_in_the_order_that_the_column_gives() -> None:
    problem, frame = with_items()
    shuffled = frame.sample(frac=1.0, random_state=2)
    plain = judged(problem, frame, ordered=False)
    by_item = judged(problem, shuffled, ordered="item")
    assert plain.method == by_item.method == PAIRED
    assert plain.evidence == by_item.evidence != judged(problem, shuffled, ordered=False).evidence
    assert judged(problem, frame).evidence == plain.evidence
    apart = frame.assign(item=frame["policy"] + frame["item"].astype(str))
    mixed = apart.sample(frac=1.0, random_state=2)
    assert judged(problem, mixed).method == LINEAR
    assert judged(problem, mixed).evidence == judged(problem, mixed.drop(columns="item")).evidence


def rows_of(outcomes: list[Any], **columns: list[Any]) -> dict[str, list[Any]]:
    n = len(outcomes)
    return {
        "policy": ["a", "b", "c", "a"] * (n // 4),
        "group": ["x", "y"] * (n // 2),
        "outcome": outcomes,
    } | columns


COUNTS = {"policy": ["a", "b"], "group": ["x", "x"], "n": [30, 30], "mean": [0.5, 0.1]}
REFUSED: dict[str, tuple[dict[str, list[Any]], Any, str]] = {
    "counts": (COUNTS, True, "a table of counts has no order of outcomes; give rows"),
    "no such column": (
        rows_of([1, 0, 1, 0]), "when", "the frame needs the column 'when', which gives the order of the rows",
    ),
    "words": (
        rows_of([1, 0, 1, 0], when=["first", "then", "then", "then"]), "when",
        "row 1: the column 'when' gives the order of rows, so it must hold numbers or times such as",
    ),
    "true and false": (rows_of([1, 0, 1, 0], when=[True, False] * 2), "when", "must hold numbers or times"),
    "infinite": (rows_of([1, 0, 1, 0], when=["1", "2", "inf", "4"]), "when", "row 3: the column 'when'"),
    "of two kinds": (
        rows_of([1, 0, 1, 0], when=["1", "2", "2026-11-19", "4"]), "when",
        "must hold values of one kind, so that rows can be sorted; row 1 has a number, '1', and row 3 a time",
    ),
    "some with a zone": (
        rows_of([1, 0, 1, 0], when=["2026-11-19T08:00", "2026-11-19T08:00Z"] * 2), "when",
        "and row 2 a time with a zone",
    ),
    "missing": (rows_of([1, 0, 1, 0], when=[1, 2, None, 4]), "when", "1 of 4 rows miss a value (row 3)"),
    "outcomes": (rows_of([1, 0, 1, 0]), "outcome", "'outcome' holds outcomes. Name a column such as"),
    "not an order": (rows_of([1, 0, 1, 0]), 3, "ordered must be True, for rows in the order"),
    "sorted": (
        rows_of([0] * 80 + [1] * 80), True,
        "come sorted by size, or nearly so, and the evidence of linear bets depends on their order",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_order_is_refused_in_one_sentence(case: str) -> None:
    columns, ordered, says = REFUSED[case]
    problem = eh.Problem(NAMES, GROUPS, eh.Bernoulli(), eh.Floors(0.5))
    with pytest.raises(BadInput) as refusal:
        judged(problem, pl.DataFrame(columns, strict=False), ordered=ordered)
    assert says in str(refusal.value)


def test_a_dict_and_a_fixed_sample_have_no_order() -> None:
    problem = eh.Problem(NAMES, GROUPS, eh.Bernoulli(), eh.Floors(0.5))
    with pytest.raises(BadInput, match="in order within a cell only, not across cells"):
        judged(problem, {"a": {"x": [1, 0]}})
    with pytest.raises(BadInput, match="leave out one of ordered and fixed"):
        judged(problem, {"a": {"x": [1, 0]}}, fixed=True)


def test_the_command_line_judges_in_order(tmp_path: Path, capsys: Any) -> None:
    asked = study("gaussian")
    evidence, frame = simulated(asked)
    frame["came"] = range(len(frame))
    file, path = tmp_path / "study.toml", tmp_path / "rows.csv"
    file.write_text(dumps(asked))
    frame.to_csv(path, index=False)
    assert main(["judge", str(file), str(path), "--ordered", "--json", "--replications", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["evidence"] == evidence
    frame.sample(frac=1.0, random_state=1).to_csv(path, index=False)
    page = str(tmp_path / "page.md")
    assert main(["judge", str(file), str(path), "--order-by", "came", "--replications", "0", "-o", page]) == 0
    assert "sorted by 'came'" in " ".join(capsys.readouterr().out.split())
    assert "The rows, sorted by 'came', are in the order" in Path(page).read_text()
    assert main(["judge", str(file), str(path), "--order-by", "when"]) == 2
    assert "needs the column 'when'" in " ".join(capsys.readouterr().err.split())


def test_a_forecast_continues_from_ordered_rows() -> None:
    asked = study("gaussian")
    frame = simulated(asked)[1]
    verdict = judged(asked.problem, frame.iloc[: len(frame) // 2], replications=40)
    assert not verdict.decided
    assert verdict.forecast.runs == 40
    assert verdict.more[0.5] is not None


UNEVEN, EVEN = (0.7, 0.1, 0.1, 0.1), (0.25,) * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shares", "arrivals", "gap", "least", "most"),
    [
        (EVEN, EVEN, 0.1, 0.3, 0.7),
        (EVEN, EVEN, 2.0, 0.4, 0.7),
        (UNEVEN, EVEN, 0.5, 0.3, 0.6),
        (EVEN, UNEVEN, 0.5, 0.4, 0.7),
        (EVEN, EVEN, 0.5, 0.95, 1.15),
    ],
)
def test_an_allocation_that_nobody_chose_needs_half_the_rows(
    shares: tuple[float, ...], arrivals: tuple[float, ...], gap: float, least: float, most: float
) -> None:
    """The theory's ratios of samples for one pair of Gaussian policies, ln 25 and ln 2000."""
    names = [f"group {g}" for g in range(4)]
    problem = eh.Problem(
        ["a", "b"], dict(zip(names, shares, strict=True)), eh.Gaussian(1.0), None, mode="proportional",
        arrivals=dict(zip(names, arrivals, strict=True)), normalise=True,
    )  # fmt: skip
    truth = eh.Truth(means=((gap,) * 4, (0.0,) * 4))
    for delta in (1 / 25, 1 / 2_000):
        mixture, linear = (
            eh.simulate(
                problem, truth, eh.Procedure(delta=delta, sampling="uniform", evidence=rule, initial=1), 60, 3
            )
            for rule in ("mixture", "linear-bets")
        )
        assert least <= linear.samples.mean() / mixture.samples.mean() <= most


TINY = 0.001
BOUNDARIES: dict[str, tuple[Any, list[list[float]], float]] = {
    "gaussian, a rival is better": (eh.Gaussian(1.0), [[0.5, 0.5], [0.5 + TINY, 0.5], [0.2, 0.2]], -1.0),
    "gaussian, opposed groups": (eh.Gaussian(1.0), [[1.0, 0.0], [0.0, 1.5 + 3 * TINY], [0.1, 0.1]], -1.0),
    "gaussian, the best misses a floor": (eh.Gaussian(1.0), [[-TINY, 1.0], [0.2, 0.2], [0.1, 0.1]], 0.0),
    "bernoulli, a rival is better": (eh.Bernoulli(), [[0.8, 0.8], [0.8 + TINY, 0.8], [0.7, 0.7]], 0.5),
    "bounded, a rival is better": (eh.Bounded(0.0, 1.0), [[0.8, 0.8], [0.8 + TINY, 0.8], [0.7, 0.7]], 0.5),
    "binomial, a rival is better": (eh.Binomial(4), [[3.2, 3.2], [3.2 + TINY, 3.2], [2.8, 2.8]], 2.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDARIES)
def test_wrong_answers_on_ordered_rows_are_rare(name: str) -> None:
    """Policies in turn, groups as they arrive, a look after every row; the evidence is that of `judge`."""
    family, means, floor = BOUNDARIES[name]
    problem = eh.Problem(
        NAMES, GROUPS, family, eh.Floors(floor), mode="proportional", arrivals={"x": 0.2, "y": 0.8}
    )
    procedure = eh.Procedure(
        delta=0.1, sampling="uniform", evidence="linear-bets", initial=1, max_samples=1_500
    )
    runs = eh.simulate(problem, eh.Truth(means=means), procedure, 2_000, seed=29)
    wrong = int(runs.wrong.sum())
    assert stats.beta.ppf(1.0 - 1e-6, wrong + 1, 2_000 - wrong) <= 0.1
