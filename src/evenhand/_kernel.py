"""``@kernel``: the only place that knows the compiler.

Kernels are plain functions over numbers, arrays and named tuples, compiled by numba without fastmath (results
must not depend on how sums are reordered), without the interpreter lock (simulations run on threads), without
reference counting (they allocate nothing), with NumPy's rules for division by zero.

The compiled code is cached on disk. numba's own cache notices a change in a function's file but not in the
files of the functions it calls, and stale machine code would pass tests on old code. So the cache of each
file lives in a directory named after a hash of that file and of every file of ours it imports.

A caller takes in the code of the kernels it calls and optimises all of it again, at each level of calls. So
the kernels that close a subject (a verb of a region, a sampling rule, a piece of evidence) are compiled
*apart*: once, under a symbol of their own by which their callers call them.
"""

from __future__ import annotations

import copy
import fcntl
import hashlib
import importlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])

_ROOT = Path(__file__).parent


@overload
def kernel(function: F) -> F: ...
@overload
def kernel(*, apart: bool) -> Callable[[F], F]: ...
def kernel(function: F | None = None, *, apart: bool = False) -> F | Callable[[F], F]:
    """Compile a function on first use; typed as the function itself.

    A private kernel (its name starts with an underscore) is called by other kernels only, never from Python:
    without the code that unpacks Python's objects it compiles in two thirds of the time.
    """
    if function is None:
        return lambda function: _compiled(function, apart)
    return _compiled(function, apart)


def _compiled(function: F, apart: bool) -> F:
    import numba

    options = {"nogil": True, "error_model": "numpy", "fastmath": False, "_nrt": False}
    private = function.__name__.startswith("_")
    compiled: Any = numba.njit(**options, no_cfunc_wrapper=True, no_cpython_wrapper=private)(function)
    compiled._cache = _disk_cache()(function)
    home = Path(compiled._cache.cache_path)
    compiled.compile = _once(_under_symbol(compiled) if apart else compiled.compile, home)
    compiled.get_call_template = _without_literals(compiled.get_call_template)
    found: F = compiled
    return found


_MARK = "evenhand:"  # how their symbols begin
_places: dict[str, tuple[str, str, Any]] = {}  # of each symbol: module, function and argument types


def _under_symbol(compiled: Any) -> Callable[[Any], Any]:
    """Compile a kernel and let its callers call it by symbol instead of taking in its code."""
    compile_one = compiled.compile

    def compile_apart(signature: Any) -> Any:
        known = set(compiled.overloads)
        entry = compile_one(signature)
        for arguments in set(compiled.overloads) - known:
            _publish(compiled, arguments)
        return entry

    return compile_apart


def _publish(compiled: Any, arguments: Any) -> None:
    from llvmlite.binding import add_symbol

    result = compiled.overloads[arguments]
    function = compiled.py_func
    name = hashlib.sha256(repr(arguments).encode()).hexdigest()[:16]
    symbol = f"{_MARK}{function.__module__}.{function.__qualname__}:{name}"
    add_symbol(symbol, result.library.get_pointer_to_function(result.fndesc.llvm_func_name))
    _places[symbol] = function.__module__, function.__qualname__, arguments
    declared = copy.copy(result.fndesc)
    declared.mangled_name = symbol
    context = compiled.targetctx
    context.remove_user_function(result.entry_point)
    context.insert_user_function(result.entry_point, declared, [])


@cache
def _disk_cache() -> Any:
    """numba's cache on disk, in our directories, which brings along the kernels that its code calls."""
    from numba.core import caching

    class Locator(caching._CacheLocator):  # type: ignore[misc]
        def __init__(self, function: Any, file: str) -> None:
            self._line = function.__code__.co_firstlineno
            self._stamp = fingerprint(Path(file))

        def get_cache_path(self) -> str:
            return str(cache_directory() / self._stamp)

        def get_source_stamp(self) -> str:
            return self._stamp

        def get_disambiguator(self) -> str:
            return str(self._line)

        @classmethod
        def from_function(cls, function: Any, file: str) -> Any:
            return cls(function, file)

    class Results(caching.CompileResultCacheImpl):  # type: ignore[misc]
        _locator_classes = (Locator,)

        def reduce(self, result: Any) -> Any:
            symbols = [function.name for function in result.library._final_module.functions]
            called = [_places[symbol] for symbol in symbols if symbol.startswith(_MARK)]
            return called, super().reduce(result)

        def rebuild(self, context: Any, reduced: Any) -> Any:
            called, payload = reduced
            for module, name, arguments in called:
                getattr(importlib.import_module(module), name).compile(arguments)
            return super().rebuild(context, payload)

    class OnDisk(caching.FunctionCache):  # type: ignore[misc]
        _impl_class = Results

    return OnDisk


def cache_directory() -> Path:
    """Where all compiled kernels live."""
    return Path(os.environ.get("EVENHAND_CACHE") or Path.home() / ".cache" / "evenhand") / "kernels"


@cache
def fingerprint(file: Path) -> str:
    """A hash of this file, of all files of ours it needs, and of the compiler's version."""
    import numba

    digest = hashlib.sha256(numba.__version__.encode())
    for needed in sorted(_closure(file)):
        digest.update(needed.read_bytes())
    return digest.hexdigest()[:16]


def _closure(file: Path) -> set[Path]:
    """The file and every file of ours it imports, directly or not."""
    found, waiting = {file}, [file]
    while waiting:
        fresh = _imports(waiting.pop()) - found
        found |= fresh
        waiting += fresh
    return found


@cache
def _imports(file: Path) -> frozenset[Path]:
    """The files of ours that a file imports by ``from evenhand.room import name``."""
    statements = re.findall(r"^from evenhand([\w.]*) import (\([^)]*\)|.*)$", file.read_text(), re.M)
    found = set()
    for module, names in statements:
        home = _ROOT.joinpath(*module.strip(".").split("."))
        candidates = [home.with_suffix(".py"), *(home / f"{name}.py" for name in re.findall(r"\w+", names))]
        found |= {path for path in candidates if path.is_file()}
    return frozenset(found)


def _without_literals(find: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Compile once for all integers and truth values: numba would again for each constant that is passed."""
    from numba.core.types.misc import unliteral

    def find_for_any_value(args: Any, kws: Any) -> Any:
        return find(tuple(map(unliteral, args)), {name: unliteral(kind) for name, kind in kws.items()})

    return find_for_any_value


def _once(compile_one: Callable[[Any], Any], home: Path) -> Callable[[Any], Any]:
    """Let one process at a time compile a file's kernels; the others then find them in the cache.

    A file's lock is taken before those of the files it imports, which import none back: nobody waits in a
    circle.
    """
    from numba.core.compiler_lock import global_compiler_lock

    def compile_or_load(signature: Any) -> Any:
        with global_compiler_lock, _lock(home):
            return compile_one(signature)

    return compile_or_load


_held: dict[Path, int] = {}


@contextmanager
def _lock(home: Path) -> Iterator[None]:
    """The lock of a cache directory, among processes; taken again at no cost by whoever holds it."""
    depth = _held.get(home, 0)
    _held[home] = depth + 1
    try:
        if depth:
            yield
            return
        home.mkdir(parents=True, exist_ok=True)
        with open(home / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    finally:
        _held[home] = depth
