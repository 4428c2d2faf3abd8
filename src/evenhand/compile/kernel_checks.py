"""Check the whole syntax tree of a kernel, including branches that are never taken.

An unsupported construct is an error before anything is compiled, never a wrong result.
"""

from __future__ import annotations

import ast
from functools import cache
from types import FunctionType

from evenhand.compile.arithmetic import BINARY, COMPARE
from evenhand.compile.registry import body_of, tree_of
from evenhand.compile.scope import UnsupportedCode

_STATEMENTS = (
    ast.Expr, ast.Return, ast.Assign, ast.AugAssign, ast.If, ast.For, ast.While, ast.Break, ast.Continue,
    ast.Pass,
)  # fmt: skip
_EXPRESSIONS = (
    ast.Constant, ast.Name, ast.Attribute, ast.Tuple, ast.Subscript, ast.Slice, ast.UnaryOp, ast.BinOp,
    ast.Compare, ast.BoolOp, ast.IfExp, ast.Call, ast.keyword,
)  # fmt: skip
_SYMBOLS: tuple[type[ast.AST], ...] = (
    ast.Load,
    ast.Store,
    ast.And,
    ast.Or,
    ast.Not,
    ast.USub,
    ast.In,
    ast.NotIn,
    *BINARY,
    *COMPARE,
)


@cache
def verify(function: FunctionType) -> None:
    """Refuse a kernel that contains constructs the compiler does not support."""
    for statement in body_of(function):
        for node in ast.walk(statement):
            problem = _problem(node)
            if problem is not None:
                line = getattr(node, "lineno", tree_of(function).lineno)
                raise UnsupportedCode(
                    f"{function.__module__}.{function.__qualname__}, line {line}: {problem}."
                )


def _problem(node: ast.AST) -> str | None:
    if not isinstance(node, (*_STATEMENTS, *_EXPRESSIONS, *_SYMBOLS)):
        return f"{type(node).__name__} is not known to the compiler"
    if isinstance(node, (ast.For, ast.While)) and node.orelse:
        return "a loop has no else"
    if isinstance(node, ast.Slice) and node.step is not None:
        return "a slice has no step"
    if isinstance(node, ast.Constant) and not isinstance(node.value, (bool, int, float)):
        return f"{node.value!r} is not a number"
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call):
        return "an expression by itself must be a call"
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        return "`in` stands alone" if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops) else None
    return None
