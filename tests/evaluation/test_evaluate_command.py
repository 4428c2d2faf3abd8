"""`evenhand evaluate` on real endpoints: killed and resumed, and the same verdict from Inspect's own logs."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import evenhand as eh
from evenhand.cli.main import main

ROOT = Path(__file__).parents[2]


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


endpoints = _load(ROOT / "examples/endpoints.py")


@pytest.fixture
def port() -> Iterator[int]:
    server = endpoints.serve()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def study(tmp_path: Path, port: int) -> Path:
    return endpoints.write_study(tmp_path, port)


@pytest.mark.slow
def test_endpoints_are_evaluated_killed_and_resumed(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "endpoints.calls.jsonl"
    child = subprocess.Popen([sys.executable, "-m", "evenhand", "evaluate", str(study), "--json"])
    while not kept.exists() or kept.read_bytes().count(b"\n") < 200:
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    before = kept.read_bytes()
    assert main(["evaluate", str(study), "--json"]) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert kept.read_bytes().startswith(before[: before.rindex(b"\n")])
    calls = [json.loads(line) for line in kept.read_text().splitlines()[1:]]
    assert len({(call["policy"], call["item"]) for call in calls}) == len(calls)  # nothing paid twice
    assert resumed["cost"] == pytest.approx(sum(endpoints.MODELS[call["policy"]][2] for call in calls))
    assert resumed["attempts"] > resumed["calls"]  # one in twelve is refused
    assert (resumed["answer"], resumed["decided"], resumed["failed_calls"]) == ("large", True, 0)
    assert resumed["deployment"]["allowed"][0] == "large"
    assert set(resumed["failed"]) & {"tiny", "tuned"}  # they miss the floor in a language
    assert not set(resumed["failed"]) & {"large", "small"}
    without_a_kill = _whole(study, tmp_path / "other.jsonl", capsys)
    assert without_a_kill["evidence"] == resumed["evidence"]
    assert without_a_kill["cells"] == resumed["cells"]


def _whole(study: Path, journal: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["evaluate", str(study), "--json", "--journal", str(journal)]) == 0
    return json.loads(capsys.readouterr().out)


MODELS = """
def right(item):
    return item["answer"]

def wrong(item):
    return "?"

def raises(item):
    raise RuntimeError("broken")

class Both:
    def predict(self, items):
        return [item["answer"] for item in items]

both = Both()

def half(output, item):
    return 0.5
"""
STUDY = """
[problem]
policies   = ["one", "two"]
groups     = { a = 0.5, b = 0.5 }
family     = { name = "bernoulli" }
constraint = { kind = "floors", at_least = 0.6 }

[evaluate]
items    = "items.csv"
target   = "answer"
policies = { one = "my_models:right", two = "my_models:wrong" }
backoff  = 0.0
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [f"{'ab'[n % 2]},{n % 7}" for n in range(120)]
    (tmp_path / "items.csv").write_text("group,answer\n" + "\n".join(rows) + "\n")
    (tmp_path / "my_models.py").write_text(MODELS)
    (tmp_path / "study.toml").write_text(STUDY)
    monkeypatch.delitem(sys.modules, "my_models", raising=False)
    return tmp_path / "study.toml"


