"""The [evaluate] table of a study file: items, candidates, grader, and how candidates are called.

[evaluate]
items       = "items.jsonl"               # or CSV or Parquet; found from the folder of the study
group       = "language"
target      = "answer"
policies.large = "models:large"           # a function or an object with predict, module:name
policies.small = "http://127.0.0.1:8000/small"
concurrency = 16
"""

from __future__ import annotations

import csv
import importlib
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.errors import BadInput, nearest, shown
from evenhand.evaluation.callers import CallSettings, HttpEndpoint
from evenhand.evaluation.evaluate import Evaluation, Progress, evaluate_problem
from evenhand.evaluation.graders import Grader
from evenhand.evaluation.pool import Pool, open_pool
from evenhand.evaluation.sampling import POOL
from evenhand.model.argument_checks import flag
from evenhand.study import Study, load
from evenhand.study.problem_tables import known_keys

TEXTS = {"group": "group", "item": None, "target": None, "labels": None, "cache": None, "about": POOL}
NUMBERS = ("concurrency", "timeout", "retries", "backoff", "batch", "failures", "max_failures")
KEYS = ("items", "policies", "features", "grader", "price", "label_price", "batched", *TEXTS, *NUMBERS)
FILES = ("labels", "cache")  # found from the folder of the study
WEB = ("http://", "https://")


@dataclass(frozen=True)
class EvaluationStudy:
    """A study file with an [evaluate] table."""

    study: Study
    table: Mapping[str, Any]
    folder: Path

    def run(self, journal: str | Path | None, seed: int, progress: bool | Progress) -> Evaluation:
        """Evaluate the candidates that the table names."""
        settings = CallSettings(**{name: self.table[name] for name in NUMBERS if name in self.table})
        texts = {name: self._text(name, default) for name, default in TEXTS.items()}
        pool = self._pool(str(texts["group"]), texts["item"])
        return evaluate_problem(
            self.study.problem, self.study.procedure, self._candidates(settings), pool, self._grader(),
            texts["target"], settings, about=str(texts["about"]), labels=texts["labels"], journal=journal,
            cache=texts["cache"], price=self.table.get("price"),
            label_price=self.table.get("label_price"), seed=seed, progress=progress,
        )  # fmt: skip

    def _text(self, name: str, default: str | None) -> str | None:
        value = self.table.get(name, default)
        if value is not None and not isinstance(value, str):
            raise BadInput(f"{name} in [evaluate] must be text; it is {shown(value)}.")
        return str(self.folder / value) if value is not None and name in FILES else value

    def _pool(self, group: str, item: str | None) -> Pool:
        features = self.table.get("features")
        pool = open_pool(read_items(self.folder / str(self.table["items"])), group, features, item)
        unknown = [name for name in pool.members if name not in self.study.problem.group_names]
        if unknown:
            raise BadInput(
                f"the study has no group {unknown[0]!r}, which an item belongs to"
                f"{nearest(unknown[0], self.study.problem.group_names)}"
            )
        return pool

    def _grader(self) -> Grader | None:
        grader = self.table.get("grader")
        if isinstance(grader, str) and ":" in grader:
            found: Grader = imported(grader, self.folder)
            return found
        return grader

    def _candidates(self, settings: CallSettings) -> dict[str, Any]:
        """Return the candidate of every policy, in the order of the study."""
        named, wanted = self.table["policies"], self.study.problem.policies
        known_keys(named, wanted, "policies in [evaluate]")
        batched = flag(self.table.get("batched", False), "batched")
        found = {}
        for name in wanted:
            if name not in named:
                raise BadInput(f"[evaluate] must name every policy in policies; {name!r} is missing.")
            source = named[name]
            if not isinstance(source, str) or ":" not in source:
                raise BadInput(
                    f"a policy in [evaluate] is 'module:name' or an address; {name!r} is {shown(source)}."
                )
            if source.startswith(WEB):
                found[name] = HttpEndpoint(source, settings.timeout, batched)
            else:
                found[name] = imported(source, self.folder)
        return found


def load_evaluation(path: str | Path) -> EvaluationStudy:
    """Return a study file and its [evaluate] table, checked."""
    study, folder = load(path), Path(path).parent
    table = tomllib.loads(Path(path).read_text(encoding="utf-8-sig")).get("evaluate")
    if table is None:
        raise BadInput(f"{path} needs an [evaluate] table with items and policies; it has none.")
    known_keys(table, KEYS, "[evaluate]")
    for name in ("items", "policies"):
        if name not in table:
            raise BadInput(f"[evaluate] needs {name}; it has {', '.join(table) or 'nothing'}.")
    return EvaluationStudy(study, table, folder)


def read_items(path: Path) -> Any:
    """Return the items of a JSONL, CSV or Parquet file."""
    if not path.is_file():
        raise BadInput(f"there is no file {path} of items; give a JSONL, CSV or Parquet file.")
    if path.suffix.lower() in (".parquet", ".pq"):
        import pyarrow.parquet as parquet

        return parquet.read_table(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if path.suffix.lower() in (".jsonl", ".ndjson"):
                return _objects(path, [json.loads(line) for line in file if line.strip()])
            return _objects(path, list(csv.DictReader(file, strict=True)))
    except (OSError, UnicodeDecodeError, ValueError, csv.Error) as problem:
        raise BadInput(f"the items in {path} cannot be read: {problem}.") from None


def imported(source: str, folder: Path) -> Any:
    """Return what 'module:name' names; modules beside the study are found."""
    module, _, name = source.partition(":")
    sys.path.insert(0, str(folder.resolve()))
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as problem:
        raise BadInput(f"{source!r} cannot be imported: {problem}.") from None
    finally:
        sys.path.remove(str(folder.resolve()))
    return found


def _objects(path: Path, rows: Sequence[Any]) -> Sequence[Any]:
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise BadInput(f"every item in {path.name} must be an object; number {number} is {shown(row)}.")
    return rows
