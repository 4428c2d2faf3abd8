"""A study file says what it means: read, refused, written back, hashed."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenhand.errors import BadInput
from evenhand.model.requirements import All, Caps, Floors, Gap
from evenhand.study import Study, Truth, dumps, load, loads

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.toml"))

STUDY = """
title = "Two drugs"
[problem]
policies = ["old", "new"]
groups = { "young" = 0.6, "old age" = 0.4 }
family = { name = "bernoulli" }
constraint = { kind = "floors", at_least = 0.5 }
[procedure]
delta = 0.1
[truth]
means = [[0.6, 0.7], [0.8, 0.55]]
"""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_study_reads_back_what_it_writes(path: Path) -> None:
    study = load(path)
    again = loads(dumps(study))
    assert again == study
    assert again.content_hash == study.content_hash
    assert Study.from_dict(study.to_dict()) == study


WRITTEN = {
    "gap": ('name = "gaussian", sd = [[1.0, 2.0], [0.5, 0.25]]', "at_most = 1"),
    "ratio": ('name = "binomial", trials = 7', "at_least = 0.8"),
    "quota": ('name = "gamma", shape = 2', "groups = 1, at_least = 0.4"),
    "dispersion": ('name = "poisson"', "at_most = 1, weighted = true"),
    "none": ('name = "bounded", low = -1, high = 4', ""),
    "caps": ('name = "exponential"', "at_most = [1, 2]"),
    "penalty": ('name = "gaussian-unknown"', "floor = 0.2, gamma = [1, 2]"),
    "polyhedron": ('name = "bernoulli"', "A = [[1, -1]], b = [-0.5]"),
    "all": (
        'name = "bernoulli"',
        'of = [{ kind = "floors", at_least = 0.1 }, { kind = "gap", at_most = 0.5 }]',
    ),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_every_family_and_requirement_has_a_written_form(kind: str) -> None:
    family, rest = WRITTEN[kind]
    constraint = f'kind = "{kind}", {rest}'.rstrip(", ")
    study = loads(
        f"""[problem]
        policies = ["p", "r"]
        groups = {{ a = 0.5, b = 0.5 }}
        family = {{ {family} }}
        constraint = {{ {constraint} }}
        mode = "agnostic"
        arrivals = {{ a = 0.25, b = 0.75 }}
        costs = [[1, 2], [3, 4]]
        """
    )
    assert loads(dumps(study)) == study
    assert loads(dumps(study)).content_hash == study.content_hash


def test_names_with_quotes_newlines_and_other_scripts_survive_writing() -> None:
    names = ['say "hi"', "back\\slash", "日本", "line\nbreak", "del\x7f"]
    study = loads(STUDY)
    table = study.to_dict()
    table["problem"]["policies"] = names
    table["truth"] = {"means": [[0.5, 0.5]] * len(names)}
    assert loads(dumps(Study.from_dict(table))).problem.policies == tuple(names)


def test_the_hash_ignores_order_comments_and_spelled_out_defaults() -> None:
    head, truth = STUDY.split("[truth]")
    other = f"[truth] # first\n{truth}\n{head.strip().replace('delta = 0.1', 'delta = 0.1  # a comment')}"
    other = 'title = "Two drugs"\n' + other.replace('title = "Two drugs"\n', "")
    other = other.replace("[procedure]", '[procedure]\nsampling = "ts-ids"\nbatch = 1')
    assert loads(other).content_hash == loads(STUDY).content_hash
    assert loads(STUDY.replace("0.55", "0.56")).content_hash != loads(STUDY).content_hash


def test_shares_that_sum_to_one_only_nearly_still_read_back_equal() -> None:
    study = loads(STUDY.replace("0.6,", "0.6000004,", 1))
    assert sum(study.problem.groups.values()) == pytest.approx(1.0, abs=1e-15)
    assert loads(dumps(study)) == study


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[procedure]", "[procedur]"), "unknown key 'procedur' in the study; did you mean 'procedure'?"),
        (("policies =", "polices ="), "unknown key 'polices' in [problem]; did you mean 'policies'?"),
        (('kind = "floors"', 'kind = "floor"'), "did you mean 'floors'?"),
        (("at_least = 0.5", "at_lest = 0.5"), "in the 'floors' constraint; did you mean 'at_least'?"),
        ((', at_least = 0.5 }', " }"), "the 'floors' constraint needs at_least"),
        (('name = "bernoulli"', 'name = "bernouli"'), "did you mean 'bernoulli'?"),
        (('name = "bernoulli"', 'name = "bernoulli", sd = 1'), "unknown key 'sd' in the bernoulli family"),
        (("delta = 0.1", "delta = 0.7"), "delta must lie strictly between 0 and 0.5"),
        (("delta = 0.1", "dleta = 0.1"), "did you mean 'delta'?"),
        (("means =", "meens ="), "unknown key 'meens' in [truth]; did you mean 'means'?"),
        (("[0.6, 0.7]", "[0.6, 1.7]"), "means must lie in the domain of the bernoulli family"),
        (("[0.6, 0.7]", "[0.6]"), "means must be"),
        (("[0.6, 0.7]", '[0.6, "0.7"]'), "means must be a number or a table of numbers; it holds '0.7'"),
        (("at_least = 0.5", "at_least = true"), "must be a number or a table of numbers; it holds True"),
        (("at_least = 0.5", "at_least = nan"), "at_least must hold finite numbers"),
        (("0.6,", "0.5,"), "shares must sum to 1; they sum to 0.9"),
        (('["old", "new"]', '"old"'), "policies must be a list of names"),
        (('["old", "new"]', '["old"]'), "policies must hold at least 2 names; there are 1"),
        (('["old", "new"]', '["old", "old"]'), "'old' comes twice"),
        (('title = "Two drugs"', "title = 3"), "title must be text; it is 3"),
        (("[problem]", "[problem"), "is not valid TOML"),
        (("delta = 0.1", "delta = .1"), "Write 0.1, with a digit before the point."),
        (("[0.6, 0.7]", "[0.6, -.7]"), "Write -0.7, with a digit before the point."),
        (("delta = 0.1", "diminishing = True"), "Write true, in lower case."),
        (('family = { name = "bernoulli" }', ""), "[problem] needs family"),
        (("means =", 'lag = -1\nmeans ='), "lag must be a whole number of samples"),
        (("means =", 'dropout = 1.0\nmeans ='), "dropout must be a probability"),
        (("means =", 'lag = 100000000\nmeans ='), "lag must be a whole number of samples, 0 to 10000000"),
        (("[0.6, 0.7]", f"[1{400 * '0'}, 0.7]"), "means must hold numbers up to 1e+100"),
        (('name = "bernoulli"', 'name = ["bernoulli"]'), "family name must be one of"),
        (('kind = "floors"', 'kind = ["floors"]'), "constraint kind must be one of"),
        (('"new"]', '"none"]'), "a policy cannot be called 'none'"),
        (("delta = 0.1", 'delta = "0.1"'), "at 1e-300 or above; it is '0.1'"),
        (("delta = 0.1", "delta = 1e-310"), "delta must lie"),
        (("delta = 0.1", f"max_samples = 1{30 * '0'}"), "max_samples must be a whole number from 1 to 10000"),
        (("delta = 0.1", "batch = 1e400"), "batch must be a whole number"),
        (("delta = 0.1", 'sampling = "track-and-stop"\ndiminishing = "no"'), "must be true or false"),
        (("means =", 'cells = "x.csv"\nmeans ='), "one of means, cells and data; it has means and cells"),
    ],
)  # fmt: skip
def test_a_wrong_study_is_refused_with_what_must_hold(change: tuple[str, str], message: str) -> None:
    assert change[0] in STUDY
    with pytest.raises(BadInput) as refusal:
        loads(STUDY.replace(*change, 1))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_study_written_by_an_editor_that_marks_its_encoding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY, encoding="utf-8-sig")
    assert load(path) == loads(STUDY)


def test_a_missing_study_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no study file .*none\.toml"):
        load(tmp_path / "none.toml")
    with pytest.raises(BadInput, match="cannot be read"):
        load(tmp_path)


def test_cells_are_found_beside_the_study_and_give_its_means(tmp_path: Path) -> None:
    study = _with_truth(tmp_path, 'cells = "cells.csv"', "cells.csv", CELLS)
    assert study.means() == ((0.6, 0.7), (0.8, 0.5))
    assert study.truth == Truth(cells="cells.csv")


def test_single_outcomes_give_the_means_of_their_cells(tmp_path: Path) -> None:
    rows = [f"{p},{g},{x}" for p in ("old", "new") for g in ("young", "old age") for x in (0, 1, 1, 0, 1)]
    study = _with_truth(tmp_path, 'data = "d.csv"', "d.csv", "\n".join(["policy,group,outcome", *rows]))
    assert study.means() == ((0.6, 0.6), (0.6, 0.6))


CELLS = "policy,group,n,successes\nold,young,10,6\nold,old age,10,7\nnew,young,5,4\nnew,old age,10,5\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("group,", "where,"), "'group' is missing"),
        (("old,young,10,6\n", ""), "must hold every cell; 'old' in 'young' is missing"),
        (("old,young,10,6", "old,yung,10,6"), "line 2: there is no group 'yung'; did you mean 'young'?"),
        (("10,6", "10,16"), "line 2: n must be at least 1 and successes must lie between 0 and n"),
        (("10,6", "10,6.5"), "line 2: successes must be a whole number"),
        (("10,6", "ten,6"), "line 2: n must be a finite number"),
        (("10,6", "10"), "line 2: a line needs as many fields as the header"),
        (("new,young", "old,young"), "line 4: every cell must occur once; 'old' in 'young' occurs twice"),
    ],
)
def test_a_wrong_file_of_cells_is_refused_at_its_line(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    study = _with_truth(tmp_path, 'cells = "cells.csv"', "cells.csv", CELLS.replace(*change, 1))
    with pytest.raises(BadInput) as refusal:
        study.means()
    assert message in str(refusal.value)


def test_an_outcome_the_family_cannot_have_is_refused_at_its_line(tmp_path: Path) -> None:
    study = _with_truth(tmp_path, 'data = "d.csv"', "d.csv", "policy,group,outcome\nold,young,2\n")
    with pytest.raises(BadInput, match="line 2: outcomes must be 0 or 1; this one is 2"):
        study.means()


def test_a_study_without_truth_says_what_it_lacks() -> None:
    with pytest.raises(BadInput, match=r"needs a \[truth\] table"):
        loads(STUDY.split("[truth]")[0]).means()


def test_nested_requirements_become_nested_nouns() -> None:
    inner = '{ kind = "all", of = [{ kind = "caps", at_most = 0.9 }, { kind = "gap", at_most = 0.3 }] }'
    text = f'{{ kind = "all", of = [{{ kind = "floors", at_least = 0.2 }}, {inner}] }}'
    study = loads(STUDY.replace('{ kind = "floors", at_least = 0.5 }', text))
    assert study.problem.constraint == All((Floors(0.2), All((Caps(0.9), Gap(0.3)))))


def _with_truth(folder: Path, truth: str, name: str, content: str) -> Study:
    (folder / name).write_text(content)
    path = folder / "study.toml"
    path.write_text(STUDY.split("means =")[0] + truth)
    return load(path)
