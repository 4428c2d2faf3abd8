"""Sync counts every interval once, where the data are, and refuses what cannot be right in one sentence."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import psycopg
import pytest

import evenhand as eh
from evenhand.cli import intervals
from evenhand.cli.main import main
from evenhand.errors import BadInput, Conflict
from evenhand.live.audit import audit
from evenhand.live.clock import seconds_of
from evenhand.live.experiment import Experiment
from evenhand.live.journal import open_journal
from evenhand.procedure.estimates import variance
from evenhand.verdicts.interval_table import IntervalTable, OutcomeSource
from evenhand.verdicts.sync import Synced, sync_all, sync_experiment
from evenhand.verdicts.tables import DuckTable
from tests.live.example_experiments import START, SetClock
from tests.live.interval_experiments import EVEN, MEANS, create, problem

HOUR = 3_600.0


def units(
    shares: eh.Shares, count: int = 1_000, means: dict[str, dict[str, float]] = MEANS, **columns: Any
) -> pl.DataFrame:
    """A row for each unit of an interval, assigned by hash; times are spread over the hour from its start."""
    rng = np.random.default_rng([shares.version, count])
    numbers = shares.version * 10**6 + np.arange(count)
    groups = np.where(rng.random(count) < 0.6, "x", "y")
    policies = eh.assign(numbers, groups, shares)
    chance = np.array([means[k][g] for k, g in zip(policies, groups, strict=True)])
    start = seconds_of(shares.valid_from or "")
    at = (1e6 * (start + HOUR * (np.arange(count) + 0.5) / count)).astype(np.int64)
    return pl.DataFrame(
        {
            "unit": numbers,
            "policy": policies,
            "group": groups,
            "outcome": (rng.random(count) < chance).astype(int),
            "version": np.full(count, shares.version),
            "time": pl.Series(at).cast(pl.Datetime("us")),
            "experiment": ["main"] * count,
        }
        | columns
    )


class Store:
    """Data that rows are added to: files of one kind, or a table of a database."""

    def __init__(self, kind: str, folder: Path, url: str = "") -> None:
        self.kind, self.folder, self.files, self.made = kind, folder, 0, False
        self.columns: dict[str, str] = {}
        folder.mkdir(exist_ok=True)
        places = {
            "duckdb": f"duckdb:///{folder / 'store.db'}", "postgresql": url,
            "sqlite": f"sqlite:///{folder / 'store.sqlite'}", "parquet": str(folder),
        }  # fmt: skip
        self.url = places.get(kind, str(folder / f"*.{kind}"))

    @property
    def source(self) -> OutcomeSource:
        table = "outcomes" if self.kind in ("duckdb", "postgresql", "sqlite") else None
        return OutcomeSource(self.url, table, self.columns)

    def add(self, rows: pl.DataFrame) -> None:
        self.files += 1
        path = self.folder / f"{self.files:03}.{self.kind}"
        if self.kind == "parquet":
            rows.write_parquet(path)
        elif self.kind == "csv":
            rows.write_csv(path)
        elif self.kind == "jsonl":
            rows.write_ndjson(path)
        elif self.kind == "duckdb":
            with duckdb.connect(self.folder / "store.db") as engine:
                verb = "INSERT INTO outcomes" if self.made else "CREATE TABLE outcomes AS"
                engine.execute(f"{verb} SELECT * FROM rows")
        else:
            self._insert(rows)
        self.made = True

    def _insert(self, rows: pl.DataFrame) -> None:
        import sqlalchemy as sa

        engine = sa.create_engine(self.url.replace("postgresql://", "postgresql+psycopg://"))
        kinds: dict[Any, Any] = {
            pl.String: sa.Text(), pl.Int64: sa.BigInteger(), pl.Float64: sa.Double(),
            pl.Datetime: sa.DateTime(timezone=self.kind == "postgresql"),
        }  # fmt: skip
        columns = [sa.Column(name, kinds[type(kind)]) for name, kind in rows.schema.items()]
        table = sa.Table("outcomes", sa.MetaData(), *columns)
        given = rows.with_columns(pl.col(pl.Datetime).dt.replace_time_zone("UTC")).to_dicts()
        with engine.begin() as connection:
            table.create(connection, checkfirst=True)
            connection.execute(table.insert(), given)
        engine.dispose()


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def trial(tmp_path: Path, clock: SetClock) -> Iterator[Experiment]:
    with create(str(tmp_path / "t.db"), length="1h", clock=clock) as trial:
        yield trial


@pytest.fixture(params=["parquet", "csv", "jsonl", "duckdb", "postgresql", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    url = request.getfixturevalue("postgres_url") if request.param == "postgresql" else ""
    return Store(request.param, tmp_path / "data", url)


@pytest.fixture
def files(tmp_path: Path) -> Store:
    return Store("parquet", tmp_path / "data")


@pytest.mark.parametrize("dropped", [["time"], ["version"], ["unit", "experiment"]])
def test_every_store_is_counted_interval_by_interval_until_the_end(
    trial: Experiment, clock: SetClock, store: Store, dropped: list[str], tmp_path: Path
) -> None:
    counted: list[Synced] = []
    while not trial.is_over and len(counted) < 20:
        shares = trial.shares()
        store.add(units(shares).drop(dropped))
        clock.wall = seconds_of(shares.valid_from or "") + HOUR
        counted.append(sync_experiment(trial, store.source))
        assert counted[-1].closed == (shares.version,)
        assert counted[-1].outcomes == 1_000
        again = sync_experiment(trial, store.source)  # nothing is counted twice
        assert (again.closed, again.outcomes) == ((), 0)
    status = trial.status()
    assert (status.answer, status.samples) == ("a", 1_000 * len(counted))
    assert counted[-1].wait is None
    assert status.health.well
    assert audit(str(tmp_path / "t.db")).identical


def test_counts_are_those_of_the_rows(trial: Experiment, clock: SetClock, files: Store) -> None:
    rows = units(trial.shares())
    files.add(rows)
    clock.wall += HOUR
    sync_experiment(trial, files.source)
    expected = rows.group_by("policy", "group").agg(pl.len().alias("n"), pl.col("outcome").mean())
    found = {(cell.policy, cell.group): (cell.n, cell.mean) for cell in trial.status().cells}
    for policy, group, n, mean in expected.iter_rows():
        assert found[policy, group] == (n, pytest.approx(mean))


def test_an_interval_is_read_only_when_its_length_and_delay_have_passed(
    tmp_path: Path, clock: SetClock, files: Store
) -> None:
    with create(str(tmp_path / "t.db"), length="1h", delay="150m", clock=clock) as trial:
        start = clock.wall
        seen = []
        for hour in range(1, 7):
            files.add(units(trial.shares(), means=EVEN))
            clock.wall = start + hour * HOUR + 1
            found = sync_experiment(trial, files.source)
            seen.append((found.closed, found.version))
        # intervals 1, 2, ... end after 1, 2, ... hours, and are final two and a half hours later
        assert seen == [((), 2), ((), 3), ((), 4), ((1,), 5), ((2,), 6), ((3,), 7)]
        assert trial.status().samples == 3_000
        assert found.wait == pytest.approx(0.5 * HOUR, abs=5)
    assert audit(str(tmp_path / "t.db")).identical


def test_a_sync_that_was_not_run_for_long_catches_up(
    trial: Experiment, clock: SetClock, files: Store
) -> None:
    """The shares stayed the same meanwhile, so it is one long interval."""
    files.add(units(trial.shares()))
    clock.wall += 50 * HOUR
    assert sync_experiment(trial, files.source).closed == (1,)
    assert trial.shares().version == 2


def test_a_sync_that_takes_longer_than_an_interval_leaves_the_interval_that_it_begins_to_the_next(
    trial: Experiment, clock: SetClock, files: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers learn of the next shares when the sync has ended: nothing can have been assigned by them."""
    count = IntervalTable.counts

    def count_slowly(*given: Any) -> list[dict[str, Any]]:
        clock.wall += 2 * HOUR
        return count(*given)

    monkeypatch.setattr(IntervalTable, "counts", count_slowly)
    files.add(units(trial.shares()))
    clock.wall += HOUR
    assert sync_experiment(trial, files.source).closed == (1,)
    assert trial.shares().version == 2


