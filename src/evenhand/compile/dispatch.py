"""Calls of kernels from Python: find, load or compile the program, and run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evenhand.compile.annotations import Named, Number, Table, parameter_types, result_type
from evenhand.compile.argument_layout import CPU, Layout, Leaf, Target, flattened, leaves
from evenhand.compile.build_program import code_of, is_cached
from evenhand.compile.loaded_program import CallRecords, LoadedProgram
from evenhand.compile.registry import Kernel
from evenhand.compile.values import BOOL, FLOAT, INT, WORD

_PYTHON: dict[str, Callable[[Any], Any]] = {FLOAT: float, INT: int, BOOL: bool, WORD: int}
SMALL = 2**20  # bytes of named tuples up to which those of the last call are kept


def call(kernel: Kernel, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Run a kernel as compiled code."""
    return _kernel_caller(kernel)(arguments, named)


def make_ready(kernel: Callable[..., Any], *arguments: Any) -> None:
    """Load or compile the program for such arguments, without running it."""
    _kernel_caller(kernel).make_ready(arguments)


def is_compiled(kernel: Callable[..., Any], *arguments: Any) -> bool:
    """Return whether the program for such arguments is in the cache."""
    return _kernel_caller(kernel).is_compiled(arguments)


def _kernel_caller(kernel: Any) -> KernelCaller:
    found = _kernel_callers.get(kernel)
    return _kernel_callers.setdefault(kernel, KernelCaller(kernel)) if found is None else found


class KernelCaller:
    """The callable of one kernel, with a program for each set of static values."""

    def __init__(self, kernel: Kernel, target: Target = CPU) -> None:
        self.kernel, self.target = kernel, target
        self.types = parameter_types(kernel.py_func)
        self.leaves = leaves(self.types)
        types = self._types = list(self.types.values())
        self._records = [i for i, type_ in enumerate(types) if isinstance(type_, Named)]
        self._loose = [i for i, type_ in enumerate(types) if not isinstance(type_, Named)]
        self._loose_leaves = [i for i, leaf in enumerate(self.leaves) if not leaf.in_record]
        self._static = [i for i, leaf in enumerate(self.leaves) if _is_static(leaf.type)]
        self._tables = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf.type, Table)]
        # arrays on whose numbers of axes, or lengths, the code depends
        self._open = [i for i in self._tables if not _has_axes(self.leaves[i])]
        self._packed = [i for i in self._tables if target.is_packed(self.leaves[i].path)]
        self._fixed = [
            i for i, leaf in enumerate(self.leaves) if leaf.in_record and target.is_fixed(leaf.path)
        ]
        self._programs: dict[tuple[Any, ...], LoadedProgram] = {}
        self._last: CallRecords | None = None

    def __call__(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        if named or len(arguments) != len(self._types):
            arguments = self._in_order(arguments, named)
        records = [arguments[i] for i in self._records]
        frame = self._last
        if frame is None or not frame.is_of(records):
            frame = CallRecords(records, self.values(arguments))
            self._last = frame if frame.size <= SMALL else None
        values = frame.values.copy()
        for leaf, i in zip(self._loose_leaves, self._loose, strict=True):
            values[leaf] = arguments[i]
        return self._program(values).run(frame, values)

    def make_ready(self, arguments: Sequence[Any]) -> None:
        """Load or compile the program for such arguments."""
        self._program(self.values(arguments))

    def is_compiled(self, arguments: Sequence[Any]) -> bool:
        """Return whether the program for such arguments is in the cache."""
        return is_cached(self.kernel, self.layout(self.values(arguments)))

    def values(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the leaves of arguments."""
        return flattened(self._types, arguments)

    def _program(self, values: Sequence[Any]) -> LoadedProgram:
        """Return the program for such arguments."""
        key = tuple([values[i] for i in self._static] + [values[i].ndim for i in self._open])
        if self._packed:
            key += tuple(values[i].shape for i in self._packed)
        for i in self._fixed:
            key += tuple(map(repr, _known(i, self.leaves[i].type, values[i]).items()))
        found = self._programs.get(key)
        if found is None:
            layout = self.layout(values)
            code = code_of(self.kernel, self.types, layout)
            found = self._programs[key] = LoadedProgram(layout, code, result_type(self.kernel.py_func))
        return found

    def layout(self, values: Sequence[Any]) -> Layout:
        """Return the layout of these arguments."""
        known = {i: _PYTHON[self.leaves[i].type.kind](values[i]) for i in self._static}
        for i in self._fixed:
            known |= _known(i, self.leaves[i].type, values[i])
        return Layout(
            self.leaves, known, {i: values[i].shape for i in self._open + self._packed}, self.target
        )

    def _in_order(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        names = list(self.types)
        given = dict(zip(names, arguments, strict=False)) | dict(named)
        if sorted(given) != sorted(names) or len(arguments) + len(named) != len(names):
            raise TypeError(f"{self.kernel.__qualname__} takes {', '.join(names)}.")
        return [given[name] for name in names]


_kernel_callers: dict[Kernel, KernelCaller] = {}


def _has_axes(leaf: Leaf) -> bool:
    return isinstance(leaf.type, Table) and leaf.type.axes is not None


def _known(i: int, type_: Number | Table, value: Any) -> dict[int, Any]:
    """Return a leaf's value to be compiled in; None for an array whose elements differ."""
    if isinstance(type_, Number):
        return {i: _PYTHON[type_.kind](value)}
    first = value[(0,) * value.ndim] if value.size else None
    return {i: first} if first is not None and value.tobytes() == first.tobytes() * value.size else {}


def _is_static(type_: Number | Table) -> bool:
    return isinstance(type_, Number) and type_.static
