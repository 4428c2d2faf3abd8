"""``@kernel``: the only place that knows the compiler.

Kernels are plain functions over numbers, arrays and named tuples, compiled by numba without fastmath (results
must not depend on how sums are reordered), without the interpreter lock (simulations run on threads), with
NumPy's rules for division by zero.

The compiled code is cached on disk under a directory named after a hash of all kernel sources: numba's own
cache notices a change in a function's file but not in the files of the functions it calls, and stale machine
code would pass tests on old code.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function on first use; typed as the function itself."""
    _point_cache_at_sources()
    import numba

    options = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": False, "_nrt": False}
    compiled: F = numba.njit(**options)(function)
    return compiled


def inline_kernel(function: F) -> F:
    """Like ``kernel`` for functions of a few operations, always inlined into their caller by the compiler."""
    _point_cache_at_sources()
    import numba

    compiled: F = numba.njit(
        nogil=True, error_model="numpy", fastmath=False, inline="never", forceinline=True
    )(function)
    return compiled


def cache_directory() -> Path:
    """Where the compiled kernels of exactly these sources live."""
    base = os.environ.get("EVENHAND_CACHE") or Path.home() / ".cache" / "evenhand"
    return Path(base) / "kernels" / _source_hash()


_cache_is_pointed = False


def _point_cache_at_sources() -> None:
    global _cache_is_pointed
    if _cache_is_pointed:
        return
    import numba

    numba.config.CACHE_DIR = str(cache_directory())
    _cache_is_pointed = True


def _source_hash() -> str:
    """A hash over every source file that may hold a kernel, and the compiler's version."""
    import numba

    root = Path(__file__).parent
    digest = hashlib.sha256(numba.__version__.encode())
    for room in ("_kernel.py", "model", "theory", "procedure", "sim", "judge"):
        path = root / room
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        for file in files:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
