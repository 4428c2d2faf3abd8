"""Sample logs of lm-eval: samples_TASK_DATE.jsonl, written with --log_samples.

Each line has the document (`doc`), its number (`doc_id`), the filter and a value for each of the `metrics`.
The model is named in results_DATE.json beside it; otherwise the policy is the name of the folder. With
several filters a score is called as in lm-eval's own tables, such as "exact_match,strict-match".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evenhand.verdicts.readers.samples import Sample, number_or_none

NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d{2}-\d{2}T[\d.-]+)\.jsonl")
KEYS = {"doc_id", "doc", "filtered_resps"}


def is_log(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether lines are samples of lm-eval."""
    return bool(rows) and set(rows[0]) >= KEYS


def is_summary(path: Path) -> bool:
    """Return whether a file holds lm-eval's aggregated results, not samples."""
    return path.suffix == ".json" and path.name.startswith("results_") and any(path.parent.glob("samples_*"))


def read_log(path: Path, rows: Sequence[Mapping[str, Any]]) -> list[Sample]:
    """Return a sample for each document; values of several filters become several scores."""
    named = NAME.fullmatch(path.name)
    task = named["task"] if named else path.stem
    policy = _model(path, named["date"] if named else "")
    filters = {row.get("filter", "none") for row in rows}
    found: dict[Any, Sample] = {}
    for row in rows:
        sample = found.get(row["doc_id"])
        if sample is None:
            doc = row["doc"] if isinstance(row["doc"], Mapping) else {}
            item = f"{task} {row['doc_id']}"
            fields = {**doc, "task": task, "model": policy, "policy": policy, "item": item}
            sample = found[row["doc_id"]] = Sample(fields, {})
        metrics = row.get("metrics")
        for metric in metrics if isinstance(metrics, list) else []:
            name = metric if len(filters) == 1 else f"{metric},{row.get('filter')}"
            sample.scores[name] = number_or_none(row.get(metric))
    return list(found.values())


def _model(path: Path, date: str) -> str:
    """Return the name of the model: that of the results of the same run, or that of the folder."""
    try:
        results = json.loads((path.parent / f"results_{date}.json").read_text(encoding="utf-8"))
        return str(results["model_name"])
    except (OSError, ValueError, KeyError, TypeError):
        return path.resolve().parent.name
