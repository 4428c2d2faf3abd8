"""The assumed truth of a plan or simulation: means, or a file of counts or outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.errors import BadInput, is_one_of, shown
from evenhand.files import file_path
from evenhand.model.argument_checks import as_python_numbers, is_number, python_number
from evenhand.model.frozen_dict import FrozenDict, plain
from evenhand.model.labels import bounds_in_order, checked_bounds
from evenhand.model.problem import Problem
from evenhand.study import data_files
from evenhand.study.data_files import Array
from evenhand.study.problem_tables import by_name, known_keys, numeric

SOURCES = ("means", "cells", "data")


LONGEST_LAG = 10_000_000  # a simulation stores this many samples while their outcomes are pending


@dataclass(frozen=True)
class Truth:
    """The means that are assumed, or a CSV file of cells or of outcomes to draw from.

    Parameters
    ----------
    means : table, dict or frame, optional
        A row per policy, or by name. Give exactly one of `means`, `cells` and `data`.
    cells : str, optional
        The path of a CSV file with the columns policy, group, n, successes.
    data : str, optional
        The path of a CSV file with the columns policy, group, outcome, and one for each guard-rail.
    lag : int or pair of int
        Asks before an outcome is known; a pair: the least and the largest number, drawn at random.
    dropout : float
        The probability that an outcome never comes.
    outcomes : {"bernoulli"}, optional
        Draw outcomes 0 or 1 whatever the family of the problem.
    sd : float, table, dict or frame, optional
        The standard deviation of Gaussian outcomes where the family does not give it; 1 unless given.
    guardrails : mapping, optional
        The means of every guard-rail, by its name. With `data` they may be left out: a sample is then drawn
        with its guard-rails, so that they depend on the outcome as in the file.
    agreement : float, optional
        Where policies answer the same items: the share of items on which two of them are both right or both
        wrong, on average over pairs. For outcomes 0 or 1; outcomes are independent unless given.
    folder : path
        Where the files are found from.

    Raises
    ------
    BadInput
        If not exactly one source is given, or a number is out of range.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Truth(means=[[0.8, 0.7], [0.9, 0.4]]).means
    ((0.8, 0.7), (0.9, 0.4))
    """

    means: Any = None  # nested tuples, a row per policy; by name until a study puts them in order
    cells: str | None = None  # policy, group, n, successes
    data: str | None = None  # policy, group, outcome
    lag: int | tuple[int, int] = 0  # number of asks until an outcome is known; a pair: uniform between them
    dropout: float = 0.0  # probability that an outcome never arrives
    outcomes: str | None = None  # "bernoulli": outcomes are 0 or 1, whatever the family of the problem
    sd: Any = None  # sd of Gaussian outcomes if the family has none: a number or K x L; default 1
    guardrails: Mapping[str, Any] | None = None  # name -> means, a row per policy
    agreement: float | None = None  # share of shared items on which two policies agree
    folder: Path = field(default=Path(), compare=False)  # folder that file paths are relative to

    def __post_init__(self) -> None:
        given = [name for name in SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise BadInput(
                f"[truth] takes exactly one of means, cells and data; it has {' and '.join(given) or 'none'}."
            )
        if self.means is not None:
            object.__setattr__(self, "means", _frozen_cells(self.means, "means"))
        if self.sd is not None:
            object.__setattr__(self, "sd", checked_bounds(self.sd, "sd"))
        object.__setattr__(self, "folder", file_path(self.folder, "folder"))
        object.__setattr__(self, "lag", _python_ends(self.lag))
        _check_lag(self.lag)
        if not is_number(self.dropout) or not 0 <= self.dropout < 1:
            raise BadInput(
                f"dropout must be a probability of at least 0 and below 1; it is {shown(self.dropout)}."
            )
        as_python_numbers(self, "dropout")
        if self.guardrails is not None:
            object.__setattr__(self, "guardrails", _frozen_tables(self.guardrails))
        if self.outcomes is not None and not is_one_of(self.outcomes, ("bernoulli",)):
            raise BadInput(f'outcomes in [truth] can only be "bernoulli"; it is {shown(self.outcomes)}.')
        if self.outcomes is not None and self.data is not None:
            raise BadInput("[truth] can have outcomes or data, not both.")
        if self.agreement is not None and (not is_number(self.agreement) or not 0 <= self.agreement <= 1):
            raise BadInput(f"agreement must be a share between 0 and 1; it is {shown(self.agreement)}.")
        as_python_numbers(self, "agreement")

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], problem: Problem) -> Truth:
        """Return the truth in a [truth] table; the means are checked against the problem."""
        known_keys(
            table, (*SOURCES, "lag", "dropout", "outcomes", "sd", "guardrails", "agreement"), "[truth]"
        )
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
            values["sd"] = _spread(by_name(values["sd"], "sd"), problem)
        return cls(**values)

    def in_order(self, problem: Problem) -> Truth:
        """Return the truth with numbers that were given by name put into the order of the problem."""
        changed: dict[str, Any] = {}
        if isinstance(self.means, Mapping):
            changed["means"] = problem.check_means(self.means)
        if isinstance(self.sd, Mapping):
            changed["sd"] = _spread(self.sd, problem)
        if self.guardrails is not None and any(isinstance(t, Mapping) for t in self.guardrails.values()):
            tables = problem.check_guardrail_means(self.guardrails)
            names = [rail.name for rail in problem.guardrails]
            changed["guardrails"] = dict(zip(names, tables, strict=True))
        return replace(self, **changed) if changed else self

    def __repr__(self) -> str:
        given = [
            (part.name, str(self.folder) if part.name == "folder" else getattr(self, part.name))
            for part in fields(self)
            if getattr(self, part.name) != part.default
        ]
        return f"Truth({', '.join(f'{name}={shown(value)}' for name, value in given)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the [truth] table of a study file; numbers by name as long as they are."""
        table: dict[str, Any] = {}
        if self.means is not None:
            table["means"] = plain(self.means)
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
            table["sd"] = plain(self.sd)
        if self.guardrails is not None:
            table["guardrails"] = plain(self.guardrails)
        if self.agreement is not None:
            table["agreement"] = float(self.agreement)
        return table

    def cell_means(self, problem: Problem) -> tuple[tuple[float, ...], ...]:
        """Return the true means, K x L: given, or the averages of the cells of the files."""
        if isinstance(self.means, tuple):
            return self.means
        if self.means is not None:
            return tuple(map(tuple, problem.check_means(self.means).tolist()))
        if self.cells is not None:
            n, successes = self.counts(problem)
            table = successes / n
        else:
            table = np.array([[x[:, 0].mean() for x in row] for row in self.cell_outcomes(problem)])
        return tuple(map(tuple, problem.check_means(table).tolist()))

    def counts(self, problem: Problem) -> tuple[Array, Array]:
        """Return the sizes and successes of the cells, each K x L, from the `cells` file."""
        assert self.cells is not None
        return data_files.counts(self.folder / self.cells, problem)

    def cell_outcomes(self, problem: Problem) -> list[list[Array]]:
        """Return the samples of every cell, K lists of L tables, from the `data` file.

        A table has a row per sample: the outcome and, unless means of guard-rails are given, that of every
        guard-rail.
        """
        assert self.data is not None
        return data_files.outcomes(self.folder / self.data, problem, self.draws_guardrails(problem))

    def draws_guardrails(self, problem: Problem) -> bool:
        """Return whether the outcomes of guard-rails are drawn from the `data` file, with the outcome."""
        return self.data is not None and self.guardrails is None and bool(problem.guardrails)

    def guardrail_means(self, problem: Problem) -> Mapping[str, Any] | None:
        """Return the true means of every guard-rail, by name: given, or the averages of the `data` file."""
        if not self.draws_guardrails(problem):
            return self.guardrails
        samples = self.cell_outcomes(problem)
        found = {}
        for j, rail in enumerate(problem.guardrails, start=1):
            known = [[~np.isnan(cell[:, j]) for cell in row] for row in samples]
            for k, g in np.ndindex(problem.shape):
                if not known[k][g].any():
                    raise BadInput(
                        f"every cell needs outcomes of {rail.name!r} in {self.data}; "
                        f"{problem.policies[k]!r} in {problem.group_names[g]!r} has none."
                    )
            found[rail.name] = tuple(
                tuple(float(cell[there, j].mean()) for cell, there in zip(row, known[k], strict=True))
                for k, row in enumerate(samples)
            )
        return found


