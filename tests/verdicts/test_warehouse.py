"""Counting where the data are gives the counts, the verdicts and the messages of the reader of rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql, sqlite

import evenhand as eh
from evenhand.cli.main import main
from evenhand.errors import BadInput
from evenhand.verdicts import tables, warehouse
from evenhand.verdicts.counts import Data
from evenhand.verdicts.read_data import read

GROUPS = {"young": 0.7, "old": 0.3}
PROBLEM = eh.Problem(["aspirin", "neither"], GROUPS, eh.Bernoulli(), eh.Floors(0.8))
GAUSSIAN = eh.Problem(["aspirin", "neither"], GROUPS, eh.Gaussian(1.0), eh.Floors(0.0))
FAMILIES = {
    "bernoulli": (eh.Bernoulli(), [0, 1]),
    "poisson": (eh.Poisson(), [0, 1, 2, 7]),
    "binomial": (eh.Binomial(trials=3), [0, 1, 2, 3]),
    "bounded": (eh.Bounded(-1, 2), [-1.0, 0.1, 2.0, 0.7]),
    "gaussian": (eh.Gaussian(2.0), [-3.5, 0.1, 0.2, 1e6]),
}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Count files of every size; the list has whether DuckDB counted, for each call."""
    monkeypatch.setattr(warehouse, "LARGE", 0)
    calls: list[bool] = []
    count = warehouse.count_files

    def noted(*arguments: Any) -> bool:
        calls.append(count(*arguments))
        return calls[-1]

    monkeypatch.setattr("evenhand.verdicts.read_data.count_files", noted)
    return calls


def by_rows(monkeypatch: pytest.MonkeyPatch, *arguments: Any, **options: Any) -> Data:
    """Read without DuckDB."""
    with monkeypatch.context() as patched:
        patched.setattr(warehouse, "has_duckdb", lambda: False)
        return read(*arguments, **options)


def same(first: Data, second: Data, rounding: float = 0.0) -> None:
    assert (first.rows, first.missing, first.counts) == (second.rows, second.missing, second.counts)
    for name in ("n", "rail_n"):
        np.testing.assert_array_equal(getattr(first.state, name), getattr(second.state, name))
    for name in ("s", "rail_s"):
        np.testing.assert_allclose(getattr(first.state, name), getattr(second.state, name), rtol=rounding)


def frame(values: list[Any], rows: int = 500, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "note": rng.random(rows),
            "policy": rng.choice(["aspirin", "neither"], rows),
            "group": rng.choice(["young", "old"], rows),
            "outcome": rng.choice(values, rows),
        }
    )


def write(data: pl.DataFrame, path: Path) -> Path:
    {".csv": data.write_csv, ".parquet": data.write_parquet, ".jsonl": data.write_ndjson}[path.suffix](path)
    return path


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_every_family_and_file_gives_the_counts_of_the_reader_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[bool], family: str, suffix: str
) -> None:
    kind, values = FAMILIES[family]
    problem = eh.Problem(["aspirin", "neither"], GROUPS, kind)
    path = write(frame(values), tmp_path / f"data{suffix}")
    found = read(problem, path)
    assert counted == [True]
    # sums of whole numbers are exact; others are added in another order, each with a relative error of 2^-53
    same(found, by_rows(monkeypatch, problem, path), 0.0 if family in ("bernoulli", "poisson") else 1e-12)


def test_a_folder_and_a_pattern_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[bool]
) -> None:
    for suffix in (".parquet", ".csv", ".jsonl"):
        folder = tmp_path / suffix[1:]
        folder.mkdir()
        for minute in range(3):
            write(frame([0, 1], seed=minute), folder / f"{minute}{suffix}")
        whole = read(PROBLEM, pl.concat([frame([0, 1], seed=minute) for minute in range(3)]))
        for source in (folder, str(folder / f"*{suffix}"), str(tmp_path / "**" / f"*{suffix}")):
            same(read(PROBLEM, source), whole)
            same(by_rows(monkeypatch, PROBLEM, source), whole)
    assert counted == [True, False] * 9  # with DuckDB and without, for each source


def test_guard_rails_are_counted_with_their_missing_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[bool]
) -> None:
    rail = eh.Guardrail("complaints", eh.Poisson(), eh.Caps(1.5))
    problem = eh.Problem(["aspirin", "neither"], GROUPS, eh.Bernoulli(), eh.Floors(0.5), guardrails=[rail])
    complaints = np.random.default_rng(1).choice([0.0, 2.0, None], 500).tolist()
    path = write(
        frame([0, 1]).with_columns(pl.Series("complaints", complaints, dtype=pl.Float64)),
        tmp_path / "data.parquet",
    )
    found = read(problem, path)
    assert counted == [True]
    same(found, by_rows(monkeypatch, problem, path))
    assert 0 < found.state.rail_n.sum() < found.state.n.sum()


