"""The commands on journals: names, JSON keys and exit codes as in the contract."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from evenhand.cli.main import main

STUDY = """
title = "Three ways"
[problem]
policies = ["a", "=b", "c"]
groups = { "x" = 0.6, "y" = 0.4 }
family = { name = "bernoulli" }
constraint = { kind = "floors", at_least = 0.3 }
[procedure]
initial = 2
"""


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(STUDY)
    assert main(["new", "trial.db", "study.toml", "--seed", "3"]) == 0
    capsys.readouterr()
    return "trial.db"


class Shell:
    """Runs commands and keeps what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.code, self.out, self.err = 0, "", ""

    def __call__(self, *arguments: str) -> int:
        self.code = main(list(arguments))
        self.out, self.err = self._capsys.readouterr()
        return self.code

    def json(self, *arguments: str) -> Any:
        self(*arguments, "--json")
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def test_new_freezes_the_study_and_does_so_once(journal: str, run: Shell) -> None:
    assert run("new", journal, "study.toml", "--seed", "4") == 2
    assert "already" in run.err
    made = run.json("new", "other.db", "study.toml", "--seed", "4")
    assert (made["experiment"], made["seed"], len(made["head"])) == ("main", 4, 64)
    assert run("new", "third.db", "nothing.toml", "--seed", "4") == 2
    assert not Path("third.db").exists()


def test_ask_gives_tickets_with_policy_and_group(journal: str, run: Shell) -> None:
    asks = run.json("ask", journal, "-n", "3")
    assert [set(ask) for ask in asks] == [{"ticket", "policy", "group"}] * 3
    assert {ask["policy"] for ask in asks} <= {"a", "=b", "c"}
    assert run.json("ask", journal, "--worker", "w") == run.json("ask", journal, "--worker", "w")
    assert run.json("ask", journal, "--key", "k") == run.json("ask", journal, "--key", "k")
    assert run("ask", journal, "--group", "x") == 2
    assert run("ask", journal, "-n", "0") == 2


def test_a_batch_goes_out_as_csv_and_comes_back_filled_in(journal: str, run: Shell) -> None:
    run("ask", journal, "-n", "40")
    rows = list(csv.reader(run.out.splitlines()))
    assert rows[0] == ["ticket", "policy", "group", "outcome"]
    assert len(rows) == 41
    assert "'=b" in {row[1] for row in rows}  # a spreadsheet must not take it for a formula
    filled = [[*row[:3], str(number % 2)] for number, row in enumerate(rows[1:36])]
    with Path("batch.csv").open("w", newline="") as file:
        csv.writer(file).writerows([rows[0], *filled, *rows[36:]])
    assert run.json("tell", journal, "batch.csv") == {"told": 35, "counted": 35, "late": 0, "refused": []}
    assert run.json("tell", journal, "batch.csv")["told"] == 35  # no harm done
    status = run.json("status", journal)
    assert (status["samples"], status["pending"]) == (35, 5)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("t1-0000,1", "line 2: this experiment has no ticket"),
        ("{},2", "line 2: outcomes must be 0 or 1"),
        ("{},x", "not a number"),
    ],
)
def test_after_one_wrong_line_nothing_of_the_file_is_recorded(
    journal: str, run: Shell, line: str, words: str
) -> None:
    asks = run.json("ask", journal, "-n", "2")
    wrong = line.format(asks[0]["ticket"])
    Path("batch.csv").write_text(f"ticket,outcome\n{wrong}\n{asks[1]['ticket']},1\n")
    assert run("tell", journal, "batch.csv") == 2
    assert words in run.err
    assert run.json("status", journal)["samples"] == 0
    assert run("tell", journal, "nothing.csv") == 2
    Path("batch.csv").write_text("a,b\n1,2\n")
    assert run("tell", journal, "batch.csv") == 2


def test_tell_counts_an_outcome_once_and_refuses_another(journal: str, run: Shell) -> None:
    ticket = run.json("ask", journal)[0]["ticket"]
    first = run.json("tell", journal, ticket, "1")
    assert first == {"ticket": ticket, "outcome": 1.0, "counted": True, "why": None}
    assert run.json("tell", journal, ticket, "1") == first
    assert run("tell", journal, ticket, "0") == 2
    assert "refused and written down" in run.err
    for text in ("nan", "inf", "1e400", "-0.0", "yes", "2", "-1", ""):
        assert run("tell", journal, ticket, text) == 2, text
    assert run("tell", journal, "t5-aaaa", "1") == 2
    assert run.json("amend", journal, ticket, "0", "--reason", "typo", "--by", "me")["outcome"] == 0.0
    assert run("amend", journal, ticket, "0") == 2  # no reason given
    assert run("drop", journal, ticket, "--reason", "r") == 2
    other = run.json("ask", journal)[0]["ticket"]
    assert run.json("drop", journal, other, "--reason", "withdrew") == {"ticket": other, "dropped": True}
    assert run.json("tell", journal, other, "1")["why"] == "dropped"


