"""`evenhand simulate`, `compare`, `calibrate`, `sweep`: keys, exit codes, traces, figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evenhand.simulation.runs import Runs
from evenhand.study import dumps
from tests.cli.conftest import Run
from tests.simulation.studies import coins


@pytest.fixture
def study(tmp_path: Path) -> str:
    return write(tmp_path / "coins.toml")


def write(path: Path, **procedure: Any) -> str:
    path.write_text(dumps(coins(**procedure)))
    return str(path)


def read(text: str) -> Any:
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_the_json_has_the_keys_of_the_contract(run: Run, study: str) -> None:
    code, out, err = run(
        "simulate", study, "--replications", "40", "--seed", "3", "--checkpoints", "30,60", "--json"
    )
    assert (code, err) == (0, "")
    found = read(out)
    keys = "replications seed correct stopped samples answers allocation checkpoints seconds"
    assert set(keys.split()) <= set(found)
    assert (found["replications"], found["seed"]) == (40, 3)
    assert [point["samples"] for point in found["checkpoints"]] == [30, 60]


@pytest.mark.parametrize(
    "workers", [("--workers", "1"), ("--workers", "8"), ("--workers", "2", "--processes")]
)
def test_the_numbers_do_not_depend_on_the_workers(run: Run, study: str, workers: tuple[str, ...]) -> None:
    command = ("simulate", study, "--replications", "40", "--seed", "3", "--json")
    plain, other = (read(run(*command, *extra)[1]) for extra in ((), workers))
    assert plain | {"seconds": 0} == other | {"seconds": 0}


def test_runs_that_reached_no_answer_are_not_reported_as_if_they_had(run: Run, tmp_path: Path) -> None:
    capped = write(tmp_path / "capped.toml", max_samples=40, delta=1e-6)
    code, out, _ = run("simulate", capped, "--replications", "20")
    assert code == 0
    assert out.startswith("The answer (or the leader of an undecided run) was right in")
    assert "had decided by" not in out
    assert "100.0% were undecided at 40 samples" in out
    code, out, _ = run("compare", capped, "--sampling", "uniform", "--replications", "20")
    assert code == 0
    assert "Undecided runs count with all their samples." in out
    assert out.count("never") == 2
    assert "undecided" in out


def test_runs_are_never_saved_over_something_else(run: Run, study: str, tmp_path: Path) -> None:
    before = Path(study).read_text()
    code, _, err = run("simulate", study, "--replications", "5", "--save", study)
    assert (code, Path(study).read_text()) == (2, before)
    assert "exists and is not a file of runs" in err
    saved = str(tmp_path / "runs.npz")
    for _ in range(2):
        assert run("simulate", study, "--replications", "5", "--save", saved)[0] == 0


def test_a_place_that_cannot_be_written_to_is_said_in_a_sentence(run: Run, study: str) -> None:
    code, _, err = run("report", study, "--figures", "/dev/null/pictures")
    assert code == 1
    assert "/dev/null" in err
    assert "Traceback" not in err


def test_people_read_a_sentence_first_and_the_next_command_last(run: Run, study: str) -> None:
    code, out, _ = run("simulate", study, "--replications", "40", "--checkpoints", "30")
    assert code == 0
    lines = out.strip().splitlines()
    assert lines[0].startswith("The answer was right in")
    assert "the allowed risk is 10.00%" in out
    assert "Where samples go" in out
    assert "\x1b" not in out
    assert lines[-1].startswith("Next: evenhand simulate")


def test_a_run_can_be_printed_step_by_step(run: Run, study: str) -> None:
    runs = read(
        run("simulate", study, "--replications", "18", "--seed", "3", "--json", "--save", study + ".npz")[1]
    )
    assert runs["replications"] == 18
    samples = Runs.load(study + ".npz").samples[17]
    _, out, _ = run("simulate", study, "--seed", "3", "--trace", "17")
    *steps, ending = out.strip().splitlines()
    assert len(steps) == samples
    assert f"Replication 17 decided after {samples:,} samples" in ending
    found = read(run("simulate", study, "--seed", "3", "--trace", "17", "--json")[1])
    assert found["samples"] == samples == len(found["steps"])
    assert found["steps"][0]["evidence"] is None
    assert found["steps"][-1]["evidence"] >= found["steps"][-1]["needed"]


@pytest.mark.parametrize("picture", ["duration", "success", "allocation"])
def test_runs_are_drawn_to_a_file(run: Run, study: str, tmp_path: Path, picture: str) -> None:
    target = tmp_path / f"{picture}.svg"
    extra = ("--checkpoints", "30,60", "--figure", str(target), "--picture", picture)
    assert run("simulate", study, "--replications", "30", *extra)[0] == 0
    assert target.read_text().count("<svg") == 1


def test_the_evidence_of_one_run_is_drawn_to_a_file(run: Run, study: str, tmp_path: Path) -> None:
    target = tmp_path / "evidence.png"
    assert run("simulate", study, "--trace", "3", "--figure", str(target))[0] == 0
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--checkpoints", "30,x"), "checkpoints must be whole numbers"),
        (("--checkpoints", "0"), "checkpoints must be whole numbers"),
        (("--replications", "0"), "0 is not in the range"),
        (("--figure", "picture.gif"), "must end in .svg or .png"),
        (("--figure", "a.svg", "--picture", "success"), "needs at least two checkpoints"),
        (("--dask", "tcp://127.0.0.1:9"), "did not answer"),
        (("--save", "absent/folder/runs.npz"), "there is no folder absent/folder"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    run: Run, study: str, arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = run("simulate", study, "--replications", "5", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1


def test_a_study_without_truth_says_what_it_lacks(run: Run, study: str) -> None:
    path = Path(study)
    path.write_text(path.read_text().split("[truth]")[0])
    code, _, err = run("simulate", study)
    assert code == 2
    assert "[truth]" in err


def test_compare_gives_paired_differences_to_the_first(run: Run, study: str, tmp_path: Path) -> None:
    other = write(tmp_path / "even.toml", sampling="uniform")
    code, out, _ = run("compare", study, other, "--replications", "40", "--seed", "3", "--json")
    first, second = read(out)
    assert code == 0
    assert (first["name"], second["name"]) == ("coins", "even")
    assert first["difference"] is None
    gap = second["samples"]["mean"] - first["samples"]["mean"]
    assert second["difference"]["samples"]["mean"] == pytest.approx(gap)
    alone = read(run("simulate", study, "--replications", "40", "--seed", "3", "--json")[1])
    assert first["samples"] == alone["samples"]


def test_one_study_is_compared_with_other_rules(run: Run, study: str, tmp_path: Path) -> None:
    target = tmp_path / "long.svg"
    code, out, _ = run(
        "compare", study, "--sampling", "uniform", "--replications", "40", "--figure", str(target)
    )
    assert code == 0
    assert "needs the fewest samples" in out.splitlines()[0]
    assert target.exists()


def test_a_rule_compared_with_itself_is_refused(run: Run, study: str) -> None:
    code, _, err = run("compare", study, "--sampling", "ts-ids")
    assert code == 2
    assert "'ts-ids' comes twice" in err


def test_calibrate_prints_a_threshold_and_the_worst_scenario(run: Run, study: str, tmp_path: Path) -> None:
    scenarios = tmp_path / "scenarios.toml"
    scenarios.write_text(
        '[[scenario]]\nname = "narrow"\nmeans = [[0.9, 0.299], [0.5, 0.5]]\n'
        '[[scenario]]\nname = "easy"\nmeans = [[0.9, 0.9], [0.1, 0.1]]\n'
    )
    command = ("calibrate", study, "--scenarios", str(scenarios), "--replications", "100", "--horizon", "300")
    found = read(run(*command, "--json")[1])
    assert found["calibrated"] > 0
    assert found["worst"]["scenario"] == "narrow"
    assert found["worst"]["error"]["high"] >= found["worst"]["error"]["rate"]
    code, out, _ = run(*command)
    assert code == 0
    assert f"stopping = {{ calibrated = {found['calibrated']:g} }}" in out


def test_a_sweep_continues_where_it_was(run: Run, study: str, tmp_path: Path) -> None:
    command = (
        "sweep",
        study,
        "--sampling",
        "uniform",
        "--seed",
        "3",
        "--store",
        str(tmp_path / "store"),
        "--json",
    )
    first = read(run(*command, "--replications", "100")[1])
    assert first["shards"] == {"computed": 2, "reused": 0}
    more = read(run(*command, "--replications", "150")[1])
    assert more["shards"] == {"computed": 2, "reused": 2}
    alone = read(run("simulate", study, "--replications", "150", "--seed", "3", "--json")[1])
    assert more["runs"][0]["samples"] == alone["samples"]
    assert [entry["study"] for entry in more["runs"]] == ["ts-ids", "uniform"]
