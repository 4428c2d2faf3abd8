"""Guard-rails through the whole product: command line, files, HTTP, client, pages, report, audit, judge."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

import evenhand as eh
from evenhand.cli.main import main
from evenhand.service.client import _sample
from evenhand.study import dumps, load
from tests.service.peers import admin_client

pytestmark = pytest.mark.usefixtures("whole_pages")

STUDY = eh.Study(
    eh.Problem(
        ["old", "new"], {"web": 0.6, "app": 0.4}, eh.Gaussian(0.5), eh.Floors(-1.0),
        guardrails=[
            eh.Guardrail("errors", eh.Bernoulli(), eh.Caps(0.3)),
            eh.Guardrail("calls", eh.Poisson(), eh.Caps(3.0)),
        ],
    ),
    eh.Procedure(delta=0.1, max_samples=4000),
)  # fmt: skip
MEANS = {("old", "web"): 0.2, ("old", "app"): 0.3, ("new", "web"): 0.9, ("new", "app"): 0.8}


def sample(policy: str, group: str, number: int) -> dict[str, Any]:
    """The outcomes of a ticket: the same wherever it is asked for; every seventh has no `calls`."""
    u = (number * 0.6180339887498949) % 1.0
    rate = 0.7 if (policy, group) == ("new", "app") else 0.05
    calls = None if number % 7 == 0 else number % 3
    return {"outcome": round(MEANS[policy, group] + u - 0.5, 3), "errors": int(u < rate), "calls": calls}


def called(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main(list(words)) == code, capsys.readouterr()
    said = capsys.readouterr()
    return json.loads(said.out) if "--json" in words else said.out + said.err


def test_guard_rails_run_from_the_command_line_to_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(dumps(STUDY), encoding="utf-8")
    assert load(Path("study.toml")).problem == STUDY.problem
    called(capsys, "new", "shop.db", "study.toml", "--seed", "5")
    first = called(capsys, "ask", "shop.db", "--json")[0]
    ticket = first.pop("ticket")
    said = called(capsys, "tell", "shop.db", ticket, "0.3", "--metric", "errors=0", code=2)
    assert "'calls' is not there" in " ".join(said.split())
    said = called(capsys, "tell", "shop.db", ticket, "0.3", "--metric", "fails=0", code=2)
    assert "there is no guard-rail 'fails'" in " ".join(said.split())
    called(capsys, "tell", "shop.db", ticket, "0.3", "--metric", "errors=0", "--metric", "calls=")
    called(
        capsys, "amend", "shop.db", ticket, "0.3", "--metric", "errors=1", "--metric", "calls=2",
        "--reason", "found later", "--by", "ann",
    )  # fmt: skip
    rows = _tell_by_file(capsys)
    status = called(capsys, "status", "shop.db", "--json")
    assert (status["decided"], status["answer"], status["failed"]) == (True, "old", ["new"])
    errors, calls = status["guardrails"]
    assert (errors["name"], errors["missing"]) == ("errors", 0)
    assert calls["missing"] == sum(row["calls"] is None for row in rows)
    shown = called(capsys, "status", "shop.db")
    assert "Guard-rail errors" in shown
    assert "missing independently of their values" in " ".join(shown.split())
    assert called(capsys, "audit", "shop.db", "--json")["identical"]
    called(capsys, "export", "shop.db", "-o", "log.jsonl")
    called(capsys, "transfer", "log.jsonl", "copy.db")
    assert called(capsys, "audit", "copy.db", "--json")["identical"]
    called(capsys, "report", "shop.db", "-o", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "The means of errors against their bounds" in page
    assert "Guard-rail calls" in page
    _judge(capsys, [first | {"outcome": 0.3, "errors": 1, "calls": 2}, *rows], status)


def _tell_by_file(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Tell tickets by the file that `ask` writes, until the experiment ends; what was told."""
    rows: list[dict[str, Any]] = []
    while True:
        text = called(capsys, "ask", "shop.db", "-n", "20")
        if text.startswith("No ticket") or "No ticket" in text:
            return rows
        Path("batch.csv").write_text(text, encoding="utf-8")
        with Path("batch.csv").open(newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file))
        assert list(table[0]) == ["ticket", "policy", "group", "outcome", "errors", "calls"]
        for row in table:
            told = sample(row["policy"], row["group"], len(rows))
            rows.append({"policy": row["policy"], "group": row["group"]} | told)
            row |= {name: "" if value is None else str(value) for name, value in told.items()}
        with Path("batch.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows(table)
        counted = called(capsys, "tell", "shop.db", "batch.csv", "--json")["counted"]
        del rows[len(rows) - len(table) + counted :]


def _judge(capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]], status: Any) -> None:
    """The same outcomes as data at hand give the same answer."""
    with Path("data.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    verdict = called(capsys, "judge", "study.toml", "data.csv", "--replications", "0", "--json")
    for name in ("answer", "decided", "allowed", "failed", "open", "samples"):
        assert verdict[name] == status[name], name
    assert [rail["missing"] for rail in verdict["guardrails"]] == [0, status["guardrails"][1]["missing"]]
    one_look = called(capsys, "judge", "study.toml", "data.csv", "--fixed-sample", "--json")
    assert one_look["answer"] == status["answer"]
    called(capsys, "new", "later.db", "study.toml", "--seed", "6")
    assert called(capsys, "import", "later.db", "data.csv", "--json")["imported"] == len(rows)
    assert called(capsys, "audit", "later.db", "--json")["identical"]


def test_plans_dossiers_and_fixed_samples_take_guard_rails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rails = {"errors": [[0.05, 0.05], [0.05, 0.7]], "calls": [[1.0, 1.0], [1.0, 1.0]]}
    truth = eh.Truth([[0.2, 0.3], [0.9, 0.8]], guardrails=rails)
    Path("study.toml").write_text(dumps(eh.Study(STUDY.problem, STUDY.procedure, truth)), encoding="utf-8")
    assert called(capsys, "plan", "study.toml", "--json")["answer"] == "old"
    words = ["report", "study.toml", "--dossier", "-o", "dossier.html", "--replications", "4"]
    called(capsys, *words, "--max-samples", "200")
    page = Path("dossier.html").read_text(encoding="utf-8")
    assert "old narrowly misses its bound of errors in web" in page
    assert "The assumed means of calls" in page
    lines = ["policy,group,outcome,errors,calls"]
    for number in range(400):
        policy, group = list(MEANS)[number % 4]
        lines.append(
            ",".join([policy, group, *(str(x or "") for x in sample(policy, group, number).values())])
        )
    Path("data.csv").write_text("\n".join(lines).replace(",,", ",0,") + "\n", encoding="utf-8")
    found = called(capsys, "judge", "study.toml", "data.csv", "--fixed-sample", "--json")
    assert (found["answer"], found["failed"], found["fixed_sample"]) == ("old", ["new"], True)
    assert [rail["name"] for rail in found["guardrails"]] == ["errors", "calls"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient[Any]]:
    with admin_client(str(tmp_path_factory.mktemp("guardrails") / "journal.db")) as found:
        yield found


def test_guard_rails_run_over_http_and_the_page_shows_each(client: TestClient[Any]) -> None:
    body = {"id": "shop", "study": STUDY.to_dict(), "seed": 5}
    assert client.post("/api/experiments", json=body).status_code == 201
    [ticket] = client.post("/api/experiments/shop/ask", json={}).json()
    for told, words in (
        (0.3, "must name outcome, errors, calls"),
        ({"outcome": 0.3, "errors": 0}, "'calls' is not there"),
        ({"outcome": 0.3, "errors": 0.5, "calls": 1}, "guard-rail 'errors'"),
    ):
        refused = client.post(
            "/api/experiments/shop/tell", json={"ticket": ticket["ticket"], "outcome": told}
        )
        assert refused.status_code == 422
        assert words in refused.text
    told = {"ticket": ticket["ticket"], "outcome": {"outcome": 0.3, "errors": False, "calls": None}}
    assert client.post("/api/experiments/shop/tell", json=told).json()["counted"]
    number = 0
    while tickets := client.post("/api/experiments/shop/ask", json={"n": 20}).json():
        batch = []
        for one in tickets:
            batch.append({"ticket": one["ticket"], "outcome": sample(one["policy"], one["group"], number)})
            number += 1
        assert client.post("/api/experiments/shop/tell-all", json={"outcomes": batch}).status_code < 300
    status = client.get("/api/experiments/shop").json()
    assert (status["decided"], status["answer"]) == (True, "old")
    assert [rail["name"] for rail in status["guardrails"]] == ["errors", "calls"]
    page = client.get("/experiments/shop", headers={"Accept": "text/html"}).text
    assert "The means of errors against their bounds" in page
    assert "<h3>calls (" in page
    assert "missing independently of their values" in page


def test_the_client_sends_outcomes_by_name() -> None:
    assert _sample({"outcome": 1, "errors": True, "calls": None}) == {
        "outcome": 1.0,
        "errors": True,
        "calls": None,
    }
    assert _sample(2) == 2.0
    with pytest.raises(eh.BadInput, match="an outcome must be a number"):
        _sample({"outcome": "much"})


RAIL = """
[[problem.guardrails]]
name = "{}"
family = {{ name = "bernoulli" }}
constraint = {{ kind = "caps", at_most = 0.3 }}
"""
PROBLEM = '[problem]\npolicies = ["a", "b"]\ngroups = { x = 1.0 }\nfamily = { name = "gaussian", sd = 1.0 }\n'


@pytest.mark.parametrize(
    ("rails", "message"),
    [
        (RAIL.format("errors") * 2, "guard-rails must have different names; 'errors' comes twice"),
        (RAIL.format("outcome"), "a guard-rail cannot be called 'outcome'"),
        (RAIL.format("group"), "a guard-rail cannot be called 'group'"),
        (RAIL.format("errors").replace("caps", "gap"), "a guard-rail takes floors, caps and 'all' of these"),
    ],
)
def test_guard_rails_that_clash_are_refused_and_nothing_is_written(
    rails: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(PROBLEM + rails, encoding="utf-8")
    said = called(capsys, "new", "shop.db", "study.toml", "--seed", "1", code=2)
    assert message in " ".join(said.split())
    assert not Path("shop.db").exists()
