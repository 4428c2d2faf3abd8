"""Link and optimise LLVM IR, compile it, and load the machine code, by llvmlite alone."""

from __future__ import annotations

import ctypes
import itertools
import re
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypedDict

import llvmlite.binding as llvm

from evenhand.compile import processor
from evenhand.compile.build_program import Code
from evenhand.compile.units import ENTRY, NAME, call_name, head_name
from evenhand.errors import CompilationFailed

# numba forbids inlining a function into its external wrapper because of the errors that it may raise;
# kernels raise none
_KEPT_OUT = re.compile(r"\bnoinline\b")


class Part(TypedDict):
    """A unit's bit code, the name of its function, and the names of its callees."""

    code: bytes
    name: str
    calls: list[str]
    inlined: bool


def tidied(text: str, wrapper: str, name: str) -> bytes:
    """Return numba's output for one function as bit code, without unneeded parts."""
    _initialise()
    module = llvm.parse_assembly(_KEPT_OUT.sub("alwaysinline", text))
    for thing in (*module.functions, *module.global_variables):
        if not thing.is_declaration:
            thing.linkage = "external" if thing.name == wrapper else "internal"
    module.get_function(wrapper).name = name
    passes, builder = llvm.create_new_module_pass_manager(), _pass_builder(1)
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    # no instruction combining yet: before equal loads are found, it turns `a[k] if c else b[k]` into one load
    # from either of two addresses, which prevents vectorisation of the loop around it
    passes.add_simplify_cfg_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_strip_dead_prototype_pass()
    passes.run(module, builder)
    code: bytes = module.as_bitcode()
    return code


def machine_code(parts: Sequence[Part]) -> bytes:
    """Return the object code of a cluster; only its head is exported."""
    _initialise()
    whole = llvm.parse_assembly("")
    for part in parts:
        module = llvm.parse_bitcode(part["code"])
        module.get_function(NAME).name = part["name"]
        names = {call_name(place): name for place, name in enumerate(part["calls"])}
        for function in module.functions:
            function.name = names.get(function.name, function.name)
        whole.link_in(module)
    inlined = {part["name"] for part in parts if part["inlined"]}
    for function in whole.functions:
        if not function.is_declaration and function.name != ENTRY:
            function.linkage = "internal"
        if function.name in inlined:
            function.add_function_attribute("alwaysinline")
    builder = _pass_builder(3)
    builder.getModulePassManager().run(whole, builder)
    _refuse_python(whole)
    code: bytes = machine().emit_object(whole)
    return code


@cache
def machine() -> Any:
    """Return LLVM's target machine for this processor, with all its features."""
    _initialise()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=processor.name(), features=processor.features(),
        opt=3, reloc="default", codemodel="jitdefault", jit=True,
    )  # fmt: skip


def _pass_builder(level: int) -> Any:
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.loop_unrolling = True
    options.slp_vectorization = False
    return llvm.create_pass_builder(machine(), options)


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _refuse_python(module: Any) -> None:
    """Refuse a kernel that could raise an error, which would need the interpreter."""
    for function in module.functions:
        if function.is_declaration and function.name.startswith(("Py", "numba_", "NRT_")):
            raise CompilationFailed(f"a kernel needs {function.name}, which is not at hand where it runs")


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

    return llvm.create_lljit_compiler(machine())
