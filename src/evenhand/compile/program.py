"""A program: one kernel and all it calls, specialised for one set of arguments.

The result is a list of plain functions over numbers and buffers, callees first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from evenhand.compile import arrays
from evenhand.compile.annotations import DTYPES, Nothing, result_type
from evenhand.compile.arrays import ARGUMENTS, CONSTANTS, HEADER, RESULTS
from evenhand.compile.clusters import ENTRY
from evenhand.compile.kernel_checks import verify
from evenhand.compile.loops import Loops
from evenhand.compile.registry import Kernel, body_of, tree_of
from evenhand.compile.residual import Block, Function, Return, drop_unread, names_in, rendered
from evenhand.compile.scope import Environment
from evenhand.compile.values import (
    BOOL,
    COMPOUND,
    INT,
    Constant,
    Dynamic,
    Scalar,
    Value,
    View,
    bare,
    blank,
    constant,
    key,
    rebuilt,
    same,
    scalars,
    variable,
)

_BUFFER = re.compile("[A-Z]?[FIBW]")
_HEADER_ENTRY = re.compile(r"(int|float|bool|word)_\d+_")


@dataclass(frozen=True)
class Specialised:
    """A kernel for one set of arguments, as its callers see it."""

    name: str
    wanted: list[list[bool]]  # which numbers of each argument are passed
    buffers: list[str]
    result: Value | None
    kinds: list[str]  # of the numbers it returns
    constant: Value | None = None  # its result, where it is constant and the kernel has no other effect


@dataclass
class Program:
    """Functions of one program, specialised on demand.

    `strides` says how far apart neighbouring elements of a group's buffers are in memory, 1 unless named.
    Buffers of a group in `read_only` are never written. Those in `uniform` hold one number everywhere.
    """

    strides: dict[str, int] = field(default_factory=dict)
    read_only: frozenset[str] = frozenset()
    uniform: Mapping[str, Constant] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)
    constants: dict[str, list[NDArray[Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._made: dict[tuple[Any, ...], Specialised | None] = {}
        self._names: dict[str, int] = {}
        self._places: dict[int, View] = {}

    def root(self, kernel: Kernel, arguments: list[Value]) -> Specialised:
        """Specialise the first kernel of the program; it returns all results, known or not."""
        return self._make(kernel, arguments, True)

    def specialised(self, kernel: Kernel, arguments: list[Value]) -> Specialised | None:
        """Return the kernel for such arguments, made on first use; None while it is being made."""
        identity = (kernel, tuple(map(key, arguments)))
        if identity not in self._made:
            self._made[identity] = None
            self._made[identity] = self._make(kernel, arguments, False)
        return self._made[identity]

    def stride(self, buffer: str) -> int:
        return self.strides.get(buffer[:-1], 1)

    def load(self, view: View) -> Scalar:
        """Return the number at an element."""
        known = self.uniform.get(view.buffer)
        if known is None:
            return arrays.load(view, self.stride(view.buffer))
        if known.kind != view.kind:
            raise arrays.Misuse("the bits of an array of equal numbers")
        return known

    def is_writable(self, buffer: str) -> bool:
        own = buffer[:-1] in self.read_only or buffer[:-1] == CONSTANTS
        return buffer not in self.uniform and not own

    def constant_array(self, array: NDArray[Any]) -> View:
        """Return the place of an array defined outside kernels; its current values are stored."""
        if id(array) not in self._places:
            kind = next(kind for kind, dtype in DTYPES.items() if array.dtype == dtype)
            buffer = arrays.buffer_name(CONSTANTS, kind)
            parts = self.constants.setdefault(buffer, [])
            offset = sum(part.size for part in parts)
            parts.append(array)
            lengths = tuple(constant(length, True) for length in array.shape)
            self._places[id(array)] = View(
                buffer, kind, constant(offset, True), lengths, arrays.contiguous(lengths)
            )
        return self._places[id(array)]

    def add_entry(self, root: Specialised, passed: Sequence[str]) -> Function:
        """Add the function that is called from outside: all its parameters are buffers.

        `passed` are the kinds of the numbers that the root is called with.
        """
        given = [_loaded(ARGUMENTS, place, kind) for place, kind in enumerate(passed)]
        call = f"{root.name}({', '.join([*root.buffers, *given])})"
        names = [f"r{place}" for place in range(len(root.kinds))]
        lines = [f"    {', '.join(names)} = {call}" if names else f"    {call}"]
        for place, (name, kind) in enumerate(zip(names, root.kinds, strict=True)):
            lines.append(f"    {arrays.buffer_name(RESULTS, _stored(kind))}[{place}] = {name}")
        buffers = sorted(name for name in names_in(lines) if _BUFFER.fullmatch(name))
        parameters = [(buffer, "*" + arrays.buffer_kind(buffer)) for buffer in buffers]
        entry = Function(ENTRY, parameters, [], lines, [root.name])
        self.functions.append(entry)
        return entry

    def _make(self, kernel: Kernel, arguments: list[Value], is_root: bool) -> Specialised:
        verify(kernel.py_func)
        evaluation = Evaluation(self, kernel, arguments, is_root)
        evaluation.run()
        if evaluation.always is not None:
            return Specialised("", [], [], None, [], evaluation.always)
        name = self._new_name(kernel.__name__.lstrip("_"))
        function, found = evaluation.finished(name)
        self.functions.append(function)
        return found

    def _new_name(self, base: str) -> str:
        self._names[base] = number = self._names.get(base, 0) + 1
        return f"k_{base}_{number}"


class Evaluation(Loops):
    """The evaluation of one kernel for one set of arguments."""

    def __init__(self, program: Program, kernel: Kernel, arguments: list[Value], is_root: bool) -> None:
        tree = tree_of(kernel.py_func)
        super().__init__(program, kernel.py_func, tree)
        self.kernel = kernel
        self._is_root = is_root
        self.loops_around, self.returns = [], []
        names = [argument.arg for argument in tree.args.args]
        self._formal = [_formal(value, name) for name, value in zip(names, arguments, strict=True)]
        self._body: Block = []
        self._env: Environment = dict(zip(names, self._formal, strict=True))
        self._tree = tree
        self.always: Value | None = None
        self._declared = result_type(kernel.py_func)

    def run(self) -> None:
        """Evaluate the body."""
        env = self.block(body_of(self.function), self._start(), self._body)
        if env is not None and not isinstance(self._declared, Nothing):
            self.refuse(self._tree, "a result is missing at the end")
        self._shape, self._kinds = self._settle_returns()
        drop_unread(self._body)
        if len(self._body) == 1 and isinstance(self._body[0], Return) and not self._is_root:
            value = self._body[0].value
            if value is not None and all(isinstance(number, Constant) for number in scalars(value)):
                self.always = self.as_declared(self._tree, value, self._declared, "the result")

    def finished(self, name: str) -> tuple[Function, Specialised]:
        """Return the function's source, and how it is called."""
        shape, kinds = self._shape, self._kinds
        lines = rendered(self._body)
        used = names_in(lines)
        entries = sorted(filter(_HEADER_ENTRY.fullmatch, used))
        lines = [f"    {entry} = {_header_load(entry)}" for entry in entries] + lines
        called = [function for function in self.program.functions if function.name in used]
        buffers = sorted(
            {word for word in names_in(lines) if self._is_buffer(word)}
            | {buffer for function in called for buffer, kind in function.parameters if kind.startswith("*")}
        )
        wanted = [
            [_is_passed(number) and bare(number) in used for number in scalars(v)] for v in self._formal
        ]
        parameters = [(buffer, "*" + arrays.buffer_kind(buffer)) for buffer in buffers]
        for value, flags in zip(self._formal, wanted, strict=True):
            pairs = zip(scalars(value), flags, strict=True)
            parameters += [(bare(number), number.kind) for number, is_wanted in pairs if is_wanted]
        function = Function(name, parameters, kinds, lines, [f.name for f in called], self.kernel.inlined)
        return function, Specialised(name, wanted, buffers, shape, kinds)

    def _start(self) -> Environment:
        """Return the initial environment; parameters that the kernel writes are in variables."""
        from evenhand.compile.expressions import assign

        for name, value in self._env.items():
            if isinstance(value, Constant) and self.stores[name] > 1:
                self._body.append(assign(name, value))
        return dict(self._env)

    def _is_buffer(self, word: str) -> bool:
        return bool(_BUFFER.fullmatch(word)) and not self.is_local(word)

    def _settle_returns(self) -> tuple[Value | None, list[str]]:
        """Complete all return statements; return the shape of the result and its kinds."""
        if isinstance(self._declared, Nothing):
            return None, []
        found = [
            self.as_declared(self._tree, statement.value, self._declared, "the result")
            if statement.value is not None
            else self.refuse(self._tree, "a result is missing")
            for statement in self.returns
        ]
        shape = found[0]
        for other in found[1:]:
            shape = self._common(shape, other)
        if self._is_root:
            shape = blank(shape)
        elif not isinstance(shape, COMPOUND):
            shape = variable("", shape.kind) if isinstance(shape, (Constant, Dynamic)) else shape
        for statement, value in zip(self.returns, found, strict=True):
            pairs = zip(scalars(shape), scalars(value), strict=True)
            statement.text = ", ".join(bare(number) for wanted, number in pairs if _is_passed(wanted))
        return shape, [number.kind for number in scalars(shape) if _is_passed(number)]

    def _common(self, one: Value, other: Value) -> Value:
        """Return the common shape of two results."""
        if isinstance(one, (Constant, Dynamic)) and isinstance(other, (Constant, Dynamic)):
            return one if same(one, other) and isinstance(one, Constant) else variable("", one.kind)
        if key(blank(one)) != key(blank(other)):
            self.refuse(self._tree, "results of different structure")
        numbers = iter([self._common(a, b) for a, b in zip(scalars(one), scalars(other), strict=True)])
        return rebuilt(one, lambda *_: next(numbers))  # type: ignore[arg-type]


def _stored(kind: str) -> str:
    """Return the kind in memory: bools are passed as integers."""
    return INT if kind == BOOL else kind


def _loaded(group: str, place: int, kind: str) -> str:
    """Return the expression that loads a number of this kind."""
    text = f"{arrays.buffer_name(group, _stored(kind))}[{place}]"
    return f"{text} != 0" if kind == BOOL else text


def _header_load(entry: str) -> str:
    kind, slot, _ = entry.split("_")
    return _loaded(HEADER, int(slot), kind)


def _formal(value: Value, name: str) -> Value:
    """Return an argument inside the kernel: run-time numbers are in its variables."""
    return rebuilt(
        value, lambda number, path: variable(path, number.kind) if _is_passed(number) else number, name
    )


def _is_passed(number: Scalar) -> bool:
    return isinstance(number, Dynamic) and not number.header