def test_import_status_and_check(journal: str, run: Shell) -> None:
    assert run("status", journal, "--check") == 3
    status = run.json("status", journal)
    assert {"answer", "decided", "samples", "pending", "evidence", "needed", "head", "more"} <= set(status)
    assert status["more"] == {"0.5": None, "0.7": None, "0.8": None, "0.9": None}
    assert status["forecast"]["why_none"] == "6 of 6 cells have no outcome yet"
    means = {"a": 80, "=b": 50, "c": 45}
    lines = [f"{p},{g},{int(i < m)}" for p, m in means.items() for g in "xy" for i in range(100)]
    Path("data.csv").write_text("policy,group,outcome\n" + "\n".join(lines[:12] + lines[200:204]))
    assert run.json("import", journal, "data.csv") == {"imported": 16, "already": False}
    assert run.json("import", journal, "data.csv") == {"imported": 16, "already": True}
    assert run.json("status", journal)["samples"] == 16
    Path("data.csv").write_text("policy,group,outcome\n" + "\n".join(lines))
    assert run.json("import", journal, "data.csv")["imported"] == 600
    status = run.json("status", journal)
    assert (status["answer"], status["decided"]) == ("a", True)
    assert status["more"] == {"0.5": 0, "0.7": 0, "0.8": 0, "0.9": 0}
    assert run("status", journal, "--check") == 0
    assert "a is the answer: certified at risk 5%" in run.out
    assert run.json("ask", journal) == []
    Path("data.csv").write_text("policy,group,outcome\na,x,1\na,z,1\n")
    assert run("import", journal, "data.csv") == 2


@pytest.mark.parametrize("text", ["nan", "inf", "1e400", "-0.0", "yes", "null", "2", "", "=1", "1;0"])
def test_one_bad_outcome_and_nothing_of_a_data_file_is_imported(journal: str, run: Shell, text: str) -> None:
    Path("data.csv").write_text(f"policy,group,outcome\na,x,1\na,x,{text}\n")
    assert run("import", journal, "data.csv") == 2
    assert "line 3" in run.err
    assert run.json("status", journal)["events"] == 1


def test_units_that_come_by_themselves_bring_their_group(journal: str, run: Shell) -> None:
    Path("study.toml").write_text(STUDY.replace("[procedure]", 'mode = "proportional"\n[procedure]'))
    run("new", "arrivals.db", "study.toml", "--seed", "3")
    assert run("ask", "arrivals.db") == 2
    assert "which group" in run.err
    asks = run.json("ask", "arrivals.db", "--group", "y", "-n", "2")
    assert [ask["group"] for ask in asks] == ["y", "y"]
    assert run("ask", "arrivals.db", "--group", "z") == 2


def test_where_the_group_is_unknown_it_is_told_with_the_outcome_or_written_into_the_batch(
    journal: str, run: Shell
) -> None:
    Path("study.toml").write_text(STUDY.replace("[procedure]", 'mode = "agnostic"\n[procedure]'))
    run("new", "blind.db", "study.toml", "--seed", "3")
    first, second = run.json("ask", "blind.db", "-n", "2")
    assert first["group"] is None
    assert run("tell", "blind.db", first["ticket"], "1") == 2
    assert "which group" in run.err
    assert run.json("tell", "blind.db", first["ticket"], "1", "--group", "x")["counted"]
    Path("batch.csv").write_text(f"ticket,group,outcome\n{second['ticket']},y,0\n")
    assert run.json("tell", "blind.db", "batch.csv")["counted"] == 1
    cells = {(c["policy"], c["group"]): c["n"] for c in run.json("status", "blind.db")["cells"]}
    assert cells[first["policy"], "x"] == cells[second["policy"], "y"] == 1


def test_status_forecasts_how_many_more(journal: str, run: Shell) -> None:
    asks = run.json("ask", journal, "-n", "12")
    for number, ask in enumerate(asks):
        run("tell", journal, ask["ticket"], str(number % 2))
    more = run.json("status", journal)["more"]
    assert list(more) == ["0.5", "0.7", "0.8", "0.9"]
    assert 0 < more["0.5"] <= more["0.9"]
    run("status", journal)
    said = " ".join(run.out.split())
    assert f"Chance to finish: 50% within {more['0.5']:,}" in said
    assert "The means are drawn from their posterior under Jeffreys' prior" in said
    assert "evidence" in run.out
    assert "Health: allocation as intended" in run.out


