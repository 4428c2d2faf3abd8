"""Strict types of request bodies: unknown fields and wrong types are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from evenhand.errors import BadInput
from evenhand.model.problem import Problem
from evenhand.service.jobs import MOST_CELLS
from evenhand.service.keys import NAME_CHARACTERS, has_control_characters
from evenhand.study import Study

Text = Annotated[str, Meta(min_length=1, max_length=2_000)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Lease = Annotated[float, Meta(gt=0, lt=1e10)]
Ticket = Annotated[str, Meta(min_length=1, max_length=200)]


By = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS)]
# a number, which the family admits or not; with guard-rails numbers by name, null for one that is missing
Outcome = float | bool | dict[str, float | bool | None]


class Form(Struct, forbid_unknown_fields=True):
    """A request body: no text in it has control characters."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, str) and has_control_characters(value):
                raise ValueError(f"{name} must have no control characters")


class Create(Form):
    """A new experiment: its study as in the TOML file, as JSON."""

    study: dict[str, Any]
    id: Name
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    lease: Lease | None = None
    by: By | None = None


class AskForm(Form):
    """The number of tickets and the group."""

    n: Annotated[int, Meta(ge=1, le=10_000)] = 1
    group: Text | None = None
    worker: Text | None = None
    lease: Lease | None = None


class TellForm(Form):
    """The outcome of a ticket."""

    ticket: Ticket
    outcome: Outcome
    group: Text | None = None


class TellAllForm(Form):
    """Many outcomes: all of them are recorded, or none."""

    outcomes: Annotated[list[TellForm], Meta(max_length=100_000)]


class ImportForm(Form):
    """Outcomes collected before, as [policy, group, outcome]: all of them count, or none."""

    rows: Annotated[list[tuple[str, str, Outcome]], Meta(max_length=1_000_000)]
    source: Text = "import"


class DropForm(Form):
    """A ticket that will have no outcome."""

    ticket: Ticket
    reason: Text
    by: By | None = None


class AmendForm(Form):
    """A corrected outcome."""

    ticket: Ticket
    outcome: Outcome
    reason: Text
    by: By | None = None


class FinishForm(Form):
    """The end of an experiment, decided or not."""

    reason: Text = "closed"
    by: By | None = None


class PauseForm(Form):
    """The reason for a pause."""

    reason: Text
    by: By | None = None


class PolicyForm(Form):
    """A policy that joins or leaves, and the reason."""

    policy: Text
    reason: Text
    by: By | None = None


# the counts of a cell: names, numbers, and with linear bets a list of sums
Counts = Annotated[
    list[dict[str, str | int | float | list[float] | None]], Meta(min_length=1, max_length=100_000)
]
IntervalNumber = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class TellCountsForm(Form):
    """The counts of an interval: rows of policy, group, n and sum."""

    interval: IntervalNumber
    counts: Counts
    close: bool = False
    valid_from: Text | None = None


class CorrectCountsForm(Form):
    """Other counts for an interval that is not closed."""

    interval: IntervalNumber
    counts: Counts
    reason: Text
    by: By | None = None


class CloseIntervalForm(Form):
    """The interval to close; the oldest open one unless given."""

    interval: IntervalNumber | None = None
    valid_from: Text | None = None


class PublishSharesForm(Form):
    """From when the next shares are valid, and the version that must be the latest before them."""

    valid_from: Text | None = None
    after: IntervalNumber | None = None


class ResumeForm(Form):
    """The reason for a resumption."""

    reason: Text = "resumed"
    by: By | None = None


class PlanForm(Form):
    """A study with its means."""

    study: dict[str, Any]
    delta: Annotated[float, Meta(gt=0, lt=0.5)] | None = None


class SimulateForm(Form):
    """A study with its true means."""

    study: dict[str, Any]
    replications: Annotated[int, Meta(ge=1, le=10_000)] = 500
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1


class SaveForm(Form):
    """A study to save."""

    study: dict[str, Any]


class PlanReportForm(Form):
    """A study to plan, simulate and report; the seed is that of a simulation without one."""

    study: dict[str, Any]
    replications: Annotated[int, Meta(ge=1, le=1_000)] = 200
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1


WebhookEvent = Literal["ended", "alarm"]


class WebhookForm(Form):
    """An address and what it is told about: one experiment or all, its end and its alarms."""

    url: Annotated[str, Meta(min_length=1, max_length=2_000)]
    experiment: Name | None = None
    events: Annotated[list[WebhookEvent], Meta(min_length=1, max_length=2)] = field(
        default_factory=lambda: ["ended", "alarm"]
    )


class Nothing(Form):
    """An empty body."""


class LogIn(Form):
    """A key, for a browser's session."""

    key: Annotated[str, Meta(min_length=1, max_length=200)]


TITLE_CHARACTERS = 300


def _refuse_odd_names(problem: Problem) -> None:
    """Refuse names of policies, groups and guard-rails with line ends or other control characters."""
    rails = (rail.name for rail in problem.guardrails)
    for name in (*problem.policies, *problem.group_names, *rails):
        if has_control_characters(name):
            raise BadInput(f"names must have no control characters; one begins {name[:40]!r}.")


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
    title = table.get("title", "")
    if isinstance(title, str) and (len(title) > TITLE_CHARACTERS or has_control_characters(title)):
        raise BadInput(
            f"a title may have {TITLE_CHARACTERS} characters, and no control characters; it has {len(title)}."
        )
    truth = table.get("truth")
    if isinstance(truth, dict) and ("cells" in truth or "data" in truth):
        raise BadInput("the service opens no files: give the truth as means.")
    study = Study.from_dict(table)
    _refuse_odd_names(study.problem)
    return study
