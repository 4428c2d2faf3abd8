"""Compute the cells of the International Stroke Trial from its public file.

The release has 112 columns and 19,435 rows (doi:10.7488/ds/104, ODC-By). Only the columns that a definition
needs are read; a definition or cohort with missing columns is skipped and listed. In the release TRAN14 is a
major non-cerebral bleed and NCB14 any non-cerebral bleed.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evenhand.paper import instances

from evenhand.errors import BadInput
from evenhand.model.families import Bernoulli
from evenhand.model.problem import Problem
from evenhand.model.requirements import Floors
from evenhand.reports.page_parts import Field, Table, table

# the outcome of a patient is good if none of these events happened within 14 days
DEFINITIONS = {
    "paper": ("ID14", "ISC14", "H14", "TRAN14", "NCB14"),
    "any stroke, major bleed": ("ID14", "ISC14", "H14", "NK14", "TRAN14"),
    "any stroke, any bleed": ("ID14", "ISC14", "H14", "NK14", "NCB14"),
    "paper and pulmonary embolism": ("ID14", "ISC14", "H14", "PE14", "TRAN14", "NCB14"),
    "ischaemic, haemorrhagic, major bleed": ("ID14", "ISC14", "H14", "TRAN14"),
    "alive": ("ID14",),
}
# atrial fibrillation was not recorded for the 984 patients of the pilot phase
COHORTS: dict[str, tuple[tuple[str, ...], Callable[[dict[str, str]], bool]]] = {
    "all": ((), lambda row: True),
    "main phase": (("RATRIAL",), lambda row: row["RATRIAL"].strip() != ""),
}
NEEDED = ("AGE", "RXASP", "RXHEP")
OLD = 80

Cells = dict[str, tuple[tuple[int, int], tuple[int, int]]]


@dataclass(frozen=True)
class Trial:
    """Cells by (definition, cohort), and the combinations that the file has no columns for."""

    cells: dict[tuple[str, str], Cells]
    missing: tuple[str, ...]


def load(path: str | Path) -> Trial:
    """Read the trial's file (plain or gzip) and count every definition it has the columns for."""
    rows, columns = _rows(Path(path))
    cells, missing = {}, []
    for cohort, (needed, belongs) in COHORTS.items():
        members = [row for row in rows if belongs(row)] if set(needed) <= columns else []
        for definition, events in DEFINITIONS.items():
            lacking = sorted((set(needed) | set(events)) - columns)
            if lacking:
                missing.append(f"{definition} ({cohort}), no column {' and '.join(lacking)}")
            else:
                cells[definition, cohort] = _count(members, events)
    return Trial(cells, tuple(missing))


def differences(trial: Trial) -> list[str]:
    """Return the cells whose counts, by the paper's definition, differ from those in evenhand."""
    found = trial.cells["paper", "all"]
    return [
        f"{policy}, {group}: the file has {well} of {n}, the shipped counts {shipped[1]} of {shipped[0]}"
        for policy, groups in found.items()
        for group, (n, well), shipped in zip(
            instances.STROKE_GROUPS, groups, instances.STROKE_COUNTS[policy], strict=True
        )
        if (n, well) != shipped
    ]


def comparison(trial: Trial) -> str:
    """Return a sentence: does the file agree with the shipped counts, and what was skipped?"""
    differing = differences(trial)
    agrees = "; ".join(differing) if differing else "The trial's file gives the eight shipped counts exactly"
    left_out = f" Skipped: {'; '.join(trial.missing)}." if trial.missing else ""
    return f"{agrees}.{left_out}"


def answers(trial: Trial) -> Table:
    """Return a table of the answer under each definition of a good outcome."""
    rows: list[list[Field]] = []
    for (definition, cohort), cells in trial.cells.items():
        means = [[well / n for n, well in groups] for groups in cells.values()]
        patients = [sum(groups[g][0] for groups in cells.values()) for g in range(2)]
        shares = {name: n / sum(patients) for name, n in zip(instances.STROKE_GROUPS, patients, strict=True)}
        problem = Problem(tuple(cells), shares, Bernoulli(), Floors(instances.STROKE_FLOOR))
        answer = problem.answer(means)
        feasible = [name for name, fine in zip(cells, problem.feasible(means), strict=True) if fine]
        chosen = "none" if answer is None else problem.policies[answer]
        rows.append([definition, cohort, sum(patients), ", ".join(feasible) or "none", chosen])
    return table(
        "How the answer depends on the definition of a good outcome",
        ["definition", "cohort", "patients", "meet 5/6 in both groups", "answer"],
        rows,
    )


def _rows(path: Path) -> tuple[list[dict[str, str]], set[str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="latin-1", newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
            columns = set(reader.fieldnames or ())
    except (OSError, csv.Error, EOFError) as problem:
        raise BadInput(f"the trial's file {path} cannot be read: {problem}.") from None
    lacking = sorted((set(NEEDED) | set(DEFINITIONS["paper"])) - columns)
    if lacking or not rows:
        raise BadInput(
            f"the trial's file needs {', '.join(NEEDED)} and the five outcomes; "
            f"{path} lacks {', '.join(lacking)}."
        )
    return rows, columns


def _count(rows: list[dict[str, str]], events: tuple[str, ...]) -> Cells:
    """Count patients and good outcomes by policy and age; heparin is RXHEP in L, M or H."""
    counts = {policy: [[0, 0], [0, 0]] for policy in instances.STROKE_COUNTS}
    for row in rows:
        aspirin, heparin = row["RXASP"].strip() == "Y", row["RXHEP"].strip() in ("L", "M", "H")
        policy = {(True, False): "Aspirin only", (False, True): "Heparin only", (True, True): "Both"}.get(
            (aspirin, heparin), "Neither"
        )
        cell = counts[policy][int(row["AGE"]) >= OLD]
        cell[0] += 1
        cell[1] += all(row[event].strip() == "0" for event in events)
    return {policy: ((a[0], a[1]), (b[0], b[1])) for policy, (a, b) in counts.items()}
