"""`evenhand plan` and the command line itself: keys, exit codes, messages for bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

from evenhand import __version__
from evenhand.cli.main import Commands, group
from tests.cli.conftest import Run

EXAMPLES = Path(__file__).parents[2] / "examples"
STROKE = str(EXAMPLES / "stroke.toml")


def test_the_json_has_the_keys_of_the_contract_and_finite_numbers(run: Run) -> None:
    code, out, err = run("plan", STROKE, "--json")
    assert (code, err) == (0, "")
    plan = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    keys = "answer answer_index feasible time_low time_high allocation samples_at_least binding why_none"
    assert {*keys.split(), "warnings"} <= set(plan)
    assert plan["answer"] == "Aspirin only"
    assert plan["why_none"] is None
    assert (len(plan["allocation"]), len(plan["allocation"][0])) == (4, 2)


@pytest.mark.parametrize(
    ("study", "time"), [("scaling", 54.139), ("hard", 128.21), ("soft", 196.77), ("soft-1", 323.59)]
)
def test_the_papers_instances_have_their_certified_times(
    run: Run, tmp_path: Path, study: str, time: float
) -> None:
    text = (EXAMPLES / f"{study.removesuffix('-1')}.toml").read_text()
    if study == "soft-1":
        assert "gamma = 0.5" in text
        text = text.replace("gamma = 0.5", "gamma = 1")
    path = tmp_path / "study.toml"
    path.write_text(text)
    _, out, _ = run("plan", str(path), "--json")
    plan = json.loads(out)
    assert plan["time_low"] == pytest.approx(time, rel=1e-4)
    assert plan["time_high"] == pytest.approx(time, rel=1e-4)


def test_another_risk_changes_the_samples_only(run: Run) -> None:
    base = json.loads(run("plan", STROKE, "--json")[1])
    wide = json.loads(run("plan", STROKE, "--json", "--delta", "0.2")[1])
    assert wide["time_low"] == base["time_low"]
    assert wide["samples_at_least"] < base["samples_at_least"]


def test_people_read_a_sentence_first_and_the_next_command_last(run: Run) -> None:
    code, out, _ = run("plan", STROKE)
    lines = out.strip().splitlines()
    assert code == 0
    assert lines[0].startswith("Aspirin only would be chosen: it is the only one that meets the requirement")
    assert lines[-1] == f"Next: evenhand simulate {STROKE} --replications 1000 --seed 1"
    assert "\x1b" not in out  # no colour when piped
    for word in ("Where samples go", "53%", "✕ failed", "● met", "80 and over"):
        assert word in out


def test_no_policy_feasible_is_said_calmly(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(Path(STROKE).read_text().replace("0.8333333333333334", "0.85"))
    code, out, _ = run("plan", str(path))
    assert code == 0
    assert out.startswith("None of the policies meets the requirement")
    assert "The largest floor that a policy meets in every group is 0.8429 (Aspirin only)." in out
    plan = json.loads(run("plan", str(path), "--json")[1])
    assert (plan["answer"], plan["answer_index"], plan["feasible"]) == (None, None, [])
    assert plan["why_none"]["largest_floor"] == 0.8429
    assert plan["why_none"]["policies"][0] == {
        "policy": "Aspirin only",
        "group": "80 and over",
        "mean": 0.8429,
    }


def test_names_that_look_like_markup_are_printed_as_they_are(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(Path(STROKE).read_text().replace("Neither", "[bold]:smile: n[/]"))
    assert "[bold]:smile: n[/]" in run("plan", str(path))[1]


def test_sensitivity_adds_its_tables(run: Run) -> None:
    assert "Lower bound on samples, by risk" in run("plan", STROKE, "--sensitivity")[1]
    plan = json.loads(run("plan", STROKE, "--sensitivity", "--json")[1])
    assert len(plan["sensitivity"]["requirement"]) == 4


@pytest.mark.parametrize("name", ["a.svg", "a.png"])
def test_the_heat_map_is_written_as_a_figure(run: Run, tmp_path: Path, name: str) -> None:
    code, out, _ = run("plan", STROKE, "--figure", str(tmp_path / name))
    content = (tmp_path / name).read_bytes()
    assert code == 0
    assert f"Written: {tmp_path / name}" in out
    assert content.startswith(b"\x89PNG") if name.endswith("png") else b"<svg" in content


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("plan", "none.toml"), "there is no study file none.toml"),
        (("plan",), "Missing argument 'STUDY'"),
        (("plan", STROKE, "--delta", "0.7"), "delta must lie strictly between 0 and 0.5"),
        (("plan", STROKE, "--delta", "small"), "'small' is not a valid float"),
        (("plan", STROKE, "--gap", "0"), "gap must lie strictly between 0 and 1"),
        (("plan", STROKE, "--dleta", "0.1"), "Did you mean"),
        (("plan", STROKE, "--figure", "map.pdf"), "must end in .svg or .png"),
        (("plan", STROKE, "--figure", "no/such/folder/map.svg"), "there is no folder no/such/folder"),
        (("plna", STROKE), "there is no command 'plna'; did you mean 'plan'?"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.startswith("evenhand: ")
    assert err.count("\n") == 1


def test_a_tie_exits_with_2_and_says_so(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text((EXAMPLES / "scaling.toml").read_text().replace("[0.5, 0.6, 0.4]", "[0.8, 0.6, 0.7]"))
    code, out, err = run("plan", str(path))
    assert (code, out) == (2, "")
    assert "'a1' and 'a2' are tied" in err


def test_help_lists_every_command_without_the_compiler() -> None:
    script = "import sys; from evenhand.cli.main import main; main(['--help']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "plan" in done.stdout
    for heavy in ("llvmlite", "scipy", "highspy", "sqlalchemy", "matplotlib", "litestar"):
        assert f"'{heavy}'" not in done.stdout


def test_ctrl_c_while_the_command_line_is_imported_is_one_word(tmp_path: Path) -> None:
    """Imports take up to a second on a busy machine; Ctrl-C then ended in a traceback."""
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    (entry,) = entry_points(group="console_scripts", name="evenhand")
    script = f"import sys; from {entry.module} import {entry.attr} as main; sys.exit(main())"
    for start in (["-c", script], ["-m", "evenhand"]):
        done = subprocess.run(
            [sys.executable, *start, "plan"],
            capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nevenhand: stopped.\n")


def test_every_command_says_what_it_does() -> None:
    context = click.Context(group)
    assert isinstance(group, Commands)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str()


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version") == (0, f"evenhand, version {__version__}\n", "")


def test_a_reader_that_leaves_early_is_not_an_error_message() -> None:
    command = f"{sys.executable} -m evenhand plan {STROKE} --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "{"
    assert done.stderr == ""


def test_without_a_command_the_help_is_printed_and_nothing_else(run: Run) -> None:
    code, out, err = run()
    assert (code, out) == (2, "")
    assert err.startswith("Usage: evenhand")
    assert err.strip() == run("--help")[1].strip()


def test_the_help_has_every_command_once_with_its_whole_first_sentence(run: Run) -> None:
    context = click.Context(group)
    printed = " ".join(run("--help")[1].split())
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        sentence = " ".join(command.get_short_help_str(limit=1000).split())
        # a line may be broken at a hyphen
        assert printed.replace("- ", "-").count(f" {name} {sentence}".replace("- ", "-")) == 1


def test_the_plan_says_that_a_procedure_needs_more_than_the_bound(run: Run) -> None:
    _, out, _ = run("plan", STROKE)
    assert "The bound is for any procedure; yours needs more." in out
