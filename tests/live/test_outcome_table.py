"""Outcomes as a table: those that count, with their latest corrections, as `judge` reads them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from litestar.testing import TestClient

import evenhand as eh
from evenhand.cli.experiment import export_command
from evenhand.service.app import Settings, create_app
from evenhand.service.keys import Keys
from evenhand.verdicts.judge import judge
from tests.service.peers import seen_from
from tests.service.service_process import STUDY


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def example(journal: str, **more: Any) -> eh.Experiment:
    problem = STUDY["problem"] | more
    return eh.Experiment.create(journal, eh.Study.from_dict(STUDY | {"problem": problem}), seed=7)


def test_the_table_has_what_counts_with_corrections_and_imports(tmp_path: Path) -> None:
    with example(str(tmp_path / "t.db")) as trial:
        trial.import_data([("plain", "north", 1), ("bold", "south", 0)], source="pilot")
        asks = trial.ask(5, worker="nurse")
        for ask in asks[:4]:
            trial.tell(ask, 1)
        trial.amend(asks[0], 0, reason="misread", by="me")
        trial.drop(asks[4], "moved away")
        trial.tell(asks[4], 1)  # late: it does not count
        trial.export_outcomes(tmp_path / "o.csv")
        counts = {(cell.policy, cell.group): (cell.n, cell.mean) for cell in trial.status().cells}
    rows = read(tmp_path / "o.csv")
    assert [row["source"] for row in rows] == ["pilot", "pilot", "ask", "ask", "ask", "ask"]
    assert [row["outcome"] for row in rows] == ["1", "0", "0", "1", "1", "1"]
    assert [row["corrected"] for row in rows] == ["false", "false", "true", "false", "false", "false"]
    assert [row["worker"] for row in rows] == ["", "", *["nurse"] * 4]
    assert rows[2]["ticket"] == asks[0].ticket
    assert rows[2]["asked_at"] <= rows[2]["told_at"]
    for cell, (n, mean) in counts.items():
        found = [float(row["outcome"]) for row in rows if (row["policy"], row["group"]) == cell]
        assert len(found) == n
        assert sum(found) == pytest.approx(n * mean if n else 0)


def test_judging_the_table_gives_the_verdict_of_the_experiment(tmp_path: Path) -> None:
    study = eh.Study.from_dict(STUDY)
    with example(str(tmp_path / "t.db")) as trial:
        while asks := trial.ask(4):
            trial.tell_all([(ask, int(ask.policy == "plain"), None) for ask in asks])
        status = trial.status()
        for name in ("o.csv", "o.parquet"):
            trial.export_outcomes(tmp_path / name)
    for name in ("o.csv", "o.parquet"):
        verdict = judge(study.problem, tmp_path / name, procedure=study.procedure)
        assert (verdict.answer, verdict.decided) == (status.answer, True)
        assert verdict.evidence == pytest.approx(status.evidence, rel=1e-12)


def test_guardrails_have_columns_and_a_name_that_clashes_keeps_its_own(tmp_path: Path) -> None:
    rails = [
        {"name": name, "family": {"name": "poisson"}, "constraint": {"kind": "caps", "at_most": 1.5}}
        for name in ("complaints", "worker")
    ]
    with example(str(tmp_path / "t.db"), guardrails=rails) as trial:
        for ask, count in zip(trial.ask(2, worker="nurse"), (3, None), strict=True):
            trial.tell(ask, {"outcome": 1, "complaints": count, "worker": 2})
        for name in ("o.csv", "o.parquet"):
            trial.export_outcomes(tmp_path / name)
    rows = read(tmp_path / "o.csv")
    assert [row["complaints"] for row in rows] == ["3", ""]
    assert [(row["worker"], row["worker (ticket)"]) for row in rows] == [("2", "nurse")] * 2
    table = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert [(row["complaints"], row["worker (ticket)"]) for row in table] == [(3.0, "nurse"), (None, "nurse")]


def test_policies_that_joined_and_left_are_in_the_table(tmp_path: Path) -> None:
    with example(str(tmp_path / "t.db"), max_policies=3) as trial:
        trial.add_policy("third", reason="new", by="me")
        asks = trial.ask(12)
        trial.tell_all([(ask, 1, None) for ask in asks])
        trial.withdraw("third", reason="gone", by="me")
        trial.export_outcomes(tmp_path / "o.csv")
    assert [row["policy"] for row in read(tmp_path / "o.csv")] == [ask.policy for ask in asks]


def test_names_that_look_like_formulas_are_marked_in_csv_only(tmp_path: Path) -> None:
    with example(str(tmp_path / "t.db"), policies=["=1+1", "bold"]) as trial:
        for ask in trial.ask(4):
            trial.tell(ask, 1)
        for name in ("o.csv", "o.parquet"):
            trial.export_outcomes(tmp_path / name)
    assert {row["policy"] for row in read(tmp_path / "o.csv")} == {"'=1+1", "bold"}
    assert set(pq.read_table(tmp_path / "o.parquet")["policy"].to_pylist()) == {"=1+1", "bold"}


def test_the_command_writes_tables(tmp_path: Path) -> None:
    journal = str(tmp_path / "t.db")
    with example(journal) as trial:
        for ask in trial.ask(3):
            trial.tell(ask, 1)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(export_command, [journal, *arguments], catch_exceptions=False)

    assert run("--format", "csv").output.splitlines()[0].startswith("policy,group,outcome,ticket")
    target = str(tmp_path / "o.parquet")
    found = run("--format", "parquet", "-o", target, "--json")
    assert json.loads(found.output) == {"file": target, "outcomes": 3}
    assert "3 outcomes written" in run("--format", "parquet", "-o", target).output
    (tmp_path / "mine.csv").write_text("dear diary")
    with pytest.raises(eh.BadInput, match="not a table of outcomes"):
        run("--format", "csv", "-o", str(tmp_path / "mine.csv"))
    assert (tmp_path / "mine.csv").read_text() == "dear diary"


def test_tables_over_http_are_for_those_who_may_see_outcomes(tmp_path: Path) -> None:
    journal = str(tmp_path / "t.db")
    keys = {role: Keys(journal).create(role, role) for role in ("operator", "admin")}
    with TestClient(seen_from(create_app(Settings(journal))), base_url="http://127.0.0.1") as client:

        def get(role: str, kind: str) -> Any:
            bearer = {"Authorization": f"Bearer {keys[role]}"}
            return client.get(f"/api/v1/experiments/main/export?format={kind}", headers=bearer)

        bearer = {"Authorization": f"Bearer {keys['admin']}"}
        client.post("/api/v1/experiments", json={"id": "main", "study": STUDY, "seed": 7}, headers=bearer)
        [ticket] = client.post("/api/v1/experiments/main/ask", json={}, headers=bearer).json()
        told = {"ticket": ticket["ticket"], "outcome": 1}
        client.post("/api/v1/experiments/main/tell", json=told, headers=bearer)
        assert [get("operator", kind).status_code for kind in ("csv", "parquet", "jsonl")] == [403] * 3
        assert get("admin", "xlsx").status_code == 422
        found = get("admin", "csv")
        assert found.headers["content-type"] == "text/csv; charset=utf-8"
        assert found.headers["content-disposition"] == 'attachment; filename="main.csv"'
        [row] = csv.DictReader(io.StringIO(found.text))
        assert (row["policy"], row["outcome"], row["told_by"]) == (ticket["policy"], "1", "admin")
        parquet = pq.read_table(io.BytesIO(get("admin", "parquet").content)).to_pylist()
        assert parquet[0]["outcome"] == 1.0