RAILS = {
    "complaints": (eh.Poisson(), [0.0, 2.0, None]),
    "minutes": (eh.Bounded(0, 60), [0.5, 20.25, 60.0, None]),
    "revenue": (eh.Gaussian(3.0), [-4.0, 0.5, 12.75, None]),
}


def with_rails(family: str) -> tuple[eh.Problem, pl.DataFrame]:
    """Return a problem with guard-rails of whole numbers and of any number, and data with missing values."""
    kind, values = FAMILIES[family]
    rails = [eh.Guardrail(name, kind, eh.Caps(50.0)) for name, (kind, _) in RAILS.items()]
    rng = np.random.default_rng(1)
    columns = [
        pl.Series(name, rng.choice(given, 500).tolist(), dtype=pl.Float64)
        for name, (_, given) in RAILS.items()
    ]
    holes = pl.when(pl.int_range(500) % 7 > 0).then("outcome").alias("outcome")
    problem = eh.Problem(["aspirin", "neither"], GROUPS, kind, guardrails=rails)
    return problem, frame(values).with_columns(*columns).with_columns(holes)


@pytest.mark.parametrize("family", FAMILIES)
def test_guard_rails_of_every_family_are_counted_beside_every_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[bool], family: str
) -> None:
    problem, data = with_rails(family)
    path = write(data, tmp_path / "data.parquet")
    found = read(problem, path, "drop")
    assert counted == [True]
    same(found, by_rows(monkeypatch, problem, path, "drop"), 1e-12)
    assert found.missing == 72
    assert (found.state.rail_n.sum(axis=(1, 2)) < found.state.n.sum()).all()


def test_a_guard_rail_outside_its_range_is_refused_where_it_is_counted(tmp_path: Path, database: Any) -> None:
    url, filled = database
    problem, data = with_rails("bounded")
    filled(data.with_columns(minutes=pl.lit(61.0)))
    with pytest.raises(BadInput, match="outcomes of guard-rail 'minutes' must be"):
        read(problem, url, "drop", table="outcomes")


def test_a_verdict_is_the_same_with_and_without_duckdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[bool]
) -> None:
    path = write(frame([0, 1, 1, 1, 1, 1], rows=3_000), tmp_path / "data.parquet")
    found = eh.judge(PROBLEM, path, replications=0).to_dict()
    assert counted == [True]
    monkeypatch.setattr(warehouse, "has_duckdb", lambda: False)
    assert eh.judge(PROBLEM, path, replications=0).to_dict() == found


def test_duckdb_writes_no_progress_to_standard_output() -> None:
    import duckdb

    engine = duckdb.connect()
    engine.execute("SET enable_progress_bar = true")  # as in a notebook
    tables.duck_table(engine, "range(3)")
    assert engine.execute("SELECT current_setting('enable_progress_bar')").fetchone() == (False,)


def test_small_files_are_read_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warehouse, "GroupedTally", None)  # would fail if it were used
    assert read(PROBLEM, write(frame([0, 1]), tmp_path / "data.parquet")).rows == 500


@pytest.mark.parametrize("family", [eh.GaussianUnknown(), eh.Exponential(), eh.Gamma(2.0)])
def test_evidence_that_depends_on_the_order_is_read_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[bool], family: Any
) -> None:
    problem = eh.Problem(["aspirin", "neither"], GROUPS, family)
    path = write(frame([0.5, 1.5, 2.5]), tmp_path / "data.parquet")
    found = read(problem, path)
    assert counted == [False]
    np.testing.assert_array_equal(found.state.bets, by_rows(monkeypatch, problem, path).state.bets)
    assert found.state.bets.any()


def test_items_are_read_in_order(tmp_path: Path, counted: list[bool]) -> None:
    data = frame([0, 1]).with_columns(item=pl.int_range(500), group=pl.lit("young"))
    problem = eh.Problem(["aspirin", "neither"], {"young": 1.0}, eh.Bernoulli())
    found = read(problem, write(data, tmp_path / "data.jsonl"))
    assert counted == [False]
    assert found.items is not None


# fields as files have them: names, holes, numbers in several spellings, quotes, delimiters, line ends
NAMES = st.sampled_from(["aspirin", "neither", "aspirin ", "", "NA", "Aspirin", '"aspirin"', '"nei\nther"'])
WHERE = st.sampled_from(["young", "old", "old", "young", "null", '"old"', '"yo""ung"', 'o"ld'])
VALUES = st.sampled_from(["0", "1", "1.0", " 1", "true", "False", "", "nan", "2", "x", '"1"', '"1"1', "1,2"])
LINES = st.lists(st.tuples(NAMES, WHERE, VALUES), max_size=6)
USUAL = st.tuples(
    st.sampled_from(["aspirin", "neither"]), st.sampled_from(["young", "old"]), st.sampled_from(["0", "1"])
)


