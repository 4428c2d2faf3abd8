"""Inference of the kinds of numbers in generated functions.

Generated source is plain Python whose kinds follow from those of its parameters and of the functions it
calls. A variable with numbers of different kinds has the kind to which all of them can be converted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from evenhand.compile.arithmetic import joined_kind
from evenhand.compile.arrays import buffer_kind
from evenhand.compile.residual import Function
from evenhand.compile.values import BOOL, FLOAT, INT, WORD
from evenhand.errors import CompilationFailed

TESTS = ("math.isinf", "math.isnan", "math.isfinite")
_CASTS = {"int": INT, "np.int64": INT, "float": FLOAT, "bool": BOOL, "np.uint64": WORD, "bits_of": WORD}
_UNKNOWN = ""  # a variable without an assignment so far


class Kinds:
    """The kinds of one function's expressions; `functions` are the program's, by name."""

    def __init__(self, function: Function, body: list[ast.stmt], functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self.buffers = {name for name, kind in function.parameters if kind.startswith("*")}
        self.parameters = {name: kind for name, kind in function.parameters if name not in self.buffers}
        self.variables = dict(self.parameters)
        while self._widened(body):
            pass

    def of(self, node: ast.expr) -> str:
        """Return the kind of an expression."""
        if isinstance(node, ast.Constant):
            return {bool: BOOL, int: INT}.get(type(node.value), FLOAT)
        if isinstance(node, ast.Name):
            return WORD if node.id.startswith("word_") else self.variables.get(node.id, _UNKNOWN)
        if isinstance(node, ast.Attribute):
            return FLOAT  # math.inf, math.nan
        if isinstance(node, ast.Subscript):
            assert isinstance(node.value, ast.Name)
            return buffer_kind(node.value.id)
        if isinstance(node, (ast.Compare, ast.BoolOp)):
            return BOOL
        if isinstance(node, ast.IfExp):
            return self._joined(node.body, node.orelse)
        if isinstance(node, ast.UnaryOp):
            return BOOL if isinstance(node.op, ast.Not) else _negative(self.of(node.operand))
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise CompilationFailed(f"{ast.unparse(node)} has no kind.")

    def _joined(self, *nodes: ast.expr) -> str:
        found = _UNKNOWN
        for kind in map(self.of, nodes):
            found = kind if found == _UNKNOWN or kind == _UNKNOWN else joined_kind(found, kind)
        return found

    def _binary(self, node: ast.BinOp) -> str:
        if isinstance(node.op, ast.Div):
            return FLOAT
        kind = self._joined(node.left, node.right)
        bits = isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor))
        return kind if bits or kind != BOOL else INT

    def _call(self, node: ast.Call) -> str:
        name = ast.unparse(node.func)
        if name in self._functions:
            results = self._functions[name].results
            return results[0] if results else INT
        if name in ("min", "max"):
            return self._joined(*node.args)
        if name == "abs":
            return _negative(self.of(node.args[0]))
        if name in TESTS:
            return BOOL
        return INT if name == "math.floor" else _CASTS.get(name, FLOAT)

    def _widened(self, body: list[ast.stmt]) -> bool:
        """Update the kinds of variables from their assignments; return whether any changed."""
        before = dict(self.variables)
        for name, kind in self._assigned(body):
            old = self.variables.get(name, _UNKNOWN)
            if kind != _UNKNOWN:
                self.variables[name] = kind if old == _UNKNOWN else joined_kind(old, kind)
        return self.variables != before

    def _assigned(self, body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.For):
                    assert isinstance(node.target, ast.Name)
                    yield node.target.id, INT
                elif isinstance(node, ast.Assign):
                    yield from self._targets(node)

    def _targets(self, node: ast.Assign) -> Iterator[tuple[str, str]]:
        (target,) = node.targets
        if isinstance(target, ast.Name):
            yield target.id, self.of(node.value)
        elif isinstance(target, ast.Tuple):
            assert isinstance(node.value, ast.Call)
            results = self._functions[ast.unparse(node.value.func)].results
            for element, kind in zip(target.elts, results, strict=True):
                assert isinstance(element, ast.Name)
                yield element.id, kind


def _negative(kind: str) -> str:
    return INT if kind == BOOL else kind
