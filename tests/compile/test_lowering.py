"""Printed LLVM code computes what Python computes, for random expressions and for every statement."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.compile.clusters import ENTRY, Member
from evenhand.compile.linking import _load, machine_code
from evenhand.errors import CompilationFailed

# parameters of the compiled functions: buffers of floats, integers, bools and words
BUFFERS: dict[str, tuple[str, type]] = {
    "F": ("*float", np.float64),
    "I": ("*int", np.int64),
    "B": ("*bool", np.uint8),
    "W": ("*word", np.uint64),
}
MEMORY: dict[str, list[Any]] = {
    "F": [1.5, -0.25, math.nan, math.inf, 0.0, 0.1, -1e300, 5e-324],
    "I": [7, -3, 0, 2, 5],
    "B": [1, 0],
    "W": [2**63 + 5, 3],
}
# NumPy's numbers divide by zero and overflow as the machine does
PYTHON = {"math": math, "np": np, "float": np.float64, "bits_of": lambda x: np.float64(x).view(np.uint64)}


def member(lines: str, name: str = ENTRY, calls: list[Any] | None = None) -> Member:
    body = "\n".join("    " + line for line in lines.strip().splitlines())
    return {
        "signature": {"name": name, "parameters": [kind for kind, _ in BUFFERS.values()], "results": []},
        "parameters": list(BUFFERS),
        "source": f"def {name}({', '.join(BUFFERS)}):\n{body}\n",
        "calls": calls or [],
        "inlined": False,
    }


def memory(values: dict[str, list[Any]] = MEMORY) -> dict[str, np.ndarray[Any, Any]]:
    """Buffers with these values at their beginning and zeros behind them."""
    found = {name: np.zeros(16, dtype) for name, (_, dtype) in BUFFERS.items()}
    for name, part in values.items():
        found[name][: len(part)] = part
    return found


def run(members: list[Member], buffers: dict[str, np.ndarray[Any, Any]]) -> None:
    address, kept = _load(machine_code(members), ())
    entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(buffers))(address)
    entry(*[buffer.ctypes.data for buffer in buffers.values()])
    assert kept is not None


def agree(lines: str) -> None:
    """Compiled code changes the buffers exactly as Python does."""
    ours, theirs = memory(), memory()
    run([member(lines)], ours)
    space: dict[str, Any] = dict(PYTHON)
    exec(member(lines)["source"], space)
    with np.errstate(all="ignore"):
        space[ENTRY](*theirs.values())
    for name, buffer in ours.items():
        assert bits(buffer) == bits(theirs[name]), (name, buffer, theirs[name], lines)


def bits(buffer: np.ndarray[Any, Any]) -> bytes:
    """The bits of numbers; every NaN counts as the same."""
    return np.where(np.isnan(buffer), np.nan, buffer).tobytes() if buffer.dtype == float else buffer.tobytes()


Text = st.SearchStrategy[str]


def infix(left: Text, operators: str, right: Text) -> Text:
    parts = st.tuples(left, st.sampled_from(operators.split()), right)
    return parts.map(lambda part: f"({part[0]} {part[1]} {part[2]})")


def of_one(names: str, inner: Text) -> Text:
    return st.tuples(st.sampled_from(names.split()), inner).map(lambda part: f"{part[0]}({part[1]})")


def extremes(inner: Text) -> Text:
    return st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(
        lambda part: f"{part[0]}({part[1]}, {part[2]})"
    )


INTEGERS = st.recursive(
    st.sampled_from([*(f"I[{place}]" for place in range(5)), "5", "(-2)"]),
    lambda inner: st.one_of(
        infix(inner, "+ - * & | ^", inner),
        infix(inner, "// %", st.sampled_from(["3", "(-3)", "I[0]", "I[1]"])),
        extremes(inner),
        of_one("abs -", inner).map(lambda text: f"({text})"),
    ),
    max_leaves=5,
)
FLOATS = st.recursive(
    st.one_of(st.sampled_from([f"F[{place}]" for place in range(8)]), of_one("float", INTEGERS)),
    lambda inner: st.one_of(
        infix(inner, "+ - * /", inner), extremes(inner), of_one("abs -", inner).map(lambda text: f"({text})")
    ),
    max_leaves=6,
)
TESTS = st.recursive(
    st.one_of(
        infix(FLOATS, "< <= == != > >=", FLOATS),
        infix(INTEGERS, "< <= == != > >=", FLOATS),
        of_one("math.isnan math.isinf math.isfinite", FLOATS),
        st.sampled_from(["(B[0] != 0)", "True", "False"]),
    ),
    lambda inner: st.one_of(
        infix(inner, "and or", inner), of_one("not", inner).map(lambda text: f"({text})")
    ),
    max_leaves=4,
)


def lists(strategy: Text, size: int) -> st.SearchStrategy[list[str]]:
    return st.lists(strategy, min_size=size, max_size=size)


@settings(max_examples=40)
@given(lists(FLOATS, 6), lists(INTEGERS, 6), lists(TESTS, 4))
def test_random_expressions_have_the_values_that_python_gives_them(
    floats: list[str], integers: list[str], tests: list[str]
) -> None:
    lines = [f"F[{8 + place}] = {text}" for place, text in enumerate(floats)]
    lines += [f"I[{8 + place}] = {text}" for place, text in enumerate(integers)]
    lines += [f"B[{8 + place}] = {text}" for place, text in enumerate(tests)]
    agree("\n".join([*lines, f"F[14] = ({floats[0]}) if {tests[0]} else ({floats[1]})"]))


STATEMENTS = """
for k in range(I[0]):
    if k == 2:
        continue
    if k == 5:
        break
    F[8] += k * F[0]
