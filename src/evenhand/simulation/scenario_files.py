"""Scenario files: several truths for one problem, each with a name.

    [[scenario]]
    name = "the second policy misses its floor by a hair"
    means = [[0.9, 0.85], [0.91, 0.8332]]

Besides the name a scenario has the keys of a study's [truth].
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenhand.errors import BadInput
from evenhand.model.problem import Problem
from evenhand.study import Truth


def load_scenarios(path: str | Path, problem: Problem) -> dict[str, Truth]:
    """Return the checked scenarios of a TOML file; paths in it are relative to its folder."""
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"there is no scenario file {path}; give the path of a TOML file.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem_found:
        raise BadInput(f"the scenario file {path} cannot be read: {problem_found}.") from None
    entries = table.get("scenario")
    if set(table) != {"scenario"} or not isinstance(entries, list) or not entries:
        raise BadInput(
            f"{path} must hold [[scenario]] tables and nothing else; it has {', '.join(table) or 'none'}."
        )
    found: dict[str, Truth] = {}
    for number, entry in enumerate(entries, start=1):
        name, truth = _scenario(entry, number, problem)
        if name in found:
            raise BadInput(f"scenarios must have different names; {name!r} comes twice.")
        found[name] = replace(truth, folder=path.parent)
    return found


def _scenario(entry: Any, number: int, problem: Problem) -> tuple[str, Truth]:
    if not isinstance(entry, Mapping):
        raise BadInput(f"a scenario must be a table; number {number} is {entry!r}.")
    values = dict(entry)
    name = values.pop("name", f"scenario {number}")
    if not isinstance(name, str) or not name.strip():
        raise BadInput(f"a scenario's name must be text; number {number} has {name!r}.")
    try:
        return name, Truth.from_dict(values, problem)
    except BadInput as fault:
        raise BadInput(f"scenario {name!r}: {fault}") from None
