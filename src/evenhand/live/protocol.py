"""The protocol: study, seed and limits from event one, fixed before the first ask."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

from evenhand.errors import BadInput
from evenhand.live.build import checked_build, present_build
from evenhand.live.clock import checked_time
from evenhand.live.events import FORMAT, Created
from evenhand.live.hash_chain import Difference
from evenhand.model.problem import Problem
from evenhand.procedure.spec import EVIDENCE_VERSION, Procedure, Spec, check_start, compile_spec
from evenhand.study import Study, dumps, loads

# limits of an experiment
LIMITS = {
    "cells": 100_000,
    "name_characters": 200,
    "text_characters": 2_000,
    "tickets_out": 100_000,
    "asks_at_once": 10_000,
}
# limits that every release has written; later releases may add more
_FIRST_LIMITS = {"cells", "name_characters", "text_characters", "tickets_out", "asks_at_once"}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Protocol:
    """What was fixed before the first sample."""

    experiment: str
    study: Study
    seed: int
    lease: float | None
    limits: dict[str, int]
    versions: dict[str, str]
    format: int
    at: str
    hash: bytes  # of event one
    evidence: int  # version of the evidence bounds

    @property
    def problem(self) -> Problem:
        return self.study.problem

    @property
    def procedure(self) -> Procedure:
        return self.study.procedure

    @cached_property
    def spec(self) -> Spec:
        return compile_spec(self.problem, self.procedure, recorded=True)._replace(evidence=self.evidence)

    @cached_property
    def policies(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.problem.policies)}

    @cached_property
    def groups(self) -> dict[str, int]:
        return {name: g for g, name in enumerate(self.problem.group_names)}

    @property
    def snapshot_every(self) -> int:
        """Return the number of events between snapshots; it grows with the size of the problem."""
        k, l = self.problem.shape
        return max(10_000, k * l)

    @classmethod
    def read(cls, event: Created, hash_: bytes) -> Protocol:
        """Return the protocol in event one; refuse what no release can have written."""
        refuse_newer_format(1, event.format)
        _refuse_newer_evidence(event.evidence)
        try:
            study = loads(event.study)
            _check_protocol(event.experiment, study, event.seed, event.lease, recorded=True)
            _check_limits(event.limits)
            checked_build(event.versions)
            checked_time(event.at)
            if event.format < 1 or event.back:
                raise BadInput("formats begin with 1, and no clock is behind that of the first event.")
        except BadInput as problem:
            raise Difference(1, f"cannot have been written: {problem}") from None
        return cls(
            event.experiment, study, event.seed, event.lease, event.limits, event.versions, event.format,
            event.at, hash_, event.evidence,
        )  # fmt: skip


def new_protocol(
    experiment: str, study: Study, seed: int, lease: float | None, at: str, by: str | None
) -> Created:
    """Return event one for this study; refuse what a live experiment cannot run.

    The order of initial samples is random unless the study gives it.
    """
    if study.procedure.initial_order is None:
        study = replace(study, procedure=replace(study.procedure, initial_order="random"))
    _check_protocol(experiment, study, seed, lease)
    return Created(
        at=at, experiment=experiment, study=_settled(replace(study, truth=None)), seed=seed,
        lease=None if lease is None else float(lease), format=FORMAT, versions=present_build(),
        limits=LIMITS, by=by, evidence=EVIDENCE_VERSION,
    )  # fmt: skip


def refuse_newer_format(seq: int, format_: int) -> None:
    """Refuse events written by a later release."""
    if format_ > FORMAT:
        raise Difference(
            seq,
            f"says that the log has format {format_}, this evenhand knows {FORMAT}; use a newer evenhand.",
        )


def _refuse_newer_evidence(version: int) -> None:
    """Refuse evidence whose bounds a later release defined."""
    if version > EVIDENCE_VERSION:
        raise Difference(
            1,
            f"says that its evidence has version {version}, this evenhand knows {EVIDENCE_VERSION}; use a "
            "newer evenhand.",
        )


def _check_protocol(
    experiment: str, study: Study, seed: int, lease: float | None, recorded: bool = False
) -> None:
    """Refuse what a live experiment cannot run; `recorded` allows what earlier releases did."""
    if not isinstance(experiment, str) or not _NAME.fullmatch(experiment):
        raise BadInput(
            "an experiment's name must be 1 to 64 letters, digits, '-' or '_'; it is "
            f"{str(experiment)[:80]!r}."
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise BadInput(f"seed must be a whole number from 0 to 2^63 - 1; it is {seed!r}.")
    if lease is not None:
        check_lease(lease)
    _check_size(study.problem)
    if study.procedure.sampling == "oracle":
        raise BadInput(
            "sampling 'oracle' follows the true means, which a live experiment does not know; take "
            "another rule."
        )
    # also refuses what has no compiled form
    check_start(compile_spec(study.problem, study.procedure, recorded=recorded))


def check_lease(lease: float) -> None:
    """Raise if the lease is not a usable number of seconds."""
    if isinstance(lease, bool) or not isinstance(lease, (int, float)) or not 0 < lease < 1e10:
        raise BadInput(f"lease must be a positive number of seconds; it is {lease!r}.")


def _check_limits(limits: dict[str, int]) -> None:
    if not limits.keys() >= _FIRST_LIMITS or not all(0 < limit < 2**63 for limit in limits.values()):
        names = ", ".join(sorted(_FIRST_LIMITS))
        raise BadInput(f"limits must be positive whole numbers for {names}; they are not.")


def _check_size(problem: Problem) -> None:
    k, l = problem.shape
    if k * l > LIMITS["cells"]:
        raise BadInput(
            f"a live experiment may have {LIMITS['cells']} cells; {k} policies x {l} groups are more."
        )
    for name in (*problem.policies, *problem.group_names):
        if len(name) > LIMITS["name_characters"]:
            raise BadInput(
                f"names may have {LIMITS['name_characters']} characters; one begins {name[:40]!r} and "
                f"has {len(name)}."
            )


def _settled(study: Study) -> str:
    """Return the study as text that reads back as exactly the same numbers.

    Shares are rescaled to sum to 1 on reading.
    """
    text = dumps(study)
    for _ in range(10):
        again = dumps(loads(text))
        if again == text:
            return text
        text = again
    raise BadInput("the study's shares do not settle on reading; give them with fewer digits.")
