"""Time changes of the program for a GPU, and of how it is launched, on the scaling instance.

    python -m benchmarks.gpu_variants [RUNS]    # on the machine with the GPU; default 4,000,000

Prints a JSON line for each variant: runs per second of the kernel alone, and of `simulate` for other sizes of
a launch. Variants change the printed source or a setting; the product is the first line. A variant that is
better becomes part of the product, and its line here is removed.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from benchmarks.gpu import kernel_seconds, runs_on
from evenhand.compile import cuda_functions, cuda_program
from evenhand.compile.cuda_functions import Printer
from evenhand.compile.values import FLOAT
from evenhand.simulation import cuda, shards

RUNS = 4_000_000
PHILOX = """APART results_wwww k_philox_1(whole v_seed, whole v_a, whole v_b, whole v_c, whole v_d) {
    unsigned x0 = v_a, x1 = v_b, x2 = v_c, x3 = v_d, k0 = v_seed, k1 = (word)v_seed >> 32;
    _Pragma("unroll %d")
    for (int i = 0; i < 10; i++) {
        const unsigned h0 = __umulhi(0xd2511f53u, x0), l0 = 0xd2511f53u * x0;
        const unsigned h1 = __umulhi(0xcd9e8d57u, x2), l1 = 0xcd9e8d57u * x2;
        x0 = h1 ^ x1 ^ k0; x1 = l1; x2 = h0 ^ x3 ^ k1; x3 = l0;
        k0 += 0x9e3779b9u; k1 += 0xbb67ae85u;
    }
    return results_wwww{x0, x1, x2, x3};
}
"""
DIVIDED = "APART real divided(real a, real b) { return a / b; }\n"
_BINARY = Printer._binary


def main() -> None:
    """Print a line for each variant."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    for name, change in VARIANTS.items():
        _print(name, lambda change=change: _kernel_rate(runs, change))  # type: ignore[misc]
    for lines in (6, 12):
        with setting(cuda_program, "APART_FROM", lines):
            _print(f"functions of {lines} lines are called", lambda: _kernel_rate(runs))
    with _divisions_called():
        _print("divisions are called", lambda: _kernel_rate(runs))
        _print("divisions and roots are called", lambda: _kernel_rate(runs, _roots))
    for turns, lines in ((0, 0), (5, 4), (5, 9), (3, 13)):
        with setting(cuda_functions, "SHORT_LOOP", turns), setting(cuda_functions, "SHORT_BODY", lines):
            _print(f"loops of {turns} turns and {lines} lines unrolled", lambda: _kernel_rate(runs))
    for threads in (768, 832, 960, 1024):
        with _threads(threads):
            _print(f"{threads} threads in a block", lambda: _kernel_rate(runs))
    cuda._programs.clear()
    for power in (20, 22, 24):
        with setting(shards, "LONGEST_SHARD_ON_GPU", 2**power):
            _print(f"simulate, launches of 2^{power} runs", lambda: _whole_rate(runs))


def _print(name: str, rate: Callable[[], float]) -> None:
    try:
        found: float | str = round(rate())
    except Exception as problem:  # a variant that does not compile
        found = f"{type(problem).__name__}: {problem}"[:300]
    print(json.dumps({"variant": name, "runs per second": found}), flush=True)


def _kernel_rate(runs: int, change: Callable[[str], str] | None = None) -> float:
    """Return the better of two rates of the kernel alone."""
    cuda._programs.clear()
    with setting(cuda, "simulation_of", _changed(change)):
        kernel_seconds(2_000)  # compiles
        return runs / min(kernel_seconds(runs) for _ in range(2))


def _whole_rate(runs: int) -> float:
    runs_on("cuda", 2_000)
    times = []
    for _ in range(2):
        begun = time.perf_counter()
        runs_on("cuda", runs)
        times.append(time.perf_counter() - begun)
    return runs / min(times)


def _changed(change: Callable[[str], str] | None) -> Callable[[Any], Any]:
    make = cuda.simulation_of

    def simulation(job: Any) -> Any:
        found = make(job)
        text = found.source.text if change is None else change(found.source.text)
        if change is not None and text == found.source.text:
            raise ValueError("the source has changed since this variant was written")
        return replace(found, source=replace(found.source, text=text))

    return simulation


def _philox(unrolled: int) -> Callable[[str], str]:
    """Return a change to 32-bit arithmetic in the random numbers."""
    pattern = re.compile(r"APART results_wwww k_philox_1\(.*?\n}\n", re.DOTALL)
    return lambda text: pattern.sub(lambda _: PHILOX % unrolled, text)


def _roots(text: str) -> str:
    """Return source in which square roots are calls of one function."""
    start = text.index("struct Memory")
    called = re.sub(r"\bsqrt\(", "call_sqrt(", text[start:])
    return text[:start] + "APART real call_sqrt(real a) { return sqrt(a); }\n" + called


def _with_divisions_called(printer: Printer, node: ast.BinOp) -> str:
    """Print a binary operation; divisions of floating-point numbers are calls of one function."""
    if not isinstance(node.op, ast.Div):
        return _BINARY(printer, node)
    return f"divided({printer._as(node.left, FLOAT)}, {printer._as(node.right, FLOAT)})"


def _tables(text: str) -> str:
    """Return source with its tables in constant memory."""
    return text.replace("#define TABLE __device__ static const", "#define TABLE SMALL_TABLE")


@contextmanager
def _divisions_called() -> Iterator[None]:
    printers = cuda_functions._PRINT | {ast.BinOp: _with_divisions_called}
    with (
        setting(cuda_functions, "_PRINT", printers),
        setting(cuda_program, "PRELUDE", cuda_program.PRELUDE + DIVIDED),
    ):
        yield


@contextmanager
def _threads(threads: int) -> Iterator[None]:
    options = tuple(
        f"-DBLOCK={threads}" if option.startswith("-DBLOCK=") else option for option in cuda.OPTIONS
    )
    with setting(cuda, "BLOCK", threads), setting(cuda, "OPTIONS", options):
        yield


@contextmanager
def setting(module: Any, name: str, value: Any) -> Iterator[None]:
    """Set a module's attribute for a while."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


VARIANTS: dict[str, Callable[[str], str] | None] = {
    "the product": None,
    "random numbers by 32-bit arithmetic": _philox(1),
    "random numbers by 32-bit arithmetic, unrolled": _philox(10),
    "square roots are called": _roots,
    "all tables in constant memory": _tables,
}

if __name__ == "__main__":
    main()
