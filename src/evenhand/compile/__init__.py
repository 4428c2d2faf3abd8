"""Compilation of kernels to machine code; the only package that uses the compiler.

    kernel       registers a function for compilation
    Static       marks a parameter for whose values code is specialised
    Axes         declares the lengths of an array's axes
    uncompiled   the Python function of a kernel

A call of a kernel from Python finds the program for its arguments (`dispatch`). If it is not in the cache,
the kernel and all that it calls are specialised (`program`): evaluated as far as they depend on static values
only, which leaves plain functions over numbers and flat buffers. Separate processes (`workers`) print small
clusters of them as LLVM code (`lowering`), which LLVM optimises and compiles (`linking`).
"""

from __future__ import annotations

from evenhand.compile.annotations import Axes, Static
from evenhand.compile.registry import Kernel, kernel, uncompiled

__all__ = ["Axes", "Kernel", "Static", "kernel", "uncompiled"]
