"""A loaded program and its memory: buffers, header, passed and returned numbers.

Arrays are not copied. A buffer begins at the first of its arrays, and the others are addressed by their
distance from there, which may be negative.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile.annotations import DTYPES, Number, Table, Tuple, Type
from evenhand.compile.argument_layout import LENGTH, NUMBER, OFFSET, Entry, Layout
from evenhand.compile.arrays import ARGUMENTS, HEADER, RESULTS, buffer_kind, buffer_name
from evenhand.compile.build_program import Code
from evenhand.compile.linking import entry_of
from evenhand.compile.values import BOOL, FLOAT, INT, WORD

Array = NDArray[Any]
_GROUPS = (HEADER, ARGUMENTS, RESULTS)


class CallRecords:
    """The named tuples of a call, and values derived from them; reused for the same ones."""

    def __init__(self, records: Sequence[Any], values: list[Any]) -> None:
        self._records = records
        self.values = values
        self.size = sum(value.nbytes for value in values if isinstance(value, np.ndarray))
        self.heads: dict[int, RecordMemory] = {}

    def is_of(self, records: Sequence[Any]) -> bool:
        return all(one is other for one, other in zip(self._records, records, strict=True))


class RecordMemory(NamedTuple):
    """The part of a program's memory that depends on the named tuples only."""

    whole: list[int]
    real: list[float]
    bases: dict[str, int]
    lengths: dict[str, int]  # of named axes
    copies: list[tuple[Array, Array]]  # arrays that must be copied, and their copies
    packed: dict[str, Array]  # buffers of packed arrays


