"""How kernels are compiled and called: apart, when first called, from the cache in another process; with
named tuples by address. They give what the same Python gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

APART = """
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


HANDED = """
import importlib.util, sys
import numpy as np

# only tuples of this package go by address
spec = importlib.util.spec_from_file_location("evenhand.handed_here", sys.argv[1] + "/handed_here.py")
here = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(here)

for outer in (here.outer, here.outer.py_func):
    whole = here.Whole(here.Part(np.arange(3.0), 2), np.ones((2, 3)), True)
    other = here.Part(np.array([7.0, 8.0, 9.0]), 5)
    print([outer(whole, other, turn) for turn in (-1, 0, 1)], whole.table.sum(), whole.part.values.sum())
"""

TUPLES = """
from __future__ import annotations
from typing import NamedTuple
import numpy as np
from evenhand._kernel import kernel

class Part(NamedTuple):
    values: np.ndarray
    number: int

class Whole(NamedTuple):
    part: Part
    table: np.ndarray
    flag: bool

@kernel(apart=True)
def inner(part: Part, place: int) -> float:
    part.values[place] += 1.0  # written where the caller sees it
    return part.values[place] * part.number

@kernel
def on(whole: Whole, place: int) -> float:
    whole.table[1, place] = 10.0
    return inner(whole.part, place) + whole.table.sum() + whole.flag

@kernel
def outer(whole: Whole, other: Part, turn: int) -> float:
    chosen = whole.part if turn > 0 else other  # which one is known only when it runs
    made = Part(chosen.values[1:], chosen.number + turn)  # has no address yet
    again = Whole(made, whole.table[:, 1:], not whole.flag)
    return inner(chosen, 0) + 100.0 * on(whole, 1) + 10000.0 * on(again, 1)
"""


def test_a_kernel_apart_is_compiled_by_its_first_call_and_never_without_one(tmp_path: Path) -> None:
    (tmp_path / "kernels_here.py").write_text(KERNELS)
    first, again = _run(tmp_path, APART), _run(tmp_path, APART)
    # `never` cannot be compiled, and need not be
    assert first == "{} [9.0, -4.0, 9.0] ['negative', 'positive']"
    assert again == first


def test_a_named_tuple_handed_on_by_its_address_is_the_one_that_was_given(tmp_path: Path) -> None:
    (tmp_path / "handed_here.py").write_text(TUPLES)
    for _ in range(2):  # compiled, and from the cache
        compiled, plain = _run(tmp_path, HANDED).splitlines()
        assert compiled == plain


def _run(home: Path, program: str) -> str:
    environment = os.environ | {"EVENHAND_CACHE": str(home), "PYTHONPATH": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(home)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
