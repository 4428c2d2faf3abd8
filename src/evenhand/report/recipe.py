"""The recipe of a dossier: study, scenarios, replications, seed and cap, fixed before the first run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.errors import BadInput, Undecidable
from evenhand.procedure.spec import Budget
from evenhand.report.scenarios import scenario_grid
from evenhand.study import Study, Truth
from evenhand.theory.plan import plan

FORMAT = 1
CAP = 8.0  # runs are cut at so many times the fewest samples any procedure needs for the assumed truth
LEAST_CAP = 1000


@dataclass(frozen=True)
class Recipe:
    """All that a dossier depends on, fixed before the first run."""

    study: Study  # its truth as means
    scenarios: Mapping[str, tuple[tuple[float, ...], ...]]
    replications: int
    seed: int

    def to_json(self) -> str:
        """One line of JSON; `from_json` of it is equal to this."""
        return json.dumps(
            {
                "evenhand": "dossier", "format": FORMAT, "study": self.study.to_dict(),
                "scenarios": {name: [list(row) for row in means] for name, means in self.scenarios.items()},
                "replications": self.replications, "seed": self.seed,
            },
            ensure_ascii=True, allow_nan=False, separators=(",", ":"),
        )  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        try:
            table = json.loads(text)
            if table["evenhand"] != "dossier" or table["format"] != FORMAT:
                raise KeyError("format")
            scenarios = {name: tuple(map(tuple, means)) for name, means in table["scenarios"].items()}
            return cls(
                Study.from_dict(table["study"]), scenarios, int(table["replications"]), int(table["seed"])
            )
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise BadInput(f"the recipe in this file cannot be read: {problem}.") from None


def new_recipe(
    study: Study,
    scenarios: Mapping[str, Truth] | None = None,
    replications: int = 200,
    seed: int = 1,
    max_samples: int | None = None,
) -> Recipe:
    """The recipe for a study: its usual grid of scenarios unless others are given, and where runs are cut."""
    means = np.array(study.means())
    tables = (
        scenario_grid(study.problem, means)
        if scenarios is None
        else {name: np.array(truth.cell_means(study.problem)) for name, truth in scenarios.items()}
    )
    chosen = _cap(study, means) if max_samples is None else max_samples
    procedure = replace(study.procedure, max_samples=chosen)
    fixed = replace(study, procedure=procedure, truth=Truth(means=_rows(means)))
    return Recipe(fixed, {name: _rows(table) for name, table in tables.items()}, replications, seed)


def read_recipe(path: str | Path) -> Recipe:
    """The recipe inside a dossier's page."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no text; give a study, or a dossier that evenhand made.") from None
    found = re.search(r'<script type="application/json" id="recipe">(.*?)</script>', text, flags=re.DOTALL)
    if found is None:
        raise BadInput(f"{path} carries no recipe; give a study, or a dossier that evenhand made.")
    return Recipe.from_json(found.group(1))


def _cap(study: Study, means: Any) -> int:
    """Where runs are cut: well beyond what the assumed truth takes, and no further than the study allows."""
    if isinstance(study.procedure.stopping, Budget):
        return study.procedure.max_samples
    try:
        least = plan(study.problem, means, gap=1e-3).samples_at_least(study.procedure.delta)
    except Undecidable:
        return study.procedure.max_samples
    room = study.procedure.initial * int(np.prod(study.problem.shape))
    wanted = max(round(CAP * least, -2), LEAST_CAP, 4 * room)
    return int(min(study.procedure.max_samples, wanted))


def _rows(means: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, np.asarray(means, dtype=float).tolist()))
