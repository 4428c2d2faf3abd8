"""Kernels as machine code: the only code that knows the compiler.

    kernel       registers a function to be compiled
    Static       marks what compiled code is made for: each of its values
    Axes         says how long an array's axes are
    uncompiled   the Python function of a kernel

A call of a kernel from Python finds the program for its arguments (`calling`). It is in the cache, or the
kernel and all that it calls are specialised (`program`): evaluated as far as they depend on static values
only, so that what is left are plain functions over numbers and flat buffers. numba turns each of these into
LLVM's language (`lowering`), LLVM optimises small clusters of them (`linking`), both in processes of their
own (`workers`). The machine code is loaded without numba (`loading`).
"""

from __future__ import annotations

from evenhand.compile.annotations import Axes, Static
from evenhand.compile.registry import Kernel, kernel, uncompiled

__all__ = ["Axes", "Kernel", "Static", "kernel", "uncompiled"]
