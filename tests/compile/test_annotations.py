"""Annotations of kernels are read whatever form NumPy gives its array type."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from evenhand.compile import Axes, annotations
from evenhand.compile.annotations import FLOAT, INT, Table, parameter_types

T = TypeVar("T")


class Alias(Generic[T]):
    """Stands for an alias that is not expanded, as NDArray is from NumPy 2.5 on."""


def test_arrays_are_read_as_tables() -> None:
    def kernel(n: NDArray[np.int64], x: Annotated[NDArray[np.float64], Axes("L", "K")]) -> None: ...

    assert parameter_types(kernel) == {"n": Table(INT, None), "x": Table(FLOAT, ("L", "K"))}


def test_an_alias_that_is_not_expanded_is_read_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotations, "NDArray", Alias)
    found: Any = annotations._read(Alias[np.int64], "here")
    assert found == Table(INT, None)
