"""Tables where outcomes are stored: files that DuckDB reads, and tables of databases.

A query is written with SQLAlchemy and run by the engine that holds the data. `Table.where` restricts every
query to some of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evenhand.errors import BadInput, nearest, shown_address
from evenhand.procedure.assignment import literal

if TYPE_CHECKING:
    import sqlalchemy as sa

CHUNK = 16_384  # rows of a result held in memory at once
NUMBER, TIME, ZONED_TIME, TEXT = "number", "time", "time with zone", "text"  # kinds of columns


class Measure(NamedTuple):
    """A column of outcomes that are added up, and the origin and the width of their unit scale."""

    column: str
    low: float
    width: float
    squared: bool = False  # whether their squares are added up too


class Column(NamedTuple):
    """A column of a table."""

    name: str
    kind: str  # NUMBER, TIME, ZONED_TIME or TEXT


class Table:
    """A table whose rows are grouped by the engine that holds them."""

    columns: Sequence[Column] = ()
    where: Any = None  # an SQL condition that the rows of every query meet; None: all rows
    name = ""  # the table as an SQL expression, for queries that are written as text
    parses_text = False  # whether times and numbers may be stored as text

    @property
    def titles(self) -> list[str]:
        """Return the names of the columns."""
        return [part.name for part in self.columns]

    def kind(self, name: str) -> str:
        """Return the kind of a column."""
        return next(part.kind for part in self.columns if part.name == name)

    def grouped(self, columns: list[str]) -> Iterator[list[Any]]:
        """Yield chunks of (value of every column, number of rows)."""
        import sqlalchemy as sa

        keys = [column(name) for name in columns]
        yield from self.run(sa.select(*keys, sa.func.count()).group_by(*keys))

    def summed(
        self, keys: Sequence[str], measures: Sequence[Measure], needed: str | None = None
    ) -> Iterator[list[Any]]:
        """Yield chunks of (keys, rows, and for each measure: outcomes, sum, least, most, sum of squares).

        Sums are in unit scale; that of squares is there if it was asked for. Only rows with a value in the
        column `needed` are added up.
        """
        import sqlalchemy as sa

        names = [column(name) for name in keys]
        sums: list[Any] = [sa.func.count()]
        for measure in measures:
            x = self.number(measure.column)
            if needed is not None and measure.column != needed:
                x = sa.case((column(needed).is_not(None), x))
            low, width = measure.low, measure.width
            unit = x if (low, width) == (0.0, 1.0) else (x - sa.literal(low)) / sa.literal(width)
            sums += [sa.func.count(x), self.sum(unit), sa.func.min(x), sa.func.max(x)]
            sums += [self.sum(unit * unit)] * measure.squared
        yield from self.run(sa.select(*names, *sums).group_by(*names))

    def first_with(self, columns: Sequence[str]) -> sa.Select[Any]:
        """Return a query of one row that has a value in one of these columns."""
        import sqlalchemy as sa

        found = [column(name).is_not(None) for name in columns]
        return sa.select(sa.literal(1)).where(sa.or_(*found)).limit(1)

    def rows(self, columns: list[str]) -> Iterator[Any]:
        """Yield the rows, each a sequence with the values of these columns."""
        import sqlalchemy as sa

        for chunk in self.run(sa.select(*[column(name) for name in columns])):
            yield from chunk

    def number(self, name: str) -> Any:
        """Return a column as numbers."""
        return column(name)

    def sum(self, values: Any) -> Any:
        """Return the sum of values."""
        import sqlalchemy as sa

        return sa.func.sum(values)

    def time(self, name: str) -> Any:
        """Return a column as times."""
        import sqlalchemy as sa

        return sa.column(quoted(name), sa.DateTime(timezone=self.kind(name) == ZONED_TIME))

    def moment(self, name: str, seconds: float) -> Any:
        """Return seconds since 1970 as a value that this column of times can be compared with."""
        if self.kind(name) == NUMBER:
            return seconds
        at = datetime.fromtimestamp(seconds, UTC)
        return at if self.kind(name) == ZONED_TIME else at.replace(tzinfo=None)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all queries of the block see the same rows, where the engine can; it begins with the first."""
        yield

    def run(self, query: sa.Select[Any]) -> Iterator[list[Any]]:
        """Yield the result of a query in chunks."""
        raise NotImplementedError

    def run_text(self, query: str) -> list[Any]:
        """Return all rows of a query written as text."""
        raise NotImplementedError

    def as_text(self, query: Any) -> str:
        """Return a query or an expression as SQL text."""
        raise NotImplementedError

    def _restricted(self, query: sa.Select[Any]) -> sa.Select[Any]:
        return query if self.where is None else query.where(self.where)


