"""Kernels compiled apart: callers call them through a slot, a pointer that is filled by the first call.

numba copies the code of a kernel into each of its callers and optimises it there again, at each level of
calls; and a caller is compiled only when all it may ever call has been. A kernel apart is compiled once, and
not before it is called: a run with floors never waits for the kernels of quotas. Its type must be known
before it is compiled, so its annotation says what it returns.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import os
import traceback
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

_MARK = "evenhand:"  # how the symbols of slots begin
_FILL = "evenhand-fill"


class Place(NamedTuple):
    """Where a kernel is found again, in any process: module, name, and the types of its arguments."""

    module: str
    name: str
    arguments: tuple[Any, ...]


class _Slot(NamedTuple):
    place: Place
    pointer: ctypes.c_void_p


_slots: dict[str, _Slot] = {}  # by symbol
_symbols: dict[int, str] = {}  # by the address of the slot
_taught: set[str] = set()  # slots that the compiler knows how to call through


def stand_apart(compiled: Any) -> None:
    """Let the callers of a kernel call it through its slot."""
    compile_one = compiled.compile
    function = compiled.py_func
    returned = _type_of(function.__annotations__["return"])

    def compile_as_declared(signature: Any) -> Any:
        return compile_one(returned(*getattr(signature, "args", signature)))

    def template(args: Any, kws: Any) -> Any:
        from numba.core import typing
        from numba.core.types.misc import unliteral

        parameters, folded = compiled._compiler.fold_argument_types(args, kws)
        arguments = tuple(map(unliteral, folded))
        declare(Place(function.__module__, function.__qualname__, arguments))
        found = typing.make_concrete_template(
            f"Apart({function.__name__})", key=function.__name__, signatures=[returned(*arguments)]
        )
        return found, parameters, arguments, {}

    def implementation(arguments: Any) -> Any:
        place = Place(function.__module__, function.__qualname__, tuple(arguments))
        return _caller(compiled.targetctx, declare(place), place.arguments)

    compiled.compile = compile_as_declared
    compiled.get_call_template = template
    compiled.get_overload = implementation


def share(among: Any, found: Any) -> None:
    """Let kernels that refer to `found`, which Python calls, call `among` instead."""
    found.get_call_template, found.get_overload = among.get_call_template, among.get_overload
    found.among_kernels = among


def declare(place: Place) -> str:
    """The symbol of a kernel's slot; the slot is there from now on, empty until the first call."""
    from llvmlite.binding import add_symbol

    types = hashlib.sha256(repr(place.arguments).encode()).hexdigest()[:16]
    symbol = f"{_MARK}{place.module}.{place.name}:{types}"
    if symbol not in _slots:
        pointer = ctypes.c_void_p()
        _slots[symbol] = _Slot(place, pointer)
        _symbols[ctypes.addressof(pointer)] = symbol
        add_symbol(symbol, ctypes.addressof(pointer))
        add_symbol(_FILL, ctypes.cast(_for_compiled_code, ctypes.c_void_p).value)
    return symbol


def called_by(module: Any) -> list[Place]:
    """The kernels apart that a compiled module may call."""
    names = [variable.name for variable in module.global_variables]
    return [_slots[name].place for name in names if name.startswith(_MARK)]


def fill_all() -> None:
    """Compile, or load, every kernel apart that may be called by those already there."""
    while waiting := [symbol for symbol, slot in _slots.items() if not slot.pointer.value]:
        for symbol in waiting:
            _fill(symbol)


def _fill(symbol: str) -> None:
    place, pointer = _slots[symbol]
    found = getattr(importlib.import_module(place.module), place.name)
    compiled: Any = getattr(found, "among_kernels", found)
    compiled.compile(place.arguments)
    result = compiled.overloads[place.arguments]
    pointer.value = result.library.get_pointer_to_function(result.fndesc.llvm_func_name)


def _fill_on_call(address: int) -> None:
    """Called by compiled code that finds a slot empty. It cannot go on without: nor can the process."""
    try:
        _fill(_symbols[address])
    except BaseException:
        traceback.print_exc()
        os._exit(70)


_for_compiled_code = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_fill_on_call)


def _caller(context: Any, symbol: str, arguments: Any) -> str:
    """Teach the compiler to call through this slot."""
    from llvmlite import ir
    from numba.core import cgutils

    def call(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.call_conv.get_function_type(signature.return_type, signature.args).as_pointer()
        found = builder.module.globals.get(symbol)
        slot = found or cgutils.add_global_variable(builder.module, kind, symbol)
        with builder.if_then(cgutils.is_null(builder, builder.load(slot)), likely=False):
            filler = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t])
            fill = cgutils.get_or_insert_function(builder.module, filler, _FILL)
            builder.call(fill, [builder.bitcast(slot, cgutils.voidptr_t)])
        status, value = context.call_conv.call_function(
            builder, builder.load(slot), signature.return_type, signature.args, args
        )
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return value

    if symbol not in _taught:
        _taught.add(symbol)
        context._defns[symbol].append(call, arguments)
    return symbol


@cache
def _type_of(annotation: str) -> Any:
    """The compiler's type of what a kernel returns."""
    from numba import types

    plain = {"None": types.none, "float": types.float64, "int": types.int64, "bool": types.boolean}
    if annotation in plain:
        return plain[annotation]
    parts: Iterable[str] = annotation.removeprefix("tuple[").removesuffix("]").split(", ")
    return types.Tuple([plain[part] for part in parts])
