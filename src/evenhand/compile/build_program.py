"""Build the machine code of a kernel for a layout of its arguments; use the cache."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evenhand.compile import cache, workers
from evenhand.compile.annotations import DTYPES, Type
from evenhand.compile.argument_layout import Layout
from evenhand.compile.arrays import buffer_kind
from evenhand.compile.clusters import Cluster, clusters_of, key_of
from evenhand.compile.fingerprint import back_end, fingerprint, target
from evenhand.compile.program import Program, Specialised
from evenhand.compile.registry import Kernel
from evenhand.compile.residual import Function
from evenhand.compile.values import Dynamic, scalars
from evenhand.files import locked

_compile_lock = threading.Lock()


@dataclass(frozen=True)
class BuildPlan:
    """The clusters of a program, and how its entry is called."""

    clusters: list[str]  # keys of the clusters, callees first, the entry's last
    calls: list[list[int]]  # which of the earlier clusters each of them calls
    buffers: list[str]  # in the order of the entry's parameters
    passed: list[int]  # leaves of the arguments that are passed as numbers
    results: list[str]  # kinds of the returned numbers
    constants: dict[str, str]  # buffers of arrays that are defined outside kernels, in base 64


@dataclass(frozen=True)
class Code:
    """A compiled program: its plan, and the object code of its clusters."""

    plan: BuildPlan
    objects: list[bytes]


def code_of(kernel: Kernel, types: Mapping[str, Type], layout: Layout) -> Code:
    """Return the program of a kernel for this layout; compile it if it is not in the cache."""
    key = _key(kernel, layout)
    with _compile_lock:
        found = _cached(key)
        if found is not None:
            return found
        with locked(cache.cache_directory() / f"lock-{key[0]}"):  # few files, and few programs that share one
            found = _cached(key)  # another process may have compiled it
            return _built(kernel, types, layout, key) if found is None else found


def is_cached(kernel: Kernel, layout: Layout) -> bool:
    """Return whether the program of a kernel for this layout is in the cache."""
    return _cached(_key(kernel, layout)) is not None


def specialised(
    kernel: Kernel, types: Mapping[str, Type], layout: Layout
) -> tuple[Program, list[int], list[str]]:
    """Return the program, its entry last; the leaves passed to the entry; the result kinds."""
    program = Program(dict(layout.target.strides), layout.target.read_only, layout.uniform)
    root, passed = root_of(program, kernel, types, layout)
    program.add_entry(root, [layout.leaves[leaf].type.kind for leaf in passed])
    return program, passed, root.kinds


def root_of(
    program: Program, kernel: Kernel, types: Mapping[str, Type], layout: Layout
) -> tuple[Specialised, list[int]]:
    """Specialise a kernel as a root of the program; return it and the leaves that it is passed."""
    arguments = layout.arguments(types)
    root = program.root(kernel, arguments)
    numbers = [number for value in arguments for number in scalars(value)]
    wanted = [flag for flags in root.wanted for flag in flags]
    leaves = iter(layout.passed)
    passed = []
    for number, is_wanted in zip(numbers, wanted, strict=True):
        if isinstance(number, Dynamic) and not number.header:
            leaf = next(leaves)
            passed += [leaf] if is_wanted else []
    return root, passed


def _key(kernel: Kernel, layout: Layout) -> str:
    """Return a hash of everything that the machine code depends on."""
    known = [(leaf, repr(value)) for leaf, value in layout.known.items()]
    axes = [
        shape if layout.target.is_packed(layout.leaves[leaf].path) else len(shape)
        for leaf, shape in layout.shapes.items()
    ]
    return key_of(fingerprint(kernel), target(), repr(layout.target), known, axes)


def _cached(key: str) -> Code | None:
    found = cache.lookup(cache.PROGRAMS, key)
    if found is None:
        return None
    plan = BuildPlan(**json.loads(found))
    objects = [cache.lookup(cache.CLUSTERS, cluster) for cluster in plan.clusters]
    whole = [code for code in objects if code is not None]
    return Code(plan, whole) if len(whole) == len(objects) else None


def _built(kernel: Kernel, types: Mapping[str, Type], layout: Layout, key: str) -> Code:
    workers.start(1)  # it loads the compiler in the meantime
    program, passed, results = specialised(kernel, types, layout)
    constants = {buffer: _joined(buffer, parts) for buffer, parts in program.constants.items()}
    clusters = clusters_of(program.functions)
    with locked(cache.cache_directory() / "lock"):  # one process compiles at a time: programs share clusters
        keys, objects = _compiled(clusters, {function.name: function for function in program.functions})
    places = {cluster.head: place for place, cluster in enumerate(clusters)}
    calls = [[places[name] for name in cluster.calls] for cluster in clusters]
    buffers = [name for name, _ in program.functions[-1].parameters]
    plan = BuildPlan(keys, calls, buffers, passed, results, constants)
    cache.store(cache.PROGRAMS, key, json.dumps(asdict(plan)).encode())
    return Code(plan, objects)


def _joined(buffer: str, parts: Sequence[Any]) -> str:
    """Return the concatenation of arrays."""
    dtype = DTYPES[buffer_kind(buffer)]
    return base64.b64encode(b"".join(np.ascontiguousarray(part, dtype).tobytes() for part in parts)).decode()


def _compiled(
    clusters: Sequence[Cluster], functions: Mapping[str, Function]
) -> tuple[list[str], list[bytes]]:
    """Return keys and object code of clusters; compile only those that are not cached."""
    members = [cluster.members(functions) for cluster in clusters]
    keys = [key_of(back_end(), target(), parts) for parts in members]
    found = {key: cache.lookup(cache.CLUSTERS, key) for key in keys}
    missing = {key: parts for key, parts in zip(keys, members, strict=True) if found[key] is None}
    # the longest first, so that the processes finish at about the same time
    order = sorted(missing, key=lambda key: -sum(len(part["source"]) for part in missing[key]))
    for key, answer in zip(order, workers.ask_all([{"members": missing[key]} for key in order]), strict=True):
        code = found[key] = base64.b64decode(answer["object"])
        cache.store(cache.CLUSTERS, key, code)
    return keys, [found[key] or b"" for key in keys]
