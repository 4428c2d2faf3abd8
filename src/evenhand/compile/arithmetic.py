"""Arithmetic on abstract numbers: known values are computed, others become expressions.

Kinds follow the compiler's rules: integers and bools mixed with floats are floats; words mix with words only.
A value computed now equals the one at run time: Python's arithmetic on floating-point numbers is that of the
machine, and functions of the mathematical library are left to run time.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

from evenhand.compile.values import BOOL, FLOAT, INT, WORD, Constant, Dynamic, Scalar, bare, constant, text_of

BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
}
COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_BITS = (ast.BitAnd, ast.BitOr, ast.BitXor)
_SHIFTS = (ast.LShift, ast.RShift)
_DIVISIONS = (ast.Div, ast.FloorDiv, ast.Mod)
_LARGEST_INT = 2**63


class KindMismatch(TypeError):
    """Numbers of kinds that do not mix."""


def joined_kind(one: str, other: str) -> str:
    """Return the kind of a number that is of either kind."""
    if one == other:
        return one
    if WORD in (one, other):
        raise KindMismatch(f"a {one} and a {other} do not mix; convert one of them")
    return FLOAT if FLOAT in (one, other) else INT


def combined(
    parts: Sequence[Scalar],
    text: str,
    kind: str,
    *,
    atom: bool = False,
    reads: bool = False,
    calls: bool = False,
) -> Dynamic:
    """Return an expression made of others."""
    dynamic = [part for part in parts if isinstance(part, Dynamic)]
    names = frozenset().union(*(part.names for part in dynamic))
    calls = calls or any(part.calls for part in dynamic)
    reads = reads or calls or any(part.reads for part in dynamic)
    return Dynamic(text, kind, names, reads, calls, atom)


def binary(op: ast.operator, left: Scalar, right: Scalar) -> Scalar:
    """Return left op right."""
    symbol, compute = BINARY[type(op)]
    kind = _binary_kind(op, left.kind, right.kind)
    folded = _folded(op, compute, left, right, kind)
    if folded is not None:
        return folded
    if kind == INT and (shorter := _shorter(op, left, right)) is not None:
        return shorter
    return combined((left, right), f"{text_of(left)} {symbol} {text_of(right)}", kind)


def compared(op: ast.cmpop, left: Scalar, right: Scalar) -> Scalar:
    """Return left op right as a bool."""
    symbol, compute = COMPARE[type(op)]
    joined_kind(left.kind, right.kind)
    if isinstance(left, Constant) and isinstance(right, Constant):
        return constant(compute(left.value, right.value), left.structural or right.structural)
    return combined((left, right), f"{text_of(left)} {symbol} {text_of(right)}", BOOL)


def negative(value: Scalar) -> Scalar:
    """Return -value."""
    if value.kind == WORD:
        raise KindMismatch("a word has no negative")
    kind = INT if value.kind == BOOL else value.kind
    if isinstance(value, Constant):
        return Constant(-value.value, kind, value.structural)
    return combined((value,), f"-{text_of(value)}", kind)


def inverted(value: Scalar) -> Scalar:
    """Return not value."""
    if value.kind == WORD:
        raise KindMismatch("a word is neither true nor false")
    if isinstance(value, Constant):
        return constant(not value.value, value.structural)
    return combined((value,), f"not {text_of(value)}", BOOL)


def converted(value: Scalar, kind: str) -> Scalar:
    """Return the number as another kind without loss: bool to int, both to float."""
    if value.kind == kind:
        return value
    if value.kind == WORD or kind in (WORD, BOOL) or value.kind == FLOAT:
        raise KindMismatch(f"a {kind} is wanted; it is a {value.kind}")
    return cast_to(value, kind)


def cast_to(value: Scalar, kind: str) -> Scalar:
    """Return int(value), float(value), bool(value) or np.uint64(value)."""
    if value.kind == kind:
        return value
    if isinstance(value, Constant) and kind != WORD and value.kind != WORD:
        return Constant({INT: int, FLOAT: float, BOOL: bool}[kind](value.value), kind, value.structural)
    if isinstance(value, Constant) and kind == WORD and value.kind == INT and value.value >= 0:
        return Constant(value.value, WORD, value.structural)
    name = {INT: "np.int64" if value.kind == WORD else "int", FLOAT: "float", BOOL: "bool", WORD: "np.uint64"}
    return combined((value,), f"{name[kind]}({bare(value)})", kind, atom=True)


def extreme(name: str, parts: Sequence[Scalar]) -> Scalar:
    """Return min or max of two or more numbers, taken from left to right."""
    found = parts[0]
    for part in parts[1:]:
        kind = joined_kind(found.kind, part.kind)
        if isinstance(found, Constant) and isinstance(part, Constant):
            value = {"min": min, "max": max}[name](found.value, part.value)
            found = cast_to(constant(value, found.structural or part.structural), kind)
        else:
            found = combined((found, part), f"{name}({bare(found)}, {bare(part)})", kind, atom=True)
    return found


def _binary_kind(op: ast.operator, left: str, right: str) -> str:
    kind = joined_kind(left, right)
    if isinstance(op, _BITS):
        if kind == FLOAT:
            raise KindMismatch("bits of floating-point numbers")
        return kind
    if isinstance(op, _SHIFTS):
        if kind not in (INT, WORD):
            raise KindMismatch(f"a {kind} cannot be shifted")
        return kind
    if isinstance(op, ast.Div):
        if kind == WORD:
            raise KindMismatch("words are not divided")
        return FLOAT
    return INT if kind == BOOL else kind


def _folded(
    op: ast.operator, compute: Callable[[Any, Any], Any], left: Scalar, right: Scalar, kind: str
) -> Constant | None:
    """Return the result if both numbers are known and the compiler would compute the same."""
    if not (isinstance(left, Constant) and isinstance(right, Constant)) or kind == WORD:
        return None
    if isinstance(op, _DIVISIONS) and right.value == 0:
        return None
    if isinstance(op, ast.Pow) and (kind != INT or right.value < 0):
        return None  # power is left to the compiler
    if isinstance(op, _SHIFTS) and not 0 <= right.value < 64:
        return None
    value = compute(left.value, right.value)
    if kind == INT and not -_LARGEST_INT <= value < _LARGEST_INT:
        return None
    return Constant(value, kind, left.structural or right.structural)


def _shorter(op: ast.operator, left: Scalar, right: Scalar) -> Scalar | None:
    """Return the operand itself where 0 is added or 1 multiplied; for integers only."""
    zero = Constant(0, INT)
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Constant) and other.kind == INT and one.kind == INT:
            if isinstance(op, ast.Add) and one.value == 0:
                return other
            if isinstance(op, ast.Mult) and one.value == 1:
                return other
            if isinstance(op, ast.Mult) and one.value == 0 and isinstance(other, Dynamic) and not other.reads:
                return zero
    if isinstance(op, ast.Sub) and isinstance(right, Constant) and right.value == 0 and left.kind == INT:
        return left
    return None
