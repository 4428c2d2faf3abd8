"""Kernels compiled apart give what the same Python gives, are compiled when first called, and come back from
the cache in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from evenhand._apart import _slots
import kernels_here as here

before = {name.split(".")[-1].split(":")[0]: bool(slot.pointer.value) for name, slot in _slots.items()}
results = [here.outer(3.0, 2), here.outer(-3.0, 2), here.outer.py_func(3.0, 2)]
filled = sorted(name.split(".")[-1].split(":")[0] for name, slot in _slots.items() if slot.pointer.value)
print(before, results, filled)
"""

KERNELS = """
from __future__ import annotations
from evenhand._kernel import kernel

@kernel(apart=True)
def positive(x: float, n: int) -> tuple[float, int]:
    return x * n, n + 1

@kernel(apart=True)
def negative(x: float, n: int) -> tuple[float, int]:
    return x - n, n - 1

@kernel(apart=True)
def never(x: float, n: int) -> tuple[float, int]:
    return x, "not what it says"

@kernel
def outer(x: float, n: int) -> float:
    if x > 1000.0:
        return never(x, n)[0]
    value, count = positive(x, n) if x > 0.0 else negative(x, n)
    return value + count
"""


def test_a_kernel_apart_is_compiled_by_its_first_call_and_never_without_one(tmp_path: Path) -> None:
    (tmp_path / "kernels_here.py").write_text(KERNELS)
    first, again = _run(tmp_path), _run(tmp_path)
    # `never` cannot be compiled, and need not be
    assert first == "{} [9.0, -4.0, 9.0] ['negative', 'positive']"
    assert again == first


def _run(home: Path) -> str:
    environment = os.environ | {"EVENHAND_CACHE": str(home), "PYTHONPATH": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