@settings(max_examples=40)
@given(
    usual=st.lists(USUAL, max_size=8),
    unusual=LINES,
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
    last=st.booleans(),
    missing=st.sampled_from(["fail", "drop"]),
)
@pytest.mark.parametrize("problem", [PROBLEM, GAUSSIAN], ids=["bernoulli", "gaussian"])
def test_any_csv_is_read_or_refused_as_row_by_row(
    problem: eh.Problem, usual: Any, unusual: Any, end: str, last: bool, missing: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    lines = ["policy,group,outcome", *(",".join(row) for row in [*usual, *unusual])]
    path = tmp_path_factory.mktemp("csv") / "data.csv"
    path.write_bytes((end.join(lines) + (end if last else "")).encode())
    found = []
    for large in (0, 10**9):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(warehouse, "LARGE", large)
            try:
                found.append(read(problem, path, missing))
            except BadInput as refusal:
                found.append(str(refusal))
    if isinstance(found[0], str) or isinstance(found[1], str):
        assert found[0] == found[1]
    else:
        same(found[0], found[1], 1e-12)


def test_a_refusal_in_several_files_names_the_file(tmp_path: Path, counted: list[bool]) -> None:
    write(frame([0, 1]), tmp_path / "1.csv")
    write(frame([3]), tmp_path / "2.csv")
    with pytest.raises(BadInput, match=r"2\.csv, line 2 has 3"):
        read(PROBLEM, tmp_path)


def test_files_of_two_kinds_and_patterns_without_a_file_are_refused(tmp_path: Path) -> None:
    write(frame([0, 1]).filter(policy="neither"), tmp_path / "1.csv")
    write(frame([0, 1]), tmp_path / "2.parquet")
    (tmp_path / "3.csv").write_text("policy,group,n,mean\naspirin,young,3,1\n")
    with pytest.raises(BadInput, match="of one kind"):
        read(PROBLEM, str(tmp_path / "*"))
    with pytest.raises(BadInput, match=r"3\.csv holds counts and 1\.csv single outcomes"):
        read(PROBLEM, str(tmp_path / "*.csv"))
    with pytest.raises(BadInput, match="no file matches"):
        read(PROBLEM, str(tmp_path / "*.pq"))


# ---- databases ----


def fill(url: str, data: pl.DataFrame, name: str = "outcomes") -> None:
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    kinds = {
        pl.String: sa.Text(),
        pl.Int64: sa.BigInteger(),
        pl.Float64: sa.Double(),
        pl.Boolean: sa.Boolean(),
    }
    table = sa.Table(
        name, sa.MetaData(), *(sa.Column(column, kinds[type(kind)]) for column, kind in data.schema.items())
    )
    with engine.begin() as connection:
        table.create(connection)
        if len(data):
            connection.execute(table.insert(), data.to_dicts())
    engine.dispose()


@pytest.fixture(params=["postgresql", "sqlite", "duckdb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return (address, function that fills a table) of an empty database."""
    if request.param == "duckdb":
        import duckdb

        def fill_duckdb(data: pl.DataFrame, name: str = "outcomes") -> None:
            with duckdb.connect(tmp_path / "store.db") as engine:
                engine.execute(f'CREATE TABLE "{name}" AS SELECT * FROM data')

        return f"duckdb:///{tmp_path / 'store.db'}", fill_duckdb
    url = (
        request.getfixturevalue("postgres_url")
        if request.param == "postgresql"
        else f"sqlite:///{tmp_path / 'store.db'}"
    )
    return url, lambda data, name="outcomes": fill(url, data, name)


def test_a_table_of_a_database_gives_the_counts_of_a_file(database: Any) -> None:
    url, filled = database
    for family, (kind, values) in FAMILIES.items():
        problem = eh.Problem(["aspirin", "neither"], GROUPS, kind)
        filled(frame(values), family)
        same(read(problem, url, table=family), read(problem, frame(values)), 1e-12)
        problem, data = with_rails(family)
        filled(data, f"{family} with guard-rails")
        same(
            read(problem, url, "drop", table=f"{family} with guard-rails"), read(problem, data, "drop"), 1e-12
        )
    filled(frame([False, True]), "truth values")
    same(read(PROBLEM, url, table="truth values"), read(PROBLEM, frame([False, True])))


def test_columns_of_a_table_may_have_other_names_and_missing_values(database: Any) -> None:
    url, filled = database
    holes = pl.when(pl.int_range(500) % 7 > 0).then("outcome").alias("outcome")
    data = frame([0, 1]).with_columns(holes).rename({"group": 'age "class"', "outcome": "Recovered?"})
    filled(data)
    columns = {"group": 'age "class"', "outcome": "Recovered?"}
    same(read(PROBLEM, url, "drop", columns, table="outcomes"), read(PROBLEM, data, "drop", columns))
    with pytest.raises(BadInput, match="rows miss a value"):
        read(PROBLEM, url, "fail", columns, table="outcomes")


def test_a_table_of_counts_is_read(database: Any) -> None:
    url, filled = database
    data = pl.DataFrame({"policy": ["aspirin"], "group": ["old"], "n": [10], "successes": [7]})
    filled(data)
    same(read(PROBLEM, url, table="outcomes"), read(PROBLEM, data))


def test_what_a_table_cannot_give_is_refused_in_one_sentence(database: Any) -> None:
    url, filled = database
    filled(frame([0, 1]).drop("group"), "no group")
    filled(frame([0, 1]).with_columns(item=pl.lit("a")), "items")
    filled(frame([0.5, 1.0]), "halves")
    filled(frame([0, 1]).head(0), "empty")
    filled(frame([0, 1]).with_columns(policy=pl.lit("Aspirin")), "names")
    for table, words in {
        "no group": "'no group' needs a column 'group'|no group needs a column 'group'",
        "items": "a table has no order",
        "halves": r"outcomes must be 0 or 1; .* rows? of '\w+' in '\w+' has 0\.5",
        "empty": "holds no row",
        "names": "there is no policy 'Aspirin'",
        "nowhere": "nowhere",
        None: "needs the name of the table",
    }.items():
        with pytest.raises(BadInput, match=words):
            read(PROBLEM, url, table=table)
    exponential = eh.Problem(["aspirin", "neither"], GROUPS, eh.Exponential())
    with pytest.raises(BadInput, match="depends on their order, and a table has none"):
        read(exponential, url, table="halves")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_sum_that_is_not_finite_is_refused(database: Any, value: float) -> None:
    url, filled = database
    filled(frame([0.5, 1.0, value]))
    is_null = url.startswith("sqlite") and value != value  # SQLite stores NaN as NULL
    with pytest.raises(BadInput, match="rows miss a value" if is_null else "not a finite number"):
        read(GAUSSIAN, url, table="outcomes")


def test_bad_addresses_are_refused_without_their_password(tmp_path: Path) -> None:
    for url, words in {
        "nosuch://x/y": "cannot be used",
        "duckdb:///nowhere.db": "there is no file",
        "postgresql://me:secret@127.0.0.1:1/db": "cannot be read",
        "s3://bucket/outcomes.xlsx": "must end in",
    }.items():
        with pytest.raises(BadInput, match=words) as caught:
            read(PROBLEM, url, table=None if url.startswith("s3") else "outcomes")
        assert "secret" not in str(caught.value)
    with pytest.raises(BadInput, match="is for the address of a database"):
        read(PROBLEM, write(frame([0, 1]), tmp_path / "d.csv"), table="outcomes")


class Compiled(tables.Table):
    """Notes the SQL instead of running it."""

    def __init__(self, dialect: Any) -> None:
        self.dialect, self.sql = dialect, ""

    def run(self, query: Any) -> Any:
        table = sa.table(tables.quoted("outcomes"))
        self.sql = str(query.select_from(table).compile(dialect=self.dialect))
        return iter(())


@pytest.mark.parametrize("dialect", [postgresql, mysql, mssql, oracle, sqlite])
def test_the_query_is_one_group_by_in_every_dialect(dialect: Any) -> None:
    quote = {mysql: "``", mssql: "[]"}.get(dialect, '""')
    table = Compiled(dialect.dialect())
    assert list(table.grouped(["policy", "group", "outcome"])) == []
    keys = [f"{quote[0]}{name}{quote[1]}" for name in ("policy", "group", "outcome")]
    assert table.sql.split() == [
        "SELECT", *(f"{key}," for key in keys), "count(*)", "AS", "count_1", "FROM",
        f"{quote[0]}outcomes{quote[1]}", "GROUP", "BY", *(f"{key}," for key in keys[:2]), keys[2],
    ]  # fmt: skip
    assert list(table.summed(["policy"], [tables.Measure("outcome", 0.0, 1.0)])) == []
    assert table.sql.count("GROUP BY") == 1
    assert all(f"{name}(" in table.sql for name in ("count", "sum", "min", "max"))


def test_the_command_judges_a_table(
    postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gate.toml").write_text(
        '[problem]\npolicies = ["aspirin", "neither"]\ngroups = { young = 0.7, old = 0.3 }\n'
        'family = { name = "bernoulli" }\nconstraint = { kind = "floors", at_least = 0.8 }\n'
    )
    fill(postgres_url, frame([1] * 9 + [0], rows=3_000))
    command = ["judge", str(tmp_path / "gate.toml"), postgres_url, "--table", "outcomes", "--json"]
    assert main([*command, "--replications", "0"]) in (0, 3)
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == 3_000
    assert found["samples"] == 3_000
