"""`sync` where every policy serves every unit: pairs are summed where the data are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import evenhand as eh
from evenhand.cli.main import main
from evenhand.errors import BadInput, Conflict
from evenhand.live.audit import audit
from evenhand.verdicts.sync import sync_experiment
from tests.live.example_experiments import SetClock
from tests.live.interval_experiments import paired_counts, scores, shared
from tests.live.test_paired_intervals import CLOSE, MINUTES, bounded
from tests.verdicts.test_sync import HOUR, Store

COLUMNS = ["unit", "policy", "group", "outcome"]


def rows_of(version: int, values: tuple[float, ...] = (0.0, 1.0)) -> pl.DataFrame:
    """Return the outcomes of an interval as its table holds them."""
    table = pl.DataFrame(scores(version, means=CLOSE, values=values), COLUMNS, orient="row")
    return table.with_columns(version=pl.lit(version, dtype=pl.Int64))


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(params=["parquet", "csv", "duckdb", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    url = request.getfixturevalue("postgres_url") if request.param == "postgresql" else ""
    return Store(request.param, tmp_path / "data", url)


@pytest.mark.parametrize("values", [(0.0, 1.0), MINUTES], ids=["outcomes 0 and 1", "minutes"])
def test_pairs_are_summed_by_the_engine_until_the_answer(
    store: Store, clock: SetClock, values: tuple[float, ...], tmp_path: Path
) -> None:
    asked = None if len(values) == 2 else bounded()
    address = str(tmp_path / "t.db")
    with shared(address, study=asked, length="1h", clock=clock) as trial, shared(study=asked) as by_hand:
        while not trial.is_over and trial.shares().version < 30:
            version = trial.shares().version
            store.add(rows_of(version, values))
            clock.wall += HOUR
            bets = by_hand.bets() if asked is not None else None
            assert bets is None or isinstance(bets, eh.PairIntervalBets)
            by_hand.tell_counts(
                version, paired_counts(scores(version, means=CLOSE, values=values), bets), close=True
            )
            assert sync_experiment(trial, store.source).closed == (version,)
            assert trial.status().evidence == pytest.approx(by_hand.status().evidence, rel=1e-9)
        status = trial.status()
    assert status.answer == "a"
    assert status.samples == 3 * 400 * version
    assert audit(address).identical


REFUSED: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], type[Exception], str]] = {
    "no unit": (lambda rows: rows.drop("unit"), BadInput, "needs a column 'unit', to pair the outcomes"),
    "twice": (
        lambda rows: pl.concat([rows, rows.head(1)]), Conflict,
        "every policy may serve a unit once in an interval; .* occurs 2 times",
    ),
    "a unit of one policy is missing": (
        lambda rows: rows.tail(len(rows) - 1), BadInput, "every policy must serve every unit"
    ),
    "a unit in two groups": (
        lambda rows: rows.with_columns(
            group=pl.when(pl.int_range(len(rows)) == 0)
            .then(pl.when(pl.col("group") == "x").then(pl.lit("y")).otherwise(pl.lit("x")))
            .otherwise("group")
        ),
        BadInput, "every policy must serve every unit",
    ),
    "counts per cell": (
        lambda rows: rows.group_by("policy", "group", "version").agg(
            n=pl.len(), successes=pl.col("outcome").sum(), unit=pl.lit(1)
        ),
        BadInput, "needs a row for every unit and policy",
    ),
    "no row": (lambda rows: rows.with_columns(version=pl.lit(9)), BadInput, "holds no row of interval 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_data_without_pairs_are_refused_and_nothing_is_written(
    name: str, clock: SetClock, tmp_path: Path
) -> None:
    change, error, words = REFUSED[name]
    files = Store("parquet", tmp_path / "data")
    files.add(change(rows_of(1)))
    with shared(length="1h", clock=clock) as trial:
        clock.wall += HOUR
        head = trial.head
        with pytest.raises(error, match=words) as caught:
            sync_experiment(trial, files.source)
        assert trial.head == head
        assert "\n" not in str(caught.value)


STUDY = """
[problem]
policies = ["a", "b", "c"]
groups = { x = 0.6, y = 0.4 }
family = { name = "bernoulli" }
constraint = { kind = "floors", at_least = 0.6 }
mode = "proportional"

[procedure]
items = "shared"
interval = { volume = 400 }
"""


def test_the_commands_take_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal, study, counts = str(tmp_path / "t.db"), tmp_path / "study.toml", tmp_path / "counts.csv"
    study.write_text(STUDY)
    assert main(["new", journal, str(study), "--seed", "7"]) == 0
    assert main(["shares", journal]) == 0
    assert "every policy serves every unit" in capsys.readouterr().out
    assert main(["shares", journal, "--sql", "duckdb"]) == 2
    found: list[dict[str, Any]] = paired_counts(scores(1, means=CLOSE))
    titles = ["policy", "other", "group", "n", "sum", "squares"]
    lines = [",".join(str(row.get(title, "")) for title in titles) for row in found]
    counts.write_text("\n".join([",".join(titles), *lines[:-1]]))
    capsys.readouterr()
    assert main(["tell-counts", journal, str(counts), "--close"]) == 2
    refusal = capsys.readouterr().err
    assert "every policy must serve every unit of an interval" in refusal
    assert len(refusal.strip().splitlines()) == 1
    counts.write_text("\n".join([",".join(titles), *lines]))
    assert main(["tell-counts", journal, str(counts), "--close"]) == 0
    assert "1,200 outcomes of interval 1 recorded. The interval is closed." in capsys.readouterr().out
    assert main(["audit", journal]) == 0
    assert main(["report", journal, "-o", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "each served by every policy" in page
    assert "Shares by interval" not in page
