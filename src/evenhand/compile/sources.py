"""Syntax trees of kernels, with a check that the files match the imported functions."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType

from evenhand.errors import CompilationFailed

Place = tuple[str, int]  # a function's name and first line


@cache
def tree_of(function: FunctionType) -> ast.FunctionDef:
    """Return the function's definition, which must not be modified."""
    code = function.__code__
    trees, codes = _definitions(code.co_filename)
    place = code.co_name, code.co_firstlineno
    if place not in trees or not _are_equal(codes[place], code):
        raise CompilationFailed(f"{code.co_filename} was changed after it was imported; restart the program.")
    return trees[place]


def body_of(function: FunctionType) -> list[ast.stmt]:
    """Return the statements of a kernel, without its docstring."""
    body = tree_of(function).body
    return body if ast.get_docstring(tree_of(function), clean=False) is None else body[1:]


@cache
def _definitions(file: str) -> tuple[dict[Place, ast.FunctionDef], dict[Place, CodeType]]:
    """Return the functions of a file, as syntax trees and as code, by name and line."""
    try:
        text = Path(file).read_bytes()
    except OSError as problem:
        raise CompilationFailed(
            f"the source of the kernels cannot be read ({problem}); install evenhand with its sources."
        ) from problem
    module = ast.parse(text)
    trees = {_place(node): node for node in module.body if isinstance(node, ast.FunctionDef)}
    compiled = compile(module, file, "exec", dont_inherit=True)
    codes = [part for part in compiled.co_consts if isinstance(part, CodeType)]
    return trees, {(code.co_name, code.co_firstlineno): code for code in codes}


def _place(node: ast.FunctionDef) -> Place:
    return node.name, min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _are_equal(fresh: CodeType, loaded: CodeType) -> bool:
    return (fresh.co_code, fresh.co_names, repr(fresh.co_consts)) == (
        loaded.co_code,
        loaded.co_names,
        repr(loaded.co_consts),
    )
