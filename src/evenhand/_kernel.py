"""``@kernel``: the only place that knows the compiler.

Kernels are plain functions over numbers, arrays and named tuples, compiled by numba without fastmath (results
must not depend on how sums are reordered), without the interpreter lock (simulations run on threads), without
reference counting (they allocate nothing), with NumPy's rules for division by zero.

The compiled code is cached on disk. numba's own cache notices a change in a function's file but not in the
files of the functions it calls, and stale machine code would pass tests on old code. So the cache of each
file lives in a directory named after a hash of that file and of every file of ours it imports.

Kernels that close a subject (a verb of a region, a sampling rule, a piece of evidence) are compiled apart:
see `_apart`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, overload

from evenhand._apart import called_by, declare, share, stand_apart
from evenhand._file_lock import wait_for_lock
from evenhand._handover import hand_over_by_address

F = TypeVar("F", bound=Callable[..., Any])

_ROOT = Path(__file__).parent


@overload
def kernel(function: F) -> F: ...
@overload
def kernel(*, apart: bool = False, inlined: bool = False) -> Callable[[F], F]: ...
def kernel(function: F | None = None, *, apart: bool = False, inlined: bool = False) -> F | Callable[[F], F]:
    """Compile a function on first use; typed as the function itself.

    Kernels call a form of it without the code that unpacks Python's objects, which takes as long to compile
    as the kernel itself; a second form, with it, is compiled when Python calls. A private kernel (its name
    starts with an underscore) has only the first and must not be called from Python.

    `inlined`: always copied into its callers, so that a loop around it can take many steps at once.
    """
    if function is None:
        return lambda function: _compiled(function, apart, inlined)
    return _compiled(function, apart, inlined)


def _compiled(function: F, apart: bool, inlined: bool) -> F:
    among = _dispatcher(function, for_python=False, inlined=inlined)
    if apart:
        stand_apart(among)
    else:
        among.get_call_template = _without_literals(among.get_call_template)
    found: F = among
    if not function.__name__.startswith("_"):
        found = _dispatcher(function, for_python=True, inlined=False)
        share(among, found)
    return found


def _dispatcher(function: Callable[..., Any], for_python: bool, inlined: bool) -> Any:
    """A function and its compiled forms, one for each set of argument types."""
    import numba

    hand_over_by_address()
    options = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": False,
        "_nrt": False,
        "forceinline": inlined,
    }
    wrappers = {"no_cfunc_wrapper": True, "no_cpython_wrapper": not for_python}
    compiled: Any = numba.njit(**options, **wrappers)(function)
    compiled._cache = _disk_cache(for_python)(function)
    compiled.compile = _once(compiled.compile, Path(compiled._cache.cache_path))
    return compiled


@cache
def _disk_cache(for_python: bool) -> Any:
    """numba's cache on disk, in our directories; it keeps which slots a kernel's code refers to."""
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
            return f"{self._line}-python" if for_python else str(self._line)

        @classmethod
        def from_function(cls, function: Any, file: str) -> Any:
            return cls(function, file)

    class Results(caching.CompileResultCacheImpl):  # type: ignore[misc]
        _locator_classes = (Locator,)

        def reduce(self, result: Any) -> Any:
            return called_by(result.library._final_module), super().reduce(result)

        def rebuild(self, context: Any, reduced: Any) -> Any:
            called, payload = reduced
            for place in called:
                declare(place)
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
        digest.update(needed.as_posix().encode())  # compiled code names the modules it refers to
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
            wait_for_lock(file.fileno())
            yield
    finally:
        _held[home] = depth
