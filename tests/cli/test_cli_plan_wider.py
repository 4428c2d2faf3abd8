"""`evenhand plan` for the wider question: what people read, and the keys of the contract."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenhand.cli.main import main

Run = Callable[[str], str]

HEAD = """
[problem]
policies = ["Standard", "A", "B"]
groups = { young = 0.6, old = 0.4 }
family = { name = "bernoulli" }
"""
TRUTH = """
[truth]
means = [[0.55, 0.45], [0.68, 0.56], [0.67, 0.55]]
"""
RELATIVE = 'constraint = { kind = "floors", relative_to = "Standard", margin = 0.05 }\n'


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What the command prints for a study."""

    def call(text: str, *options: str, code: int = 0) -> str:
        path = tmp_path / "study.toml"
        path.write_text(text)
        assert main(["plan", str(path), *options]) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return call


def as_json(run: Callable[..., str], text: str) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(
        run(text, "--json"), parse_constant=lambda word: pytest.fail(f"{word} is not JSON")
    )
    return table


def test_relative_floors_are_said_and_the_control_is_named(run: Callable[..., str]) -> None:
    out = run(HEAD + RELATIVE + TRUTH)
    assert out.startswith("A would be chosen: it has the best overall mean.")
    assert "that A misses its requirement against Standard in old" in out


def test_acceptable_answers_and_the_easiest_are_in_words_and_keys(run: Callable[..., str]) -> None:
    text = HEAD + RELATIVE + "[procedure]\nindifference = 0.03\n" + TRUTH
    out = run(text)
    assert "A and B are acceptable: within 0.03 of the best is accepted." in out
    assert "A is the easiest to certify; the allocation is for this answer." in out
    table = as_json(run, text)
    assert (table["answer"], table["acceptable"], table["easiest"]) == ("A", ["A", "B"], "A")
    assert [time["answer"] for time in table["times"]] == ["A", "B"]


def test_plain_plans_say_who_is_acceptable_too(run: Callable[..., str]) -> None:
    table = as_json(run, HEAD + 'constraint = { kind = "floors", at_least = 0.9 }' + TRUTH)
    assert (table["answer"], table["acceptable"], table["easiest"]) == (None, [None], None)
    assert "times" not in table


def test_a_near_tie_comes_with_a_suggestion(run: Callable[..., str]) -> None:
    text = HEAD + TRUTH.replace("[0.67, 0.55]", "[0.679, 0.56]")
    out = run(text)
    assert "Note: Would you take A or B? With indifference = 0.04 in [procedure], T* falls from" in out
    table = as_json(run, text)
    assert table["proposal"]["acceptable"] == ["A", "B"]
    assert table["proposal"]["time_high"] < 0.01 * table["time_low"]
    assert table["proposal"]["samples_at_least"] < 0.01 * table["samples_at_least"]
    assert "and the least number of samples on average from" in out


def test_a_tie_is_refused_with_the_indifference_that_decides_it(run: Callable[..., str]) -> None:
    said = run(HEAD + TRUTH.replace("[0.67, 0.55]", "[0.68, 0.56]"), code=2)
    assert "are tied for the best overall mean" in said
    assert "or accept 'A' or 'B': with indifference = 0.04 T* is" in said
    assert said.count("\n") == 1


def test_money_and_samples_stand_in_different_sentences_and_keys(run: Callable[..., str]) -> None:
    text = HEAD + 'costs = { "A" = 4.0 }\n' + TRUTH
    out = run(text, "--sensitivity")
    assert "samples on average (T*, samples per unit of evidence" in out
    assert "Any such procedure costs at least" in out
    assert "Lower bound on cost, by risk" in out
    priced, free = as_json(run, text), as_json(run, HEAD + TRUTH)
    assert priced["samples_at_least"] == free["samples_at_least"]
    assert priced["cost_at_least"] > 1.5 * free["samples_at_least"]
    assert "cost_at_least" not in free


