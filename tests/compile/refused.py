"""Kernels that must be refused, and why."""

# ruff: noqa: RET503

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from tests.compile.kernels import Pair, Whole, add_number, by_kind

Array = NDArray[np.float64]
WORD = np.uint64(3)
TEXT = "text"


@kernel
def unknown_function(w: Whole, a: Array, n: int) -> float:
    return math.atan2(a[0], a[1])


@kernel
def unknown_method(w: Whole, a: Array, n: int) -> float:
    return float(a.sum())


@kernel
def unknown_field(w: Whole, a: Array, n: int) -> float:
    return w._replace(height=a[0]).level  # type: ignore[call-arg]


@kernel
def text_as_number(w: Whole, a: Array, n: int) -> float:
    return a[0] + TEXT  # type: ignore[operator]


@kernel
def negative_index(w: Whole, a: Array, n: int) -> float:
    return a[-1]


@kernel
def index_beyond(w: Whole, a: Array, n: int) -> float:
    return float(w.words[2])


@kernel
def float_as_index(w: Whole, a: Array, n: int) -> float:
    return a[w.level]  # type: ignore[call-overload]


@kernel
def words_and_integers(w: Whole, a: Array, n: int) -> float:
    return float(w.words[0] + n)


@kernel
def float_to_integers(w: Whole, a: Array, n: int) -> float:
    w.counts[0] = a[0]
    return 0.0


@kernel
def other_result(w: Whole, a: Array, n: int) -> int:
    return a[0]


@kernel
def result_missing(w: Whole, a: Array, n: int) -> float:
    if n > 0:
        return 1.0


@kernel
def not_set_on_one_way(w: Whole, a: Array, n: int) -> float:
    if n > 0:
        x = 1.0
    return x


@kernel
def bound_to_another_kind(w: Whole, a: Array, n: int) -> float:
    """The named tuple has one structure in one turn, and another one in the next."""
    total = 0.0
    for _ in range(n):
        total += by_kind(w, 0)
        w = Whole(1, w.part, w.table, w.counts, w.flags, w.words, w.level, w.on)
    return total


@kernel
def one_of_two_kinds(w: Whole, a: Array, n: int) -> float:
    other = Whole(1, w.part, w.table, w.counts, w.flags, w.words, w.level, w.on)
    chosen = w if n > 0 else other
    return by_kind(chosen, 0)


@kernel
def other_axes_in_a_loop(w: Whole, a: Array, n: int) -> float:
    b, total = w.table, 0.0
    for _ in range(n):
        total += b[0, 0]
        b = a
    return total


@kernel
def calls_itself(w: Whole, a: Array, n: int) -> float:
    return calls_itself(w, a, n - 1) if n > 0 else 0.0


@kernel
def wrong_argument(w: Whole, a: Array, n: int) -> float:
    return by_kind(w.part, 0)  # type: ignore[arg-type]


@kernel
def wrong_field(w: Whole, a: Array, n: int) -> float:
    return Pair(a, w.level).values[0]  # type: ignore[arg-type]


@kernel
def slice_with_step(w: Whole, a: Array, n: int) -> float:
    return a[::2][0]


@kernel
def loop_with_else(w: Whole, a: Array, n: int) -> float:
    for i in range(n):
        if a[i] > 0.0:
            break
    else:
        return 1.0
    return 0.0


@kernel
def whole_arrays(w: Whole, a: Array, n: int) -> float:
    b = a + a
    return b[0]


@kernel
def and_gives_a_number(w: Whole, a: Array, n: int) -> float:
    """Python gives the second operand, and not True."""
    return a[0] * (n and 7)


@kernel
def or_gives_a_number(w: Whole, a: Array, n: int) -> float:
    return float(n or 5)


@kernel
def chain_that_writes(w: Whole, a: Array, n: int) -> float:
    """Python calls the last one only where the first comparison holds."""
    return float(0.0 < a[0] < add_number(w.part, 1))


@kernel
def other_order_by_name(w: Whole, a: Array, n: int) -> float:
    """Python evaluates arguments as they are written."""
    return larger(b=add_number(w.part, 0), a=add_number(w.part, 0))


@kernel
def larger(a: float, b: float) -> float:
    return max(a, b)


@kernel
def fields_in_other_order(w: Whole, a: Array, n: int) -> float:
    other = w._replace(level=add_number(w.part, 0), kind=int(add_number(w.part, 0)))
    return other.level


@kernel
def bound_before_a_loop(w: Whole, a: Array, n: int) -> float:
    """After a loop without iterations, the variable has its earlier value."""
    i = 5
    for i in range(n):
        a[0] += i
    return float(i)


@kernel
def step_at_run_time(w: Whole, a: Array, n: int) -> float:
    for i in range(10, 0, -n):
        a[0] += i
    return a[0]


SENTENCES = {
    "and_gives_a_number": "n must be true or false",
    "or_gives_a_number": "n must be true or false",
    "chain_that_writes": "add_number may write, and is called late in a chain of comparisons",
    "other_order_by_name": "by name in another order than the parameters must not be calls",
    "fields_in_other_order": "by name in another order than the parameters must not be calls",
    "bound_before_a_loop": "i had a value before a loop over it",
    "step_at_run_time": "the step of a range must be a constant other than 0",
    "unknown_function": "math.atan2 is not known",
    "unknown_method": "a.sum cannot be called here",
    "unknown_field": "Whole has no field height",
    "text_as_number": "TEXT must be a number",
    "negative_index": "negative indices do not wrap round",
    "index_beyond": "index 2 of an axis of length 2",
    "float_as_index": "an index must be a whole number; it is a float",
    "words_and_integers": "a word and a int do not mix",
    "float_to_integers": "a int is wanted; it is a float",
    "other_result": "a int is wanted; it is a float",
    "result_missing": "a result is missing at the end",
    "not_set_on_one_way": "x has no value yet on some way here",
    "bound_to_another_kind": "a Whole is bound again with another structural constant",
    "one_of_two_kinds": "bound again with another structural constant",
    "other_axes_in_a_loop": "b is bound to arrays or tuples of different structure in a loop",
    "calls_itself": "calls itself",
    "wrong_argument": "by_kind, w must be a Whole",
    "wrong_field": "a int is wanted; it is a float",
    "slice_with_step": "a slice has no step",
    "loop_with_else": "a loop has no else",
    "whole_arrays": "a must be a number",
}


def raises(n: int) -> int:
    raise ValueError


def makes_a_list(n: int) -> int:
    return len([n])


def formats_text(n: int) -> int:
    return len(f"{n} or so")


def catches(n: int) -> int:
    try:
        return n
    except ValueError:
        return 0


def has_a_default(n: int = 0) -> int:
    return n


def has_no_types(n):  # type: ignore[no-untyped-def]
    return n


AT_IMPORT = {
    "raises": "it contains RAISE_VARARGS",
    "makes_a_list": "it contains BUILD_LIST",
    "formats_text": "it contains BUILD_STRING",
    "catches": "it contains PUSH_EXC_INFO",
    "has_a_default": "plain parameters without defaults",
    "has_no_types": "must say the type of n",
}
