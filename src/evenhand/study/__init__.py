"""Study files: problem, procedure and truth in one TOML file, with a content hash.

    load("stroke.toml")  loads(text)  dumps(study)  Study.from_dict(table)  study.to_dict()
    study.content_hash

The hash is SHA-256 over the canonical JSON of `to_dict`: sorted keys, shortest round-trip numbers, no spaces.
The order of keys, comments and explicit defaults do not change it.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evenhand.errors import BadInput, shown
from evenhand.files import file_path
from evenhand.model.problem import Problem
from evenhand.model.study_like import problem_of
from evenhand.procedure.initial_samples import initial_table
from evenhand.procedure.spec import Procedure
from evenhand.study import problem_tables
from evenhand.study.problem_tables import known_keys, problem_from_dict, problem_to_dict
from evenhand.study.truth import Truth

__all__ = ["Study", "Truth", "dumps", "load", "loads", "study_of"]


@dataclass(frozen=True)
class Study:
    """A problem, the procedure that answers it, and the truth that plan and simulate assume.

    Parameters
    ----------
    problem : Problem
        The question.
    procedure : Procedure, optional
        How to sample and when to stop; the default procedure unless given.
    truth : Truth, optional
        The means, or the files, that a plan or a simulation assumes.
    title : str
        The title of the study.
    file : str
        The name of the file that it was loaded from; no part of what the study is.

    Raises
    ------
    BadInput
        If a part is of another kind, or the procedure or the truth does not fit the problem.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli())
    >>> truth = eh.Truth(means={"b": {"x": 0.4, "y": 0.3}, "a": {"y": 0.6, "x": 0.7}})
    >>> study = eh.Study(problem, truth=truth)
    >>> study.means()
    ((0.7, 0.6), (0.4, 0.3))
    """

    problem: Problem
    procedure: Procedure = field(default_factory=Procedure)
    truth: Truth | None = None
    title: str = ""
    file: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        kinds = {"problem": Problem, "procedure": Procedure, "truth": Truth, "title": str, "file": str}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind) and not (name == "truth" and value is None):
                wanted = "text" if kind is str else f"a {kind.__name__}"
                raise BadInput(f"the {name} of a study must be {wanted}; it is {shown(value)}.")
        self.problem.check_indifference(self.procedure.indifference)
        self.problem.loosened(self.procedure.tolerance)  # refuses one that this requirement cannot have
        initial_table(self.procedure.initial, self.problem)  # refuses numbers that do not fit the cells
        if self.truth is not None:
            object.__setattr__(self, "truth", self.truth.in_order(self.problem))

    @property
    def content_hash(self) -> str:
        """Return the SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(canonical(self.to_dict()).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the study as plain dicts, lists, strings and numbers; `from_dict` reverses this."""
        table: dict[str, Any] = {"title": self.title} if self.title else {}
        table["problem"] = problem_to_dict(self.problem)
        table["procedure"] = self.procedure.to_dict()
        if self.truth is not None:
            table["truth"] = self.truth.to_dict()
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Study:
        """Return the study in a plain dict, as parsed from TOML or JSON."""
        # [evaluate] names items and candidates for `evenhand evaluate`, and is no part of the question
        known_keys(table, ("title", "problem", "procedure", "truth", "evaluate"), "the study")
        title = table.get("title", "")
        if not isinstance(title, str):
            raise BadInput(f"title must be text; it is {title!r}.")
        if "problem" not in table:
            raise BadInput("a study needs a [problem] table with policies, groups and family; it has none.")
        problem = problem_from_dict(table["problem"])
        procedure = Procedure.from_dict(_table(table, "procedure"))
        truth = Truth.from_dict(_table(table, "truth"), problem) if "truth" in table else None
        return cls(problem, procedure, truth, title)

    def means(self) -> tuple[tuple[float, ...], ...]:
        """Return the true means, one row per policy, given or computed from the truth's files."""
        if self.truth is None:
            raise BadInput(
                "this needs a [truth] table with means (a row per policy), cells or data; the study has none."
            )
        return self.truth.cell_means(self.problem)

    def guardrail_means(self) -> Mapping[str, Any] | None:
        """Return the assumed means of every guard-rail, a row per policy; None if the truth has none."""
        return None if self.truth is None else self.truth.guardrail_means(self.problem)


def study_of(given: Problem | Study, procedure: Procedure | None = None, title: str = "") -> Study:
    """Return a study of a problem, or the study itself, with another procedure or title where given."""
    study = given if isinstance(given, Study) else Study(problem_of(given))
    if procedure is not None:
        study = replace(study, procedure=procedure)
    return study if isinstance(title, str) and not title else replace(study, title=title)


def load(path: str | Path) -> Study:
    """Return the study in a TOML file; files that it names are found from its folder.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    Study
        The study, checked.

    Raises
    ------
    BadInput
        If there is no such file, or it is not a valid study.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.load("examples/stroke.toml").problem.group_names
    ('under 80', '80 and over')
    """
    path = file_path(path, "the path of a study file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise BadInput(f"there is no study file {path}; give the path of a TOML study.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the study file {path} cannot be read: {error}.") from None
    study = replace(loads(text, name=str(path)), file=path.name)
    if study.truth is None:
        return study
    return replace(study, truth=replace(study.truth, folder=path.parent))


def loads(text: str, name: str = "the study") -> Study:
    """Parse a study from TOML text."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error).rstrip(".")
        raise BadInput(f"{name} is not valid TOML: {message}.{_value_hint(text, message)}") from None
    return Study.from_dict(table)


def _value_hint(text: str, message: str) -> str:
    """Return how to write the value that TOML refused; an empty text for other mistakes."""
    place = re.search(r"Invalid value \(at line (\d+), column (\d+)\)", message)
    if place is None:
        return ""
    rest = text.splitlines()[int(place[1]) - 1][int(place[2]) - 1 :]
    if number := re.match(r"([-+]?)(\.\d+)", rest):
        return f" Write {number[1]}0{number[2]}, with a digit before the point."
    if word := re.match(r"True|False", rest):
        return f" Write {word[0].lower()}, in lower case."
    return ""


def dumps(study: Study) -> str:
    """Return the study as TOML text with all defaults; `loads` reverses this."""
    return problem_tables.write(study.to_dict())


def canonical(table: Mapping[str, Any]) -> str:
    """Return the canonical JSON of a dict: sorted keys, shortest round-trip numbers, no spaces."""
    return json.dumps(table, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _table(study: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = study.get(name, {})
    if not isinstance(table, Mapping):
        raise BadInput(f"[{name}] must be a table; it is {table!r}.")
    return table