def test_export_and_audit(journal: str, run: Shell) -> None:
    for ask in run.json("ask", journal, "-n", "12"):
        run("tell", journal, ask["ticket"], "1")
    head = run.json("status", journal)["head"]
    assert run.json("export", journal, "-o", "out.jsonl") == {"file": "out.jsonl", "events": 25, "head": head}
    assert run("export", journal, "-o", "nowhere/out.jsonl") == 2
    for source in (journal, "out.jsonl"):
        found = run.json("audit", source, "--head", head)
        assert run.code == 0
        assert (found["identical"], found["head"], found["first_difference"]) == (True, head, None)
        assert found["events"] == 25
    Path("bad.jsonl").write_text(Path("out.jsonl").read_text().replace('"outcome":1.0', '"outcome":0.0', 1))
    found = run.json("audit", "bad.jsonl")
    assert (run.code, found["identical"], found["first_different_event"]) == (4, False, 14)
    assert run("audit", "out.jsonl", "--head", "0" * 64) == 4
    assert run("audit", "out.jsonl", "--head", "zz") == 2
    assert run("audit", "nothing") == 2
    Path("junk").write_text("hello")
    assert run("audit", "junk") == 2


def test_pause_resume_and_close(journal: str, run: Shell) -> None:
    assert run("pause", journal, "--reason", "visit", "--by", "board") == 0
    assert run("ask", journal) == 2
    assert run("resume", journal) == 0
    assert len(run.json("ask", journal)) == 1
    assert run.json("close", journal, "--reason", "done")["closed"] is True
    assert run("ask", journal) == 2


def test_a_journal_may_hold_several_experiments(journal: str, run: Shell) -> None:
    assert run("new", journal, "study.toml", "--seed", "1", "--experiment", "second") == 0
    assert run("ask", journal) == 2
    assert "say which: main, second" in run.err
    assert len(run.json("ask", journal, "--experiment", "second")) == 1
    assert run("ask", journal, "--experiment", "third") == 2


def test_what_is_missing_or_foreign_is_said_in_one_sentence(tmp_path: Path, run: Shell) -> None:
    assert run("ask", str(tmp_path / "none.db")) == 2
    assert "evenhand new" in run.err
    (tmp_path / "text").write_text("hello")
    assert run("status", str(tmp_path / "text")) == 4
    assert run.err.count("\n") == 1
    assert "Traceback" not in run.err


def test_postgresql_works_the_same(tmp_path: Path, run: Shell, postgres_url: str) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    assert run("ask", postgres_url) == 2  # nothing there yet
    assert run("new", postgres_url, str(tmp_path / "study.toml"), "--seed", "3") == 0
    ticket = run.json("ask", postgres_url)[0]["ticket"]
    assert run.json("tell", postgres_url, ticket, "1")["counted"]
    assert run.json("status", postgres_url)["samples"] == 1
    assert run.json("audit", postgres_url)["identical"]


def test_an_export_never_takes_the_place_of_a_journal(journal: str, run: Shell) -> None:
    before = Path(journal).read_bytes()
    assert run("export", journal, "-o", journal) == 2
    assert "exists and is not an export" in run.err
    assert Path(journal).read_bytes() == before
    for _ in range(2):  # an earlier export may be replaced
        assert run("export", journal, "-o", "whole.jsonl") == 0
    assert run("audit", "whole.jsonl") == 0


def test_an_empty_file_is_no_journal_and_stays_empty(run: Shell, journal: str) -> None:
    Path("empty.db").touch()
    for command in ("status", "ask", "audit"):
        assert run(command, "empty.db") == 4
        assert "empty" in run.err
    assert Path("empty.db").stat().st_size == 0