class DuckTable(Table):
    """Files, or a table, that DuckDB reads; its SQL is that of PostgreSQL."""

    parses_text = True

    def __init__(self, engine: Any, scan: str, columns: Sequence[Column] = ()) -> None:
        self.engine, self.name, self.columns = engine, scan, columns
        engine.execute("SET enable_progress_bar = false")  # it would be written to standard output

    def number(self, name: str) -> Any:
        import sqlalchemy as sa

        return sa.cast(column(name), sa.Double())  # fields of CSV and JSON are text

    def sum(self, values: Any) -> Any:
        import sqlalchemy as sa

        return sa.func.fsum(values)  # compensated: the order in which threads add hardly matters

    def time(self, name: str) -> Any:
        import sqlalchemy as sa

        if self.kind(name) == TEXT:
            return sa.cast(column(name), sa.DateTime())
        return super().time(name)

    def run(self, query: sa.Select[Any]) -> Iterator[list[Any]]:
        import sqlalchemy as sa

        written = self.as_text(self._restricted(query).select_from(sa.text("scan_of_the_data")))
        # the scan is put in last: SQLAlchemy would take colons in it for its own
        result = self.engine.execute(written.replace("scan_of_the_data", self.name, 1))
        while chunk := result.fetchmany(CHUNK):
            yield chunk

    def copy(self, name: str, order: str) -> None:
        """Copy the rows to a temporary table of this name, in the order of a column, and read from it."""
        import sqlalchemy as sa

        query = self._restricted(sa.select(sa.text("*"))).order_by(column(order))
        written = self.as_text(query.select_from(sa.text("scan_of_the_data")))
        scan = written.replace("scan_of_the_data", self.name, 1)
        self.engine.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {scan}")
        self.name = name

    def run_text(self, query: str) -> list[Any]:
        return list(self.engine.execute(query).fetchall())

    def as_text(self, query: Any) -> str:
        from sqlalchemy.dialects import postgresql

        # with another style of parameters percent signs would be doubled
        dialect = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
        return str(query.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


class DatabaseTable(Table):
    """A table of a database that SQLAlchemy reaches."""

    def __init__(self, connection: sa.Connection, table: Any, columns: Sequence[Column] = ()) -> None:
        self.connection, self.table, self.columns = connection, table, columns
        self.name = connection.dialect.identifier_preparer.format_table(table)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        import sqlalchemy as sa

        if self.connection.dialect.name != "postgresql":
            yield
            return
        self.connection.commit()
        self.connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
        yield
        self.connection.commit()

    def run(self, query: sa.Select[Any]) -> Iterator[list[Any]]:
        result = self.connection.execute(self._restricted(query).select_from(self.table))
        while chunk := result.fetchmany(CHUNK):
            yield [tuple(row) for row in chunk]

    def run_text(self, query: str) -> list[Any]:
        import sqlalchemy as sa

        return [tuple(row) for row in self.connection.execute(sa.text(query.replace(":", "\\:")))]

    def as_text(self, query: Any) -> str:
        return str(query.compile(self.connection, compile_kwargs={"literal_binds": True}))


def has_duckdb() -> bool:
    """Return whether DuckDB, of the extra `warehouse`, is installed."""
    return find_spec("duckdb") is not None


@contextmanager
def open_database(address: str, table: str | None) -> Iterator[Table]:
    """Yield a table or view of a database; errors of the database are refusals in one sentence."""
    if not table:
        raise BadInput("a database needs the name of the table that holds the outcomes; pass table='name'.")
    if address.startswith("duckdb:"):
        with _open_duckdb(address, table) as found:
            yield found
        return
    import sqlalchemy as sa

    shown = shown_address(address)
    try:
        engine = sa.create_engine(with_psycopg(address))
    except (sa.exc.ArgumentError, ModuleNotFoundError) as problem:
        raise BadInput(f"the address {shown} cannot be used: {first_line(problem)}") from None
    try:
        with engine.connect() as connection:
            yield _table_of(connection, table, shown)
    except sa.exc.SQLAlchemyError as problem:
        reason = getattr(problem, "orig", None) or problem
        raise BadInput(f"the table {table!r} of {shown} cannot be read: {first_line(reason)}") from None
    finally:
        engine.dispose()


def _table_of(connection: sa.Connection, table: str, shown: str) -> DatabaseTable:
    """Return a table of a database with its columns; refuse one that does not exist."""
    import sqlalchemy as sa

    schema, _, name = table.rpartition(".")
    inspector = sa.inspect(connection)
    if not inspector.has_table(name, schema=schema or None):
        known = [*inspector.get_table_names(schema or None), *inspector.get_view_names(schema or None)]
        raise BadInput(f"{shown} has no table {table!r}{nearest(name, known)}")
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SET TIME ZONE 'UTC'"))  # for times without a zone
    columns = [
        Column(part["name"], _kind(part["type"]))
        for part in inspector.get_columns(name, schema=schema or None)
    ]
    found = sa.table(quoted(name), schema=quoted(schema) if schema else None)
    return DatabaseTable(connection, found, columns)


def _kind(type_: Any) -> str:
    import sqlalchemy as sa

    if isinstance(type_, (sa.Integer, sa.Numeric)):
        return NUMBER
    if isinstance(type_, (sa.DateTime, sa.Date)):
        return ZONED_TIME if getattr(type_, "timezone", False) else TIME
    return TEXT


@contextmanager
def _open_duckdb(address: str, table: str) -> Iterator[Table]:
    """Yield a table of a DuckDB database file, duckdb:///path."""
    if not has_duckdb():
        raise BadInput("reading a DuckDB database needs DuckDB; install evenhand[warehouse].")
    import duckdb

    path = address.removeprefix("duckdb:").removeprefix("///")
    if not Path(path).is_file():
        raise BadInput(
            f"there is no file {path}; a DuckDB database is duckdb:///relative/path or duckdb:////path."
        )
    try:
        with duckdb.connect(path, read_only=True) as engine:
            scan = ".".join(f'"{part}"' for part in table.replace('"', '""').split("."))
            yield duck_table(engine, scan)
    except duckdb.Error as problem:
        raise BadInput(f"the table {table!r} of {path} cannot be read: {first_line(problem)}") from None


def duck_table(engine: Any, scan: str) -> DuckTable:
    """Return a table, or a scan of files, of DuckDB with its columns."""
    engine.execute("SET TimeZone = 'UTC'")  # for times without a zone
    described = engine.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()
    return DuckTable(engine, scan, [Column(row[0], _duck_kind(row[1])) for row in described])


def _duck_kind(type_: str) -> str:
    if type_.startswith("TIMESTAMP WITH TIME ZONE"):
        return ZONED_TIME
    if type_.startswith(("TIMESTAMP", "DATE")):
        return TIME
    numbers = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "U")
    return NUMBER if type_.startswith(numbers) and type_ != "UUID" else TEXT


