"""Logs of Inspect: JSON files, and archives with the suffix .eval.

A log has the task and the model in `eval`, and in `samples` the id, epoch, metadata and scores of each
sample. An archive holds `header.json` and a file for each sample; its members are compressed by Zstandard,
which zipfile reads from Python 3.14 on. Scores are numbers, or C (correct, 1), P (partly, 0.5), I (incorrect,
0) and N (no answer, 0). Epochs of a sample are averaged to one outcome.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evenhand.errors import BadInput
from evenhand.verdicts.readers.samples import Sample, averaged, number_or_none

VALUES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
ZSTANDARD = 93  # the method of compression
LOCAL_HEADER = struct.Struct("<4sHHHHHIIIHH")  # of a member, before its name and its extra field


def is_log(log: Any) -> bool:
    """Return whether a JSON document is a log of Inspect."""
    return isinstance(log, Mapping) and isinstance(log.get("eval"), Mapping) and "status" in log


def read_log(log: Mapping[str, Any]) -> list[Sample]:
    """Return the samples of a log."""
    samples = log.get("samples")
    if not isinstance(samples, list) or not samples:
        raise BadInput("the Inspect log must hold samples; it has none. Was it written without them?")
    return _samples(log["eval"], samples)


def eval_logs(source: Any) -> list[Sample] | None:
    """Return the samples of Inspect's own `EvalLog` objects, one or several; None for anything else."""
    logs = list(source) if isinstance(source, (list, tuple)) else [source]
    if not logs or not all(hasattr(log, "model_dump") and hasattr(log, "eval") for log in logs):
        return None
    unfinished = [log for log in logs if getattr(log, "status", "") != "success"]
    if unfinished:
        raise BadInput(
            f"an Inspect log must have the status 'success'; that of {unfinished[0].eval.model} is "
            f"{unfinished[0].status!r}. Retry the evaluation, or leave the log out."
        )
    return [sample for log in logs for sample in read_log(log.model_dump(mode="json"))]


def read_archive(path: Path) -> list[Sample]:
    """Return the samples of an archive."""
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            members = {info.filename: info for info in archive.infolist()}
            if "header.json" not in members:
                raise BadInput(f"{path.name} must hold header.json; the evaluation did not end.")
            header = json.loads(_content(archive, file, members["header.json"]))
            samples = [
                json.loads(_content(archive, file, info))
                for name, info in members.items()
                if name.startswith("samples/") and name.endswith(".json")
            ]
    except (OSError, zipfile.BadZipFile, ValueError, struct.error) as problem:
        raise BadInput(f"{path.name} cannot be read as an Inspect log: {problem}.") from None
    return read_log({**header, "samples": samples})


def _content(archive: zipfile.ZipFile, file: Any, info: zipfile.ZipInfo) -> bytes:
    """Return a member of an archive, also where zipfile does not support Zstandard."""
    if info.compress_type != ZSTANDARD:
        return archive.read(info)
    if find_spec("zstandard") is None:
        raise BadInput(
            "reading .eval logs needs zstandard; install evenhand[eval], or convert the log by "
            "`inspect log convert --to json`."
        )
    import zstandard

    file.seek(info.header_offset)
    *_, name, extra = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    file.seek(name + extra, 1)
    try:
        content = zstandard.ZstdDecompressor().decompressobj().decompress(file.read(info.compress_size))
    except zstandard.ZstdError as problem:
        raise ValueError(str(problem)) from None
    if zlib.crc32(content) != info.CRC:
        raise ValueError(f"{info.filename} is damaged")
    return bytes(content)


def _samples(about: Mapping[str, Any], samples: Iterable[Mapping[str, Any]]) -> list[Sample]:
    task = str(about.get("task", ""))
    found = []
    for sample in samples:
        metadata = sample.get("metadata")
        fields = {
            **(metadata if isinstance(metadata, Mapping) else {}),
            "task": task,
            "model": about.get("model"),
            "policy": about.get("model"),
            "item": f"{task} {sample.get('id')}",
        }
        scores = sample.get("scores")
        values = {
            name: _value(score.get("value"))
            for name, score in (scores if isinstance(scores, Mapping) else {}).items()
            if isinstance(score, Mapping)
        }
        found.append(Sample(fields, values))
    return averaged(found)


def _value(value: Any) -> float | None:
    return VALUES[value] if isinstance(value, str) and value in VALUES else number_or_none(value)
