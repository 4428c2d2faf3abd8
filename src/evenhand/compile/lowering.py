"""Compile plain functions to LLVM IR with numba.

Each function is compiled separately: its callees are declared, not compiled again, and linked later. Only
numba's public `cfunc`, `intrinsic` and `inspect_llvm` are used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import cfunc, types
from numba.core.typing import signature
from numba.extending import intrinsic

from evenhand.compile.linking import tidied
from evenhand.compile.units import NAME, Signature, Unit, call_name
from evenhand.compile.values import BOOL, FLOAT, INT, WORD

_TYPES = {FLOAT: types.float64, INT: types.int64, BOOL: types.boolean, WORD: types.uint64}
# bools take a byte each in memory
_POINTERS = {
    "*" + kind: types.CPointer(types.uint8 if kind == BOOL else type_) for kind, type_ in _TYPES.items()
}
_OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": False, "_nrt": False}
_WORD = re.compile(r"word_([0-9a-f]+)")


def lowered_unit(unit: Unit) -> bytes:
    """Return a unit as LLVM bit code; its callees are declared only."""
    space: dict[str, Any] = {"math": math, "np": np, "bits_of": _bits_of}
    for word in set(_WORD.findall(unit["source"])):
        space[f"word_{word}"] = np.uint64(int(word, 16))
    for place, head in enumerate(unit["calls"]):
        name = call_name(place)
        space[name] = _external(name, head)
        llvm.add_symbol(name, 1)  # numba requires an address of everything; this code is never run here
    exec(compile(unit["source"], f"<{NAME}>", "exec"), space)
    compiled = cfunc(_signature(unit["signature"]), **_OPTIONS)(space[NAME])
    return tidied(compiled.inspect_llvm(), compiled.native_name, NAME)


def _signature(head: Signature) -> Any:
    parameters = [_type(kind) for kind in head["parameters"]]
    return _result(head["results"])(*parameters)


def _type(kind: str) -> Any:
    return _POINTERS[kind] if kind.startswith("*") else _TYPES[kind]


def _result(kinds: Sequence[str]) -> Any:
    if not kinds:
        return types.void
    return _TYPES[kinds[0]] if len(kinds) == 1 else types.Tuple([_TYPES[kind] for kind in kinds])


def _external(name: str, head: Signature) -> Callable[..., Any]:
    """Return a function that is called by name and defined elsewhere."""
    wanted = _signature(head)

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        kinds = [context.get_value_type(kind) for kind in found.args]
        result = context.get_value_type(found.return_type)
        kind = ir.FunctionType(ir.VoidType() if found.return_type == types.void else result, kinds)
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        value = builder.call(function, arguments)
        return context.get_dummy_value() if found.return_type == types.void else value

    names = ", ".join(f"p{position}" for position in range(len(head["parameters"])))
    space: dict[str, Any] = {"wanted": wanted, "generate": generate}
    exec(f"def {name}(context, {names}):\n    return wanted, generate", space)
    found: Callable[..., Any] = intrinsic(space[name])
    return found


@intrinsic  # type: ignore[untyped-decorator]
def _bits_of(context: Any, number: Any) -> Any:
    """Return the bits of a float as a word."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return signature(types.uint64, types.float64), generate