def csv_scan(files: Sequence[Path], titles: Sequence[str], delimiter: str) -> str:
    """Return DuckDB's table function for CSV files with this header, every field as text."""
    columns = ", ".join(f"{literal(title)}: 'VARCHAR'" for title in titles)
    return (
        f"read_csv({listed(files)}, auto_detect = false, header = true, delim = {literal(delimiter)}, "
        f"quote = '\"', escape = '\"', strict_mode = true, columns = {{{columns}}})"
    )


def json_scan(files: Sequence[Path], keys: Sequence[str]) -> str:
    """Return DuckDB's table function for JSON lines, every value as text; without a key it is missing."""
    columns = ", ".join(f"{literal(key)}: 'VARCHAR'" for key in keys)
    return f"read_json({listed(files)}, format = 'newline_delimited', columns = {{{columns}}})"


def parquet_scan(files: Sequence[Path | str]) -> str:
    """Return DuckDB's table function for Parquet files."""
    return f"read_parquet({listed(files)})"


def column(name: str) -> Any:
    """Return a column as an SQL expression."""
    import sqlalchemy as sa

    return sa.column(quoted(name))


def quoted(name: str) -> Any:
    """Return a name that is always quoted in SQL."""
    from sqlalchemy.sql.elements import quoted_name

    return quoted_name(name, True)


def listed(files: Sequence[Path | str]) -> str:
    """Return the names of files as a list in DuckDB's SQL."""
    return "[" + ", ".join(literal(str(file)) for file in files) + "]"


def with_psycopg(address: str) -> str:
    """Return the address with psycopg, which is installed with evenhand[postgres], as its driver."""
    for scheme in ("postgresql://", "postgres://"):
        if address.startswith(scheme):
            return "postgresql+psycopg://" + address.removeprefix(scheme)
    return address


def first_line(problem: object) -> str:
    """Return the first line of an error, as the end of a sentence."""
    line = next(iter(str(problem).strip().splitlines()), type(problem).__name__)
    return line if line.endswith(".") else f"{line}."