def test_the_answer_and_who_may_be_deployed_are_printed(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(small)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("one is the answer (certified at risk 5%)")
    assert "Which may be deployed" in printed
    assert "certified to fail it" in printed
    page = small.with_name("page.html")
    assert main(["evaluate", str(small), "--markdown", "-o", str(page)]) == 0
    markdown = capsys.readouterr().out
    assert markdown.startswith("## study\n\n**one is the answer")
    assert "| certified to meet the requirement | one |" in markdown
    assert page.read_text().startswith("<!")


def test_the_other_commands_take_the_same_study(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{name},{'ab'[n % 2]},{n},{int(name == 'one')}" for n in range(60) for name in ("one", "two")]
    data = small.with_name("rows.csv")
    data.write_text("policy,group,item,outcome\n" + "\n".join(rows) + "\n")
    assert main(["judge", str(small), str(data), "--markdown"]) == 0
    assert "| certified to meet the requirement | one |" in capsys.readouterr().out


def test_a_model_that_fails_always_leaves_the_run_undecided_and_says_why(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small.write_text(STUDY.replace("my_models:right", "my_models:raises"))
    assert main(["evaluate", str(small)]) == 3
    printed = capsys.readouterr().out
    assert "one failed on 10 items in a row" in printed
    assert f"Next: evenhand evaluate {small}" in printed


def test_objects_that_predict_are_candidates(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small.write_text(STUDY.replace("my_models:right", "my_models:both"))
    assert main(["evaluate", str(small), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "one"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[evaluate]", "[other]", "unknown key 'other'"),
        ('items    = "items.csv"', 'items = "no.csv"', "there is no file"),
        ('items    = "items.csv"', "", "[evaluate] needs items"),
        ("backoff ", "back_off ", "did you mean 'backoff'"),
        ("my_models:right", "my_models:rite", "cannot be imported"),
        ("my_models:right", "no_such_module:x", "cannot be imported"),
        ("my_models:right", "right", "is 'module:name' or an address"),
        ("my_models:right", "http://127.0.0.1:1/x", None),
        (', two = "my_models:wrong"', "", "'two' is missing"),
        ('target   = "answer"', 'target = "right"', "has no column 'right'"),
        ('target   = "answer"', 'grader = "my_models:half"', None),
        ("{ a = 0.5, b = 0.5 }", "{ a = 0.5, c = 0.5 }", "the study has no group 'b'"),
        ("{ a = 0.5, b = 0.5 }", "{ a = 0.4, b = 0.4, c = 0.2 }", "every group needs items; 'c' has none"),
        ("backoff  = 0.0", "backoff = 0.0\nconcurrency = true", "concurrency must be a whole number"),
        ("backoff  = 0.0", "backoff = 0.0\ngroup = 3", "must be text"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence(
    small: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: str | None
) -> None:
    assert old in STUDY
    small.write_text(STUDY.replace(old, new))
    code = main(["evaluate", str(small)])
    out, err = capsys.readouterr()
    if words is None:  # an address where no server answers, or scores that are nonsense, are not bad input
        assert code == 3
        assert "one failed on 10 items in a row" in out
        assert ("scores must be 0 or 1; this one is 0.5" in " ".join(out.split())) == ("half" in new)
        return
    assert code == 2
    assert words in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


PASSING = """
import evenhand as eh

def verdict(wrong):
    problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.5))
    return eh.judge(problem, {"a": {"x": [1] * 60 + [0] * wrong}, "b": {"x": [0] * 60}}, replications=0)

def test_good(assert_meets):
    assert_meets(verdict(0), "a")

def test_bad(assert_meets):
    assert_meets(verdict(70), "a")
"""


@pytest.mark.parametrize("workers", [[], pytest.param(["-n", "2"], marks=pytest.mark.slow)])
def test_a_fixture_asserts_and_reports(tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "test_models.py").write_text(PASSING)
    plugin = ["-p", "no:evenhand", "-p", "evenhand.evaluation.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", *plugin, *workers, "--evenhand-summary", "summary.md"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    section = done.stdout.split("= evenhand =")[1]
    assert "PASSED test_models.py::test_good" in section
    assert "May be deployed: a." in section
    assert "FAILED test_models.py::test_bad" in section
    assert "| certified to meet the requirement | a |" in (tmp_path / "summary.md").read_text()


def test_the_plugin_is_declared_and_light() -> None:
    declared = (ROOT / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\nevenhand = "evenhand.evaluation.pytest_plugin"' in declared
    code = "import sys, evenhand.evaluation.pytest_plugin; print([m for m in ('numpy',) if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


INSPECT = """
import json, sys
import evenhand as eh
from inspect_ai import Task, eval as inspect_eval
from inspect_ai.dataset import Sample
from inspect_ai.log import list_eval_logs, read_eval_log
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import exact
from inspect_ai.solver import solver
sys.path.insert(0, sys.argv[1])
import endpoints
from evenhand.evaluation import inspect_hook

@solver
def stand_in():
    async def solve(state, generate):
        item = items[state.sample_id]
        state.output = ModelOutput.from_content(str(state.model), endpoints.answer(state.model.name, item))
        return state
    return solve

folder, order = sys.argv[2], json.loads(sys.argv[3])
items = {item["id"]: item for item in endpoints.questions()}
samples = [
    Sample(id=name, input=items[name]["prompt"], target=items[name]["answer"],
           metadata={"language": items[name]["language"]})
    for name in order
]
task = Task(dataset=samples, solver=stand_in(), scorer=exact(), name="ways")
logs = inspect_eval(task, model=[f"mockllm/{name}" for name in endpoints.MODELS], log_dir=folder,
                    display="none", max_samples=1, max_tasks=1)
study, columns = eh.load(folder + "/endpoints.toml"), {"group": "language"}
found = eh.judge(study, logs, columns=columns, replications=0)
stored = [read_eval_log(info) for info in list_eval_logs(folder)]
again = eh.judge(study, stored, columns=columns, replications=0)
print(json.dumps([found.to_dict(), again.to_dict(), inspect_hook.summary(list(logs))]))
"""


def test_inspects_own_logs_give_the_same_verdict(study: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("inspect_ai") is None:
        pytest.skip("inspect-ai is not installed; it is in the extra evenhand[inspect]")
    order = [item["id"] for item in endpoints.questions(240)]
    rows = [
        {"policy": name, "item": item["id"], "group": item["language"],
         "outcome": int(endpoints.answer(name, item) == item["answer"])}
        for item in endpoints.questions(240) for name in endpoints.MODELS
    ]  # fmt: skip
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    expected = eh.judge(eh.load(study), data, replications=0).to_dict()
    (tmp_path / "rows.jsonl").unlink()
    environment = os.environ | {"EVENHAND_STUDY": str(study), "EVENHAND_GROUP": "language"}
    done = subprocess.run(
        [sys.executable, "-c", INSPECT, str(ROOT / "examples"), str(tmp_path), json.dumps(order)],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found, again, said = json.loads(done.stdout.splitlines()[-1])
    assert found["cells"] == again["cells"] == expected["cells"]
    assert found["evidence"] == pytest.approx(expected["evidence"], abs=1e-9)
    assert found["answer"] == expected["answer"]
    assert said.startswith(f"evenhand: {expected['words'][0]}")
    assert said in done.stderr  # the hook has printed it at the end of the run