---
for k in range(5, I[1], -2):
    I[8] = I[8] * 10 + k
---
k = 0
while k < 10 and F[8] < 4.0:
    k = k + 1
    F[8] = F[8] + 1.5
I[8] = k
---
x = 1
if F[0] > 1.0:
    x = 0.5
F[8] = x
---
if B[1] != 0:
    F[8] = 1.0
elif I[2] == 0:
    F[8] = 2.0
else:
    F[8] = 3.0
F[9] = 4.0
---
if F[0] > 1.0:
    F[8] = 1.0
    return
else:
    F[8] = 2.0
    return
---
for k in range(4):
    for l in range(k):
        if l == 2:
            break
        F[8] = F[8] + 1.0
    F[9] = F[9] + 1.0
---
F[8] /= 3.0
F[9] -= F[0]
F[10] = F[0] ** 2
F[11] = (-F[0]) ** 3
I[8] = I[0] ** 5
F[12] = F[1] ** 0
---
I[8] = math.floor(F[0])
I[9] = math.floor(-0.5)
I[10] = int(-2.75)
F[8] = float(I[0]) / float(I[3])
---
W[8] = W[0] >> W[1]
W[9] = W[0] << W[1]
W[10] = W[0] * W[0]
W[11] = W[0] ^ W[1]
W[12] = W[0] % W[1]
---
W[8] = bits_of(F[0])
I[8] = I[1] >> 1
I[9] = I[0] << 3
---
B[8] = F[2] != F[2]
B[9] = F[2] == F[2]
B[10] = not (F[2] < 1.0)
B[11] = (B[0] != 0) and (B[1] != 0)
---
pass
"""


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("lines", STATEMENTS.split("---"))
def test_every_statement_does_what_it_does_in_python(lines: str) -> None:
    agree(lines)


def test_functions_of_the_library_are_the_ones_that_python_calls() -> None:
    names = ("sqrt", "log", "exp", "lgamma", "log1p", "expm1", "sin", "cos", "asin", "erfc")
    buffers = memory({"F": [0.37]})
    run([member("\n".join(f"F[{i + 1}] = math.{name}(F[0])" for i, name in enumerate(names)))], buffers)
    for name, found in zip(names, buffers["F"][1:], strict=False):
        # Python has its own lgamma, and calls the C library for all others
        assert found == pytest.approx(getattr(math, name)(0.37), rel=1e-14 if name == "lgamma" else 0, abs=0)


def test_a_division_of_integers_by_zero_is_zero_and_one_of_floats_is_not_a_number() -> None:
    buffers = memory({"F": [0.0], "I": [7, 0], "W": [7, 0]})
    run([member("I[8] = I[0] // I[1]\nI[9] = I[0] % I[1]\nW[8] = W[0] // W[1]\nF[8] = F[0] / F[0]")], buffers)
    assert [*buffers["I"][8:10], buffers["W"][8]] == [0, 0, 0]
    assert math.isnan(buffers["F"][8])


def test_a_called_function_returns_several_results() -> None:
    head = {"name": "member_0", "parameters": ["float", "int"], "results": ["float", "bool", "int"]}
    called: Member = {
        "signature": head,  # type: ignore[typeddict-item]
        "parameters": ["x", "n"],
        "source": "def member_0(x, n):\n  if x > 1:\n    return x, True, n + 1\n  return n, False, 0\n",
        "calls": [],
        "inlined": True,
    }
    lines = (
        "a, b, c = call_0(F[0], I[0])\nF[8] = a\nB[8] = b\nI[8] = c\na, b, c = call_0(F[1], I[1])\nF[9] = a"
    )
    buffers = memory()
    run([called, member(lines, calls=[head])], buffers)
    assert (buffers["F"][8], buffers["B"][8], buffers["I"][8], buffers["F"][9]) == (1.5, 1, 8, -3.0)


@pytest.mark.parametrize("text", ["F[0] % F[1]", "F[0] // F[1]", "F[0] ** I[0]", "I[0] ** I[1]", "F[F[0]]"])
def test_what_has_no_exact_form_is_refused(text: str) -> None:
    with pytest.raises(CompilationFailed):
        machine_code([member(f"F[8] = {text}")])
