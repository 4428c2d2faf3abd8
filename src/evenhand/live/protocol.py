"""The protocol: study, seed and limits from event one, fixed before the first ask."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from evenhand.errors import BadInput, nearest, shown
from evenhand.live.build import checked_build, present_build
from evenhand.live.clock import checked_time
from evenhand.live.events import FORMAT, Created
from evenhand.live.hash_chain import Difference
from evenhand.model.argument_checks import python_number
from evenhand.model.problem import Problem
from evenhand.procedure.compile_spec import check_start, compile_spec, settled
from evenhand.procedure.compile_spec import recorded as recorded_procedure
from evenhand.procedure.spec import EVIDENCE_VERSION, Procedure, Spec
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
EVENTS_OF_INTERVALS = 24  # events between snapshots of an experiment in intervals: about 8 intervals
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


# sampling rules without a memory of the policies, which serve where policies join and leave
JOINABLE = ("ts-ids", "ids", "top-two", "uniform")


class Members(NamedTuple):
    """The policies of an experiment as of an event."""

    names: tuple[str, ...]  # all that ever took part, in the order in which they joined
    withdrawn: frozenset[str] = frozenset()

    @property
    def present(self) -> tuple[str, ...]:
        """Return the policies that take part now, in their order."""
        return tuple(name for name in self.names if name not in self.withdrawn)


@dataclass(frozen=True)
class Protocol:
    """What was fixed before the first sample, and the policies that take part as of an event.

    `study` is that of event one. `problem`, `spec` and the columns of a state are about the policies present.
    """

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
    members: Members

    @cached_property
    def problem(self) -> Problem:
        present, begun = self.members.present, self.study.problem
        return begun if present == begun.policies else begun.with_policies(present)

    @property
    def procedure(self) -> Procedure:
        return self.study.procedure

    @cached_property
    def spec(self) -> Spec:
        return compile_spec(self.problem, self.procedure, recorded=True)._replace(evidence=self.evidence)

    @cached_property
    def policies(self) -> dict[str, int]:
        """Return the number of every policy that ever took part; a policy keeps its number."""
        return {name: k for k, name in enumerate(self.members.names)}

    @cached_property
    def columns(self) -> dict[int, int]:
        """Return the column of each present policy in the tables of a state, by its number."""
        return {self.policies[name]: column for column, name in enumerate(self.problem.policies)}

    def as_begun(self) -> Protocol:
        """Return the protocol before any policy joined or left."""
        return replace(self, members=Members(self.study.problem.policies))

    def with_policy(self, name: str) -> Protocol:
        """Return the protocol after a policy has joined; refuse what the study has no room for."""
        names, most = self.members.names, self.study.problem.max_policies
        if most is None:
            raise BadInput(
                "policies can join only where the study says max_policies, because the threshold must cover "
                "them from the start; begin another experiment with it."
            )
        if name in names:
            left = (
                " It was withdrawn: give the policy another name." if name in self.members.withdrawn else ""
            )
            raise BadInput(f"a policy that joins must have a new name; there is one called {name!r}.{left}")
        if len(names) >= most:
            raise BadInput(
                f"max_policies is {most}, and {len(names)} policies have taken part; {name!r} cannot join."
            )
        after = replace(self, members=self.members._replace(names=(*names, name)))
        _check_size(after.problem)  # also refuses a name that no problem may hold
        return after

    def without_policy(self, name: str) -> Protocol:
        """Return the protocol after a policy has left; refuse one that must stay."""
        present, begun = self.members.present, self.study.problem
        if name in self.members.withdrawn:
            raise BadInput(f"policy {name!r} was withdrawn before.")
        if name not in present:
            raise BadInput(f"there is no policy {name!r}{nearest(name, present)}")
        if begun.max_policies is None:
            raise BadInput(
                "a policy can be withdrawn only where the study says max_policies, because the threshold "
                "must cover it from the start; finish this experiment, or begin another with it."
            )
        if name == begun.control:
            raise BadInput(f"{name!r} is the control that the requirement refers to and cannot be withdrawn.")
        if len(present) == 1:
            raise BadInput(f"{name!r} is the last policy and cannot be withdrawn; finish the experiment.")
        return replace(self, members=self.members._replace(withdrawn=self.members.withdrawn | {name}))

    @cached_property
    def groups(self) -> dict[str, int]:
        return {name: g for g, name in enumerate(self.problem.group_names)}

    @property
    def snapshot_every(self) -> int:
        """Return the number of events between snapshots; it grows with the size of the problem."""
        k, l = self.problem.shape
        # closing an interval costs far more than an outcome, and a log of intervals has few events
        return max(10_000, k * l) if self.procedure.interval is None else EVENTS_OF_INTERVALS

    @classmethod
    def read(cls, event: Created, hash_: bytes) -> Protocol:
        """Return the protocol in event one; refuse what no release can have written."""
        refuse_newer_format(1, event.format)
        _refuse_newer_evidence(event.evidence)
        try:
            study = loads(event.study)
            study = replace(study, procedure=recorded_procedure(study.problem, study.procedure))
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
            event.at, hash_, event.evidence, Members(study.problem.policies),
        )  # fmt: skip


def new_protocol(
    experiment: str, study: Study, seed: int, lease: float | None, at: str, by: str | None
) -> Created:
    """Return event one for this study; refuse what a live experiment cannot run.

    The order of initial samples is random unless the study gives it, and evidence other than the mixture is
    named.
    """
    seed, lease = python_number(seed), python_number(lease)
    if study.procedure.initial_order is None:
        study = replace(study, procedure=replace(study.procedure, initial_order="random"))
    study = replace(study, procedure=settled(study.problem, study.procedure))
    study = _with_salt(experiment, study, seed)
    _check_protocol(experiment, study, seed, lease)
    return Created(
        at=at, experiment=experiment, study=_settled(replace(study, truth=None)), seed=seed,
        lease=None if lease is None else float(lease), format=FORMAT, versions=present_build(),
        limits=LIMITS, by=by, evidence=EVIDENCE_VERSION,
    )  # fmt: skip


def _with_salt(experiment: str, study: Study, seed: int) -> Study:
    """Return the study of an experiment in intervals with a salt that cannot be derived without the seed."""
    intervals = study.procedure.interval
    if intervals is None or intervals.salt is not None:
        return study
    text = f"{experiment}:{seed}:{replace(study, truth=None).content_hash}"
    salt = hashlib.sha256(text.encode()).hexdigest()[:16]
    return replace(study, procedure=replace(study.procedure, interval=replace(intervals, salt=salt)))


def refuse_newer_format(seq: int, format_: int) -> None:
    """Refuse events written by a later release."""
    if format_ > FORMAT:
        raise Difference(
            seq,
            f"says that the log has format {format_}, this version reads {FORMAT}; use a newer evenhand.",
        )


def _refuse_newer_evidence(version: int) -> None:
    """Refuse evidence whose bounds a later release defined."""
    if version > EVIDENCE_VERSION:
        raise Difference(
            1,
            f"says that its evidence has version {version}, this one computes {EVIDENCE_VERSION}; use a "
            "newer evenhand.",
        )


def _check_protocol(
    experiment: str, study: Study, seed: int, lease: float | None, recorded: bool = False
) -> None:
    """Refuse what a live experiment cannot run; `recorded` allows what earlier releases did."""
    if not isinstance(experiment, str) or not _NAME.fullmatch(experiment):
        raise BadInput(
            f"an experiment's name must be 1 to 64 letters, digits, '-' or '_'; it is {shown(experiment)}."
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise BadInput(f"seed must be a whole number from 0 to 2^63 - 1; it is {shown(seed)}.")
    if lease is not None:
        check_lease(lease)
    _check_size(study.problem)
    if study.procedure.sampling == "oracle":
        raise BadInput(
            "sampling 'oracle' follows the true means, which a live experiment does not know; take "
            "another rule."
        )
    if study.problem.max_policies is not None:
        _check_changes(study)
    if recorded and study.procedure.interval is not None and study.procedure.interval.salt is None:
        raise BadInput("the study of an experiment in intervals must name the salt; it has none.")
    # also refuses what has no compiled form
    check_start(compile_spec(study.problem, study.procedure, recorded=recorded))


def _check_changes(study: Study) -> None:
    """Refuse a study in which policies may join, and to which none can be added."""
    problem, procedure = study.problem, study.procedure
    if procedure.sampling_name not in JOINABLE:
        raise BadInput(
            f"policies that join or leave are sampled by {', '.join(JOINABLE)}; the sampling is "
            f"{procedure.sampling_name!r}."
        )
    another = "another"
    while another in problem.policies:
        another += "'"
    try:
        wider = replace(problem, max_policies=10**6).with_policies((*problem.policies, another))
        compile_spec(wider, replace(procedure, interval=None), recorded=True)
    except BadInput as error:
        raise BadInput(
            "with max_policies every number must be the same for all policies, so that it holds for one that "
            f"joins; here {error}"
        ) from None


def check_lease(lease: float) -> None:
    """Raise if the lease is not a usable number of seconds."""
    if isinstance(lease, bool) or not isinstance(lease, (int, float)) or not 0 < lease < 1e10:
        raise BadInput(f"lease must be a positive number of seconds; it is {shown(lease)}.")


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
