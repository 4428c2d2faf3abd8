"""Event one, unpacked: the study, the seed and the limits, frozen before anything is asked."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from dataclasses import dataclass, replace
from functools import cached_property

from evenhand import __version__
from evenhand.errors import BadInput, IntegrityFailed
from evenhand.live.events import FORMAT, Created
from evenhand.model.problem import Problem
from evenhand.procedure.spec import EVIDENCE_VERSION, Procedure, Spec, check_start, compile_spec
from evenhand.study import Study, dumps, loads

# what an experiment refuses rather than slowing down
LIMITS = {
    "cells": 100_000,
    "name_characters": 200,
    "text_characters": 2_000,
    "tickets_out": 100_000,
    "asks_at_once": 10_000,
}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Protocol:
    """What was agreed before the first sample."""

    experiment: str
    study: Study
    seed: int
    lease: float | None
    limits: dict[str, int]
    versions: dict[str, str]
    hash: bytes  # of event one
    evidence: int  # version of the bounds of the evidence

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
        """Events between snapshots: more for a large problem, whose snapshots are long."""
        k, l = self.problem.shape
        return max(10_000, k * l)

    @classmethod
    def read(cls, event: Created, hash_: bytes) -> Protocol:
        if event.format > FORMAT:
            raise IntegrityFailed(
                f"the log has event format {event.format}, this evenhand knows {FORMAT}; open it with "
                "a newer evenhand."
            )
        if event.evidence > EVIDENCE_VERSION:
            raise IntegrityFailed(
                f"the log has version {event.evidence} of the evidence, this evenhand knows "
                f"{EVIDENCE_VERSION}; open it with a newer evenhand."
            )
        study = loads(event.study)
        return cls(
            event.experiment, study, event.seed, event.lease, event.limits, event.versions, hash_,
            event.evidence,
        )  # fmt: skip


def new_protocol(
    experiment: str, study: Study, seed: int, lease: float | None, at: str, by: str | None
) -> Created:
    """Event one for this study; what a live experiment cannot run is refused here."""
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
    text = _settled(replace(study, truth=None))
    check_start(compile_spec(study.problem, study.procedure))  # the latter refuses what has no compiled form
    return Created(
        at=at, experiment=experiment, study=text, seed=seed, lease=None if lease is None else float(lease),
        format=FORMAT, versions=versions(), limits=LIMITS, by=by, evidence=EVIDENCE_VERSION,
    )  # fmt: skip


def check_lease(lease: float) -> None:
    """Seconds that may pass, in numbers that mean something."""
    if isinstance(lease, bool) or not isinstance(lease, (int, float)) or not 0 < lease < 1e10:
        raise BadInput(f"lease must be a positive number of seconds; it is {lease!r}.")


def versions() -> dict[str, str]:
    """What a float may depend on."""
    import llvmlite
    import numba
    import numpy as np

    return {
        "evenhand": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),  # logarithms have other code on other processors
        "c library": " ".join(platform.libc_ver()),
    }


def _processor() -> str:
    """What the kernels are compiled for: its name, and a digest of what it can do."""
    import numba
    from llvmlite import binding

    try:
        able = numba.config.CPU_FEATURES or binding.get_host_cpu_features().flatten()
    except RuntimeError:
        able = ""  # not every system says
    name = numba.config.CPU_NAME or binding.get_host_cpu_name()
    return f"{name} {hashlib.sha256(able.encode()).hexdigest()[:8]}"


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
    """The study as text that reads back as exactly the same numbers (shares are rescaled to sum to 1 on
    reading).
    """
    text = dumps(study)
    for _ in range(10):
        again = dumps(loads(text))
        if again == text:
            return text
        text = again
    raise BadInput("the study's shares do not settle on reading; give them with fewer digits.")
