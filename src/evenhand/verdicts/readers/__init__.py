"""Read the logs of evaluation tools as rows of policy, group, item and outcome.

    Inspect            *.json and *.eval logs
    promptfoo          the JSON file of `promptfoo eval --output results.json`
    lm-eval            samples_*.jsonl, written with --log_samples
    JSON lines         *.jsonl, an object per line with the columns as keys

A folder is read with all logs in it: most tools write a log for each model. The policy is the model (its last
part, if only that names a policy of the study), the item is the sample. The group is a field of the sample's
metadata, and the outcome the only score, unless `columns` names others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evenhand.errors import BadInput
from evenhand.verdicts.readers import inspect_logs, lm_eval, promptfoo
from evenhand.verdicts.readers.samples import Sample

LINES = (".jsonl", ".ndjson")
SUFFIXES = (".eval", ".json", *LINES)


def is_log(path: Path) -> bool:
    """Return whether a path is a folder or has the suffix of a log."""
    return path.is_dir() or path.suffix.lower() in SUFFIXES


def read_samples(path: Path) -> list[Sample]:
    """Return the samples of a log, or of all logs in a folder."""
    if not path.is_dir():
        return _read(path)
    found = [sample for file in _logs_in(path) for sample in _read(file)]
    if not found:
        raise BadInput(f"{path} must hold logs of an evaluation; it has no sample in {', '.join(SUFFIXES)}.")
    return found


def _logs_in(folder: Path) -> Sequence[Path]:
    """Return the logs in a folder and below, in the order of their names; results beside samples are none."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.suffix.lower() in SUFFIXES)
    return [file for file in files if not lm_eval.is_summary(file)]


def _read(path: Path) -> list[Sample]:
    if path.suffix.lower() == ".eval":
        return inspect_logs.read_archive(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"{path.name} cannot be read as UTF-8 text: {problem}.") from None
    if path.suffix.lower() in LINES:
        return _read_lines(path, text)
    try:
        log = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise BadInput(f"{path.name} cannot be read as JSON: {problem}.") from None
    formats: tuple[tuple[Callable[[Any], bool], Callable[[Any], list[Sample]]], ...] = (
        (inspect_logs.is_log, inspect_logs.read_log),
        (promptfoo.is_log, promptfoo.read_log),
    )
    for fits, reader in formats:
        if fits(log):
            return reader(log)
    raise BadInput(f"{path.name} must be a log of Inspect or results of promptfoo; it is neither.")


def _read_lines(path: Path, text: str) -> list[Sample]:
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as problem:
            raise BadInput(
                f"{path.name}, line {number}: the line cannot be read as JSON: {problem}."
            ) from None
        if not isinstance(row, Mapping):
            raise BadInput(f"{path.name}, line {number}: every line must be an object; it is {line[:40]}.")
        rows.append(row)
    if lm_eval.is_log(rows):
        return lm_eval.read_log(path, rows)
    return [Sample(dict(row), {}) for row in rows]
