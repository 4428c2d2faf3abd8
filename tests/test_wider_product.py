"""Every kind of question through the whole product: command line, Python, HTTP, pages, report, audit."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

import evenhand as eh
from evenhand.cli.main import main
from evenhand.study import dumps
from tests.service.peers import admin_client
from tests.wider_studies import STUDIES

pytestmark = pytest.mark.usefixtures("whole_pages")

KINDS = ("indifference", "relative", "screen", "costs")
# what the end says in words, on every page
WORDS = {
    "indifference": "within 0.2 of the best",
    "relative": "is the answer",
    "screen": "are allowed",
    "costs": "The samples have cost",
}


def outcome(kind: str, policy: str, group: str, number: int) -> float:
    """The outcome of a ticket: the same wherever it is asked for."""
    problem, means = STUDIES[kind].problem, STUDIES[kind].means()
    mean = means[problem.policies.index(policy)][problem.group_names.index(group)]
    return float((number * 0.6180339887498949) % 1.0 < mean)


def called(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main(list(words)) == code, capsys.readouterr()
    said = capsys.readouterr().out
    return json.loads(said) if "--json" in words else said


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_runs_from_the_command_line_to_the_report(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, journal = str(tmp_path / "study.toml"), str(tmp_path / "trial.db")
    export, page = str(tmp_path / "log.jsonl"), tmp_path / "page.html"
    Path(study).write_text(dumps(STUDIES[kind]), encoding="utf-8")
    called(capsys, "new", journal, study, "--seed", "5")
    first = called(capsys, "ask", journal, "--json")
    first = first[0] if isinstance(first, list) else first
    called(capsys, "tell", journal, first["ticket"], "1")
    with eh.Experiment.open(journal) as trial:
        number = 0
        rows = [(first["policy"], first["group"], 1.0)]
        while ask := trial.ask():
            number += 1
            rows.append((ask.policy, str(ask.group), outcome(kind, ask.policy, str(ask.group), number)))
            trial.tell(ask, rows[-1][2])
    status = called(capsys, "status", journal, "--json")
    assert status["decided"]
    assert sorted(status["allowed"] + status["failed"] + status["open"]) == sorted(
        STUDIES[kind].problem.policies
    )
    assert WORDS[kind] in called(capsys, "status", journal).replace("\n", " ")
    called(capsys, "audit", journal)
    called(capsys, "export", journal, "-o", export)
    called(capsys, "transfer", export, str(tmp_path / "copy.db"))
    called(capsys, "report", journal, "-o", str(page))
    assert WORDS[kind] in page.read_text(encoding="utf-8")
    _judged(kind, study, rows, status, tmp_path, capsys)


def _judged(
    kind: str, study: str, rows: list[tuple[str, str, float]], status: Any, folder: Path, capsys: Any
) -> None:
    """The same outcomes as data at hand give the same answer and the same classes."""
    data = folder / "data.csv"
    lines = [f"{policy},{group},{value}" for policy, group, value in rows]
    data.write_text("\n".join(["policy,group,outcome", *lines]), encoding="utf-8")
    verdict = called(capsys, "judge", study, str(data), "--replications", "0", "--json")
    for name in ("answer", "decided", "allowed", "failed", "open", "spent", "samples"):
        assert verdict[name] == status[name], name
    assert main(["judge", study, str(data), "--fixed-sample", "--json"]) in (0, 3)
    one_look = json.loads(capsys.readouterr().out)
    assert one_look["answer"] in (None, status["answer"])
    assert set(one_look["allowed"]) <= {*status["allowed"], *status["open"]}
    if kind == "relative":
        said = called(capsys, "judge", study, str(data), "--replications", "0")
        assert "at most 0.1 below a" in " ".join(said.split())


@pytest.mark.parametrize("kind", ["relative", "screen"])
def test_a_dossier_covers_the_question(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, page = tmp_path / "study.toml", tmp_path / "dossier.html"
    study.write_text(dumps(STUDIES[kind]), encoding="utf-8")
    words = ["report", str(study), "--dossier", "-o", str(page), "--replications", "4", "--seed", "1"]
    called(capsys, *words, "--max-samples", "200")
    text = page.read_text(encoding="utf-8")
    assert "narrowly misses its bound in y" in text
    assert STUDIES[kind].problem.constraint.describe() in text


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient[Any]]:
    with admin_client(str(tmp_path_factory.mktemp("wider") / "journal.db")) as found:
        yield found


def page_of(client: TestClient[Any], path: str) -> str:
    """The text of a page; a busy machine may take longer than the service waits for its first drawing."""
    for _ in range(10):
        answer = client.get(path, headers={"Accept": "text/html"})
        if answer.status_code == 200:
            return str(answer.text)
    raise AssertionError(answer.text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_runs_over_http_and_its_page_shows_it(kind: str, client: TestClient[Any]) -> None:
    study = STUDIES[kind].to_dict()
    planned = client.post("/api/plan", json={"study": study}).json()
    assert planned["samples_at_least"] > 0
    made = client.post("/api/experiments", json={"id": kind, "study": study, "seed": 5})
    assert made.status_code == 201, made.text
    number = 0
    while tickets := client.post(f"/api/experiments/{kind}/ask", json={"n": 20}).json():
        told = []
        for ticket in tickets:
            number += 1
            value = outcome(kind, ticket["policy"], ticket["group"], number)
            told.append({"ticket": ticket["ticket"], "outcome": value})
        assert client.post(f"/api/experiments/{kind}/tell-all", json={"outcomes": told}).status_code < 300
    status = client.get(f"/api/experiments/{kind}").json()
    assert status["decided"]
    page = page_of(client, f"/experiments/{kind}")
    assert WORDS[kind] in page
    if kind == "relative":
        assert "interval of a" in page
        assert "at most 0.1 below a" in page
    if kind == "screen":
        assert "allowed: <bdi>a</bdi>, <bdi>b</bdi>" in page
        assert "allowed: a, b" in client.get("/", headers={"Accept": "text/html"}).text


BAD = {
    'constraint = { kind = "floors", relative_to = "nobody" }': "relative_to must name one of the policies",
    'constraint = { kind = "floors", relative_to = "p", margin = [0.1, 0.1, 0.1] }': "margin",
    'constraint = { kind = "caps", relative_to = "p", ratio = -1 }': "ratio must be positive",
    'family = { name = "bounded", low = -1, high = 1 }\n'
    'constraint = { kind = "floors", relative_to = "p", ratio = 0.9 }': (
        "a ratio needs means that cannot be negative"
    ),
    "[procedure]\nindifference = -0.1": "indifference must be a finite number, 0 or more",
    "[procedure]\nindifference = inf": "indifference must be a finite number, 0 or more",
    "[procedure]\ntolerance = -0.1": "tolerance must not be negative",
    'goal = "screen"': 'goal = "screen" needs a requirement to screen by',
    'goal = "screening"': "goal must be one of best, screen",
    "policies = []\ngoal = 'screen'\nconstraint = { kind = 'floors', at_least = 0.5 }": (
        "policies must hold at least 1 names"
    ),
    "costs = { p = -1.0 }": "costs",
    'goal = "screen"\nconstraint = { kind = "floors", at_least = 0.5 }\n[procedure]\nindifference = 0.1': (
        'indifference belongs to goal = "best"'
    ),
}


def study_text(lines: str) -> str:
    head = "" if "policies" in lines else 'policies = ["p", "r"]\n'
    head += "" if "family" in lines else 'family = { name = "bernoulli" }\n'
    return f"[problem]\ngroups = {{ a = 0.5, b = 0.5 }}\n{head}{lines}\n"


@pytest.mark.parametrize("lines", BAD)
def test_bad_input_is_refused_in_python_and_over_http_with_the_same_sentence(
    lines: str, client: TestClient[Any]
) -> None:
    study = tomllib.loads(study_text(lines))
    with pytest.raises(eh.BadInput) as refusal:
        eh.Study.from_dict(study)
    assert BAD[lines] in str(refusal.value)
    if "inf" in lines.split():
        return  # not a number of JSON
    answer = client.post("/api/experiments", json={"id": "refused", "study": study, "seed": 1})
    assert answer.status_code == 422
    assert answer.json()["error"] == str(refusal.value)
    assert client.get("/api/experiments/refused").status_code == 404


@pytest.mark.parametrize("lines", BAD)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, data = tmp_path / "study.toml", tmp_path / "data.csv"
    data.write_text("policy,group,outcome\np,a,1\np,b,0\nr,a,1\nr,b,1\n")
    study.write_text(study_text(lines))
    commands = (
        ["new", str(tmp_path / "trial.db"), str(study), "--seed", "1"],
        ["judge", str(study), str(data), "-o", str(tmp_path / "page.html")],
        ["judge", str(study), str(data), "--fixed-sample"],
    )
    for command in commands:
        assert main(command) == 2, command
        said = capsys.readouterr().err
        assert BAD[lines] in said
        assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "study.toml"]