def _frozen_cells(value: Any, what: str) -> Any:
    """A row per policy as nested tuples, or a table by name, frozen; the problem checks the shape."""
    found = checked_bounds(value, what)
    if not isinstance(found, (tuple, Mapping)) or (
        found and isinstance(found, tuple) and not isinstance(found[0], tuple)
    ):
        raise BadInput(f"{what} must be a table of numbers, a row per policy; they are {shown(value)}.")
    return found


def _frozen_tables(tables: Any) -> FrozenDict[Any]:
    """Return tables of means by the name of the guard-rail, frozen."""
    if not isinstance(tables, Mapping):
        raise BadInput(f"guardrails in [truth] must be a table of means by name; it is {shown(tables)}.")
    return FrozenDict(
        {name: _frozen_cells(means, f"guardrails in [truth], {name!r},") for name, means in tables.items()}
    )


def _python_ends(lag: Any) -> Any:
    """Return a number or a list of them as Python's own."""
    return tuple(map(python_number, lag)) if isinstance(lag, (list, tuple)) else python_number(lag)


def _check_lag(lag: Any) -> None:
    ends = lag if isinstance(lag, tuple) else (lag, lag)
    whole = all(
        isinstance(end, int) and not isinstance(end, bool) and 0 <= end <= LONGEST_LAG for end in ends
    )
    if len(ends) != 2 or not whole or ends[0] > ends[1]:
        raise BadInput(
            f"lag must be a whole number of samples, 0 to {LONGEST_LAG}, or a pair [least, most] of them; "
            f"it is {shown(list(lag) if isinstance(lag, tuple) else lag)}."
        )


def _spread(sd: Any, problem: Problem) -> Any:
    """Return standard deviations as a positive number or a K x L table of them, as nested tuples."""
    if isinstance(sd, Mapping):
        table = bounds_in_order(checked_bounds(sd, "sd"), problem.policies, problem.group_names, "sd")
        sd = np.broadcast_to(np.asarray(table, dtype=float), problem.shape).tolist()
    values = np.asarray(numeric(sd, "sd"), dtype=float)
    if values.shape not in ((), problem.shape) or not np.all(values > 0) or not np.all(np.isfinite(values)):
        raise BadInput(f"sd in [truth] must be a positive number, or a row of them per policy; it is {sd}.")
    return tuple(map(tuple, values.tolist())) if values.ndim else values.tolist()
