"""Logs of evaluation tools: the same answers give the same verdict, whichever tool wrote them.

The logs in `logs/` were written by the tools (see `logs/README.md`): two stand-ins for models answer 20
questions. "large" is wrong on 3 and 11, "small" on 1, 3, 5, 7, 11, 15 and 19; odd questions are in "en", even
ones in "sw".
"""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand.cli.main import main
from evenhand.errors import BadInput
from evenhand.verdicts.read_data import read
from evenhand.verdicts.readers import inspect_logs

LOGS = Path(__file__).parent / "logs"
FORMATS = {
    "inspect archives": LOGS / "inspect",
    "inspect json": LOGS / "inspect_json",
    "lm-eval": LOGS / "lm_eval",
    "promptfoo": LOGS / "promptfoo" / "results.json",
}
WRONG = {"large": {3, 11}, "small": {1, 3, 5, 7, 11, 15, 19}}
BY_LANGUAGE = {"group": "language"}


def problem(family=None):
    return eh.Problem(["large", "small"], {"en": 0.5, "sw": 0.5}, family or eh.Bernoulli(), eh.Floors(0.2))


def plain():
    """The same answers as a frame."""
    return pd.DataFrame(
        [
            (name, "en" if n % 2 else "sw", n, n not in wrong)
            for n in range(20)
            for name, wrong in WRONG.items()
        ],
        columns=["policy", "group", "item", "outcome"],
    )


@pytest.mark.parametrize("name", FORMATS)
def test_a_log_holds_the_answers_that_were_given(name):
    found = read(problem(), FORMATS[name], columns=BY_LANGUAGE)
    assert found.state.n.tolist() == [[10, 10], [10, 10]]  # (L, K)
    assert found.state.s.tolist() == [[8, 3], [10, 10]]
    assert found.items.shared == 20


@pytest.mark.parametrize("name", FORMATS)
def test_a_log_gives_the_verdict_of_the_same_rows(name):
    expected = eh.judge(problem(), plain(), replications=0)
    found = eh.judge(problem(), FORMATS[name], columns=BY_LANGUAGE, replications=0)
    assert found.cells == expected.cells
    assert found.shared_items == expected.shared_items == 20
    if "inspect" not in name:  # whose samples are in the order of their names or of their ends
        assert found.evidence == pytest.approx(expected.evidence, abs=1e-9)


def test_lines_of_json_are_rows(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in plain().to_dict("records")) + "\n\n")
    assert (
        eh.judge(problem(), path, replications=0).to_dict()
        == eh.judge(problem(), plain(), replications=0).to_dict()
    )


def test_a_model_may_be_named_in_full():
    full = eh.Problem(["mockllm/large", "mockllm/small"], {"en": 0.5, "sw": 0.5}, eh.Bernoulli(), None)
    assert read(full, LOGS / "inspect", columns=BY_LANGUAGE).state.n.sum() == 40


def test_the_group_can_be_the_task():
    by_task = eh.Problem(["large", "small"], {"sums": 1.0}, eh.Bernoulli(), None)
    assert read(by_task, LOGS / "lm_eval", columns={"group": "task"}).state.n.tolist() == [[20, 20]]


def test_a_group_that_no_field_names_is_asked_for():
    with pytest.raises(BadInput, match="needs a column 'group'"):
        read(problem(), LOGS / "inspect")


def inspect_log(scores, epochs=1, **about):
    samples = [
        {"id": n, "epoch": e + 1, "metadata": {"language": "en" if n % 2 else "sw"}, "scores": scores(n, e)}
        for n in range(4)
        for e in range(epochs)
    ]
    return {
        "version": 2,
        "status": "success",
        "eval": {"task": "t", "model": "large", **about},
        "samples": samples,
    }


def test_epochs_are_averaged_to_one_outcome():
    log = inspect_log(lambda n, e: {"match": {"value": "C" if e < n else "I"}}, epochs=4)
    found = inspect_logs.read_log(log)
    assert [sample.scores["match"] for sample in found] == [0.0, 0.25, 0.5, 0.75]


def test_of_several_scores_one_must_be_named(tmp_path):
    log = inspect_log(lambda n, e: {"match": {"value": "P"}, "length": {"value": n / 4}})
    (tmp_path / "log.json").write_text(json.dumps(log))
    question = problem(eh.Bounded(0.0, 1.0))
    with pytest.raises(BadInput, match="holds several scores, match and length; name the one"):
        read(question, tmp_path, columns=BY_LANGUAGE)
    with pytest.raises(BadInput, match=r"the log has no score 'lenght'; did you mean 'length'\?"):
        read(question, tmp_path, columns=BY_LANGUAGE | {"outcome": "lenght"})
    found = read(question, tmp_path, columns=BY_LANGUAGE | {"outcome": "length"})
    np.testing.assert_allclose(found.state.s, [[1.0, 0.0], [0.5, 0.0]])
    assert read(question, tmp_path, columns=BY_LANGUAGE | {"outcome": "match"}).state.s.sum() == 2.0