def test_guard_rails_have_their_tables(run: Callable[..., str]) -> None:
    text = (
        HEAD
        + """
[[problem.guardrails]]
name = "complaints"
family = { name = "poisson" }
constraint = { kind = "caps", at_most = 1.5 }
"""
        + TRUTH
        + "guardrails = { complaints = [[0.8, 0.9], [1.0, 1.7], [1.3, 1.2]] }\n"
    )
    out = run(text)
    assert out.startswith(
        "B would be chosen: it has the best overall mean of the 2 that meet the requirement (every policy "
        "must stay at or below 1.5 in every group (complaints))."
    )
    assert "Assumed means of complaints" in out
    assert "Note: With guard-rails T* is exact where the outcomes of one sample are independent." in out
    assert any(bound.get("metric") == "complaints" for bound in as_json(run, text)["binding"])


def test_screening_names_the_policies_that_pass_and_fail(run: Callable[..., str]) -> None:
    text = HEAD + 'goal = "screen"\nconstraint = { kind = "floors", at_least = 0.5 }\n' + TRUTH
    out = run(text)
    assert out.startswith(
        "A and B meet the requirement (every policy must reach 0.5 in every group), Standard does not."
    )
    table = as_json(run, text)
    assert (table["goal"], table["allowed"], table["failed"]) == ("screen", ["A", "B"], ["Standard"])
    assert (table["answer"], table["acceptable"], table["easiest"]) == (None, [], None)
    one = text.replace('["Standard", "A", "B"]', '["A"]').replace(
        "[[0.55, 0.45], [0.68, 0.56], [0.67, 0.55]]", "[[0.6, 0.7]]"
    )
    assert as_json(run, one)["allowed"] == ["A"]


def test_a_question_with_one_possible_answer_needs_no_samples(run: Callable[..., str]) -> None:
    everyone = run(HEAD + RELATIVE + "[procedure]\nindifference = 1.0\n" + TRUTH)
    assert "No samples are needed: Standard is acceptable whatever the means are." in everyone
    assert "Hardest alternatives" not in everyone
    alone = HEAD.replace('["Standard", "A", "B"]', '["Standard"]') + 'goal = "screen"\n' + RELATIVE
    out = run(alone + "[truth]\nmeans = [[0.5, 0.5]]\n")
    assert "No samples are needed: the classes are the same whatever the means are." in out


@pytest.mark.parametrize("options", [(), ("--sensitivity",), ("--figure", "a.svg")])
def test_every_option_works_with_all_of_it(
    run: Callable[..., str], options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    rails = 'guardrails = [{ name = "c", family = { name = "gaussian", sd = 1.0 }, constraint = { kind = "floors", relative_to = "Standard", margin = 0.5 } }]\n'  # noqa: E501
    text = (
        HEAD
        + RELATIVE
        + rails
        + "costs = { old = 2.0 }\n[procedure]\nindifference = 0.02\ntolerance = 0.01\n"
        + TRUTH
    )
    out = run(text + "guardrails = { c = [[0.0, 0.0], [0.1, 0.1], [0.2, 0.2]] }\n", *options)
    assert out.startswith("A would be chosen")


def test_the_report_of_such_a_study_shows_a_picture_per_guard_rail(tmp_path: Path) -> None:
    study, page = tmp_path / "study.toml", tmp_path / "plan.html"
    study.write_text(
        HEAD
        + RELATIVE
        + 'guardrails = [{ name = "c", family = { name = "poisson" }, '
        + 'constraint = { kind = "caps", at_most = 1.5 } }]\n'
        + "[procedure]\nindifference = 0.02\n"
        + TRUTH
        + "guardrails = { c = [[0.8, 0.9], [1.0, 1.1], [0.7, 0.6]] }\n"
    )
    assert main(["report", str(study), "-o", str(page)]) == 0
    text = page.read_text()
    assert "The means it assumes of c" in text
    assert "A and B are acceptable: within 0.02 of the best is accepted." in text
