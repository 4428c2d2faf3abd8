"""The assumed truth of a plan or simulation: means, or a file of counts or outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.errors import BadInput
from evenhand.model.problem import Problem
from evenhand.study import data_files
from evenhand.study.data_files import Array
from evenhand.study.problem_tables import by_name, known_keys, numeric

SOURCES = ("means", "cells", "data")

LONGEST_LAG = 10_000_000  # a simulation stores this many samples while their outcomes are pending


@dataclass(frozen=True)
class Truth:
    """Means (one row per policy), or a CSV file to draw from; with optional lag and dropout."""

    means: tuple[tuple[float, ...], ...] | None = None
    cells: str | None = None  # policy, group, n, successes
    data: str | None = None  # policy, group, outcome
    lag: int | tuple[int, int] = 0  # number of asks until an outcome is known; a pair: uniform between them
    dropout: float = 0.0  # probability that an outcome never arrives
    outcomes: str | None = None  # "bernoulli": outcomes are 0 or 1, whatever the family of the problem
    sd: Any = None  # sd of Gaussian outcomes if the family has none: a number or K x L; default 1
    guardrails: Mapping[str, Any] | None = None  # name -> means, a row per policy
    folder: Path = field(default=Path(), compare=False)  # folder that file paths are relative to

    def __post_init__(self) -> None:
        given = [name for name in SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise BadInput(
                f"[truth] takes exactly one of means, cells and data; it has {' and '.join(given) or 'none'}."
            )
        _check_lag(self.lag)
        if (
            isinstance(self.dropout, bool)
            or not isinstance(self.dropout, (int, float))
            or not 0 <= self.dropout < 1
        ):
            raise BadInput(
                f"dropout must be a probability of at least 0 and below 1; it is {self.dropout!r}."
            )
        if self.guardrails is not None:
            object.__setattr__(self, "guardrails", _frozen_tables(self.guardrails))
        if self.outcomes not in (None, "bernoulli"):
            raise BadInput(f'outcomes in [truth] can only be "bernoulli"; it is {self.outcomes!r}.')
        if self.outcomes is not None and self.data is not None:
            raise BadInput("[truth] can have outcomes or data, not both.")

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], problem: Problem) -> Truth:
        """Return the truth in a [truth] table; the means are checked against the problem."""
        known_keys(table, (*SOURCES, "lag", "dropout", "outcomes", "sd", "guardrails"), "[truth]")
        values = dict(table)
        if "guardrails" in values:
            tables = problem.check_guardrail_means(by_name(values["guardrails"], "guardrails"))
            names = [rail.name for rail in problem.guardrails]
            values["guardrails"] = dict(zip(names, tables, strict=True))
        if "means" in values:
            means = problem.check_means(by_name(values["means"], "means"))
            values["means"] = tuple(map(tuple, means.tolist()))
        for name in ("cells", "data"):
            if name in values and not isinstance(values[name], str):
                raise BadInput(f"{name} must be the path of a CSV file; it is {values[name]!r}.")
        if isinstance(values.get("lag"), list):
            values["lag"] = tuple(values["lag"])
        if "sd" in values:
            values["sd"] = _standard_deviations(values["sd"], problem)
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        table: dict[str, Any] = {}
        if self.means is not None:
            table["means"] = [list(row) for row in self.means]
        for name in ("cells", "data"):
            if getattr(self, name) is not None:
                table[name] = getattr(self, name)
        if self.lag:
            table["lag"] = list(self.lag) if isinstance(self.lag, tuple) else self.lag
        if self.dropout:
            table["dropout"] = float(self.dropout)
        if self.outcomes is not None:
            table["outcomes"] = self.outcomes
        if self.sd is not None:
            table["sd"] = [list(row) for row in self.sd] if isinstance(self.sd, tuple) else float(self.sd)
        if self.guardrails is not None:
            table["guardrails"] = {
                name: [list(row) for row in means] for name, means in self.guardrails.items()
            }
        return table

    def cell_means(self, problem: Problem) -> tuple[tuple[float, ...], ...]:
        """Return the true means, K x L: given, or the averages of the cells in the file."""
        if self.means is not None:
            return self.means
        if self.cells is not None:
            n, successes = self.counts(problem)
            table = successes / n
        else:
            table = np.array([[x.mean() for x in row] for row in self.cell_outcomes(problem)])
        return tuple(map(tuple, problem.check_means(table).tolist()))

    def counts(self, problem: Problem) -> tuple[Array, Array]:
        """Return the sizes and successes of the cells, each K x L, from the `cells` file."""
        assert self.cells is not None
        return data_files.counts(self.folder / self.cells, problem)

    def cell_outcomes(self, problem: Problem) -> list[list[Array]]:
        """Return the outcomes of every cell, K lists of L arrays, from the `data` file."""
        assert self.data is not None
        return data_files.outcomes(self.folder / self.data, problem)


def _frozen_tables(tables: Any) -> dict[str, Any]:
    """Return tables of means by name as nested tuples."""
    if not isinstance(tables, Mapping):
        raise BadInput(f"guardrails in [truth] must be a table of means by name; it is {tables!r}.")
    try:
        return {
            name: tuple(map(tuple, np.asarray(means, dtype=float).tolist())) for name, means in tables.items()
        }
    except (TypeError, ValueError):
        raise BadInput(f"guardrails in [truth] must be tables of numbers; they are {tables!r}.") from None


def _check_lag(lag: Any) -> None:
    ends = lag if isinstance(lag, tuple) else (lag, lag)
    whole = all(
        isinstance(end, int) and not isinstance(end, bool) and 0 <= end <= LONGEST_LAG for end in ends
    )
    if len(ends) != 2 or not whole or ends[0] > ends[1]:
        raise BadInput(
            f"lag must be a whole number of samples, 0 to {LONGEST_LAG}, or a pair [least, most]; "
            f"it is {list(lag) if isinstance(lag, tuple) else lag!r}."
        )


def _standard_deviations(sd: Any, problem: Problem) -> Any:
    """Return standard deviations as a positive number, or K x L as nested tuples."""
    values = np.asarray(numeric(sd, "sd"), dtype=float)
    if values.shape not in ((), problem.shape) or not np.all(values > 0) or not np.all(np.isfinite(values)):
        raise BadInput(f"sd in [truth] must be a positive number, or a row of them per policy; it is {sd}.")
    return tuple(map(tuple, values.tolist())) if values.ndim else values.tolist()
