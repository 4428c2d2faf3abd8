"""Optimise and compile LLVM code, and load the machine code."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from evenhand.compile.build_program import Code
from evenhand.compile.clusters import ENTRY, Member, head_name
from evenhand.compile.fingerprint import processor_features, processor_name
from evenhand.compile.lowering import llvm_code


def machine_code(members: Sequence[Member]) -> bytes:
    """Return the object code of a cluster; only its head is exported."""
    _initialise()
    whole = llvm.parse_assembly(llvm_code(members))
    whole.triple, whole.data_layout = machine().triple, str(machine().target_data)
    builder = _pass_builder()
    builder.getModulePassManager().run(whole, builder)
    code: bytes = machine().emit_object(whole)
    return code


@cache
def machine() -> Any:
    """Return LLVM's target machine for this processor, with all its features."""
    _initialise()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=processor_name(), features=processor_features(),
        opt=3, reloc="default", codemodel="jitdefault", jit=True,
    )  # fmt: skip


def _pass_builder() -> Any:
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.loop_unrolling = True
    options.slp_vectorization = False
    return llvm.create_pass_builder(machine(), options)


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


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
    library = llvm.JITLibraryBuilder().add_object_img(machine_code).add_current_process().export_symbol(ENTRY)
    for place, address in enumerate(called):
        library.import_symbol(head_name(place), address)
    tracker = library.link(_linker(), f"cluster_{next(_numbers)}")
    return tracker[ENTRY], tracker


@cache
def _linker() -> Any:
    return llvm.create_lljit_compiler(machine())
