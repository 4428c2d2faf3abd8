"""What is compiled by itself and shared by programs: units, of one function each, and clusters of units.

numba compiles units. LLVM links and optimises clusters: a function, its head, with the small functions that
it calls, so that these are copied into it. Larger functions are heads of clusters of their own and are called
through an address that is known when a program is loaded. Inside a unit or a cluster functions have names by
their places, so that equal ones are the same whatever program they come from.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from evenhand.compile.residual import Function

NAME = "unit"  # the function of a unit
ENTRY = "entry"  # the head of a cluster
LINES = 50  # of source, from which a function with those it calls is a cluster of its own


class Signature(TypedDict):
    """The kinds of a function's parameters and results; "*float" is a buffer of floats."""

    parameters: list[str]
    results: list[str]


class Unit(TypedDict):
    """A function, and the signatures of those it calls, which it knows as call_0, call_1 and so on."""

    signature: Signature
    source: str
    calls: list[Signature]


@dataclass(frozen=True)
class Cluster:
    """Functions that are compiled together, callees first, the head last; and the heads that they call."""

    members: list[Function]
    calls: list[str]

    @property
    def head(self) -> str:
        return self.members[-1].name

    def local_names(self) -> dict[str, str]:
        """Names by place: of members, and of heads that are called."""
        names = {name: head_name(place) for place, name in enumerate(self.calls)}
        names |= {member.name: f"member_{place}" for place, member in enumerate(self.members)}
        return names | {self.head: ENTRY}


def call_name(place: int) -> str:
    """The name in a unit of the function at this place of its calls."""
    return f"call_{place}"


def head_name(place: int) -> str:
    """The name in a cluster of the head at this place of its calls."""
    return f"head_{place}"


def unit_of(function: Function, others: Mapping[str, Function]) -> Unit:
    """The unit of a function; `others` are the functions of the program by name."""
    places = {name: call_name(place) for place, name in enumerate(function.calls)} | {function.name: NAME}
    pattern = re.compile(r"\b(" + "|".join(places) + r")\b")
    return {
        "signature": _signature(function),
        "source": pattern.sub(lambda found: places[found[0]], function.source),
        "calls": [_signature(others[name]) for name in function.calls],
    }


def clusters_of(functions: Sequence[Function]) -> list[Cluster]:
    """A program cut into clusters, those that are called first; the last one holds the program's entry."""
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
    """A hash of anything that JSON can say."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _members(function: Function, by_name: Mapping[str, Function], heads: Sequence[str]) -> list[Function]:
    """The function and all it calls that are no heads, callees first."""
    found: dict[str, Function] = {}
    for name in function.calls:
        if name not in heads:
            found |= {member.name: member for member in _members(by_name[name], by_name, heads)}
    return [*found.values(), function]


def _signature(function: Function) -> Signature:
    return {"parameters": [kind for _, kind in function.parameters], "results": function.results}
