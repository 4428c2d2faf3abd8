"""The processor that code is compiled for, and the versions of the compiler."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import version


def name() -> str:
    """Return the processor's name, or EVENHAND_CPU_NAME."""
    import llvmlite.binding as llvm

    return os.environ.get("EVENHAND_CPU_NAME") or str(llvm.get_host_cpu_name())


def features() -> str:
    """Return the processor's features, or EVENHAND_CPU_FEATURES."""
    import llvmlite.binding as llvm

    asked = os.environ.get("EVENHAND_CPU_FEATURES")
    if asked is not None:
        return asked
    try:
        return str(llvm.get_host_cpu_features().flatten())
    except RuntimeError:
        return ""  # not available on every system


@cache
def compiler_version() -> str:
    """Return the version of the package that makes machine code."""
    return version("llvmlite")
