"""Evaluation of statements: the environment after them, and their residual statements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from evenhand.compile import arrays
from evenhand.compile.arithmetic import BINARY, KindMismatch, binary, joined_kind
from evenhand.compile.arrays import Misuse
from evenhand.compile.call_expressions import Calls
from evenhand.compile.expressions import assign
from evenhand.compile.residual import Block, If, Loop, OtherLine, Return, Unpack
from evenhand.compile.scope import Environment
from evenhand.compile.values import (
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
    same,
    scalars,
    text_of,
    variable,
)

UNREAD = "_"  # the variable for unused values; it has no value


class Statements(Calls):
    """Evaluates statements; an environment of None means that the code after is unreachable."""

    def block(
        self, statements: Sequence[ast.stmt], env: Environment | None, out: Block
    ) -> Environment | None:
        """Evaluate statements in order, up to one that does not continue."""
        for statement in statements:
            if env is None:
                break
            try:
                env = self.statement(statement, env, out)
            except (KindMismatch, Misuse) as problem:
                self.refuse(statement, problem)
        return env

    def statement(self, node: ast.stmt, env: Environment, out: Block) -> Environment | None:
        """Evaluate one statement; loops are in `loops`."""
        return _EVALUATE[type(node)](self, node, env, out)

    returns: list[Return]

    def _expression(self, node: ast.Expr, env: Environment, out: Block) -> Environment:
        found = self.value(node.value, env, out)
        if isinstance(found, Dynamic) and found.calls:
            out.append(OtherLine(found.text))
        return env

    def _return(self, node: ast.Return, env: Environment, out: Block) -> None:
        found = None if node.value is None else self.value(node.value, env, out)
        statement = Return(found)
        self.returns.append(statement)
        out.append(statement)

    def _assign(self, node: ast.Assign, env: Environment, out: Block) -> Environment:
        found = self.value(node.value, env, out)
        if len(node.targets) == 1:
            return self.unpacked(node, node.targets[0], found, env, out)
        found = self.saved(found, out)
        for target in node.targets:
            env = self.bind(target, found, env, out)
        return env

    def bind(self, target: ast.expr, found: Value, env: Environment, out: Block) -> Environment:
        """Assign a value to a variable or to elements of an array."""
        if isinstance(target, ast.Name):
            if target.id == UNREAD:
                if isinstance(found, Dynamic) and found.calls:
                    out.append(OtherLine(found.text))
                return env
            return env | {target.id: self._named(target.id, found, out)}
        if isinstance(target, ast.Subscript):
            self._write(target, found, env, out)
            return env
        return self.refuse(target, f"{ast.unparse(target)} cannot be assigned")

    def _named(self, name: str, found: Value, out: Block) -> Value:
        """Return the value of a variable after an assignment."""
        if isinstance(found, (Constant, Dynamic)):
            out.append(assign(name, found))
            return found if isinstance(found, Constant) else variable(name, found.kind)
        return self.kept_whole(found, out)

    def _write(self, target: ast.Subscript, found: Value, env: Environment, out: Block) -> None:
        if not isinstance(found, (Constant, Dynamic)):
            self.refuse(target, "only numbers are written to arrays")
        own: Block = []
        element = self._element(target, env, own)
        if own and isinstance(found, Dynamic):
            found = self.kept(found, out)
        out.extend(own)
        value = arrays.storable(element, found)
        if not element.lengths:
            out.append(OtherLine(f"{self._place(target, element)} = {bare(value)}"))
            return
        self._each(target, element, "=", value, out)

    def _element(self, target: ast.Subscript, env: Environment, out: Block) -> View:
        owner = self.value(target.value, env, out)
        if not isinstance(owner, View):
            self.refuse(target, f"{ast.unparse(target.value)} has no elements")
        return self.part_of(owner, target, env, out)

    def _place(self, node: ast.AST, element: View) -> str:
        if not self.program.is_writable(element.buffer):
            self.refuse(node, "this array is read-only here")
        return arrays.place(element, self.program.stride(element.buffer))

    def _each(self, node: ast.AST, view: View, symbol: str, value: Scalar, out: Block) -> None:
        """Write the same number to every element, or apply the same operation to each."""
        value = self.kept(value, out)
        kept = self.kept_whole(view, out)
        assert isinstance(kept, View)
        indices = [variable(self.temporary(), INT) for _ in kept.lengths]
        place = self._place(node, arrays.index(kept, indices))
        body: Block = [OtherLine(f"{place} {symbol} {bare(value)}")]
        for position, length in reversed(list(zip(indices, kept.lengths, strict=True))):
            body = [Loop(f"for {position.text} in range({bare(length)})", body)]
        out.extend(body)

    def unpacked(
        self, node: ast.AST, target: ast.expr, found: Value, env: Environment, out: Block
    ) -> Environment:
        """Assign a value to a target, or the items of a tuple to several.

        All values are read before any target is written.
        """
        if not isinstance(target, ast.Tuple):
            return self.bind(target, found, env, out)
        if isinstance(found, View):
            found = self._elements(found, len(target.elts))
        if not isinstance(found, (TupleValue, Record)):
            self.refuse(node, "only a tuple has several parts")
        if len(found.items) != len(target.elts):
            self.refuse(node, f"{len(found.items)} values for {len(target.elts)} targets")
        if out and isinstance(out[-1], Unpack) and _are_results(found, out[-1]):
            return self._received(target, found, out[-1], env, out)
        items = list(found.items)
        for position in range(1, len(items)):
            if _is_disturbed(items[position], target.elts[:position]):
                items[position] = self.saved(items[position], out)
        for element, item in zip(target.elts, items, strict=True):
            env = self.bind(element, item, env, out)
        return env

    def _elements(self, view: View, count: int) -> TupleValue:
        """Return the first elements of an array, to be unpacked."""
        places = [arrays.index(view, [constant(position)]) for position in range(count)]
        return TupleValue(tuple(map(self.program.load, places)))

    def _received(
        self, target: ast.Tuple, found: TupleValue | Record, unpack: Unpack, env: Environment, out: Block
    ) -> Environment:
        """Assign the results of a call directly to the named variables."""
        for position, (element, item) in enumerate(zip(target.elts, found.items, strict=True)):
            if isinstance(element, ast.Name) and isinstance(item, Dynamic):
                if element.id != UNREAD:
                    unpack.targets[position] = element.id
                    env = env | {element.id: variable(element.id, item.kind)}
            else:
                env = self.bind(element, item, env, out)
        return env

    def saved(self, value: Value, out: Block) -> Value:
        if isinstance(value, Dynamic):
            name = self.temporary()
            out.append(assign(name, value))
            return variable(name, value.kind)
        return self.kept_whole(value, out)

    def _augment(self, node: ast.AugAssign, env: Environment, out: Block) -> Environment:
        symbol = BINARY[type(node.op)][0]
        if isinstance(node.target, ast.Name) and isinstance(owner := env.get(node.target.id), View):
            value = self.number(node.value, env, out)
            arrays.storable(owner, binary(node.op, variable("", owner.kind), value))
            self._each(node, owner, f"{symbol}=", value, out)
            return env
        if isinstance(node.target, ast.Name):
            name = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
            left, right = self.numbers([name, node.value], env, out)
            found = binary(node.op, left, right)
            return env | {node.target.id: self._named(node.target.id, found, out)}
        if not isinstance(node.target, ast.Subscript):
            self.refuse(node, f"{ast.unparse(node.target)} cannot be assigned")
        # Python reads the element before the right-hand side, and so does the generated source
        own: Block = []
        element = self._element(node.target, env, out)
        if any(isinstance(number, Dynamic) and number.calls for number in scalars(element)):
            kept = self.kept_whole(element, out)  # the element is read and written, its index computed once
            assert isinstance(kept, View)
            element = kept
        value = self.number(node.value, env, own)
        if own:
            kept = self.kept_whole(element, out)
            assert isinstance(kept, View)
            old = self.kept(self.program.load(kept), out)
            out.extend(own)
            value = arrays.storable(kept, binary(node.op, old, value))
            out.append(OtherLine(f"{self._place(node, kept)} = {bare(value)}"))
            return env
        arrays.storable(element, binary(node.op, arrays.load(element, 1), value))
        out.append(OtherLine(f"{self._place(node, element)} {symbol}= {bare(value)}"))
        return env

    def _if(self, node: ast.If, env: Environment, out: Block) -> Environment | None:
        test = self.test(node.test, env, out)
        if isinstance(test, Constant):
            return self.block(node.body if test.value else node.orelse, env, out)
        first: Block = []
        second: Block = []
        one, other = self.block(node.body, env, first), self.block(node.orelse, env, second)
        merged = self._merge(node, one, other, first, second)
        out.append(
            If(bare(test), first, second) if first or not second else If(f"not {text_of(test)}", second, [])
        )
        return merged

    def _merge(
        self, node: ast.AST, one: Environment | None, other: Environment | None, first: Block, second: Block
    ) -> Environment | None:
        """Return the environment after either of two blocks."""
        if one is None or other is None:
            return one if other is None else other
        return {
            name: self._merged_variable(node, name, value, other[name], first, second)
            for name, value in one.items()
            if name in other
        }

    def _merged_variable(
        self, node: ast.AST, name: str, one: Value, other: Value, first: Block, second: Block
    ) -> Value:
        if same(one, other):
            return one
        if isinstance(one, Unusable) or isinstance(other, Unusable):
            return one if isinstance(one, Unusable) else other
        if isinstance(one, (Constant, Dynamic)) and isinstance(other, (Constant, Dynamic)):
            return variable(name, joined_kind(one.kind, other.kind))  # both blocks have set it
        return self.merged(node, one, other, first, second)

    def _pass(self, node: ast.Pass, env: Environment, out: Block) -> Environment:
        return env


def _are_results(found: TupleValue | Record, unpack: Unpack) -> bool:
    """Return whether these are exactly the variables of a call's unpacked results."""
    texts = [item.text if isinstance(item, Dynamic) else None for item in found.items]
    return texts == unpack.targets


def _is_disturbed(value: Value, targets: Sequence[ast.expr]) -> bool:
    """Return whether writing these targets changes a value that is read later."""
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    memory = len(names) < len(targets)
    dynamic = [number for number in scalars(value) if isinstance(number, Dynamic)]
    return any((memory and number.reads) or number.calls or number.names & names for number in dynamic)


_EVALUATE: dict[type[ast.stmt], Callable[[Statements, Any, Environment, Block], Environment | None]] = {
    ast.Expr: Statements._expression,
    ast.Return: Statements._return,
    ast.Assign: Statements._assign,
    ast.AugAssign: Statements._augment,
    ast.If: Statements._if,
    ast.Pass: Statements._pass,
}