class LoadedProgram:
    """A program in memory."""

    def __init__(self, layout: Layout, code: Code, result: Type) -> None:
        self._layout, self._plan, self._result = layout, code.plan, result
        self._entry = entry_of(code)
        constants = code.plan.constants
        self._constants = {
            name: np.frombuffer(base64.b64decode(data), np.uint8) for name, data in constants.items()
        }
        own = [(buffer_name(group, kind), group, kind) for group in _GROUPS for kind in (FLOAT, INT, WORD)]
        self._own = [part for part in own if part[0] in code.plan.buffers]
        kinds = [layout.leaves[i].type.kind for i in code.plan.passed]
        self._passed = {
            kind: [(i, kind == _stored(own)) for i, own in zip(code.plan.passed, kinds, strict=True)]
            for kind in (FLOAT, INT, WORD)
        }
        in_record = [leaf.in_record for leaf in layout.leaves]
        self._of_records = [i for i in layout.buffers if in_record[i]]
        self._of_loose = [i for i in layout.buffers if not in_record[i]]
        self._slots: dict[int, list[tuple[int, Entry]]] = {i: [] for i in layout.buffers}
        for slot, entry in enumerate(layout.whole):
            if entry.what != NUMBER:
                self._slots[entry.leaf].append((slot, entry))

    def run(self, frame: CallRecords, values: Sequence[Any]) -> Any:
        """Run the program; returned numbers are Python numbers."""
        head = frame.heads.get(id(self))
        if head is None:
            head = frame.heads[id(self)] = self._head(values)
        whole, bases, lengths = head.whole.copy(), head.bases.copy(), head.lengths.copy()
        copies = head.copies.copy()
        for i in self._of_loose:
            self._place(i, values[i], RecordMemory(whole, head.real, bases, lengths, copies, head.packed))
        for original, copy in copies:
            copy[...] = original
        spaces = self._spaces(values, whole, head.real)
        addresses = bases | {name: _address(space) for name, space in spaces.items()}
        self._entry(*[addresses[name] for name in self._plan.buffers])
        for original, copy in copies:
            if original.flags.writeable:
                original[...] = copy
        return self._handed_back(spaces)

    def _head(self, values: Sequence[Any]) -> RecordMemory:
        layout = self._layout
        whole = [int(values[entry.leaf]) if entry.what == NUMBER else 0 for entry in layout.whole]
        real = [float(values[entry.leaf]) for entry in layout.real]
        packed = {
            buffer: np.zeros(size * self._stride(buffer), DTYPES[buffer_kind(buffer)])
            for buffer, size in layout.sizes.items()
        }
        bases = {buffer: _address(memory) for buffer, memory in packed.items()}
        head = RecordMemory(whole, real, bases, {}, [], packed)
        for i in self._of_records:
            self._place(i, values[i], head)
        return head

    def _place(self, i: int, array: Any, head: RecordMemory) -> None:
        """Check an array and write its offset and lengths to the header."""
        leaf = self._layout.leaves[i]
        assert isinstance(leaf.type, Table)
        if not isinstance(array, np.ndarray) or array.dtype != DTYPES[leaf.type.kind]:
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise TypeError(
                f"{leaf.path} must be an array of {DTYPES[leaf.type.kind].__name__}; it is {kind}."
            )
        _check_axes(leaf.path, leaf.type.axes, array.shape, head.lengths)
        if i in self._layout.places:
            head.copies.append((array, self._packed_place(i, array.shape, head.packed)))
            return
        if not array.flags.c_contiguous or not array.flags.aligned:
            head.copies.append((array, np.ascontiguousarray(array)))
            array = head.copies[-1][1]
        address, whole = _address(array), head.whole
        base = head.bases.setdefault(self._layout.buffers[i], address)
        for slot, entry in self._slots[i]:
            if entry.what == OFFSET:
                whole[slot] = (address - base) // array.itemsize
            elif entry.what == LENGTH:
                whole[slot] = array.shape[entry.axis]
            else:
                whole[slot] = int(np.prod(array.shape[entry.axis + 1 :]))

    def _packed_place(self, i: int, shape: tuple[int, ...], packed: dict[str, Array]) -> Array:
        """Return the part of a buffer that holds a packed array, in its shape."""
        buffer, place = self._layout.buffers[i], self._layout.places[i]
        stride = self._stride(buffer)
        part = packed[buffer][place * stride :: stride][: math.prod(shape)]
        steps = [math.prod(shape[axis + 1 :]) * part.strides[0] for axis in range(len(shape))]
        return np.lib.stride_tricks.as_strided(part, shape, steps)

    def _stride(self, buffer: str) -> int:
        return dict(self._layout.target.strides).get(buffer[:-1], 1)

    def _spaces(self, values: Sequence[Any], whole: list[int], real: list[float]) -> dict[str, Array]:
        """Allocate header, constants, and space for passed and returned numbers."""
        spaces = self._constants.copy()
        for name, group, kind in self._own:
            if group == HEADER:
                spaces[name] = np.array(real if kind == FLOAT else whole, DTYPES[kind])
            elif group == ARGUMENTS:
                spaces[name] = np.array(
                    [values[i] if mine else 0 for i, mine in self._passed[kind]], DTYPES[kind]
                )
            else:
                spaces[name] = np.zeros(len(self._plan.results), DTYPES[kind])
        return spaces

    def _handed_back(self, spaces: dict[str, Array]) -> Any:
        found: list[Any] = []
        for place, kind in enumerate(self._plan.results):
            number = spaces[buffer_name(RESULTS, _stored(kind))][place]
            found.append(bool(number) if kind == BOOL else number.item())
        if isinstance(self._result, Tuple):
            return tuple(found)
        return found[0] if isinstance(self._result, Number) else None


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _stored(kind: str) -> str:
    """Return the kind in memory: bools are passed as integers."""
    return INT if kind == BOOL else kind


def _check_axes(
    path: str, axes: tuple[str | int | None, ...] | None, shape: tuple[int, ...], lengths: dict[str, int]
) -> None:
    """Refuse an array whose axes do not have the declared lengths."""
    if axes is None:
        return
    if len(shape) != len(axes):
        raise TypeError(f"{path} must have {len(axes)} axes; it has {len(shape)}.")
    for axis, wanted in zip(shape, axes, strict=True):
        length = lengths.setdefault(wanted, axis) if isinstance(wanted, str) else wanted
        if length is not None and length != axis:
            raise TypeError(f"{path} must have the axes {axes}, {wanted} being {length}; it is {shape}.")
