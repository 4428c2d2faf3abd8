"""Load machine code with llvmlite and call it through ctypes; numba is not needed."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from evenhand.compile.building import Code
from evenhand.compile.units import ENTRY, head_name

_loading = threading.Lock()
_loaded: dict[tuple[str, tuple[int, ...]], tuple[int, Any]] = {}  # code stays loaded until the process ends
_numbers = itertools.count()


def entry_of(code: Code) -> Callable[..., None]:
    """Return the program's entry, which takes the addresses of its buffers.

    It runs without the interpreter lock. Clusters loaded by another program are reused.
    """
    plan = code.plan
    addresses: list[int] = []
    with _loading:
        for key, calls, machine_code in zip(plan.clusters, plan.calls, code.objects, strict=True):
            called = tuple(addresses[place] for place in calls)
            if (key, called) not in _loaded:
                _loaded[key, called] = _load(machine_code, called)
            addresses.append(_loaded[key, called][0])
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(plan.buffers))(addresses[-1])


def _load(machine_code: bytes, called: tuple[int, ...]) -> tuple[int, Any]:
    """Return the address of a cluster's head, and the object that keeps it in memory."""
    import llvmlite.binding as llvm

    library = llvm.JITLibraryBuilder().add_object_img(machine_code).add_current_process().export_symbol(ENTRY)
    for place, address in enumerate(called):
        library.import_symbol(head_name(place), address)
    tracker = library.link(_linker(), f"cluster_{next(_numbers)}")
    return tracker[ENTRY], tracker


@cache
def _linker() -> Any:
    import llvmlite.binding as llvm

    from evenhand.compile.linking import machine

    return llvm.create_lljit_compiler(machine())
