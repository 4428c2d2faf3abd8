"""Strict types of request bodies: unknown fields and wrong types are refused."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from evenhand.errors import BadInput
from evenhand.service.jobs import MOST_CELLS
from evenhand.study import Study

Text = Annotated[str, Meta(min_length=1, max_length=2_000)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Lease = Annotated[float, Meta(gt=0, lt=1e10)]
Ticket = Annotated[str, Meta(min_length=1, max_length=200)]


By = Annotated[str, Meta(min_length=1, max_length=100)]
# a number, which the family admits or not; with guard-rails numbers by name, null for one that is missing
Outcome = float | bool | dict[str, float | bool | None]


class Create(Struct, forbid_unknown_fields=True):
    """A new experiment: its study as in the TOML file, as JSON."""

    study: dict[str, Any]
    id: Name
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    lease: Lease | None = None
    by: By | None = None


class AskForm(Struct, forbid_unknown_fields=True):
    """The number of tickets and the group."""

    n: Annotated[int, Meta(ge=1, le=10_000)] = 1
    group: Text | None = None
    worker: Text | None = None
    lease: Lease | None = None


class TellForm(Struct, forbid_unknown_fields=True):
    """The outcome of a ticket."""

    ticket: Ticket
    outcome: Outcome
    group: Text | None = None


class TellAllForm(Struct, forbid_unknown_fields=True):
    """Many outcomes: all of them are recorded, or none."""

    outcomes: Annotated[list[TellForm], Meta(max_length=100_000)]


class ImportForm(Struct, forbid_unknown_fields=True):
    """Outcomes collected before, as [policy, group, outcome]: all of them count, or none."""

    rows: Annotated[list[tuple[str, str, Outcome]], Meta(max_length=1_000_000)]
    source: Text = "import"


class DropForm(Struct, forbid_unknown_fields=True):
    """A ticket that will have no outcome."""

    ticket: Ticket
    reason: Text
    by: By | None = None


class AmendForm(Struct, forbid_unknown_fields=True):
    """A corrected outcome."""

    ticket: Ticket
    outcome: Outcome
    reason: Text
    by: By | None = None


class FinishForm(Struct, forbid_unknown_fields=True):
    """The end of an experiment, decided or not."""

    reason: Text = "closed"
    by: By | None = None


class PauseForm(Struct, forbid_unknown_fields=True):
    """The reason for a pause."""

    reason: Text
    by: By | None = None


class ResumeForm(Struct, forbid_unknown_fields=True):
    """The reason for a resumption."""

    reason: Text = "resumed"
    by: By | None = None


class PlanForm(Struct, forbid_unknown_fields=True):
    """A study with its means."""

    study: dict[str, Any]
    delta: Annotated[float, Meta(gt=0, lt=0.5)] | None = None


class SimulateForm(Struct, forbid_unknown_fields=True):
    """A study with its true means."""

    study: dict[str, Any]
    replications: Annotated[int, Meta(ge=1, le=10_000)] = 500
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1


class SaveForm(Struct, forbid_unknown_fields=True):
    """A study to save."""

    study: dict[str, Any]


class Refusal(Struct):
    """Why a request was refused: what must hold, what was received, what to do."""

    error: str
    kind: str | UnsetType = UNSET  # the class in `evenhand.errors` that a local experiment raises


class LogIn(Struct, forbid_unknown_fields=True):
    """A key, for a browser's session."""

    key: Annotated[str, Meta(min_length=1, max_length=200)]


def study_of(table: dict[str, Any]) -> Study:
    """Return the study of a request; refuse one that is too large or names files."""
    problem = table.get("problem")
    if isinstance(problem, dict):
        parts = (problem.get("policies"), problem.get("groups"))
        sizes = [len(part) for part in parts if isinstance(part, (list, dict))]
        if len(sizes) == 2 and sizes[0] * sizes[1] > MOST_CELLS:
            raise BadInput(
                f"the service takes at most {MOST_CELLS:,} cells; this has {sizes[0] * sizes[1]:,}."
            )
    truth = table.get("truth")
    if isinstance(truth, dict) and ("cells" in truth or "data" in truth):
        raise BadInput("the service opens no files: give the truth as means.")
    return Study.from_dict(table)
