"""Evaluation of loops whose number of iterations is known only at run time.

Variables that a loop writes are run-time values from its start on. Arrays and tuples that it binds again are
carried between iterations number by number, in variables of the loop. Which numbers these are, and of which
kind, is found by iteration: a loop is evaluated again until the environment at the end of its body fits that
at the start.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from evenhand.compile import arrays
from evenhand.compile.arithmetic import joined_kind
from evenhand.compile.expressions import assign
from evenhand.compile.residual import Block, If, Loop, OtherLine
from evenhand.compile.scope import Environment, stores_in_block
from evenhand.compile.statements import UNREAD, Statements
from evenhand.compile.values import (
    INT,
    Constant,
    Dynamic,
    Scalar,
    TupleValue,
    Unusable,
    Value,
    View,
    bare,
    blank,
    constant,
    key,
    rebuilt,
    same,
    scalars,
    text_of,
    variable,
)


class LoopState:
    """What is known of a loop while its body is evaluated."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}  # of numbers whose kind changes
        self.carried: dict[str, Value] = {}  # arrays and tuples, their numbers in variables of the loop
        self.changing: set[str] = set()  # their numbers that are constant at the start only
        self.unusable: set[str] = set()  # variables whose structure changes
        self.start: Environment = {}
        self.left: list[Environment] = []  # environments at a break
        self.ends: list[Environment] = []  # environments at the end of the body


class Loops(Statements):
    """Evaluates loops and all other statements."""

    loops_around: list[LoopState]  # loops around the current statement, innermost last

    def statement(self, node: ast.stmt, env: Environment, out: Block) -> Environment | None:
        if type(node) in _EVALUATE:
            return _EVALUATE[type(node)](self, node, env, out)
        return super().statement(node, env, out)

    def _for(self, node: ast.For, env: Environment, out: Block) -> Environment | None:
        if isinstance(node.iter, ast.Call) and self.python_value(node.iter.func, env) is range:
            bounds = self.numbers(node.iter.args, env, out)
            if _is_empty(bounds):
                return env
            if not isinstance(node.target, ast.Name):
                self.refuse(node, "a range gives one number at a time")
            if len(bounds) == 3 and not (isinstance(bounds[2], Constant) and bounds[2].value):
                self.refuse(node, "the step of a range must be a constant other than 0")
            name = self.temporary() if node.target.id == UNREAD else node.target.id
            body, loop = self._loop(node, {name: variable(name, INT)}, [], env, out)
            out.append(Loop(f"for {name} in range({', '.join(map(bare, bounds))})", body))
            return _after(loop, all(isinstance(bound, Constant) for bound in bounds), name)
        return self._for_elements(node, env, out)

    def _for_elements(self, node: ast.For, env: Environment, out: Block) -> Environment | None:
        """Evaluate a loop over the elements of an array or of a tuple."""
        over = self.value(node.iter, env, out)
        if isinstance(over, TupleValue) and not all(isinstance(item, Constant) for item in over.items):
            return self._unroll(node, over, env, out)
        if not isinstance(node.target, ast.Name) or not isinstance(over, (View, TupleValue)):
            self.refuse(node, "a loop runs over a range, a tuple or the elements of an array")
        position = variable(self.temporary(), INT)
        if isinstance(over, TupleValue):
            element: Scalar = self.item_of(node, over, position)
            length: Scalar = constant(len(over.items))
        else:
            kept = self.kept_whole(over, out)
            assert isinstance(kept, View)
            element = self.program.load(arrays.index(kept, [position]))
            length = kept.lengths[0]
        name = node.target.id
        given: Environment = {name: variable(name, element.kind)}
        body, loop = self._loop(node, given, [assign(name, element)], env, out)
        out.append(Loop(f"for {position.text} in range({bare(length)})", body))
        return _after(loop, isinstance(over, TupleValue), name)

    def _unroll(self, node: ast.For, over: TupleValue, env: Environment, out: Block) -> Environment | None:
        """Unroll a loop over a tuple of run-time values."""
        if any(isinstance(part, (ast.Break, ast.Continue)) for part in ast.walk(node)):
            self.refuse(node, "a loop over a tuple of run-time values has no break or continue")
        kept = self.kept_whole(over, out)
        assert isinstance(kept, TupleValue)
        current: Environment | None = env
        for item in kept.items:
            if current is None:
                break
            current = self.unpacked(node, node.target, item, current, out)
            current = self.block(node.body, current, out)
        return current

    def _while(self, node: ast.While, env: Environment, out: Block) -> Environment | None:
        before: Block = []
        first = _start(env, stores_in_block(node.body), LoopState())
        if _is_false(self.test(node.test, first, before)):
            return env
        body, loop = self._loop(node, {}, [], env, out)
        before = []
        test = self.test(node.test, loop.start, before)
        if before and not isinstance(test, Constant):
            leave: Block = [OtherLine("break")]
            out.append(Loop("while True", [*before, If(f"not {text_of(test)}", leave, []), *body]))
        else:
            out.append(Loop(f"while {bare(test)}", body))
        ends = loop.left if isinstance(test, Constant) else [*loop.left, loop.start]
        return _joined(ends)

    def _loop(
        self, node: ast.For | ast.While, given: Environment, first: Block, env: Environment, out: Block
    ) -> tuple[Block, LoopState]:
        """Evaluate the body of a loop until its end fits its start."""
        written = stores_in_block(node.body)
        returns = len(self.returns)
        loop = LoopState()
        while True:
            del self.returns[returns:]
            loop.left, loop.ends = [], []
            loop.start = _start(env, written, loop)
            held = [number for shape in loop.carried.values() for number in scalars(shape)]
            self.stores.update({bare(number): 2 for number in held if isinstance(number, Dynamic)})
            known = len(loop.kinds), len(loop.changing), len(loop.unusable)
            body = list(first)
            self.loops_around.append(loop)
            after = self.block(node.body, loop.start | given, body)
            if after is not None:
                loop.ends.append(self._carry(node, after, body))
            self.loops_around.pop()
            loop.kinds |= _wider_kinds(loop, written)
            if known == (len(loop.kinds), len(loop.changing), len(loop.unusable)):
                break
        for name, shape in loop.carried.items():
            if name not in loop.unusable:
                out.extend(_copies(shape, env[name]))
        return body, loop

    def _carry(self, node: ast.AST, env: Environment, out: Block) -> Environment:
        """Assign the values at the end of the body to the variables of the loop."""
        loop = self.loops_around[-1]
        found = dict(env)
        for name, shape in loop.carried.items():
            if name in loop.unusable:
                continue
            value = env[name]
            if isinstance(value, Unusable) or key(blank(shape)) != key(blank(value)):
                loop.unusable.add(name)
                continue
            self.check_structure(node, shape, value)
            pairs = zip(scalars(shape), scalars(value), strict=True)
            for position, (held, new) in enumerate(pairs):
                if _is_fixed(held) and not same(held, new):
                    loop.changing.add(f"{name}__{position}")
            out.extend(_copies(shape, value))
            found[name] = shape
        return found

    def _break(self, node: ast.Break, env: Environment, out: Block) -> None:
        self.loops_around[-1].left.append(self._carry(node, env, out))
        out.append(OtherLine("break"))

    def _continue(self, node: ast.Continue, env: Environment, out: Block) -> None:
        self.loops_around[-1].ends.append(self._carry(node, env, out))
        out.append(OtherLine("continue"))