def test_a_sample_that_failed_misses_its_outcome(tmp_path):
    log = inspect_log(lambda n, e: {} if n == 2 else {"match": {"value": "C"}})
    (tmp_path / "log.json").write_text(json.dumps(log))
    with pytest.raises(BadInput, match=r"1 of 4 rows miss a value \(sample 3\)"):
        read(problem(), tmp_path, columns=BY_LANGUAGE)
    assert read(problem(), tmp_path, "drop", BY_LANGUAGE).missing == 1


def test_the_prompt_is_the_policy_where_there_is_one_provider(tmp_path):
    results = [
        {"provider": {"id": "m"}, "prompt": {"label": prompt}, "testIdx": test, "score": 0.5,
         "success": test > 1, "vars": {"language": "en" if test % 2 else "sw"}}
        for prompt in ("large", "small") for test in range(4)
    ]  # fmt: skip
    (tmp_path / "out.json").write_text(json.dumps({"results": {"version": 3, "results": results}}))
    assert read(problem(), tmp_path, columns=BY_LANGUAGE).state.s.tolist() == [[1, 1], [1, 1]]
    scored = read(problem(eh.Bounded(0.0, 1.0)), tmp_path, columns=BY_LANGUAGE)
    assert scored.state.s.tolist() == [[1.0, 1.0], [1.0, 1.0]]  # two scores of .5


def test_filters_of_lm_eval_are_scores_of_their_own(tmp_path):
    rows = [
        {"doc_id": n, "doc": {"language": "en" if n % 2 else "sw"}, "filtered_resps": [], "filter": kind,
         "metrics": ["exact_match"], "exact_match": value}
        for n in range(2) for kind, value in (("strict", 0.0), ("flexible", 1.0))
    ]  # fmt: skip
    folder = tmp_path / "large"
    folder.mkdir()
    path = folder / "samples_t_2025-01-01T00-00-00.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(BadInput, match="exact_match,strict and exact_match,flexible"):
        read(problem(), path, columns=BY_LANGUAGE)
    found = read(problem(), path, columns=BY_LANGUAGE | {"outcome": "exact_match,flexible"})
    assert found.state.s.tolist() == [[1, 0], [1, 0]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "cannot be read as JSON"),
        ("a.json", '{"x": 1}', "must be a log of Inspect or results of promptfoo"),
        ("a.json", '{"status": "error", "eval": {}, "samples": []}', "must hold samples; it has none"),
        ("a.jsonl", '{"a": 1}\nx', "line 2: the line cannot be read as JSON"),
        ("a.jsonl", "[1]", "line 1: every line must be an object"),
        ("a.eval", "no archive", "cannot be read as an Inspect log"),
    ],
)
def test_a_file_that_is_no_log_is_refused_in_one_sentence(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=message):
        read(problem(), tmp_path / name, columns=BY_LANGUAGE)


def test_a_damaged_archive_is_refused(tmp_path):
    source = next((LOGS / "inspect").glob("*.eval"))
    content = bytearray(source.read_bytes())
    with zipfile.ZipFile(source) as archive:
        start = archive.getinfo("samples/q3_epoch_1.json").header_offset
    content[start + 300 : start + 400] = bytes(100)
    (tmp_path / "damaged.eval").write_bytes(content)
    with pytest.raises(BadInput, match=r"damaged\.eval cannot be read as an Inspect log"):
        read(problem(), tmp_path, columns=BY_LANGUAGE)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(BadInput, match="must hold logs of an evaluation"):
        read(problem(), tmp_path)


def test_the_command_judges_a_folder_of_logs(tmp_path, capsys):
    shutil.copytree(LOGS / "lm_eval", tmp_path / "logs")
    (tmp_path / "study.toml").write_text(
        '[problem]\npolicies = ["large", "small"]\ngroups = { en = 0.5, sw = 0.5 }\n'
        'family = { name = "bernoulli" }\nconstraint = { kind = "floors", at_least = 0.2 }\n'
    )
    arguments = ["judge", str(tmp_path / "study.toml"), str(tmp_path / "logs"), "--column", "group=language"]
    assert main([*arguments, "--json"]) in (0, 3)
    found = json.loads(capsys.readouterr().out)
    assert (found["samples"], found["shared_items"]) == (40, 20)
