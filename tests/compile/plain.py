"""Kernels run as plain Python, from the same source, to be compared with the compiled ones.

Plain means: every kernel is its own Python function, called by the interpreter. Three things differ between
Python and any compiled code, and are made equal here:

- a division by zero is infinite or not a number, where Python's floats raise an error;
- functions of `math` are those of the C library, which the compiled code calls too: Python has a `lgamma` of
  its own, and raises errors where the C library answers with an infinity;
- `x ** 2`, with a whole number, is a product, as the compiler makes it.

Arrays refuse negative indices, which compiled code does not wrap round, and ranges that end beyond them,
which it does not shorten.
"""

from __future__ import annotations

import ast
import ctypes
import ctypes.util
import math
from collections.abc import Callable
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from evenhand.compile import Kernel
from evenhand.compile.registry import tree_of

_LIBRARY = ctypes.CDLL(ctypes.util.find_library("m"))
_OF_ONE = ("log", "exp", "lgamma", "log1p", "expm1", "sin", "cos", "asin", "erfc", "sqrt")


def run_plain(kernel: Any, *arguments: Any) -> Any:
    """Call a kernel as plain Python; arrays are read and written in place."""
    with np.errstate(all="ignore"):
        return plain(kernel)(*map(checked, arguments))


def checked(value: Any) -> Any:
    """The same arrays, refusing negative indices, and giving Python's numbers."""
    if isinstance(value, np.ndarray):
        return value.view(Checked)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(checked, value))
    return value


class Checked(np.ndarray):
    """An array whose indices must not be negative, and whose ranges must not end beyond it."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(_within(index, self.shape))
        # words stay NumPy's, which wrap round at 64 bits
        return found.item() if isinstance(found, np.generic) and not isinstance(found, np.uint64) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_within(index, self.shape), value)


def _within(index: Any, shape: tuple[int, ...]) -> Any:
    for part, length in zip(index if isinstance(index, tuple) else (index,), shape, strict=False):
        for bound in (part.start, part.stop) if isinstance(part, slice) else (part,):
            if bound is not None and not 0 <= bound <= length:
                raise IndexError(f"index {index} is negative, or beyond the end")
    return index


@cache
def plain(kernel: Any) -> Callable[..., Any]:
    """The kernel's own source as a Python function that calls other kernels in the same way."""
    function = kernel.py_func
    tree = ast.parse(ast.unparse(tree_of(function)))
    tree.body[0].decorator_list = []  # type: ignore[attr-defined]
    tree = ast.fix_missing_locations(_Arithmetic().visit(tree))
    space = {name: _replaced(value) for name, value in function.__globals__.items()}
    space |= {"_divided": _divided, "_power": _power}
    exec("from __future__ import annotations", space)
    exec(compile(tree, function.__code__.co_filename, "exec"), space)
    found: Callable[..., Any] = space[function.__name__]
    return found


def _replaced(value: Any) -> Any:
    """What a kernel's source names, as plain Python needs it."""
    if isinstance(value, Kernel):
        return lambda *arguments: plain(value)(*arguments)
    if value is math:
        return _MATH
    if isinstance(value, np.ndarray):
        return value.view(Checked)
    if isinstance(value, ModuleType) and value.__name__.startswith("evenhand."):
        return _Module(value)
    return value


class _Module:
    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return _replaced(getattr(self._module, name))


class _Arithmetic(ast.NodeTransformer):
    """Divisions and powers by functions of ours."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        name = {ast.Div: "_divided", ast.Pow: "_power"}.get(type(node.op))
        return node if name is None else ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], [])

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div):
            return node
        # an array divided in place divides each element
        old = ast.parse(ast.unparse(node.target), mode="eval").body
        value = ast.Call(ast.Name("_divided", ast.Load()), [old, node.value], [])
        if isinstance(node.target, ast.Name):
            whole = ast.Subscript(ast.Name(node.target.id, ast.Load()), ast.Slice(), ast.Store())
            test = ast.parse(f"hasattr({node.target.id}, 'shape')", mode="eval").body
            return ast.If(test, [ast.Assign([whole], value)], [ast.Assign([node.target], value)])
        return ast.Assign([node.target], value)


def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray):
        return np.asarray(a) / b
    if b != 0:
        return a / b
    return float(np.float64(a) / np.float64(b))


def _power(x: float, n: Any) -> float:
    if isinstance(n, float):
        return float(_POW(x, n))
    if isinstance(x, int):
        return x**n
    result, square = 1.0, x
    while n:
        if n & 1:
            result *= square
        square, n = square * square, n >> 1
    return result


def _c_function(name: str, arguments: int = 1) -> Callable[..., float]:
    function = getattr(_LIBRARY, name)
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double] * arguments
    found: Callable[..., float] = function
    return found


_POW = _c_function("pow", 2)
_MATH = SimpleNamespace(
    **{name: _c_function(name) for name in _OF_ONE},
    **{
        name: getattr(math, name) for name in ("inf", "nan", "pi", "e", "isinf", "isnan", "isfinite", "floor")
    },
)
