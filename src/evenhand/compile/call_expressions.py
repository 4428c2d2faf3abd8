"""Evaluation of calls: kernels, named tuples, and the other supported functions."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evenhand.compile import arrays
from evenhand.compile.annotations import (
    Named,
    Nothing,
    Number,
    Table,
    Tuple,
    Type,
    field_types,
    is_record,
    parameter_types,
)
from evenhand.compile.arithmetic import KindMismatch, cast_to, combined, converted, extreme
from evenhand.compile.expressions import Expressions
from evenhand.compile.registry import Kernel
from evenhand.compile.residual import Block, OtherLine, Unpack
from evenhand.compile.scope import Environment
from evenhand.compile.values import (
    BOOL,
    FLOAT,
    INT,
    WORD,
    Constant,
    Dynamic,
    Record,
    Scalar,
    TupleValue,
    Value,
    View,
    bare,
    constant,
    rebuilt,
    scalars,
    variable,
)

# functions of one float, by their names in generated source
_REAL = {
    getattr(math, name): f"math.{name}"
    for name in ("sqrt", "log", "exp", "lgamma", "log1p", "expm1", "sin", "cos", "asin", "erfc")
}
_TESTS = {getattr(math, name): f"math.{name}" for name in ("isinf", "isnan", "isfinite")}
_CASTS: dict[Any, str] = {int: INT, float: FLOAT, bool: BOOL, np.uint64: WORD}


class Calls(Expressions):
    """Evaluates calls."""

    def call(self, node: ast.Call, env: Environment, out: Block) -> Value:
        called = self.python_value(node.func, env)
        if isinstance(called, Kernel):
            return self._call_kernel(node, called, env, out)
        if is_record(called):
            return self._make_record(node, called, env, out)
        if called is None and isinstance(node.func, ast.Attribute) and node.func.attr == "_replace":
            return self._replaced(node, node.func, env, out)
        if node.keywords:
            self.refuse(node, "only kernels and named tuples take arguments by name")
        if called is None and isinstance(node.func, ast.Attribute):
            return self._method(node, node.func, env, out)
        return self._builtin(node, called, env, out)

    def _arguments(self, node: ast.Call, names: Sequence[str], env: Environment, out: Block) -> list[Value]:
        """Return the arguments of a call in the order of the parameters; all must be given."""
        order = [*names[: len(node.args)], *(str(keyword.arg) for keyword in node.keywords)]
        if sorted(order) != sorted(names) or len(node.args) > len(names):
            self.refuse(node, f"{ast.unparse(node.func)} takes {', '.join(names)}")
        given = self.values([*node.args, *(keyword.value for keyword in node.keywords)], env, out)
        if order != list(names):
            self._check_order(node, given)
        found = dict(zip(order, given, strict=True))
        return [found[name] for name in names]

    def _make_record(self, node: ast.Call, record: type, env: Environment, out: Block) -> Value:
        types = field_types(record)
        given = self._arguments(node, list(types), env, out)
        fields = {}
        for (name, type_), value in zip(types.items(), given, strict=True):
            fields[name] = self.as_declared(node, value, type_, f"{record.__name__}.{name}")
        return self.kept_whole(Record(record, fields), out)

    def _check_order(self, node: ast.Call, given: Sequence[Value]) -> None:
        """Refuse a call among arguments by name that would be evaluated in another order."""
        if any(isinstance(number, Dynamic) and number.calls for value in given for number in scalars(value)):
            self.refuse(node, "arguments by name in another order than the parameters must not be calls")

    def _replaced(self, node: ast.Call, function: ast.Attribute, env: Environment, out: Block) -> Value:
        """Return a named tuple with some of its fields replaced, as its method `_replace` does."""
        owner = self.value(function.value, env, out)
        if not isinstance(owner, Record) or node.args:
            self.refuse(node, "_replace is for named tuples, with fields by name")
        kept = self.kept_whole(owner, out)
        assert isinstance(kept, Record)
        types = field_types(kept.type)
        names = [str(keyword.arg) for keyword in node.keywords]
        unknown = next((name for name in names if name not in types), None)
        if unknown is not None:
            self.refuse(node, f"{kept.type.__name__} has no field {unknown}")
        given = self.values([keyword.value for keyword in node.keywords], env, out)
        if names != [name for name in types if name in names]:
            self._check_order(node, given)
        changed = {
            name: self.as_declared(node, value, types[name], f"{kept.type.__name__}.{name}")
            for name, value in zip(names, given, strict=True)
        }
        return self.kept_whole(Record(kept.type, kept.fields | changed), out)

    def as_declared(self, node: ast.AST, value: Value, type_: Type, what: str) -> Value:
        """Return the value, checked against its declared type."""
        if isinstance(type_, Number) and isinstance(value, (Constant, Dynamic)):
            try:
                return converted(value, type_.kind)
            except KindMismatch as problem:
                self.refuse(node, f"{what}: {problem}")
        if isinstance(type_, Table) and isinstance(value, View) and value.kind == type_.kind:
            return value
        if isinstance(type_, Named) and isinstance(value, Record) and value.type is type_.type:
            return value
        if (
            isinstance(type_, Tuple)
            and isinstance(value, (TupleValue, Record))
            and len(value.items) == len(type_.items)
        ):
            pairs = zip(value.items, type_.items, strict=True)
            return TupleValue(tuple(self.as_declared(node, item, wanted, what) for item, wanted in pairs))
        return self.refuse(node, f"{what} must be {_said(type_)}")

    def _call_kernel(self, node: ast.Call, kernel: Kernel, env: Environment, out: Block) -> Value:
        types = parameter_types(kernel.py_func)
        given = self._arguments(node, list(types), env, out)
        actual = [
            self.as_declared(node, value, type_, f"{kernel.__name__}, {name}")
            for (name, type_), value in zip(types.items(), given, strict=True)
        ]
        general = [_generalised(value, type_) for value, type_ in zip(actual, types.values(), strict=True)]
        called = self.program.specialised(kernel, general)
        if called is None:
            self.refuse(node, f"{kernel.__name__} calls itself; kernels may not")
        if called.constant is not None:
            return called.constant
        passed = [
            number
            for value, wanted in zip(actual, called.wanted, strict=True)
            for number, is_wanted in zip(scalars(value), wanted, strict=True)
            if is_wanted
        ]
        text = f"{called.name}({', '.join([*called.buffers, *map(bare, passed)])})"
        return self._result(called.result, called.kinds, text, passed, out)

    def _result(
        self, shape: Value | None, kinds: Sequence[str], text: str, passed: Sequence[Scalar], out: Block
    ) -> Value:
        """Return the result of a call: its run-time numbers in variables, all else as known."""
        if shape is None or (isinstance(shape, Dynamic) and kinds):
            kind = kinds[0] if kinds else INT
            return combined(passed, text, kind, atom=True, calls=True)
        names = [self.temporary() for _ in kinds]
        out.append(Unpack(names, text) if names else OtherLine(text))
        waiting = iter(zip(names, kinds, strict=True))

        def received(number: Scalar, _: str) -> Scalar:
            if isinstance(number, Constant) or number.header:
                return number
            return variable(*next(waiting))

        return rebuilt(shape, received)

    def _method(self, node: ast.Call, function: ast.Attribute, env: Environment, out: Block) -> Value:
        owner = self.value(function.value, env, out)
        if isinstance(owner, View) and function.attr == "reshape":
            lengths = self._lengths(node, env, out)
            return arrays.reshaped(owner, lengths)
        if isinstance(owner, View) and function.attr == "view" and len(node.args) == 1:
            kind = self.python_value(node.args[0], env)
            return arrays.reinterpreted(owner, WORD if kind is np.uint64 else "")
        return self.refuse(node, f"{ast.unparse(function)} cannot be called here")

    def _lengths(self, node: ast.Call, env: Environment, out: Block) -> list[Scalar]:
        if len(node.args) == 1 and isinstance(node.args[0], ast.Tuple):
            return self.numbers(node.args[0].elts, env, out)
        return self.numbers(node.args, env, out)

    def _builtin(self, node: ast.Call, called: Any, env: Environment, out: Block) -> Value:
        if called is len and len(node.args) == 1:
            over = self.value(node.args[0], env, out)
            if isinstance(over, View):
                return over.lengths[0]
            self.refuse(node, "len is for arrays")
        given = self.numbers(node.args, env, out)
        if called in (min, max) and len(given) > 1:
            return extreme(called.__name__, given)
        if len(given) != 1:
            self.refuse(node, f"{ast.unparse(node.func)} is not known with {len(given)} arguments")
        number = given[0]
        if called in _CASTS:
            return cast_to(number, _CASTS[called])
        if called is abs:
            return self._absolute(number)
        if called in _REAL or called is np.sqrt:
            return _applied(_REAL.get(called, "math.sqrt"), converted(number, FLOAT), FLOAT)
        if called in _TESTS:
            return self._tested(called, converted(number, FLOAT))
        if called is math.floor:
            return _applied("math.floor", converted(number, FLOAT), INT)
        return self.refuse(node, f"{ast.unparse(node.func)} is not known to the compiler")

    def _absolute(self, number: Scalar) -> Scalar:
        if isinstance(number, Constant) and number.kind in (INT, FLOAT):
            return Constant(abs(number.value), number.kind, number.structural)
        return _applied("abs", number, INT if number.kind == BOOL else number.kind)

    def _tested(self, function: Callable[[float], bool], number: Scalar) -> Scalar:
        if isinstance(number, Constant):
            return constant(function(number.value), number.structural)
        return _applied(_TESTS[function], number, BOOL)


def _applied(name: str, number: Scalar, kind: str) -> Scalar:
    return combined((number,), f"{name}({bare(number)})", kind, atom=True)


def _generalised(value: Value, type_: Type) -> Value:
    """Return an argument as the callee is specialised for it.

    Structural constants stay; other constants, and offsets of arrays, become run-time values. The arrays of a
    named tuple keep their offsets.
    """
    if isinstance(value, Constant):
        declared = isinstance(type_, Number) and type_.static
        return value if value.structural or declared else variable("", value.kind)
    if isinstance(value, View):
        return View(value.buffer, value.kind, variable("", INT), value.lengths, value.strides)
    return value


def _said(type_: Type) -> str:
    """Return a type as text for messages."""
    if isinstance(type_, Number):
        return f"a {type_.kind}"
    if isinstance(type_, Table):
        return f"an array of {type_.kind}"
    if isinstance(type_, Named):
        return f"a {type_.type.__name__}"
    return "nothing" if isinstance(type_, Nothing) else "a tuple"
