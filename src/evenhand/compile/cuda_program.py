"""A program as CUDA C++: prelude, tables, memory of one thread, and functions.

The start of generated CUDA source: type names, and arithmetic as on the CPU.

The source is CUDA C++. Compiled as C++ for the CPU it gives the same results, one thread at a time.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.compile.annotations import DTYPES, Type
from evenhand.compile.argument_layout import Layout
from evenhand.compile.arrays import CONSTANTS, buffer_kind
from evenhand.compile.build_program import root_of
from evenhand.compile.cuda_functions import STORED, Printer, tuple_type
from evenhand.compile.program import Program
from evenhand.compile.registry import Kernel
from evenhand.compile.residual import Function
from evenhand.compile.values import FLOAT, WORD

APART_FROM = 8  # lines of a function with its inlined callees, from which it is called and not inlined
COMPILED_IN = 4096  # largest table, in numbers, that is written into the source
CONSTANT_BYTES = 16 * 1024  # of the 64 kB of constant memory
_POWER = re.compile(r"\bpower_(\d+)<")

KeptTables = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Root:
    """A function called from outside: its name, the paths of its numbers, its results."""

    name: str
    passed: list[str]
    results: list[str]


def specialised(
    kernels: Sequence[Kernel], types: Mapping[str, Type], layout: Layout
) -> tuple[Program, list[Root]]:
    """Return one program for several kernels with the same arguments."""
    program = Program(dict(layout.target.strides), layout.target.read_only, layout.uniform)
    roots = []
    for kernel in kernels:
        found, passed = root_of(program, kernel, types, layout)
        roots.append(Root(found.name, [layout.leaves[leaf].path for leaf in passed], found.kinds))
    return program, roots


@dataclass(frozen=True)
class CudaSource:
    """Generated source, and its memory and tables."""

    text: str
    memory: dict[str, int]  # buffers of each thread, with their lengths
    filled: KeptTables  # buffers that all threads read, filled before the first launch

    @property
    def bytes_per_thread(self) -> int:
        """Return the bytes of memory per thread."""
        return sum(DTYPES[buffer_kind(name)]().itemsize * size for name, size in self.memory.items())


def printed(program: Program, sizes: Mapping[str, int], tables: KeptTables) -> CudaSource:
    """Return the source of a program.

    `tables` are the contents of buffers that all threads read; `sizes` are the lengths of the others, per
    thread.
    """
    functions = {function.name: function for function in program.functions}
    used = {name for function in program.functions for name, kind in function.parameters if kind[0] == "*"}
    constant = {
        name: np.concatenate([np.ravel(part) for part in parts]) for name, parts in program.constants.items()
    }
    shared = {name: table for name, table in (dict(tables) | constant).items() if name in used}
    own = {name: size for name, size in sizes.items() if name in used and name not in shared}
    writing = _writing(program.functions)
    apart = _apart(program.functions)
    bodies = [
        Printer(function, functions, set(own), writing).printed("APART" if name in apart else "FUNCTION")
        for name, function in functions.items()
    ]
    results = {tuple_type(f.results) for f in program.functions if len(f.results) > 1}
    powers = {int(exponent) for body in bodies for exponent in _POWER.findall(body)}
    # in CUDA an infinite number is a call, which cannot stand in a table
    filled = {
        name: table
        for name, table in shared.items()
        if table.size > COMPILED_IN or not np.isfinite(table).all()
    }
    small = _small_tables({name: table for name, table in shared.items() if name not in filled})
    parts = [
        PRELUDE,
        *map(_power, sorted(powers)),
        *[
            _table(name, table, name not in filled, "SMALL_TABLE" if name in small else "TABLE")
            for name, table in sorted(shared.items())
        ],
        _memory(own),
        *sorted(results),
        *bodies,
    ]
    return CudaSource("\n".join(parts), own, filled)


def _memory(own: Mapping[str, int]) -> str:
    members = [f"    {STORED[buffer_kind(name)]} {name}[{max(size, 1)}];" for name, size in own.items()]
    return "\n".join(["struct Memory {", *members, "};"])


def _small_tables(tables: KeptTables) -> set[str]:
    """Return the tables for constant memory, whose reads are fast where all threads read the same place.

    Tables that are defined outside kernels are read at places that differ from thread to thread.
    """
    found: set[str] = set()
    left = CONSTANT_BYTES
    for name, table in sorted(tables.items(), key=lambda item: item[1].nbytes):
        if name[0] != CONSTANTS and table.nbytes <= left:
            found.add(name)
            left -= table.nbytes
    return found


def _table(name: str, table: NDArray[Any], compiled_in: bool, qualifier: str) -> str:
    kind = buffer_kind(name)
    if not compiled_in:
        return f'extern "C" {{ FILLED {STORED[kind]} {name}[{table.size}]; }}'
    values = ", ".join(_number(value, kind) for value in table.tolist()) or "0"
    return f"{qualifier} {STORED[kind]} {name}[{max(table.size, 1)}] = {{{values}}};"


def _number(value: Any, kind: str) -> str:
    if kind == FLOAT:
        if math.isnan(value):
            return "UNDEFINED"
        return repr(value) if math.isfinite(value) else "INFINITE" if value > 0 else "-INFINITE"
    return f"{int(value)}ULL" if kind == WORD else f"{int(value)}"


def _power(exponent: int) -> str:
    """Print a power with a constant exponent, multiplying in the order of the CPU's compiler."""
    lines = [f"template <class T> FUNCTION T power_{exponent}(T a) {{", "    T result = 1;"]
    left = exponent
    while left:
        lines += ["    result = result * a;"] if left & 1 else []
        left >>= 1
        lines += ["    a = a * a;"] if left else []
    return "\n".join([*lines, "    return result;", "}"])


