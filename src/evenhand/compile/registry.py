"""`@kernel`: register a function for compilation; syntax trees of registered functions."""

from __future__ import annotations

import ast
import dis
import threading
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast, overload

from evenhand.errors import CompilationFailed

F = TypeVar("F", bound=Callable[..., Any])

# constructs that no kernel may contain, checked at registration; `verifier` has the supported ones
_FORBIDDEN = {
    dis.opmap[name]
    for name in (
        "RAISE_VARARGS", "MAKE_FUNCTION", "YIELD_VALUE", "LOAD_DEREF", "STORE_GLOBAL", "DELETE_FAST",
        "IMPORT_NAME", "STORE_ATTR", "BUILD_LIST", "BUILD_SET", "BUILD_MAP", "BUILD_STRING", "UNPACK_EX",
        "CALL_FUNCTION_EX", "PUSH_EXC_INFO", "IS_OP", "GET_AWAITABLE", "DELETE_SUBSCR",
    )
    if name in dis.opmap
}  # fmt: skip

_VARIADIC = 0x04 | 0x08  # *args, **kwargs in co_flags

KERNELS: list[Kernel] = []


class _Calls(threading.local):
    """Whether this thread runs kernels as plain Python."""

    plain = False


_calls = _Calls()


class Kernel:
    """A function that can be compiled; a call from Python runs compiled code."""

    def __init__(self, function: FunctionType, inlined: bool) -> None:
        self.py_func = function
        self.inlined = inlined
        self.__name__, self.__qualname__ = function.__name__, function.__qualname__
        self.__module__, self.__doc__ = function.__module__, function.__doc__
        self.__wrapped__ = function
        _check(function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if _calls.plain:
            return self.py_func(*arguments, **named)
        from evenhand.compile.dispatch import call

        return call(self, arguments, named)

    def __reduce__(self) -> str:
        return self.__qualname__  # pickled by name, as functions are

    def __repr__(self) -> str:
        return f"<kernel {self.__module__}.{self.__qualname__}>"


@overload
def kernel(function: F) -> F: ...
@overload
def kernel(*, inlined: bool = False) -> Callable[[F], F]: ...
def kernel(function: F | None = None, *, inlined: bool = False) -> F | Callable[[F], F]:
    """Register a function over numbers, arrays and named tuples; its type is kept.

    `inlined`: always inlined into its callers, so that a loop around it can be vectorised.
    """
    if function is None:
        return lambda function: _registered(function, inlined)
    return _registered(function, inlined)


def uncompiled(function: F) -> F:
    """Return a kernel as plain Python: for a few calls, where compiling takes longer.

    The kernels that it calls run as plain Python too.
    """
    plain = cast(Kernel, function).py_func

    @wraps(plain)
    def run(*arguments: Any) -> Any:
        before, _calls.plain = _calls.plain, True
        try:
            return plain(*arguments)
        finally:
            _calls.plain = before

    return cast(F, run)


def _registered(function: F, inlined: bool) -> F:
    registered = Kernel(cast(FunctionType, function), inlined)
    KERNELS.append(registered)
    return cast(F, registered)


def _check(function: FunctionType) -> None:
    """Refuse constructs that are never supported; fast enough for every import."""
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount]
    if code.co_flags & _VARIADIC or code.co_kwonlyargcount or code.co_freevars or function.__defaults__:
        raise TypeError(
            f"kernel {function.__qualname__} must have plain parameters without defaults and no closure."
        )
    missing = [name for name in (*parameters, "return") if name not in function.__annotations__]
    if missing:
        raise TypeError(f"kernel {function.__qualname__} must say the type of {missing[0]}.")
    found = _FORBIDDEN & set(code.co_code[::2])
    if found:
        names = ", ".join(sorted(dis.opname[number] for number in found))
        raise TypeError(
            f"kernel {function.__qualname__} must be made of assignments, if, for, while and return over "
            f"numbers, arrays and tuples; it contains {names}."
        )


Place = tuple[str, int]  # a function's name and first line


@cache
def tree_of(function: FunctionType) -> ast.FunctionDef:
    """Return the function's definition, which must not be modified."""
    code = function.__code__
    trees, codes = _definitions(code.co_filename)
    place = code.co_name, code.co_firstlineno
    if place not in trees or not _are_equal(codes[place], code):
        raise CompilationFailed(f"{code.co_filename} was changed after it was imported; restart the program.")
    return trees[place]


def body_of(function: FunctionType) -> list[ast.stmt]:
    """Return the statements of a kernel, without its docstring."""
    body = tree_of(function).body
    return body if ast.get_docstring(tree_of(function), clean=False) is None else body[1:]


@cache
def _definitions(file: str) -> tuple[dict[Place, ast.FunctionDef], dict[Place, CodeType]]:
    """Return the functions of a file, as syntax trees and as code, by name and line."""
    try:
        text = Path(file).read_bytes()
    except OSError as problem:
        raise CompilationFailed(
            f"the source of the kernels cannot be read ({problem}); install evenhand with its sources."
        ) from problem
    module = ast.parse(text)
    trees = {_place(node): node for node in module.body if isinstance(node, ast.FunctionDef)}
    compiled = compile(module, file, "exec", dont_inherit=True)
    codes = [part for part in compiled.co_consts if isinstance(part, CodeType)]
    return trees, {(code.co_name, code.co_firstlineno): code for code in codes}


def _place(node: ast.FunctionDef) -> Place:
    return node.name, min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _are_equal(fresh: CodeType, loaded: CodeType) -> bool:
    return (fresh.co_code, fresh.co_names, repr(fresh.co_consts)) == (
        loaded.co_code,
        loaded.co_names,
        repr(loaded.co_consts),
    )
