"""The build: everything on which the last digits of a computed number may depend.

The first event of a log names the build that wrote it, and a `build_changed` event precedes the first event
of a writer with another one. An audit compares probabilities to the last digit only if the log's build is its
own; decisions are always compared.

Decisions of another build can differ by rounding. Some rules follow weights that a solver improves step by
step; if two comparisons are almost equal, the last digit decides which one a step follows. Two builds then
get different weights and sometimes a different cell. `explained` searches for weights that differ in their
last digits only and give the decision of the log; the replay continues from these weights.
"""

from __future__ import annotations

import hashlib
import math
import platform
import struct
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from evenhand import __version__
from evenhand.compile.fingerprint import compiler_version, fingerprint, processor_features, processor_name
from evenhand.errors import BadInput
from evenhand.live import item_kernels, replay_kernels
from evenhand.live.replay_kernels import DrawTally
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, Work

Build = dict[str, str]  # component -> version or digest

_LONGEST = 200  # maximum characters of an entry
# entries that every release has written; later releases may add more
_ALWAYS = ("evenhand", "python", "numpy", "llvmlite", "machine", "processor", "c library")
# functions of the mathematical library that kernels call, each with its range of evaluation
_FUNCTIONS: tuple[tuple[Callable[[float], float], float], ...] = (
    (math.log, 1.0), (math.log, 1e6), (math.log1p, 1.0), (math.exp, -20.0), (math.expm1, 1.0),
    (math.lgamma, 50.0), (math.erfc, 5.0), (math.sin, 1.5), (math.cos, 1.5), (math.asin, 1.0),
)  # fmt: skip


def present_build() -> Build:
    """Return the build of this process."""
    return dict(_present())


def checked_build(build: Build) -> Build:
    """Return the build; refuse one that no release can have written."""
    missing = [name for name in _ALWAYS if name not in build]
    if missing:
        raise BadInput(f"versions must name {', '.join(_ALWAYS)}; {missing[0]!r} is missing.")
    for name, version in build.items():
        if not name.strip() or len(name) > _LONGEST or len(version) > _LONGEST:
            raise BadInput(f"versions must be short text; {name[:40]!r} is {version[:40]!r}.")
    return build


@cache
def _present() -> Build:
    return {
        "evenhand": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "numpy": np.__version__,
        "llvmlite": compiler_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "c library": " ".join(platform.libc_ver()),
        "kernels": _kernels(),
        "arithmetic": _arithmetic(),
    }


def _processor() -> str:
    """Return the name of the compilation target and a digest of its features."""
    features = hashlib.sha256(processor_features().encode()).hexdigest()
    return f"{processor_name()} {features[:8]}"


def _kernels() -> str:
    """Return a digest of the kernels that fold events, of all they call and of the compiler."""
    roots = (
        replay_kernels.advance, replay_kernels.replace_outcomes, replay_kernels.replace_all_outcomes,
        item_kernels.advance_items, item_kernels.replace_all_items,
    )  # fmt: skip
    return hashlib.sha256(" ".join(map(fingerprint, roots)).encode()).hexdigest()[:16]


def _arithmetic() -> str:
    """Return a digest of results of the mathematical library on this machine.

    The library selects code by processor, settings and compile options; its version alone is not enough, and
    not every library has one. Kernels and interpreter call the same library.
    """
    values = (function(scale * x) for function, scale in _FUNCTIONS for x in _points())
    return hashlib.sha256(b"".join(map(struct.Struct("<d").pack, values))).hexdigest()[:16]


def _points() -> Iterator[float]:
    """Yield numbers between 0 and 1 without simple ratios between them."""
    return (number * 0.6180339887498949 % 1.0 for number in range(1, 2049))


SIZES = (1e-12, 1e-9, 1e-7, 1e-6, 1e-5)  # relative changes that are tried, and how often each
TRIES = 25


class DecisionTables(NamedTuple):
    """Everything that a decision changes."""

    state: State
    work: Work
    tally: DrawTally

    def copy(self) -> DecisionTables:
        return DecisionTables(
            State._make(table.copy() for table in self.state),
            Work._make(table.copy() for table in self.work),
            DrawTally._make(table.copy() for table in self.tally),
        )


class LoggedAsk(NamedTuple):
    """One ask: input is what the log says, output is what the rule gives."""

    row: replay_kernels.Ints
    value: replay_kernels.Array
    digest: replay_kernels.Digests
    rails: replay_kernels.Array


def explained_by_rounding(
    spec: Spec, tables: DecisionTables, seed: int, asked: replay_kernels.Ints
) -> tuple[DecisionTables, LoggedAsk] | None:
    """Return tables equal up to last digits that give the decision of the log, or None.

    `asked` is the row of one ask. The changes tried are the same every time.
    """
    rails = spec.guardrails.code.size
    for size in SIZES:
        for number in range(TRIES):
            changed = tables.copy()
            for place, table in enumerate((changed.state.w, changed.state.track)):
                table *= 1.0 + size * _between(2 * number + place, table.shape)
            empty = np.zeros(1), np.zeros((1, 2), dtype=np.uint64), np.full((1, rails), np.nan)
            row = LoggedAsk(asked.reshape(1, -1).copy(), *empty)
            state, work, tally = changed
            done = replay_kernels.advance(
                spec, state, work, tally, seed, row.row, row.value, row.digest, row.rails
            )
            if done == 1:
                return changed, row
    return None


def _between(number: int, shape: tuple[int, ...]) -> replay_kernels.Array:
    """Return numbers between -1 and 1 that are the same on every machine."""
    count = int(np.prod(shape))
    places = np.arange(1, count + 1, dtype=np.float64) + number * count
    return (2.0 * np.modf(places * 0.6180339887498949)[0] - 1.0).reshape(shape)
