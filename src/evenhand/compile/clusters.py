"""Clusters: the parts of a program that LLVM compiles separately, and that programs share.

A cluster is a function, its head, with the small functions that it calls, which are inlined. Larger
functions are heads of separate clusters and are called through an address that is known when a program is
loaded. Inside a cluster functions are named by position, so that equal ones are identical in all programs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from evenhand.compile.residual import Function

ENTRY = "entry"  # name of the head of a cluster
LINES = 50  # lines of source, callees included, from which a function is a separate cluster


class Signature(TypedDict):
    """The name of a function in the cluster, the kinds of its parameters ("*float": a buffer) and results."""

    name: str
    parameters: list[str]
    results: list[str]


class Member(TypedDict):
    """A function of a cluster; in its source it calls call_0, call_1 and so on."""

    signature: Signature
    parameters: list[str]  # names
    source: str
    calls: list[Signature]
    inlined: bool


@dataclass(frozen=True)
class Cluster:
    """Functions that are compiled together, callees first, the head last; and called heads."""

    functions: list[Function]
    calls: list[str]

    @property
    def head(self) -> str:
        return self.functions[-1].name

    def members(self, program: Mapping[str, Function]) -> list[Member]:
        """Return the functions with names by position; `program` has all functions by name."""
        names = {name: head_name(place) for place, name in enumerate(self.calls)}
        names |= {function.name: f"member_{place}" for place, function in enumerate(self.functions)}
        names[self.head] = ENTRY
        return [_member(function, program, names) for function in self.functions]


def call_name(place: int) -> str:
    """Return the name in a member's source of its callee at this position."""
    return f"call_{place}"


def head_name(place: int) -> str:
    """Return the name in a cluster of the called head at this position."""
    return f"head_{place}"


def clusters_of(functions: Sequence[Function]) -> list[Cluster]:
    """Return the clusters of a program, callees first; the last one holds the entry."""
    by_name = {function.name: function for function in functions}
    heads: list[str] = []
    found: list[Cluster] = []
    for function in functions:
        members = _with_callees(function, by_name, heads)
        length = sum(len(member.lines) for member in members)
        if (length >= LINES and not function.inlined) or function is functions[-1]:
            calls = [name for member in members for name in member.calls if name in heads]
            found.append(Cluster(members, list(dict.fromkeys(calls))))
            heads.append(function.name)
    return found


def key_of(*parts: object) -> str:
    """Return a hash of any JSON value."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _with_callees(
    function: Function, by_name: Mapping[str, Function], heads: Sequence[str]
) -> list[Function]:
    """Return the function and its callees that are not heads, callees first."""
    found: dict[str, Function] = {}
    for name in function.calls:
        if name not in heads:
            found |= {member.name: member for member in _with_callees(by_name[name], by_name, heads)}
    return [*found.values(), function]


def _member(function: Function, program: Mapping[str, Function], names: Mapping[str, str]) -> Member:
    places = {name: call_name(place) for place, name in enumerate(function.calls)}
    places[function.name] = names[function.name]
    pattern = re.compile(r"\b(" + "|".join(places) + r")\b")
    return {
        "signature": _signature(function, names),
        "parameters": [name for name, _ in function.parameters],
        "source": pattern.sub(lambda found: places[found[0]], function.source),
        "calls": [_signature(program[name], names) for name in function.calls],
        "inlined": function.inlined,
    }


def _signature(function: Function, names: Mapping[str, str]) -> Signature:
    kinds = [kind for _, kind in function.parameters]
    return {"name": names[function.name], "parameters": kinds, "results": function.results}
