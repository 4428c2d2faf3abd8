"""Hashes of everything compiled code depends on: kernels, compiler, processor.

A kernel is hashed by its byte code and by everything that it refers to: kernels it calls, constants, named
tuples. No file is read, and comments do not count.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import types
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.compile.annotations import is_record
from evenhand.compile.registry import Kernel
from evenhand.versions import version_of


def processor_name() -> str:
    """Return the processor's name, or EVENHAND_CPU_NAME."""
    import llvmlite.binding as llvm

    return os.environ.get("EVENHAND_CPU_NAME") or str(llvm.get_host_cpu_name())


def processor_features() -> str:
    """Return the processor's features, or EVENHAND_CPU_FEATURES."""
    import llvmlite.binding as llvm

    asked = os.environ.get("EVENHAND_CPU_FEATURES")
    if asked is not None:
        return asked
    try:
        return str(llvm.get_host_cpu_features().flatten())
    except RuntimeError:
        return ""  # not available on every system


@cache
def compiler_version() -> str:
    """Return the version of the package that makes machine code."""
    return version_of("llvmlite") or "not installed"


_NAME = re.compile(r"[A-Za-z_]\w*")


@cache
def fingerprint(kernel: Any) -> str:
    """Return a hash of a kernel, its callees and the compiler; the same on every machine."""
    digest = hashlib.sha256(compiler().encode())
    seen: set[Any] = set()  # kernels and named tuples only: values are compared, not objects
    waiting: list[Any] = [kernel]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, (Kernel, type)):
            if thing in seen:
                continue
            seen.add(thing)
        if isinstance(thing, Kernel):
            code = thing.py_func.__code__
            constants = [part for part in code.co_consts if part is None or part != thing.py_func.__doc__]
            digest.update(repr((thing.__qualname__, thing.inlined, thing.py_func.__annotations__)).encode())
            digest.update(repr((code.co_code, constants, code.co_names, code.co_varnames)).encode())
            waiting += _named_by(thing.py_func)
        elif is_record(thing):
            digest.update(repr((thing.__qualname__, thing.__annotations__)).encode())
            waiting += _annotated(thing.__annotations__, vars(_module(thing.__module__)))
        elif isinstance(thing, np.ndarray):
            digest.update(repr((thing.dtype, thing.shape)).encode() + thing.tobytes())
        else:
            digest.update(repr(thing).encode())
    return digest.hexdigest()


@cache
def compiler() -> str:
    """Return the versions of Python and the compiler, and a hash of this package."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{python} llvmlite {compiler_version()} {_hash_of(Path(__file__).parent.glob('*.py'))}"


@cache
def back_end() -> str:
    """Return the versions of Python and the compiler, and a hash of lowering and linking."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    files = [Path(__file__).with_name(name) for name in ("lowering.py", "linking.py")]
    return f"{python} llvmlite {compiler_version()} {_hash_of(files)}"


def _hash_of(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


@cache
def target() -> str:
    """Return a description of the machine that code is compiled for."""
    return f"{platform.system()} {platform.machine()} {processor_name()} {processor_features()}"


def _named_by(function: types.FunctionType) -> Iterator[Any]:
    """Return the globals of a function on which compiled code may depend."""
    space, names = function.__globals__, function.__code__.co_names
    for name in names:
        found = space.get(name)
        if isinstance(found, types.ModuleType):
            yield from (getattr(found, other) for other in names if _matters(getattr(found, other, None)))
        elif _matters(found):
            yield found
    yield from _annotated(function.__annotations__, space)


def _annotated(annotations: dict[str, Any], space: dict[str, Any]) -> Iterator[Any]:
    """Return what annotations refer to: aliases of types, and named tuples."""
    for annotation in annotations.values():
        for name in _NAME.findall(annotation if isinstance(annotation, str) else repr(annotation)):
            found = space.get(name)
            if found is not None and not isinstance(found, types.ModuleType):
                yield found if is_record(found) else repr(found)


def _matters(thing: Any) -> bool:
    return isinstance(thing, (Kernel, bool, int, float, tuple, np.generic, np.ndarray)) or is_record(thing)


def _module(name: str) -> types.ModuleType:
    import sys

    return sys.modules[name]