def test_rows_that_come_after_their_interval_was_closed_are_reported_and_not_counted(
    trial: Experiment, clock: SetClock, files: Store
) -> None:
    first = trial.shares()
    files.add(units(first, means=EVEN))
    clock.wall += HOUR
    sync_experiment(trial, files.source)
    files.add(units(first, means=EVEN).head(7).with_columns(unit=pl.col("unit") + 10**9))
    files.add(units(trial.shares(), means=EVEN))
    clock.wall += HOUR
    found = sync_experiment(trial, files.source)
    assert (found.closed, found.outcomes, found.late) == ((2,), 1_000, 7)


def test_counts_that_were_told_by_hand_are_closed_without_a_query(
    trial: Experiment, clock: SetClock, files: Store
) -> None:
    trial.tell_counts(1, {k: dict.fromkeys("xy", (100, 70)) for k in "abc"})
    clock.wall += HOUR
    found = sync_experiment(trial, OutcomeSource("no such folder/*.parquet"))
    assert (found.closed, found.outcomes) == ((1,), 600)


def test_a_table_of_counts_per_cell_and_interval_is_read(
    trial: Experiment, clock: SetClock, files: Store
) -> None:
    rows = units(trial.shares()).group_by("policy", "group", "version").agg(
        pl.len().cast(pl.Int64).alias("n"), pl.col("outcome").sum().alias("successes")
    )  # fmt: skip
    files.add(rows)
    clock.wall += HOUR
    assert sync_experiment(trial, files.source).outcomes == 1_000