def _writing(functions: Sequence[Function]) -> set[str]:
    """Return the functions that write to buffers, or call one that does; callees come first."""
    found: set[str] = set()
    for function in functions:
        stores = any(
            isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
            for node in ast.walk(ast.parse(function.source))
        )
        if stores or found & set(function.calls):
            found.add(function.name)
    return found


def _apart(functions: Sequence[Function]) -> set[str]:
    """Return the functions that are not inlined: those of some length with several callers."""
    sites: Counter[str] = Counter()
    for function in functions:
        for node in ast.walk(ast.parse(function.source)):
            if isinstance(node, ast.Call):
                sites[ast.unparse(node.func)] += 1
    found: set[str] = set()
    lengths: dict[str, int] = {}
    for function in functions:
        copied = sum(lengths[name] for name in function.calls if name not in found)
        lengths[function.name] = len(function.lines) + copied
        if sites[function.name] > 1 and lengths[function.name] >= APART_FROM:
            found.add(function.name)
    return found


PRELUDE = r"""
typedef double real;
typedef long long whole;
typedef unsigned long long word;
#ifdef __CUDACC__
#define FUNCTION __device__ static __forceinline__
#define APART __device__ static __noinline__
#define TABLE __device__ static const
#define FILLED __device__
#define SMALL_TABLE __constant__ static const
#define NOT_UNROLLED _Pragma("unroll 1")
#define UNROLLED _Pragma("unroll")
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
#define UNDEFINED __longlong_as_double(0x7ff8000000000000LL)
#else
#include <cmath>
#include <cstring>
using std::floor; using std::fmod; using std::isfinite; using std::isinf; using std::isnan;
#define FUNCTION static inline
#define APART static
#define TABLE static const
#define FILLED
#define SMALL_TABLE static const
#define NOT_UNROLLED
#define UNROLLED
#define INFINITE __builtin_inf()
#define UNDEFINED __builtin_nan("")
#endif

#define OWN(buffer, place) m->buffer[place]

FUNCTION real lesser(real a, real b) { return b < a ? b : a; }
FUNCTION whole lesser(whole a, whole b) { return b < a ? b : a; }
FUNCTION word lesser(word a, word b) { return b < a ? b : a; }
FUNCTION real greater(real a, real b) { return b > a ? b : a; }
FUNCTION whole greater(whole a, whole b) { return b > a ? b : a; }
FUNCTION word greater(word a, word b) { return b > a ? b : a; }
FUNCTION real absolute(real a) { return fabs(a); }
FUNCTION whole absolute(whole a) { return a < 0 ? -a : a; }

// rounded down, and 0 where the divisor is 0
FUNCTION whole floor_division(whole a, whole b) {
    if (b == 0) return 0;
    whole quotient = a / b, remainder = a - quotient * b;
    return remainder != 0 && (b ^ remainder) < 0 ? quotient - 1 : quotient;
}
FUNCTION whole floor_remainder(whole a, whole b) {
    if (b == 0) return 0;
    whole remainder = a % b;
    return remainder != 0 && (b ^ remainder) < 0 ? remainder + b : remainder;
}
FUNCTION word floor_division(word a, word b) { return b == 0 ? 0 : a / b; }
FUNCTION word floor_remainder(word a, word b) { return b == 0 ? 0 : a % b; }

FUNCTION word bits_of(real a) {
#ifdef __CUDACC__
    return (word)__double_as_longlong(a);
#else
    word bits; std::memcpy(&bits, &a, sizeof bits); return bits;
#endif
}

// one copy of each in the program: copied into every place of use they would fill the instruction cache
APART real call_log(real a) { return log(a); }
APART real call_exp(real a) { return exp(a); }
APART real call_log1p(real a) { return log1p(a); }
APART real call_expm1(real a) { return expm1(a); }
APART real call_lgamma(real a) { return lgamma(a); }
APART real call_sin(real a) { return sin(a); }
APART real call_cos(real a) { return cos(a); }
APART real call_asin(real a) { return asin(a); }
APART real call_erfc(real a) { return erfc(a); }
APART real call_pow(real a, real b) { return pow(a, b); }
"""
