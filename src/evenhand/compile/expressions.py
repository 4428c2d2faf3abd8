"""Evaluation of expressions: a value, and the statements that must run before it."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evenhand.compile import arrays
from evenhand.compile.annotations import takes_numbers_only
from evenhand.compile.arithmetic import (
    KindMismatch,
    binary,
    combined,
    compared,
    inverted,
    joined_kind,
    negative,
)
from evenhand.compile.arrays import Misuse, Slice
from evenhand.compile.registry import Kernel
from evenhand.compile.residual import Assign, Block, If
from evenhand.compile.scope import Environment, Scope
from evenhand.compile.values import (
    BOOL,
    COMPOUND,
    INT,
    Constant,
    Dynamic,
    Record,
    Scalar,
    TupleValue,
    Unusable,
    Value,
    View,
    bare,
    constant,
    numbers_of,
    same,
    text_of,
    variable,
    with_numbers,
)


class Expressions(Scope):
    """Evaluates expressions; `out` receives the statements that must run first."""

    def value(self, node: ast.expr, env: Environment, out: Block) -> Value:
        """Evaluate any expression."""
        try:
            return _EVALUATE[type(node)](self, node, env, out)
        except (KindMismatch, Misuse) as problem:
            self.refuse(node, problem)

    def number(self, node: ast.expr, env: Environment, out: Block) -> Scalar:
        """Evaluate an expression that is a number."""
        value = self.value(node, env, out)
        if not isinstance(value, (Constant, Dynamic)):
            self.refuse(node, f"{ast.unparse(node)} must be a number")
        return value

    def values(self, nodes: Sequence[ast.expr], env: Environment, out: Block) -> list[Value]:
        """Evaluate several expressions from left to right.

        Where one of them needs statements, the earlier ones are stored in variables first, so that they are
        read before these statements run.
        """
        found: list[Value] = []
        for node in nodes:
            own: Block = []
            value = self.value(node, env, own)
            if own:
                found = [self._read_now(earlier, out) for earlier in found]
                out.extend(own)
            found.append(value)
        return found

    def numbers(self, nodes: Sequence[ast.expr], env: Environment, out: Block) -> list[Scalar]:
        """Evaluate several expressions that are numbers."""
        found = self.values(nodes, env, out)
        for node, value in zip(nodes, found, strict=True):
            if not isinstance(value, (Constant, Dynamic)):
                self.refuse(node, f"{ast.unparse(node)} must be a number")
        return found  # type: ignore[return-value]

    def call(self, node: ast.Call, env: Environment, out: Block) -> Value:
        """Evaluate a call; see `calls`."""
        raise NotImplementedError

    def python_value(self, node: ast.expr, env: Environment) -> Any:
        """Return the Python object of a global name, or of an attribute of a module."""
        if isinstance(node, ast.Name) and not self.is_local(node.id):
            return self.global_value(node)
        if isinstance(node, ast.Attribute):
            owner = self.python_value(node.value, env)
            if isinstance(owner, types.ModuleType):
                if not hasattr(owner, node.attr):
                    self.refuse(node, f"{ast.unparse(node)} is not defined")
                return getattr(owner, node.attr)
        return None

    def from_python(self, node: ast.expr, found: Any) -> Value:
        """Return the value of an object that is defined outside the kernel."""
        if isinstance(found, (bool, int, float, np.bool_, np.integer, np.floating)):
            return constant(found)
        if isinstance(found, tuple):
            return TupleValue(tuple(self.from_python(node, item) for item in found))
        if isinstance(found, np.ndarray):
            return self.program.constant_array(found)
        return self.refuse(node, f"{ast.unparse(node)} must be a number, a tuple or an array")

    def _read_now(self, value: Value, out: Block) -> Value:
        if isinstance(value, Dynamic) and value.reads:
            name = self.temporary()
            out.append(Assign(name, bare(value), value.calls))
            return variable(name, value.kind)
        return self.kept_whole(value, out) if isinstance(value, COMPOUND) else value

    def _constant(self, node: ast.Constant, env: Environment, out: Block) -> Value:
        if not isinstance(node.value, (bool, int, float)):
            self.refuse(node, f"{node.value!r} is not a number")
        return constant(node.value)

    def _name(self, node: ast.Name, env: Environment, out: Block) -> Value:
        if node.id in env:
            value = env[node.id]
            if isinstance(value, Unusable):
                self.refuse(node, f"{node.id} {value.reason}")
            return value
        if self.is_local(node.id):
            self.refuse(node, f"{node.id} has no value yet on some way here")
        return self.from_python(node, self.global_value(node))

    def _attribute(self, node: ast.Attribute, env: Environment, out: Block) -> Value:
        found = self.python_value(node, env)
        if found is not None:
            return self.from_python(node, found)
        owner = self.value(node.value, env, out)
        if isinstance(owner, Record) and node.attr in owner.fields:
            return owner.fields[node.attr]
        if isinstance(owner, View):
            if node.attr == "shape":
                return TupleValue(owner.lengths)
            if node.attr == "size":
                return arrays.size_of(owner)
        return self.refuse(node, f"{ast.unparse(node)} is not known here")

    def _tuple(self, node: ast.Tuple, env: Environment, out: Block) -> Value:
        return TupleValue(tuple(self.values(node.elts, env, out)))

    def _subscript(self, node: ast.Subscript, env: Environment, out: Block) -> Value:
        owner = self.value(node.value, env, out)
        if isinstance(owner, (TupleValue, Record)):
            return self._item(node, owner, env, out)
        if not isinstance(owner, View):
            self.refuse(node, f"{ast.unparse(node.value)} has no elements")
        found = self.part_of(owner, node, env, out)
        return found if found.lengths else self.program.load(found)

    def part_of(self, owner: View, node: ast.Subscript, env: Environment, out: Block) -> View:
        """Return the part of an array that a subscript selects; without axes, an element."""
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        bounds = [
            bound
            for part in parts
            for bound in ((part.lower, part.upper) if isinstance(part, ast.Slice) else (part,))
            if bound is not None
        ]
        own: Block = []
        found = iter(self.numbers(bounds, env, own))
        if own:
            kept = self.kept_whole(owner, out)
            assert isinstance(kept, View)
            owner = kept
            out.extend(own)
        indices: list[Scalar | Slice] = [
            (next(found) if part.lower else None, next(found) if part.upper else None)
            if isinstance(part, ast.Slice)
            else next(found)
            for part in parts
        ]
        try:
            return arrays.index(owner, indices)
        except (KindMismatch, Misuse) as problem:
            self.refuse(node, problem)

    def _item(self, node: ast.Subscript, owner: TupleValue | Record, env: Environment, out: Block) -> Value:
        place = self.number(node.slice, env, out)
        if isinstance(place, Constant):
            if not 0 <= place.value < len(owner.items):
                self.refuse(node, f"index {place.value} of a tuple of {len(owner.items)}")
            found: Value = owner.items[place.value]
            return found
        return self.item_of(node, owner, place)

    def item_of(self, node: ast.AST, owner: TupleValue | Record, place: Scalar) -> Dynamic:
        """Return the item of a tuple of numbers at a run-time index."""
        items = [item for item in owner.items if isinstance(item, (Constant, Dynamic))]
        if len(items) < len(owner.items) or len({item.kind for item in items}) != 1:
            self.refuse(node, "a tuple with a run-time index must hold numbers of one kind")
        if any(isinstance(item, Dynamic) and item.calls for item in (*items, place)):
            self.refuse(node, "a tuple with a run-time index must hold no calls")
        text = bare(items[-1])
        for position in range(len(items) - 2, -1, -1):
            text = f"{text_of(items[position])} if {text_of(place)} == {position} else ({text})"
        return combined((*items, place), text, items[0].kind)

    def _unary(self, node: ast.UnaryOp, env: Environment, out: Block) -> Value:
        operand = self.number(node.operand, env, out)
        if isinstance(node.op, ast.USub):
            return negative(operand)
        return inverted(operand)

    def _binary(self, node: ast.BinOp, env: Environment, out: Block) -> Value:
        left, right = self.numbers([node.left, node.right], env, out)
        return binary(node.op, left, right)

    def _compare(self, node: ast.Compare, env: Environment, out: Block) -> Value:
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            return self._membership(node, env, out)
        self._check_chain(node, env)
        terms = self.numbers([node.left, *node.comparators], env, out)
        if len(node.ops) == 1:
            return compared(node.ops[0], terms[0], terms[1])
        terms = [term if isinstance(term, Constant) else self.kept(term, out) for term in terms]
        pairs = zip(node.ops, terms[:-1], terms[1:], strict=True)
        return _joined_tests([compared(op, left, right) for op, left, right in pairs], True)

    def _check_chain(self, node: ast.Compare, env: Environment) -> None:
        """Refuse a chain that calls a kernel with arrays late: all terms are evaluated, needed or not."""
        for part in (part for term in node.comparators[1:] for part in ast.walk(term)):
            called = self.python_value(part.func, env) if isinstance(part, ast.Call) else None
            if isinstance(called, Kernel) and not takes_numbers_only(called.py_func):
                self.refuse(
                    node, f"{called.__name__} may write, and is called late in a chain of comparisons"
                )

    def _membership(self, node: ast.Compare, env: Environment, out: Block) -> Value:
        inside = isinstance(node.ops[0], ast.In)
        left, among = self.values([node.left, node.comparators[0]], env, out)
        if not isinstance(left, (Constant, Dynamic)) or not isinstance(among, TupleValue):
            self.refuse(node, "`in` must ask for a number in a tuple")
        left = self.kept(left, out)
        op = ast.Eq() if inside else ast.NotEq()
        tests = [compared(op, left, item) for item in among.items if isinstance(item, (Constant, Dynamic))]
        return _joined_tests(tests, not inside)

    def _boolean_value(self, node: ast.BoolOp, env: Environment, out: Block) -> Value:
        """Evaluate `and` or `or` outside a condition, where Python gives one of the operands."""
        return self._boolean(node, env, out, as_value=True)

    def _boolean(self, node: ast.BoolOp, env: Environment, out: Block, as_value: bool = False) -> Scalar:
        conjunction = isinstance(node.op, ast.And)
        tests: list[Scalar] = []
        for position, part in enumerate(node.values):
            own: Block = []
            test = self._truth(part, env, own, as_value)
            if own and tests:
                rest = (
                    ast.BoolOp(node.op, node.values[position:]) if position + 1 < len(node.values) else part
                )
                first = _joined_tests(tests, conjunction)
                return self._later(first, rest, conjunction, env, out, as_value)
            out.extend(own)
            tests.append(test)
            if isinstance(test, Constant) and test.value != conjunction:
                break
        return _joined_tests(tests, conjunction)

    def _later(
        self, first: Scalar, rest: ast.expr, conjunction: bool, env: Environment, out: Block, as_value: bool
    ) -> Scalar:
        """Evaluate `first and rest`, where the statements of the rest may run only if it is needed."""
        name = self.temporary()
        out.append(assign(name, first))
        own: Block = []
        found = self._truth(rest, env, own, as_value)
        own.append(assign(name, found))
        out.append(If(name if conjunction else f"not {name}", own, []))
        return variable(name, BOOL)

    def _truth(self, node: ast.expr, env: Environment, out: Block, only_bools: bool = False) -> Scalar:
        """Evaluate a condition: a bool, or a whole number that is not 0 unless `only_bools`."""
        if isinstance(node, ast.BoolOp):
            return self._boolean(node, env, out, only_bools)
        test = self.number(node, env, out)
        if only_bools and test.kind == INT:
            self.refuse(node, f"{ast.unparse(node)} must be true or false, as `and` and `or` give an operand")
        if test.kind == INT:
            return compared(ast.NotEq(), test, constant(0))
        if test.kind != BOOL:
            self.refuse(node, f"{ast.unparse(node)} must be true or false; it is a {test.kind}")
        return test

    def test(self, node: ast.expr, env: Environment, out: Block) -> Scalar:
        """Evaluate the condition of an if or a while."""
        return self._truth(node, env, out)

    def _choice(self, node: ast.IfExp, env: Environment, out: Block) -> Value:
        test = self._truth(node.test, env, out)
        if isinstance(test, Constant):
            return self.value(node.body if test.value else node.orelse, env, out)
        first: Block = []
        second: Block = []
        one, other = self.value(node.body, env, first), self.value(node.orelse, env, second)
        plain = isinstance(one, (Constant, Dynamic)) and isinstance(other, (Constant, Dynamic))
        if plain and not first and not second:
            assert isinstance(one, (Constant, Dynamic))
            assert isinstance(other, (Constant, Dynamic))
            kind = joined_kind(one.kind, other.kind)
            text = f"{text_of(one)} if {bare(test)} else {text_of(other)}"
            return combined((one, test, other), text, kind)
        found = self.merged(node, one, other, first, second)
        out.append(If(bare(test), first, second))
        return found

    def merged(self, node: ast.AST, one: Value, other: Value, first: Block, second: Block) -> Value:
        """Return the value that is `one` after the first block and `other` after the second.

        Numbers that differ are stored in a variable that both blocks set. The structure must be the same.
        """
        if same(one, other):
            return one
        if isinstance(one, (Constant, Dynamic)) and isinstance(other, (Constant, Dynamic)):
            name = self.temporary()
            first.append(assign(name, one))
            second.append(assign(name, other))
            return variable(name, joined_kind(one.kind, other.kind))
        if isinstance(one, View) and isinstance(other, View):
            return self._merged_views(node, one, other, first, second)
        if isinstance(one, (Record, TupleValue)) and isinstance(other, (Record, TupleValue)):
            if type(one) is not type(other) or len(one.items) != len(other.items):
                self.refuse(node, "tuples of different kinds meet here")
            if isinstance(one, Record) and isinstance(other, Record) and one.type is not other.type:
                self.refuse(node, f"a {one.type.__name__} and a {other.type.__name__} meet here")
            self.check_structure(node, one, other)
            items = [
                self.merged(node, a, b, first, second) for a, b in zip(one.items, other.items, strict=True)
            ]
            if isinstance(one, Record):
                return Record(one.type, dict(zip(one.fields, items, strict=True)))
            return TupleValue(tuple(items))
        return self.refuse(node, "values of different kinds meet here")

    def _merged_views(self, node: ast.AST, one: View, other: View, first: Block, second: Block) -> View:
        if (one.buffer, one.kind) != (other.buffer, other.kind) or len(one.lengths) != len(other.lengths):
            self.refuse(node, f"arrays of {one.buffer} and {other.buffer} meet here")
        pairs = zip(numbers_of(one), numbers_of(other), strict=True)
        found = []
        for a, b in pairs:
            merged = self.merged(node, a, b, first, second)
            assert isinstance(merged, (Constant, Dynamic))
            found.append(merged)
        return with_numbers(one, tuple(found))

    def check_structure(self, node: ast.AST, one: Value, other: Value) -> None:
        """Refuse a record whose structural constants differ between two control-flow paths."""
        if not (isinstance(one, Record) and isinstance(other, Record)):
            return
        for a, b in zip(one.items, other.items, strict=True):
            self.check_structure(node, a, b)
            numbers = [number for number in (a, b) if isinstance(number, Constant) and number.structural]
            if numbers and not same(a, b):
                self.refuse(node, f"a {one.type.__name__} is bound again with another structural constant")


def assign(name: str, value: Scalar) -> Assign:
    """Assign a number to a variable."""
    return Assign(name, bare(value), isinstance(value, Dynamic) and value.calls)


def _joined_tests(tests: Sequence[Scalar], conjunction: bool) -> Scalar:
    """Evaluate all of the tests, or any of them, with short-circuiting."""
    left: list[Scalar] = []
    for test in tests:
        if isinstance(test, Constant):
            if test.value == conjunction:
                continue
            if not any(isinstance(part, Dynamic) and part.calls for part in left):
                return Constant(test.value, BOOL, test.structural)
        left.append(test)
    if not left:
        structural = any(isinstance(test, Constant) and test.structural for test in tests)
        return Constant(conjunction, BOOL, structural)
    if len(left) == 1:
        return left[0]
    symbol = " and " if conjunction else " or "
    return combined(left, symbol.join(map(text_of, left)), BOOL)


_EVALUATE: dict[type[ast.expr], Callable[[Expressions, Any, Environment, Block], Value]] = {
    ast.Constant: Expressions._constant,
    ast.Name: Expressions._name,
    ast.Attribute: Expressions._attribute,
    ast.Tuple: Expressions._tuple,
    ast.Subscript: Expressions._subscript,
    ast.UnaryOp: Expressions._unary,
    ast.BinOp: Expressions._binary,
    ast.Compare: Expressions._compare,
    ast.BoolOp: Expressions._boolean_value,
    ast.IfExp: Expressions._choice,
    ast.Call: lambda self, node, env, out: self.call(node, env, out),
}
