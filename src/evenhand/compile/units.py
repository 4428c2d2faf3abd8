"""Separately compiled parts shared by programs: units (one function each) and clusters.

numba compiles units. LLVM links and optimises clusters: a function, its head, with the small functions that
it calls, which are inlined. Larger functions are heads of separate clusters and are called through an address
that is known when a program is loaded. Inside a unit or a cluster functions are named by position, so that
equal ones are identical in all programs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from evenhand.compile.residual import Function

NAME = "unit"  # name of the function of a unit
ENTRY = "entry"  # name of the head of a cluster
LINES = 50  # lines of source, callees included, from which a function is a separate cluster


class Signature(TypedDict):
    """The kinds of a function's parameters and results; "*float" is a buffer of floats."""

    parameters: list[str]
    results: list[str]


class Unit(TypedDict):
    """A function, and the signatures of its callees, named call_0, call_1 and so on."""

    signature: Signature
    source: str
    calls: list[Signature]


@dataclass(frozen=True)
class Cluster:
    """Functions that are compiled together, callees first, the head last; and called heads."""

    members: list[Function]
    calls: list[str]

    @property
    def head(self) -> str:
        return self.members[-1].name

    def local_names(self) -> dict[str, str]:
        """Return names by position: of members, and of called heads."""
        names = {name: head_name(place) for place, name in enumerate(self.calls)}
        names |= {member.name: f"member_{place}" for place, member in enumerate(self.members)}
        return names | {self.head: ENTRY}


def call_name(place: int) -> str:
    """Return the name in a unit of its callee at this position."""
    return f"call_{place}"


def head_name(place: int) -> str:
    """Return the name in a cluster of the called head at this position."""
    return f"head_{place}"


def unit_of(function: Function, others: Mapping[str, Function]) -> Unit:
    """Return the unit of a function; `others` are the functions of the program by name."""
    places = {name: call_name(place) for place, name in enumerate(function.calls)} | {function.name: NAME}
    pattern = re.compile(r"\b(" + "|".join(places) + r")\b")
    return {
        "signature": _signature(function),
        "source": pattern.sub(lambda found: places[found[0]], function.source),
        "calls": [_signature(others[name]) for name in function.calls],
    }


def clusters_of(functions: Sequence[Function]) -> list[Cluster]:
    """Return the clusters of a program, callees first; the last one holds the entry."""
    by_name = {function.name: function for function in functions}
    heads: list[str] = []
    found: list[Cluster] = []
    for function in functions:
        members = _members(function, by_name, heads)
        length = sum(len(member.lines) for member in members)
        if (length >= LINES and not function.inlined) or function is functions[-1]:
            calls = [name for member in members for name in member.calls if name in heads]
            found.append(Cluster(members, list(dict.fromkeys(calls))))
            heads.append(function.name)
    return found


def key_of(*parts: object) -> str:
    """Return a hash of any JSON value."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _members(function: Function, by_name: Mapping[str, Function], heads: Sequence[str]) -> list[Function]:
    """Return the function and its callees that are not heads, callees first."""
    found: dict[str, Function] = {}
    for name in function.calls:
        if name not in heads:
            found |= {member.name: member for member in _members(by_name[name], by_name, heads)}
    return [*found.values(), function]


def _signature(function: Function) -> Signature:
    return {"parameters": [kind for _, kind in function.parameters], "results": function.results}
