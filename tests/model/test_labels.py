"""Numbers by name: dicts and frames are matched by their labels, whatever their order."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import evenhand as eh
from evenhand.model.frozen_dict import FrozenDict

POLICIES, GROUPS = ("a", "b", "c"), {"young": 0.5, "old": 0.3, "ancient": 0.2}
TABLE = np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4], [0.65, 0.55, 0.45]])
COLUMNS = ["ancient", "young", "old"]  # not the declared order
ROWS = ["c", "a", "b"]


def problem(**changes: Any) -> eh.Problem:
    given: dict[str, Any] = {"policies": POLICIES, "groups": GROUPS, "family": eh.Bernoulli()}
    return eh.Problem(**(given | changes))


def number(row: str, column: str) -> float:
    return float(TABLE[POLICIES.index(row), list(GROUPS).index(column)])


def pandas_frame() -> pd.DataFrame:
    return pd.DataFrame({g: [number(p, g) for p in ROWS] for g in COLUMNS}, index=ROWS)


FORMS: dict[str, Callable[[], Any]] = {
    "array": lambda: TABLE,
    "lists": lambda: TABLE.tolist(),
    "nested dict": lambda: {p: {g: number(p, g) for g in COLUMNS} for p in ROWS},
    "dict by group": lambda: {g: {p: number(p, g) for p in ROWS} for g in COLUMNS},
    "dict of series": lambda: {p: pd.Series({g: number(p, g) for g in COLUMNS}) for p in ROWS},
    "dict of series by group": lambda: {g: pd.Series({p: number(p, g) for p in ROWS}) for g in COLUMNS},
    "dict of lists": lambda: {p: [number(p, g) for g in GROUPS] for p in ROWS},
    "pandas": pandas_frame,
    "pandas, groups as rows": lambda: pandas_frame().T,
    "pandas, categories": lambda: pandas_frame().set_axis(pd.CategoricalIndex(ROWS)),
    "pandas, a column of names": lambda: pandas_frame().rename_axis("policy").reset_index(),
    "pandas without labels": lambda: pd.DataFrame(TABLE),
    "polars": lambda: pl.DataFrame({"policy": ROWS} | {g: [number(p, g) for p in ROWS] for g in COLUMNS}),
    "polars, groups as rows": lambda: pl.DataFrame(
        {"group": COLUMNS} | {p: [number(p, g) for g in COLUMNS] for p in ROWS}
    ),
}  # fmt: skip
each_form = pytest.mark.parametrize("form", FORMS)


@each_form
def test_means_are_matched_by_their_labels(form: str) -> None:
    assert np.array_equal(problem().check_means(FORMS[form]()), TABLE)
    assert eh.plan(problem(), FORMS[form](), gap=0.1).means.tolist() == TABLE.tolist()
    assert np.array_equal(problem().scores(FORMS[form]()), problem().scores(TABLE))
    assert problem(constraint=eh.Floors(0.5)).feasible(FORMS[form]()).tolist() == [True, False, False]
    assert problem().answer(FORMS[form]()) == 0


@each_form
def test_bounds_costs_and_spreads_are_matched_by_their_labels(form: str) -> None:
    table = tuple(map(tuple, TABLE.tolist()))
    assert problem(constraint=eh.Floors(FORMS[form]())).constraint == eh.Floors(table)
    assert problem(constraint=eh.Caps(FORMS[form]())).constraint == eh.Caps(table)
    assert problem(constraint=eh.Quota(FORMS[form](), groups=2)).constraint == eh.Quota(table, groups=2)
    joined = eh.All((eh.Floors(FORMS[form]()), eh.Gap(0.9)))
    assert problem(constraint=joined).constraint == eh.All((eh.Floors(table), eh.Gap(0.9)))
    assert problem(family=eh.Gaussian(FORMS[form]())).family == eh.Gaussian(table)
    rail = eh.Guardrail("cost", eh.Gaussian(FORMS[form]()), eh.Caps(FORMS[form]()))
    assert problem(guardrails=[rail]).guardrails[0].constraint == eh.Caps(table)
    assert problem(guardrails=[rail]).guardrails[0].family == eh.Gaussian(table)
    assert problem(costs=FORMS[form]()).costs == table


@each_form
def test_truths_are_matched_by_their_labels(form: str) -> None:
    study = eh.Study(problem(), truth=eh.Truth(means=FORMS[form](), sd=FORMS[form]()))
    table = tuple(map(tuple, TABLE.tolist()))
    assert study.truth == eh.Truth(means=table, sd=table)
    assert study.means() == table
    assert study == eh.Study.from_dict(study.to_dict())
    rails = problem(guardrails=[eh.Guardrail("harm", eh.Bernoulli(), eh.Caps(0.95))])
    truth = eh.Study(rails, truth=eh.Truth(means=TABLE, guardrails={"harm": FORMS[form]()})).truth
    assert truth is not None
    assert truth.guardrails == {"harm": table}


PER_GROUP: dict[str, Callable[[], Any]] = {
    "list": lambda: [0.1, 0.2, 0.3],
    "dict": lambda: {"ancient": 0.3, "young": 0.1, "old": 0.2},
    "pandas series": lambda: pd.Series({"old": 0.2, "ancient": 0.3, "young": 0.1}),
    "pandas series without labels": lambda: pd.Series([0.1, 0.2, 0.3]),
    "polars series": lambda: pl.Series([0.1, 0.2, 0.3]),
}


@pytest.mark.parametrize("form", PER_GROUP)
def test_numbers_per_group_are_matched_by_their_labels(form: str) -> None:
    given = PER_GROUP[form]
    assert problem(constraint=eh.Floors(given())).constraint == eh.Floors([0.1, 0.2, 0.3])
    assert problem(constraint=eh.Penalty(given(), given())).constraint == eh.Penalty(
        [0.1, 0.2, 0.3], [0.1, 0.2, 0.3]
    )
    relative = problem(constraint=eh.Floors(relative_to="a", margin=given()))
    plain = problem(constraint=eh.Floors(relative_to="a", margin=[0.1, 0.2, 0.3]))
    assert np.array_equal(relative.standard.region.floor_margin, plain.standard.region.floor_margin)
    assert problem(constraint=eh.Floors(0.3)).loosened(given()).lo.tolist() == (
        problem(constraint=eh.Floors(0.3)).loosened([0.1, 0.2, 0.3]).lo.tolist()
    )


def test_a_tolerance_and_a_volume_are_matched_by_their_labels() -> None:
    with_floors = problem(constraint=eh.Floors(0.3))
    tolerance = pd.Series({"old": 0.2, "ancient": 0.3, "young": 0.1})
    named = eh.plan(with_floors, TABLE, tolerance=tolerance, gap=0.1)
    assert named.time_low == eh.plan(with_floors, TABLE, tolerance=[0.1, 0.2, 0.3], gap=0.1).time_low
    with pytest.raises(eh.BadInput, match="unknown group 'odl'"):
        eh.plan(with_floors, TABLE, tolerance=tolerance.rename({"old": "odl"}))
    volume = pd.Series({"ancient": 30, "young": 10, "old": 20})
    assert eh.Intervals(volume=volume) == eh.Intervals(volume={"young": 10, "old": 20, "ancient": 30})
    assert eh.Intervals(volume=volume).volumes(problem()).tolist() == [10.0, 20.0, 30.0]
    with pytest.raises(eh.BadInput, match="volume must be given for the groups"):
        eh.Intervals(volume=volume.drop("old")).volumes(problem())


def test_the_shares_of_an_evaluation_come_as_a_series() -> None:
    pool = [{"group": "easy" if i % 3 else "hard", "target": i % 2} for i in range(60)]
    candidates = {"right": lambda item: item["target"], "zero": lambda item: 0}
    shares = pd.Series({"hard": 0.25, "easy": 0.75})
    found = eh.evaluate(candidates, pool, target="target", at_least=0.2, shares=shares, delta=0.2)
    assert dict(found.verdict.problem.groups) == {"hard": 0.25, "easy": 0.75}


def test_shares_counts_and_ranges_come_as_series_and_arrays() -> None:
    rows = {"young": {"b": 0.25, "a": 0.75}, "old": {"a": 0.5, "b": 0.5}}
    shares = eh.Shares.of({g: pd.Series(row) for g, row in rows.items()}, salt="example-1")
    assert shares == eh.Shares.of(rows, salt="example-1")
    counts = {"old": {"b": 40, "a": 60}}
    series = {g: pd.Series(row) for g, row in counts.items()}
    assert eh.sample_ratios(shares, series) == eh.sample_ratios(shares, counts)
    study = eh.Study(
        problem(constraint=eh.Floors(0.3)), eh.Procedure(stopping=eh.Budget(30)), eh.Truth(means=TABLE)
    )
    low, high = (
        eh.scan(study, {"a": {"old": ends}}, points=2, replications=2, workers=1).box
        for ends in (np.array([0.7, 0.8]), (0.7, 0.8))
    )
    assert low == high


def test_row_numbers_in_another_order_are_not_taken_for_positions() -> None:
    with pytest.raises(eh.BadInput, match="must name its rows"):
        problem().check_means(pd.DataFrame(TABLE).iloc[::-1])
    with pytest.raises(eh.BadInput, match="names an unknown group '2'"):
        problem(constraint=eh.Floors(pd.Series([0.1, 0.2, 0.3]).iloc[::-1]))


def test_a_spread_by_group_holds_for_every_policy() -> None:
    family = problem(family=eh.Gaussian({"old": 2.0, "ancient": 3.0, "young": 1.0})).family
    assert family == eh.Gaussian([[1.0, 2.0, 3.0]] * 3)


def test_costs_come_as_a_series_by_policy_or_by_group() -> None:
    by_policy = problem(costs=pd.Series({"c": 3.0, "a": 1.0})).sampling_costs
    assert by_policy.tolist() == [[1.0] * 3, [1.0] * 3, [3.0] * 3]
    by_group = problem(costs=pd.Series({"old": 2.0})).sampling_costs
    assert by_group.tolist() == [[1.0, 2.0, 1.0]] * 3


def test_shares_come_as_a_series() -> None:
    assert problem(groups=pd.Series(GROUPS)) == problem()


WRONG: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "unknown policy": (lambda frame: frame.rename(index={"c": "cc"}), "policy 'cc'; did you mean 'c'"),
    "unknown group": (lambda frame: frame.rename(columns={"old": "odl"}), "group 'odl'; did you mean 'old'"),
    "missing policy": (lambda frame: frame.drop(index="b"), "a row for every policy; 'b' has none"),
    "missing group": (lambda frame: frame.drop(columns="old"), "a number for every group; 'old' has none"),
    "missing policy, groups as rows": (lambda frame: frame.T.drop(columns="b"), "every policy; 'b' has none"),
    "missing group, groups as rows": (lambda frame: frame.T.drop(index="old"), "every group; 'old' has none"),
    "a policy twice": (lambda frame: frame.set_axis(["a", "a", "b"]), "'a' comes twice"),
    "a group twice": (lambda frame: frame.set_axis(["old", "old", "young"], axis=1), "'old' comes twice"),
    "names of columns only": (lambda frame: frame.reset_index(drop=True), "must name its rows"),
    "two levels": (lambda frame: pd.concat({"x": frame}), "one level of labels"),
    "two columns of names": (
        lambda frame: pl.DataFrame({"policy": ROWS, "note": ROWS, "old": [0.5] * 3}), "must name its rows",
    ),
    "not a number": (lambda frame: frame.astype(object).replace(0.9, "high"), "must"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_a_frame_that_does_not_fit_is_refused(fault: str) -> None:
    make, words = WRONG[fault]
    with pytest.raises(eh.BadInput, match=words):
        problem().check_means(make(pandas_frame()))
    with pytest.raises(eh.BadInput, match=words):
        problem(constraint=eh.Floors(make(pandas_frame())))


def test_a_frame_that_could_be_read_both_ways_is_refused() -> None:
    same = eh.Problem(["x", "y"], {"x": 0.5, "y": 0.5}, eh.Bernoulli())
    frame = pd.DataFrame([[0.9, 0.8], [0.6, 0.5]], index=["x", "y"], columns=["x", "y"])
    with pytest.raises(eh.BadInput, match="policies and groups have the same names"):
        same.check_means(frame)
    with pytest.raises(eh.BadInput, match="policies and groups have the same names"):
        eh.Problem(["x", "y"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(frame))
    nested = {"x": {"x": 0.9, "y": 0.8}, "y": {"y": 0.5, "x": 0.6}}  # by policy, then by group
    assert same.check_means(nested).tolist() == [[0.9, 0.8], [0.6, 0.5]]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: eh.Floors({"young": 0.5}), "'old' is missing"),
        (lambda: eh.Floors({"young": 0.5, "old": 0.4, "oldest": 0.3}), "unknown group 'oldest'"),
        (lambda: eh.Floors({"a": {"young": 0.5}}), "must"),
        (lambda: eh.Floors({}), "must name at least one"),
        (lambda: eh.Floors({"young": float("nan")}), "'young' has nan"),
        (lambda: eh.Floors({1: 0.5}), "it has 1"),
        (lambda: eh.Polyhedron(pd.DataFrame([[1.0, -1.0, 0.0]]), [-0.1]), "plain numbers, not a DataFrame"),
    ],
)  # fmt: skip
def test_bounds_that_do_not_fit_are_refused(make: Callable[[], eh.Floors], words: str) -> None:
    with pytest.raises(eh.BadInput, match=words):
        problem(constraint=make())


def test_a_study_file_holds_floors_and_spreads_by_name() -> None:
    from evenhand.study import loads

    study = loads(
        '[problem]\npolicies = ["a", "b"]\ngroups = { x = 0.5, y = 0.5 }\n'
        'family = { name = "gaussian", sd = { y = 2.0, x = 1.0 } }\n'
        'constraint = { kind = "floors", at_least = { y = 0.2, x = 0.1 } }\n'
    )
    assert study.problem.constraint == eh.Floors([0.1, 0.2])
    assert study.problem.family == eh.Gaussian([[1.0, 2.0]] * 2)


def test_simulated_means_come_as_frames_one_for_each_replication() -> None:
    two = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli())
    tables = np.random.default_rng(1).uniform(0.3, 0.7, (4, 2, 2))
    frames = [pd.DataFrame(t, index=["a", "b"], columns=["x", "y"])[["y", "x"]] for t in tables]
    plain = eh.simulate(two, tables, eh.Procedure(stopping=eh.Budget(30)), replications=4, seed=1)
    named = eh.simulate(two, frames, eh.Procedure(stopping=eh.Budget(30)), replications=4, seed=1)
    assert np.array_equal(plain.rows.answer, named.rows.answer)
    assert np.array_equal(plain.rows.shares, named.rows.shares)


def test_a_frozen_dict_is_a_mapping_that_hashes_and_pickles() -> None:
    one = FrozenDict({"a": 1.0, "b": 2.0})
    assert one == {"b": 2.0, "a": 1.0}
    assert hash(one) == hash(FrozenDict({"b": 2.0, "a": 1.0}))
    assert eval(repr(one)) == one
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(TypeError):
        one["a"] = 3.0  # type: ignore[index]


OUTCOMES = {"a": [True, False, True], "b": [False, False, True], "c": [True, True, True]}


def flat_rows() -> dict[str, list[Any]]:
    cells = [(p, g, x) for p, xs in OUTCOMES.items() for g in GROUPS for x in xs]
    return dict(zip(("policy", "group", "outcome"), map(list, zip(*cells, strict=True)), strict=True))


def sources(folder: Path) -> dict[str, Any]:
    rows = flat_rows()
    frame = pd.DataFrame(rows)
    frame.to_csv(folder / "a.csv", index=False)
    frame.assign(outcome=frame["outcome"].map(str).str.lower()).to_csv(folder / "b.csv", index=False)
    frame.to_parquet(folder / "a.parquet")
    return {
        "pandas bool": frame,
        "pandas nullable": frame.astype({"outcome": "boolean"}),
        "pandas numpy objects": frame.assign(outcome=[np.bool_(x) for x in rows["outcome"]]).astype(object),
        "polars": pl.DataFrame(rows),
        "csv True": folder / "a.csv",
        "csv true": folder / "b.csv",
        "parquet": folder / "a.parquet",
        "nested dict": {p: dict.fromkeys(COLUMNS, xs) for p, xs in OUTCOMES.items()},
        "nested arrays": {p: {g: np.array(xs) for g in COLUMNS} for p, xs in OUTCOMES.items()},
        "nested series": {p: {g: pd.Series(xs) for g in COLUMNS} for p, xs in OUTCOMES.items()},
    }


def test_truth_values_are_outcomes_wherever_data_come_from(tmp_path: Path) -> None:
    numbers = pd.DataFrame(flat_rows()).astype({"outcome": int})
    expected = eh.judge(problem(), numbers, replications=0)
    for name, source in sources(tmp_path).items():
        found = eh.judge(problem(), source, replications=0)
        assert (found.cells, found.evidence) == (expected.cells, expected.evidence), name


def test_missing_values_of_nullable_columns_are_counted() -> None:
    frame = pd.DataFrame(flat_rows()).astype({"outcome": "boolean"})
    frame.loc[2, "outcome"] = pd.NA
    with pytest.raises(eh.BadInput, match="1 of 27 rows miss a value"):
        eh.judge(problem(), frame, replications=0)
    assert eh.judge(problem(), frame, missing="drop", replications=0).missing == 1


def test_truth_values_are_no_counts() -> None:
    for column in ("n", "successes", "mean"):
        row = {"policy": "a", "group": "old", "n": 1, "successes": 1} | {column: True}
        if column == "mean":
            del row["successes"]
        with pytest.raises(eh.BadInput, match="must be a number; it is True"):
            eh.judge(problem(), pl.DataFrame([row]), replications=0)


def test_truth_values_are_told_and_imported(tmp_path: Path) -> None:
    with eh.Experiment.create(str(tmp_path / "t.db"), problem(), seed=1) as trial:
        for value in (True, np.bool_(False)):
            ask = trial.ask()
            assert ask is not None
            assert trial.tell(ask, value).outcome == float(value)
        assert trial.import_data([("a", "old", True), ("b", "old", np.bool_(False))]) == 2
        assert trial.status().samples == 4


@pytest.mark.parametrize("text", ["True", "false", " TRUE "])
def test_truth_values_in_files_of_a_truth_are_outcomes(text: str, tmp_path: Path) -> None:
    rows = [f"{p},{g},{text}" for p in POLICIES for g in GROUPS]
    (tmp_path / "d.csv").write_text("policy,group,outcome\n" + "\n".join(rows) + "\n")
    truth = eh.Truth(data="d.csv", folder=tmp_path)
    assert set(np.ravel(truth.cell_means(problem()))) == {float(text.strip().lower() == "true")}


def test_outcomes_by_name_come_by_policy_or_by_group() -> None:
    by_policy = {"a": {"old": [1, 0], "young": [True]}, "c": {"ancient": [np.True_]}}
    by_group = {"ancient": {"c": [1]}, "old": {"a": pd.Series([1, 0])}, "young": {"a": np.array([1])}}
    cells = [eh.judge(problem(), data, replications=0).cells for data in (by_policy, by_group)]
    assert cells[0] == cells[1]
    assert [cell.n for cell in cells[0]] == [1, 2, 0, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"a": [1, 0]}, "by policy, then by group"),
        ({"a": {"old": 1}}, "'a' in 'old' must be a list of numbers"),
        ({"a": {"old": "10"}}, "must be a list of numbers"),
        ({"z": {"old": [1]}}, "'z' in 'old', outcome 1: there is no policy 'z'"),
        ({"a": {"old": [1, 0.5]}}, "'a' in 'old', outcome 2 has 0.5"),
    ],
)
def test_outcomes_by_name_that_cannot_be_used_are_refused(data: Any, words: str) -> None:
    with pytest.raises(eh.BadInput, match=words):
        eh.judge(problem(), data, replications=0)