def test_columns_may_have_other_names(trial: Experiment, clock: SetClock, files: Store) -> None:
    files.add(units(trial.shares()).rename({"version": "shares", "policy": "variant"}).drop("time"))
    files.columns = {"version": "shares", "policy": "variant"}
    clock.wall += HOUR
    assert sync_experiment(trial, files.source).closed == (1,)


def test_withdrawn_policies_are_counted_in_the_intervals_in_which_they_had_a_share(
    tmp_path: Path, clock: SetClock, files: Store
) -> None:
    study = problem(max_policies=4)
    with create(str(tmp_path / "t.db"), length="1h", study=study, clock=clock) as trial:
        files.add(units(trial.shares(), means=EVEN))
        clock.wall += HOUR / 2
        trial.withdraw("c", reason="harm", by="Ann")
        files.add(units(trial.shares(), means=EVEN))
        clock.wall += HOUR
        found = sync_experiment(trial, files.source)
        assert (found.closed, found.outcomes) == ((1, 2), 2_000)
        assert "c" not in {cell.policy for cell in trial.status().cells}
        assert trial.status().health.well
    assert audit(str(tmp_path / "t.db")).identical


@pytest.mark.parametrize("kind", ["duckdb", "postgresql", "csv"])
def test_linear_bets_on_bounded_outcomes_are_summed_where_the_data_are(
    kind: str, tmp_path: Path, clock: SetClock, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgresql" else ""
    store = Store(kind, tmp_path / "data", url)
    study = eh.Problem(
        ["a", "b", "c"], {"x": 0.6, "y": 0.4}, eh.Bounded(-1, 3), eh.Floors(1.0), mode="proportional"
    )
    procedure = eh.Procedure(evidence="linear-bets")
    mean = {"a": 0.75, "b": 0.68, "c": 0.6}
    rng = np.random.default_rng(2)
    with create(str(tmp_path / "t.db"), length="1h", study=study, procedure=procedure, clock=clock) as trial:
        while not trial.is_over:
            rows = units(trial.shares())
            level = np.array([mean[k] for k in rows["policy"]])
            store.add(rows.with_columns(outcome=-1 + 4 * rng.beta(20 * level, 20 * (1 - level))))
            clock.wall += HOUR
            sync_experiment(trial, store.source)
        assert trial.status().answer == "a"
        # evidence that does not know the variance needs more
        assert trial.status().samples < 5_000
    assert audit(str(tmp_path / "t.db")).identical


@pytest.mark.parametrize("kind", ["parquet", "postgresql"])
def test_squares_and_guardrails_of_any_number_are_summed_where_the_data_are(
    kind: str, tmp_path: Path, clock: SetClock, request: pytest.FixtureRequest
) -> None:
    """A costs too much and c misses its floor, so b is the answer; waits are exponential."""
    url = request.getfixturevalue("postgres_url") if kind == "postgresql" else ""
    store = Store(kind, tmp_path / "data", url)
    rails = [
        eh.Guardrail("cost", eh.GaussianUnknown(), eh.Caps(5.0)),
        eh.Guardrail("wait", eh.Exponential(), eh.Caps(3.0)),
    ]
    study = eh.Problem(
        ["a", "b", "c"], {"x": 0.6, "y": 0.4}, eh.GaussianUnknown(), eh.Floors(1.0), mode="proportional",
        guardrails=rails,
    )  # fmt: skip
    mean = {"a": 1.8, "b": 1.5, "c": 0.5}
    rng = np.random.default_rng(2)
    every = []
    with create(str(tmp_path / "t.db"), length="1h", study=study, clock=clock) as trial:
        while not trial.is_over:
            rows = units(trial.shares())
            level, count = np.array([mean[k] for k in rows["policy"]]), len(rows)
            cost = rng.normal(np.where(rows["policy"] == "a", 6.0, 4.0), 1.0)
            rows = rows.with_columns(
                outcome=rng.normal(level, 0.5), cost=cost, wait=rng.exponential(1.0, count)
            ).with_columns(cost=pl.when(pl.int_range(count) % 5 > 0).then("cost"))
            store.add(rows)
            every.append(rows)
            clock.wall += HOUR
            sync_experiment(trial, store.source)
        assert trial.status().answer == "b"
        state = trial.present().state
    told = pl.concat(every)
    mine = told.filter((pl.col("policy") == "a") & (pl.col("group") == "x"))
    assert state.n[0, 0] == len(mine)
    assert state.rail_n[0, 0, 0] == mine["cost"].count()
    assert variance(state, 0, 0) == pytest.approx(float(np.var(mine["outcome"].to_numpy(), ddof=1)))
    assert audit(str(tmp_path / "t.db")).identical


def test_rows_that_are_added_during_a_count_are_not_counted_unchecked(
    tmp_path: Path, clock: SetClock, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit is added again after the check that every unit occurs once."""
    store = Store("postgresql", tmp_path / "data", postgres_url)
    check = IntervalTable._check_units

    def then_added(self: IntervalTable, *arguments: Any) -> None:
        check(self, *arguments)
        store.add(rows.head(1))

    monkeypatch.setattr(IntervalTable, "_check_units", then_added)
    with create(str(tmp_path / "t.db"), length="1h", clock=clock) as trial:
        rows = units(trial.shares())
        store.add(rows)
        clock.wall += HOUR
        assert sync_experiment(trial, store.source).outcomes == len(rows)


# ---- bad input: one sentence, nothing written ----


def twice(rows: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([rows, rows.head(1)])


def under_two_policies(rows: pl.DataFrame) -> pl.DataFrame:
    other = "b" if rows["policy"][0] == "a" else "a"
    return pl.concat([rows, rows.head(1).with_columns(policy=pl.lit(other))])


REFUSED: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], type[Exception], str]] = {
    "no interval": (lambda rows: rows.drop("version", "time"), BadInput, "needs a column 'version'"),
    "no outcome": (lambda rows: rows.drop("outcome"), BadInput, "needs a column 'outcome'"),
    "no policy": (lambda rows: rows.drop("policy"), BadInput, "needs a column 'policy'"),
    "no rows": (lambda rows: rows.with_columns(version=pl.lit(9)), BadInput, "holds no row of interval 1"),
    "another experiment": (
        lambda rows: rows.with_columns(experiment=pl.lit("other")), BadInput, "holds no row of interval 1"
    ),
    "twice": (twice, Conflict, "a unit may occur once in an interval; .* occurs 2 times"),
    "two policies": (under_two_policies, Conflict, "occurs under 2 policies in interval 1"),
    "unknown policy": (
        lambda rows: rows.with_columns(policy=pl.lit("z")), BadInput, "there is no policy 'z'"
    ),
    "bad outcome": (lambda rows: rows.with_columns(outcome=pl.lit(2)), BadInput, "outcomes must be 0 or 1"),
    "missing outcome": (
        lambda rows: rows.with_columns(outcome=pl.when(pl.int_range(len(rows)) > 0).then("outcome")),
        BadInput, "1 of 1,000 rows miss a value.*Give every unit",
    ),
    "a clock an hour ahead": (
        lambda rows: rows.with_columns(time=pl.col("time") + pl.duration(hours=2)), Conflict,
        "clocks of servers disagree",
    ),
    "a clock an hour behind": (
        lambda rows: rows.with_columns(time=pl.col("time") - pl.duration(hours=2)), Conflict,
        r"has a time .* s before the interval",
    ),
    "rows from the future": (
        lambda rows: pl.concat(
            [rows, rows.head(1).with_columns(time=pl.col("time") + pl.duration(hours=9))]
        ).drop("version", "unit"),
        Conflict, "clocks of servers disagree",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_data_that_cannot_be_right_are_refused_and_nothing_is_written(
    name: str, trial: Experiment, clock: SetClock, files: Store
) -> None:
    change, error, words = REFUSED[name]
    files.add(change(units(trial.shares())))
    clock.wall += HOUR
    head = trial.head
    with pytest.raises(error, match=words) as caught:
        sync_experiment(trial, files.source)
    assert "\n" not in str(caught.value)
    assert trial.head == head


def test_a_table_that_has_lost_rows_is_refused(trial: Experiment, clock: SetClock, files: Store) -> None:
    rows = units(trial.shares(), means=EVEN)
    files.add(rows)
    clock.wall += HOUR
    sync_experiment(trial, files.source)
    rows.head(900).write_parquet(files.folder / "001.parquet")
    files.add(units(trial.shares(), means=EVEN))
    clock.wall += HOUR
    head = trial.head
    with pytest.raises(Conflict, match="counts must not shrink: interval 1 had 1,000 outcomes"):
        sync_experiment(trial, files.source)
    assert trial.head == head


def test_a_study_without_a_length_and_one_with_tickets_are_refused(files: Store) -> None:
    with pytest.raises(BadInput, match="sync needs the length of an interval"):
        sync_experiment(create(), files.source)
    tickets = Experiment.create(":memory:", eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli()), seed=1)
    with pytest.raises(BadInput, match="has tickets"):
        sync_experiment(tickets, files.source)


# ---- many experiments, several processes ----


def many(url: str, count: int, table: str) -> None:
    """Create experiments in a journal, and a table with the first interval of each, an hour ago."""
    with psycopg.connect(url) as connection:
        connection.execute(
            f'CREATE TABLE {table} (unit bigint, policy text, "group" text, outcome integer, version bigint, '
            "experiment text)"
        )
        clock = SetClock(step=1e-6)
        journal = open_journal(url, create=True)
        with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
            for number in range(count):
                trial = create(journal, length="1h", clock=clock, name=f"trial-{number}")
                rows = units(trial.shares(), 200, EVEN).drop("time")
                for row in rows.with_columns(experiment=pl.lit(f"trial-{number}")).iter_rows():
                    copy.write_row(row)
        journal.close()


def sync_in_process(url: str, table: str) -> list[tuple[str, tuple[int, ...]]]:
    journal = open_journal(url)
    try:
        return [(one.experiment, one.closed) for one in sync_all(journal, OutcomeSource(url, table))]
    finally:
        journal.close()


def test_two_processes_share_the_experiments_of_a_journal(postgres_url: str) -> None:
    many(postgres_url, 12, "outcomes")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        done = pool.starmap(sync_in_process, [(postgres_url, "outcomes")] * 2)
    closed = [name for part in done for name, intervals in part if intervals]
    assert sorted(closed) == sorted(f"trial-{number}" for number in range(12))  # each once
    journal = open_journal(postgres_url)
    for number in range(12):
        assert Experiment.open(journal, f"trial-{number}").status().samples == 200
    with journal.claims() as mine, journal.claims() as theirs:
        assert (mine.take("trial-3"), theirs.take("trial-3")) == (True, False)
        mine.release("trial-3")
        assert theirs.take("trial-3")
    journal.close()


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("dropped", ["time", "version"])
def test_all_experiments_of_a_journal_are_counted_from_files_in_one_scan(
    kind: str, dropped: str, tmp_path: Path, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(kind, tmp_path / "data")
    journal = open_journal(str(tmp_path / "t.db"), create=True)
    names = [f"trial-{number}" for number in range(5)]
    for name in names:
        create(journal, length="1h", clock=clock, name=name)
    opened = Experiment.open
    monkeypatch.setattr(Experiment, "open", lambda *names: opened(*names, clock=clock))
    copies: list[str] = []
    copy = DuckTable.copy
    monkeypatch.setattr(DuckTable, "copy", lambda table, *rest: (copies.append(rest[0]), copy(table, *rest)))
    for hour in range(1, 4):
        for number, name in enumerate(names):
            rows = units(Experiment.open(journal, name).shares(), 200 + number, EVEN).drop(dropped)
            store.add(rows.with_columns(experiment=pl.lit(name)))
        clock.wall = START + hour * (HOUR + 60)
        found = list(sync_all(journal, store.source))
        assert [one.problem for one in found] == [None] * 5
        assert [one.outcomes for one in found] == [200, 201, 202, 203, 204]
    assert len(copies) == 3  # one for each run
    journal.close()


def test_a_refusal_concerns_one_experiment_and_the_others_go_on(postgres_url: str) -> None:
    many(postgres_url, 3, "outcomes")
    with psycopg.connect(postgres_url) as connection:
        connection.execute("DELETE FROM outcomes WHERE experiment = 'trial-1'")
    journal = open_journal(postgres_url)
    found = {one.experiment: one for one in sync_all(journal, OutcomeSource(postgres_url, "outcomes"))}
    assert [found[f"trial-{number}"].closed for number in range(3)] == [(1,), (), (1,)]
    assert "holds no row of interval 1" in str(found["trial-1"].problem)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("ALTER TABLE outcomes DROP COLUMN experiment")
    with pytest.raises(BadInput, match="needs a column 'experiment'"):
        list(sync_all(journal, OutcomeSource(postgres_url, "outcomes")))
    journal.close()


# ---- the commands ----


STUDY = """
[problem]
policies   = ["a", "b", "c"]
groups     = { x = 0.6, y = 0.4 }
family     = { name = "bernoulli" }
constraint = { kind = "floors", at_least = 0.6 }
mode       = "proportional"

[procedure]
interval = { volume = 1000, length = "1s" }
"""


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_commands_run_an_experiment_in_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(STUDY)
    code, out, _ = run(capsys, "new", "t.db", "study.toml", "--seed", "7")
    assert (code, out.splitlines()[-1]) == (0, "Next: evenhand shares t.db")
    shares = eh.Shares.from_dict(json.loads(run(capsys, "shares", "t.db", "--json")[1]))
    assert "Version 1 of the shares" in run(capsys, "shares", "t.db")[1]
    assert run(capsys, "shares", "t.db", "--sql", "duckdb")[1].strip() == shares.to_sql(dialect="duckdb")
    rows = units(shares).group_by("policy", "group").agg(
        pl.len().alias("n"), pl.col("outcome").sum().alias("sum")
    )  # fmt: skip
    rows.write_csv("counts.csv")
    code, out, _ = run(capsys, "tell-counts", "t.db", "counts.csv")
    assert (code, out.splitlines()[0]) == (0, "1,000 outcomes of interval 1 recorded.")
    rows.with_columns(pl.col("sum") - 1).write_csv("other.csv")
    code, _, err = run(capsys, "tell-counts", "t.db", "other.csv")
    assert code == 2
    assert "an interval has one set of counts" in err
    correct = ("--correct", "--reason", "typo", "--by", "Ann")
    assert run(capsys, "tell-counts", "t.db", "other.csv", *correct)[0] == 0
    code, out, _ = run(capsys, "close-interval", "t.db", "--json")
    assert json.loads(out)["closed"]
    assert run(capsys, "shares", "t.db", "--next")[1].startswith("Version 3")
    Path("counts.json").write_text(json.dumps(rows.with_columns(interval=pl.lit(2)).to_dicts()))
    code, out, _ = run(capsys, "tell-counts", "t.db", "counts.json", "--close", "--json")
    assert json.loads(out)["interval"] == 2
    assert run(capsys, "audit", "t.db")[0] == 0
    code, out, _ = run(capsys, "status", "t.db", "--json")
    assert json.loads(out)["intervals"]["closed"] == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tell-counts", "t.db", "none.csv"), "there is no file none.csv"),
        (("tell-counts", "t.db", "none.json"), "there is no file none.json"),
        (("tell-counts", "t.db", "bad.csv"), "needs the columns policy, group, n and sum; 'n' is missing"),
        (("tell-counts", "t.db", "text.csv"), "line 2: n must be a number; it is 'many'"),
        (("tell-counts", "t.db", "bad.json"), "must hold a list of rows"),
        (("tell-counts", "t.db", "two.json"), "counts of one interval, 1; it holds those of 1, 2"),
        (("tell-counts", "t.db", "good.csv", "--interval", "4"), "interval 4 has not begun"),
        (("tell-counts", "t.db", "good.csv", "--correct"), "a correction needs --reason and --by"),
        (("tell-counts", "t.db", "good.csv", "--by", "me"), "belong to --correct"),
        (("shares", "t.db", "--valid-from", "2040-01-01T00:00Z"), "--valid-from belongs to --next"),
        (("close-interval", "t.db"), "interval 1 has no counts yet"),
        (("ask", "t.db"), "runs in intervals and has no tickets"),
        (("sync", "t.db", "--url", "data.parquet", "--table", "t"), "--table is for the address"),
        (("sync", "t.db", "--url", "nowhere/*.parquet"), "no file matches"),
        (("sync", "t.db", "--url", "x.parquet", "--every", "soon"), "--every must be a number of s"),
        (("sync", "t.db", "--url", "x.parquet", "--every", "0s"), "--every must be more than 0"),
        (("sync", "t.db", "--url", "x", "--all", "--experiment", "main"), "leave out --experiment"),
        (("sync", "t.db", "--url", "x", "--column", "version"), "--column must be NAME=COLUMN"),
        (("sync", "t.db", "--url", "sqlite:///no.db"), "needs the name of the table"),
    ],
)  # fmt: skip
def test_bad_commands_are_refused_in_one_sentence_with_exit_code_2(
    words: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    trial = create("t.db", length="1s")  # long ago
    head = trial.head
    trial.close()
    Path("bad.csv").write_text("policy,group\na,x\n")
    Path("good.csv").write_text("policy,group,n,sum\na,x,3,2\n")
    Path("text.csv").write_text("policy,group,n,sum\na,x,many,2\n")
    Path("bad.json").write_text("{}")
    Path("two.json").write_text(
        json.dumps([{"interval": i, "policy": "a", "group": "x", "n": 1, "sum": 1} for i in (1, 2)])
    )
    pl.DataFrame({"policy": ["a"]}).write_parquet("data.parquet")
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    with Experiment.open("t.db", write=False) as again:
        assert again.head == head


def test_sync_repeats_until_the_experiment_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    create("t.db", length="1s").close()

    def serve(_seconds: float) -> None:
        """Write the units of an interval whenever the command waits."""
        time.sleep(1.01)
        with Experiment.open("t.db", write=False) as trial:
            shares = trial.shares()
        units(shares).drop("time").write_parquet(f"{shares.version}.parquet")

    class Waiting:
        sleep = staticmethod(serve)

    monkeypatch.setattr(intervals, "time", Waiting)
    code, out, err = run(capsys, "sync", "t.db", "--url", "*.parquet", "--every", "1s")
    assert code == 0
    assert "no file matches" in err or "holds no row" in err or "nothing was due" in out.lower()
    assert "the experiment is decided" in out.splitlines()[-2]
    assert audit("t.db").identical