def test_a_journal_cut_short_is_damaged_for_every_reader(journal: str, run: Shell) -> None:
    assert run("ask", journal, "-n", "20") == 0
    whole = Path(journal).read_bytes()
    Path("cut.db").write_bytes(whole[: len(whole) // 2])
    for command in ("status", "ask", "audit"):
        assert run(command, "cut.db") == 4, command


def test_a_report_can_be_limited_to_one_experiment(journal: str, run: Shell) -> None:
    assert run("new", journal, "study.toml", "--seed", "2", "--experiment", "second") == 0
    assert run("report", journal, "-o", "page.html") == 2
    assert run("report", journal, "--experiment", "second", "-o", "page.html") == 0
    assert run("status", journal, "--experiment", "second") == 0
    assert f"Next: evenhand ask {journal} --experiment second" in run.out


def shared_study(path: str) -> None:
    Path(path).write_text(
        """[problem]
policies = ["a", "=b", "c"]
groups = { x = 0.5, y = 0.5 }
family = { name = "bernoulli" }
constraint = { kind = "floors", at_least = 0.3 }
[procedure]
items = "shared"
delta = 0.001
"""
    )


def test_the_commands_know_shared_items(run: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shared_study("study.toml")
    assert run("new", "trial.db", "study.toml", "--seed", "4") == 0
    [ask] = run.json("ask", "trial.db")
    assert (ask["policy"], ask["policies"]) == ("", ["a", "=b", "c"])
    told = run.json("tell", "trial.db", ask["ticket"], "a=1", "=b=0", "c=missing")
    assert told["outcome"] == {"a": 1.0, "=b": 0.0, "c": None}
    assert run("amend", "trial.db", ask["ticket"], "a=1", "=b=1", "c=0", "--reason", "r", "--by", "Ann") == 0
    assert "is now =b 1, a 1, c 0" in run.out
    head = run.json("status", "trial.db")["head"]
    for wrong, says in [
        (("1",), "must be POLICY=OUTCOME"), (("a=1", "a=0"), "must be POLICY=OUTCOME"),
        (("a=1", "=b=2", "c=0"), "policy '=b'"), (("a=1",), "is not there"),
        (("d=1",), "there is no policy 'd'"), (("a=", "=b=1", "c=1"), "write 'missing'"),
    ]:  # fmt: skip
        [again] = run.json("ask", "trial.db", "--worker", "w")
        assert run("tell", "trial.db", again["ticket"], *wrong) == 2
        assert says in run.err
        assert "Traceback" not in run.err
    assert run.json("status", "trial.db")["head"] != head  # the ticket was asked for
    assert run.json("audit", "trial.db")["identical"]


def test_a_batch_of_shared_items_has_a_row_for_every_policy(
    run: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shared_study("study.toml")
    run("new", "trial.db", "study.toml", "--seed", "4")
    run("ask", "trial.db", "-n", "4")
    rows = list(csv.reader(run.out.splitlines()))
    assert len(rows) == 1 + 4 * 3
    assert [row[1] for row in rows[1:4]] == ["a", "'=b", "c"]

    def write(filled: list[str]) -> None:
        with Path("batch.csv").open("w", newline="") as file:
            given = [[*row[:3], value] for row, value in zip(rows[1:], filled, strict=True)]
            csv.writer(file).writerows([rows[0], *given])

    write(["1", "0", "missing", "1", "", "0", *[""] * 6])
    assert run("tell", "trial.db", "batch.csv") == 2
    assert "line 5: policy '=b' has no outcome; write 'missing'" in run.err
    assert run.json("status", "trial.db")["samples"] == 0
    write(["1", "0", "missing", "1", "1", "0", *[""] * 6])
    assert run.json("tell", "trial.db", "batch.csv") == {"told": 2, "counted": 2, "late": 0, "refused": []}
    status = run.json("status", "trial.db")
    assert (status["samples"], status["pending"]) == (5, 2)
    Path("batch.csv").write_text(f"ticket,policy,outcome\n{rows[7][0]},a,1\n{rows[7][0]},a,1\n")
    assert run("tell", "trial.db", "batch.csv") == 2
    assert "line 3" in run.err


def test_no_command_prints_the_password_of_a_journal(postgres_url: str, tmp_path: Path, run: Shell) -> None:
    journal, study = postgres_url.replace("://evenhand@", "://evenhand:secret@"), tmp_path / "study.toml"
    study.write_text(STUDY.replace("[problem]", "[problem]\nmax_policies = 4"))
    author = ("--reason", "a reason", "--by", "me")
    for command in (
        ("new", journal, str(study), "--seed", "3"),
        ("add-policy", journal, "d", *author),
        ("withdraw", journal, "c", *author),
        ("ask", journal),
        ("pause", journal, *author),
        ("status", journal),
        ("resume", journal, *author),
        ("finish", journal, *author),
        ("status", journal),
        ("new", journal, str(study), "--seed", "3", "--experiment", "second", "--json"),
    ):
        assert run(*command) == 0, run.err
        printed = "".join(run.out.split())  # without the ends of wrapped lines
        assert ("evenhand:...@127.0.0.1" in printed) == (command[0] != "ask"), command
        assert "secret" not in run.out + run.err, command
