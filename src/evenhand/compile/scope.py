"""The state of one kernel under evaluation: variables, temporaries and error messages."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from evenhand.compile.residual import Assign, Block
from evenhand.compile.values import Constant, Dynamic, Scalar, Value, bare, rebuilt, variable
from evenhand.errors import CompilationFailed

if TYPE_CHECKING:
    from evenhand.compile.program import Program

Environment = dict[str, Value]


class UnsupportedCode(CompilationFailed):
    """A kernel contains an unsupported construct."""


class Scope:
    """The state of one kernel under evaluation."""

    def __init__(self, program: Program, function: FunctionType, tree: ast.FunctionDef) -> None:
        self.program = program
        self.function = function
        self.stores = stores_in(tree)  # number of writes of each local variable; parameters count once
        self._temporaries = 0

    def refuse(self, node: ast.AST, message: object) -> NoReturn:
        """Raise an error that names the construct and its place."""
        line = getattr(node, "lineno", self.function.__code__.co_firstlineno)
        raise UnsupportedCode(
            f"{self.function.__module__}.{self.function.__qualname__}, line {line}: {message}."
        )

    def is_local(self, name: str) -> bool:
        return name in self.stores

    def global_value(self, node: ast.Name) -> Any:
        """Return the value of a name outside the kernel."""
        if node.id in self.function.__globals__:
            return self.function.__globals__[node.id]
        if hasattr(builtins, node.id):
            return getattr(builtins, node.id)
        return self.refuse(node, f"{node.id} is not defined")

    def temporary(self) -> str:
        """Return a new variable name."""
        self._temporaries += 1
        return f"t{self._temporaries}_"

    def kept(self, value: Scalar, out: Block) -> Scalar:
        """Return the number in a separate variable, unless it never changes."""
        if isinstance(value, Constant) or self._is_stable(value):
            return value
        name = self.temporary()
        out.append(Assign(name, bare(value), value.calls))
        return variable(name, value.kind)

    def kept_whole(self, value: Value, out: Block) -> Value:
        """Return a compound value that does not change when variables are written."""
        return rebuilt(value, lambda number, _: self.kept(number, out))

    def _is_stable(self, value: Dynamic) -> bool:
        if not value.atom or value.reads:
            return False
        return all(self.stores[name] <= 1 for name in value.names)


def stores_in(tree: ast.FunctionDef) -> Counter[str]:
    """Return the number of writes of each local variable; parameters are written by the call."""
    found = Counter(argument.arg for argument in tree.args.args)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] += 1
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] += 1
    return found


def stores_in_block(block: list[ast.stmt]) -> set[str]:
    """Return the local variables that are written in these statements."""
    return {
        node.id
        for statement in block
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
