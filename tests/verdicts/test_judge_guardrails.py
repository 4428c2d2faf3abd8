"""Data with guard-rails: a column for each, missing outcomes counted, every metric judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.errors import BadInput
from evenhand.model.families import Bernoulli, Gaussian, GaussianUnknown, Poisson
from evenhand.model.guardrails import Guardrail
from evenhand.model.problem import Problem
from evenhand.model.requirements import Caps
from evenhand.procedure.spec import Procedure
from evenhand.verdicts.judge import judge
from evenhand.verdicts.read_data import read

PROBLEM = Problem(
    ["old", "new"], {"web": 0.6, "app": 0.4}, Gaussian(0.5),
    guardrails=[Guardrail("errors", Bernoulli(), Caps(0.3)), Guardrail("calls", Poisson(), Caps(3.0))],
)  # fmt: skip
MEANS = {("old", "web"): 0.2, ("old", "app"): 0.3, ("new", "web"): 0.9, ("new", "app"): 0.8}


def rows(n: int, errors: float = 0.6, missing: float = 0.0) -> list[dict[str, Any]]:
    """n samples of every cell; `errors` is the error rate of "new" in the app."""
    random, found = np.random.default_rng(1), []
    for _ in range(n):
        for (policy, group), mean in MEANS.items():
            rate = errors if (policy, group) == ("new", "app") else 0.05
            calls = None if random.random() < missing else int(random.poisson(1.0))
            found.append(
                {"policy": policy, "group": group, "outcome": round(random.normal(mean, 0.5), 3)}
                | {"errors": int(random.random() < rate), "calls": calls}
            )
    return found


def written(path: Path, table: list[dict[str, Any]]) -> Path:
    names = list(table[0])
    lines = [",".join("" if row[name] is None else str(row[name]) for name in names) for row in table]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    return path


def test_the_policy_that_fails_a_guard_rail_is_not_the_answer(tmp_path: Path) -> None:
    path = written(tmp_path / "shop.csv", rows(100))
    verdict = judge(PROBLEM, path, replications=0)
    assert (verdict.decided, verdict.answer) == (True, "old")
    assert verdict.failed == ("new",)
    errors, calls = verdict.guardrails
    assert [cell.verdict for cell in errors.cells] == ["met", "met", "met", "failed"]
    assert {cell.verdict for cell in calls.cells} == {"met"}
    assert verdict.to_dict()["guardrails"][0]["name"] == "errors"
    fine = judge(PROBLEM, written(tmp_path / "fine.csv", rows(100, errors=0.05)), replications=0)
    assert fine.answer == "new"


def test_missing_outcomes_of_a_guard_rail_are_counted_and_said(tmp_path: Path) -> None:
    table = rows(100, missing=0.3)
    gone = sum(row["calls"] is None for row in table)
    verdict = judge(PROBLEM, written(tmp_path / "shop.csv", table), replications=0)
    assert (verdict.answer, verdict.rows, verdict.missing) == ("old", 400, 0)
    assert [rail.missing for rail in verdict.guardrails] == [0, gone]
    assert sum(cell.n for cell in verdict.guardrails[1].cells) == 400 - gone
    said = [words for words in verdict.words() if "calls" in words]
    assumption = "the guarantee assumes that outcomes are missing independently of their values."
    assert said == [f"{gone} samples have no outcome of calls; {assumption}"]


def test_frames_dicts_and_counts_give_the_same_counts(tmp_path: Path) -> None:
    import pandas as pd

    table = rows(20, missing=0.2)
    one = read(PROBLEM, written(tmp_path / "shop.csv", table)).state
    frame = pd.DataFrame(table)
    nested: dict[str, Any] = {}
    for row in table:
        sample = {name: row[name] for name in ("outcome", "errors", "calls")}
        nested.setdefault(row["policy"], {}).setdefault(row["group"], []).append(sample)
    counts = []
    for cell in MEANS:
        mine = [row for row in table if (row["policy"], row["group"]) == cell]
        calls = [row["calls"] for row in mine if row["calls"] is not None]
        counts.append(
            {"policy": cell[0], "group": cell[1], "n": len(mine)}
            | {
                "mean": np.mean([row["outcome"] for row in mine]),
                "errors": np.mean([r["errors"] for r in mine]),
            }
            | {"calls": np.mean(calls), "calls n": len(calls)}
        )
    for other in (frame, nested, pd.DataFrame(counts)):
        state = read(PROBLEM, other).state
        for name in ("n", "s", "rail_n", "rail_s"):
            assert np.allclose(getattr(one, name), getattr(state, name)), name


def test_a_column_can_have_another_name() -> None:
    import pandas as pd

    frame = pd.DataFrame(rows(3)).rename(columns={"calls": "phone calls"})
    with pytest.raises(BadInput, match="needs a column 'calls'"):
        read(PROBLEM, frame)
    assert read(PROBLEM, frame, columns={"calls": "phone calls"}).state.rail_n.sum() == 24


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"errors": 0.5}, "row 1: outcomes of guard-rail 'errors' must be 0 or 1"),
        ({"calls": -1}, "row 1: outcomes of guard-rail 'calls' must be"),
        ({"calls": "many"}, "row 1: an outcome must be a number; it is 'many'"),
    ],
)
def test_outcomes_that_a_guard_rail_cannot_have_are_refused(change: dict[str, Any], message: str) -> None:
    import pandas as pd

    table = rows(3)
    table[0] |= change
    with pytest.raises(BadInput, match=message):
        read(PROBLEM, pd.DataFrame(table))


def test_what_is_not_supported_is_refused_in_one_sentence() -> None:
    with pytest.raises(BadInput, match="each sample of 'old' in 'web' must name outcome, errors, calls"):
        read(PROBLEM, {"old": {"web": [1.0]}})
    load = Problem(
        ["a", "b"], {"x": 1.0}, Gaussian(1.0), guardrails=[Guardrail("load", GaussianUnknown(), Caps(1.0))]
    )
    row = {"policy": ["a", "b"], "group": ["x", "x"], "n": [2, 2], "mean": [0.0, 0.0], "load": [0.0, 0.0]}
    import pandas as pd

    with pytest.raises(BadInput, match="the gaussian-unknown family learns its scale from single outcomes"):
        read(load, pd.DataFrame(row))


def test_without_all_cells_a_failed_guard_rail_still_counts() -> None:
    samples = [{"outcome": 0.1, "errors": 1, "calls": 1}] * 60
    verdict = judge(PROBLEM, {"new": {"web": samples}}, procedure=Procedure(delta=0.1), replications=0)
    assert verdict.failed == ("new",)
    assert not verdict.decided
