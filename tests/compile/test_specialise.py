"""What is left of kernels after evaluation computes what Python computes; what is not known is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from evenhand.compile import Kernel, kernel
from evenhand.compile.argument_layout import CPU, Target
from evenhand.compile.build_program import specialised
from evenhand.compile.dispatch import KernelCaller
from evenhand.compile.kernel_checks import verify
from evenhand.compile.registry import KERNELS
from evenhand.compile.scope import UnsupportedCode
from tests.compile import kernels, refused
from tests.compile.plain import run_plain

WAYS = (
    "bound_again_in_a_loop", "swapped_in_a_loop", "chosen_at_run_time", "order_of_evaluation",
    "only_where_needed", "early_returns", "whole_numbers", "kinds_that_widen", "arrays_every_way",
    "words_and_flags", "functions", "fields_replaced", "index_computed_once", "variables_of_loops",
)  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_every_way_of_writing_gives_what_python_gives(name: str) -> None:
    for turn in (-1, 0, 1):
        given, also = kernels.whole(), kernels.whole()
        number = abs(turn) + 2 if "loop" in name else turn
        one = getattr(kernels, name)(given, number)
        other = run_plain(getattr(kernels, name), also, number)
        assert one == other
        assert type(one) is type(other) or isinstance(one, float)
        for a, b in zip(_arrays(given), _arrays(also), strict=True):
            assert np.array_equal(a, b)


def test_a_tuple_bound_again_in_a_loop_is_the_new_one() -> None:
    # compiled by address, every turn read the first tuple: 1111 instead of 1222
    assert kernels.bound_again_in_a_loop(kernels.whole(), 4) == 6e6 + 1222.0


def test_branches_that_depend_on_static_values_are_gone() -> None:
    for kind, left in ((0, "add_number"), (1, "lgamma"), (2, "erfc")):
        source = _source(kernels.by_kind, kernels.whole(kind), 0)
        assert [word for word in ("add_number", "lgamma", "erfc") if word in source] == [left]
        assert "if" not in source


def test_other_lengths_use_the_same_program() -> None:
    caller = KernelCaller(kernels.by_kind)  # type: ignore[arg-type]
    longer = kernels.whole()._replace(table=np.zeros((5, 4)), counts=np.arange(5))
    assert caller((kernels.whole(), 0), {}) == caller((longer, 0), {}) == 6.0
    assert len(caller._programs) == 1


def test_lengths_that_are_declared_equal_must_be() -> None:
    with pytest.raises(TypeError, match=r"counts must have the axes .*rows being 2"):
        kernels.by_kind(kernels.whole()._replace(counts=np.arange(3)), 0)
    with pytest.raises(TypeError, match="words must have the axes"):
        kernels.by_kind(kernels.whole()._replace(words=np.zeros(3, np.uint64)), 0)
    with pytest.raises(TypeError, match="table must be an array of float64; it is int64"):
        kernels.by_kind(kernels.whole()._replace(table=np.zeros((2, 4), np.int64)), 0)


def test_arrays_that_are_not_in_one_piece_are_read_and_written() -> None:
    given = kernels.whole()
    apart = np.zeros(12)[::2]
    apart[:] = given.part.values
    assert kernels.by_kind(given._replace(part=kernels.Pair(apart, 2)), 0) == 6.0
    assert apart.tolist() == [1.0, 3.0, 3.0, 4.0, 5.0, 6.0]


def test_arguments_can_be_named() -> None:
    assert kernels.by_kind(turn=0, w=kernels.whole()) == 6.0
    with pytest.raises(TypeError, match="by_kind takes w, turn"):
        kernels.by_kind(kernels.whole())  # type: ignore[call-arg]


@pytest.mark.parametrize(("name", "sentence"), refused.SENTENCES.items())
def test_what_is_not_known_is_refused_with_a_sentence(name: str, sentence: str) -> None:
    with pytest.raises(UnsupportedCode, match=sentence) as problem:
        _source(getattr(refused, name), kernels.whole(), np.zeros(4), 1)
    assert f"tests.compile.refused.{name}, line " in str(problem.value)


@pytest.mark.parametrize(("name", "sentence"), refused.AT_IMPORT.items())
def test_what_is_never_compiled_is_refused_at_import(name: str, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        kernel(getattr(refused, name))


def test_all_kernels_of_the_package_are_made_of_what_is_known() -> None:
    from evenhand.live import replay_kernels as live
    from evenhand.simulation import engine
    from evenhand.verdicts import counts, evidence_history, forecast

    assert all((forecast, evidence_history, counts, live, engine))
    ours = [found for found in KERNELS if found.__module__.startswith("evenhand.")]
    assert len(ours) > 400
    for found in ours:
        verify(found.py_func)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("stride", [1, 3])
def test_packed_and_strided_buffers_hold_the_same_numbers(name: str, stride: int) -> None:
    """As a graphics processor gets them: constant lengths and places, neighbours some way apart."""
    target = Target("emulated", packed=frozenset([""]), strides=(("", stride),))
    caller = KernelCaller(getattr(kernels, name), target)
    for turn in (-1, 0, 1):
        number = abs(turn) + 2 if "loop" in name else turn
        given, also = kernels.whole(), kernels.whole()
        assert caller((given, number), {}) == getattr(kernels, name)(also, number)
        for a, b in zip(_arrays(given), _arrays(also), strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("group", ["H", "A", "Z", "K", "S1", "s", ""])
def test_a_group_of_arrays_has_a_letter_that_no_program_uses_itself(group: str) -> None:
    with pytest.raises(ValueError, match="a group must be one of B, C, D"):
        Target(groups=(("part", group),))


def _source(found: Any, *arguments: Any) -> str:
    caller = KernelCaller(found, CPU)
    layout = caller.layout(caller.values(arguments))
    program, _, _ = specialised(found, caller.types, layout)
    return "\n".join(function.source for function in program.functions)


def _arrays(w: kernels.Whole) -> list[Any]:
    return [w.part.values, w.table, w.counts, w.flags, w.words]


def test_a_kernel_is_found_again_by_its_name() -> None:
    import pickle

    assert pickle.loads(pickle.dumps(kernels.by_kind)) is kernels.by_kind
    assert isinstance(kernels.by_kind, Kernel)
    assert math.isfinite(kernels.by_kind(kernels.whole(1), 0))