def _start(env: Environment, written: set[str], loop: LoopState) -> Environment:
    """Return the environment at the start of every iteration."""
    found: Environment = {}
    for name, value in env.items():
        if name not in written or isinstance(value, Unusable):
            found[name] = value
        elif isinstance(value, (Constant, Dynamic)):
            found[name] = variable(name, loop.kinds.get(name, value.kind))
        elif name in loop.unusable:
            found[name] = Unusable("is bound to arrays or tuples of different structure in a loop")
        else:
            found[name] = loop.carried[name] = _carried(name, value, loop.changing)
    return found


def _carried(name: str, value: Value, changing: set[str]) -> Value:
    """Return a compound value with its run-time numbers in variables of the loop."""
    positions = iter(range(sum(1 for _ in scalars(value))))

    def held(number: Scalar, path: str) -> Scalar:
        place = f"{name}__{next(positions)}"
        kept = _is_fixed(number) and place not in changing
        return number if kept else variable(f"{path}__loop", number.kind)

    return rebuilt(value, held, name)


def _is_fixed(number: Scalar) -> bool:
    """Return whether this is the same number wherever it is used."""
    return isinstance(number, Constant) or number.header


def _copies(shape: Value, value: Value) -> Block:
    """Return assignments of the numbers of a value to the variables of its shape."""
    pairs = zip(scalars(shape), scalars(value), strict=True)
    return [assign(bare(held), new) for held, new in pairs if not _is_fixed(held) and not same(held, new)]


def _wider_kinds(loop: LoopState, written: set[str]) -> dict[str, str]:
    """Return the numbers whose kind at the end of the body differs from that at its start."""
    found: dict[str, str] = {}
    for end in loop.ends:
        for name in written & loop.start.keys() & end.keys():
            one, other = loop.start[name], end[name]
            if isinstance(one, (Constant, Dynamic)) and isinstance(other, (Constant, Dynamic)):
                kind = joined_kind(found.get(name, one.kind), other.kind)
                if kind != one.kind:
                    found[name] = kind
    return found


def _after(loop: LoopState, certain: bool, name: str) -> Environment | None:
    """Return the environment after a loop over `name`; with at least one iteration, its variables are set."""
    found = _joined([*loop.left, *(loop.ends if certain else [loop.start])])
    if found is None or certain or name not in found:
        return found
    return found | {name: Unusable("had a value before a loop over it, which may have no iteration")}


def _joined(ends: Sequence[Environment]) -> Environment | None:
    """Return the environment after a loop that can be left with each of these environments."""
    if not ends:
        return None
    found: Environment = {}
    for name in set.intersection(*(set(end) for end in ends)):
        values = [end[name] for end in ends]
        if all(same(values[0], value) for value in values[1:]):
            found[name] = values[0]
            continue
        kinds = [value.kind for value in values if isinstance(value, (Constant, Dynamic))]
        if len(kinds) < len(values):
            found[name] = Unusable("holds different arrays or tuples on the ways here")
            continue
        kind = kinds[0]
        for other in kinds[1:]:
            kind = joined_kind(kind, other)
        found[name] = variable(name, kind)
    return found


def _is_false(test: Scalar) -> bool:
    return isinstance(test, Constant) and not test.value


def _is_empty(bounds: Sequence[Scalar]) -> bool:
    """Return whether a range is known to be empty."""
    known = [bound.value for bound in bounds if isinstance(bound, Constant)]
    return len(known) == len(bounds) and len(range(*known)) == 0


_EVALUATE: dict[type[ast.stmt], Callable[[Loops, Any, Environment, Block], Environment | None]] = {
    ast.For: Loops._for,
    ast.While: Loops._while,
    ast.Break: Loops._break,
    ast.Continue: Loops._continue,
}
