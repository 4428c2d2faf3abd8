"""Print generated functions (plain Python over numbers and buffers) as LLVM code.

Arithmetic is Python's: no operation is reordered or joined with another one, and integers are divided
towards minus infinity. Unlike in Python, integers have 64 bits, and a division by zero gives 0 (integers),
an infinity or a NaN (floats).

Every variable has a place on the stack; LLVM keeps it in a register.
"""

from __future__ import annotations

import ast
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from evenhand.compile.arithmetic import joined_kind
from evenhand.compile.arrays import buffer_kind
from evenhand.compile.clusters import ENTRY, Member, Signature, call_name
from evenhand.compile.kind_inference import Kinds
from evenhand.compile.residual import Function
from evenhand.compile.values import BOOL, FLOAT, INT, WORD
from evenhand.errors import CompilationFailed

TYPES = {FLOAT: "double", INT: "i64", BOOL: "i1", WORD: "i64"}
_STORED = TYPES | {BOOL: "i8"}  # a bool takes a byte in a buffer
_INTRINSICS = {
    "math.sqrt": "sqrt",
    "math.log": "log",
    "math.exp": "exp",
    "math.sin": "sin",
    "math.cos": "cos",
}
_LIBRARY = {f"math.{name}": name for name in ("lgamma", "log1p", "expm1", "asin", "erfc")}
_CASTS = {"int": INT, "np.int64": INT, "float": FLOAT, "bool": BOOL, "np.uint64": WORD}
_FLOATS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_INTEGERS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
    ast.LShift: "shl",
}  # fmt: skip
_COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_LARGEST_EXPONENT = 64

# declarations of the functions that any code may call
DECLARATIONS = "\n".join(
    [
        *(f"declare double @llvm.{name}.f64(double)" for name in (*_INTRINSICS.values(), "fabs", "floor")),
        "declare double @llvm.pow.f64(double, double)",
        *(f"declare double @{name}(double) #1" for name in _LIBRARY.values()),
        "attributes #0 = { nounwind }",
        "attributes #1 = { nounwind willreturn memory(none) }",
        "",
    ]
)


def llvm_code(members: Sequence[Member]) -> str:
    """Return a cluster as LLVM code: its members, and declarations of what they call."""
    defined = {member["signature"]["name"] for member in members}
    called = {head["name"]: head for member in members for head in member["calls"]}
    declared = [_declared(head) for name, head in called.items() if name not in defined]
    return "\n".join([DECLARATIONS, *declared, *map(_defined, members)])


def _declared(head: Signature) -> str:
    kinds = ", ".join(map(_parameter_type, head["parameters"]))
    return f"declare {_result_type(head['results'])} @{head['name']}({kinds}) #0"


def _defined(member: Member) -> str:
    head = member["signature"]
    parameters = list(zip(member["parameters"], head["parameters"], strict=True))
    function = Function(head["name"], parameters, head["results"], [])
    called = {}
    for place, other in enumerate(member["calls"]):
        names = [(f"p{position}", kind) for position, kind in enumerate(other["parameters"])]
        called[call_name(place)] = Function(other["name"], names, other["results"], [])
    linkage = "" if head["name"] == ENTRY else "internal "
    return Lowering(function, member["source"], called).printed(linkage, member["inlined"])


class Lowering:
    """Prints one function; `called` are the functions that it calls, by their names in its source."""

    def __init__(self, function: Function, source: str, called: Mapping[str, Function]) -> None:
        self._function, self._called = function, called
        (definition,) = ast.parse(source).body
        assert isinstance(definition, ast.FunctionDef)
        self._body = definition.body
        self._kinds = Kinds(function, self._body, called)
        self._lines: list[str] = []
        self._count = 0
        self._loops: list[tuple[str, str]] = []  # where `continue` and `break` of the loops around go
        self._ended = False  # whether the current block has its last instruction

    def printed(self, linkage: str, inlined: bool) -> str:
        """Return the definition of the function."""
        result = _result_type(self._function.results)
        parameters = ", ".join(
            f"{_parameter_type(kind)} %{place}" for place, kind in self._function.parameters
        )
        attributes = "alwaysinline nounwind" if inlined else "nounwind"
        head = f"define {linkage}{result} @{self._function.name}({parameters}) {attributes} {{"
        for variable, kind in sorted(self._kinds.variables.items()):
            self._lines.append(f"%v.{variable} = alloca {TYPES[kind]}")
        for variable, kind in self._kinds.parameters.items():
            self._lines.append(f"store {TYPES[kind]} %{variable}, ptr %v.{variable}")
        self._block(self._body)
        if not self._ended:  # after a return in every branch this is never reached
            self._lines.append("ret void" if result == "void" else f"ret {result} zeroinitializer")
        return "\n".join([head, "entry:", *self._lines, "}", ""])

    # instructions and blocks

    def _new(self, instruction: str) -> str:
        """Append an instruction; return the name of its value."""
        self._count += 1
        self._lines.append(f"%t{self._count} = {instruction}")
        return f"%t{self._count}"

    def _labels(self, *names: str) -> list[str]:
        self._count += 1
        return [f"{name}{self._count}" for name in names]

    def _begin(self, label: str) -> None:
        self._goto(label)
        self._lines.append(f"{label}:")
        self._ended = False

    def _goto(self, label: str) -> None:
        self._end(f"br label %{label}")

    def _branch(self, test: ast.expr, yes: str, no: str) -> None:
        self._end(f"br i1 {self._truth(test)}, label %{yes}, label %{no}")

    def _end(self, instruction: str) -> None:
        """End the current block, unless it has ended."""
        if not self._ended:
            self._lines.append(instruction)
        self._ended = True

    # statements

    def _block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            if self._ended:
                return  # what follows a return, break or continue is never reached
            _STATEMENTS[type(statement)](self, statement)

    def _if(self, node: ast.If) -> None:
        yes, no, after = self._labels("then", "else", "after")
        self._branch(node.test, yes, no)
        reached = False
        for label, body in ((yes, node.body), (no, node.orelse)):
            self._begin(label)
            self._block(body)
            reached |= not self._ended
            self._goto(after)
        if reached:
            self._begin(after)

    def _while(self, node: ast.While) -> None:
        test, body, after = self._labels("test", "body", "after")
        self._begin(test)
        self._branch(node.test, body, after)
        self._begin(body)
        self._loop(node.body, test, after)
        self._goto(test)
        self._begin(after)

    def _for(self, node: ast.For) -> None:
        """Print a loop over a range, whose bounds are evaluated once."""
        assert isinstance(node.target, ast.Name)
        assert isinstance(node.iter, ast.Call)
        bounds = [self._as(bound, INT) for bound in node.iter.args]
        first, last = ("0", bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
        step = ast.literal_eval(node.iter.args[2]) if len(bounds) == 3 else 1
        head, body, next_, after = self._labels("head", "body", "next", "after")
        turn = f"%{head}.turn"
        before = self._labels("before")[0]
        self._begin(before)
        self._begin(head)
        self._lines.append(f"{turn} = phi i64 [{first}, %{before}], [{turn}.next, %{next_}]")
        inside = self._new(f"icmp {'slt' if step > 0 else 'sgt'} i64 {turn}, {last}")
        self._end(f"br i1 {inside}, label %{body}, label %{after}")
        self._begin(body)
        kind = self._kinds.variables[node.target.id]
        value = self._converted(turn, INT, kind)
        self._lines.append(f"store {TYPES[kind]} {value}, ptr %v.{node.target.id}")
        self._loop(node.body, next_, after)
        self._begin(next_)
        self._lines.append(f"{turn}.next = add nsw i64 {turn}, {step}")
        self._goto(head)
        self._begin(after)

    def _loop(self, body: list[ast.stmt], again: str, after: str) -> None:
        self._loops.append((again, after))
        self._block(body)
        self._loops.pop()

    def _break(self, node: ast.Break) -> None:
        self._goto(self._loops[-1][1])

    def _continue(self, node: ast.Continue) -> None:
        self._goto(self._loops[-1][0])

    def _pass(self, node: ast.Pass) -> None:
        return

    def _expression(self, node: ast.Expr) -> None:
        assert isinstance(node.value, ast.Call)
        self._call(node.value)

    def _return(self, node: ast.Return) -> None:
        results = self._function.results
        if node.value is None:
            self._end("ret void")
        elif isinstance(node.value, ast.Tuple):
            whole, type_ = "poison", _result_type(results)
            values = [self._as(part, kind) for part, kind in zip(node.value.elts, results, strict=True)]
            for place, (value, kind) in enumerate(zip(values, results, strict=True)):
                whole = self._new(f"insertvalue {type_} {whole}, {TYPES[kind]} {value}, {place}")
            self._end(f"ret {type_} {whole}")
        else:
            self._end(f"ret {TYPES[results[0]]} {self._as(node.value, results[0])}")

    def _assign(self, node: ast.Assign) -> None:
        (target,) = node.targets
        if isinstance(target, ast.Tuple):
            assert isinstance(node.value, ast.Call)
            results = self._called[ast.unparse(node.value.func)].results
            whole = self._call(node.value)
            for place, (part, kind) in enumerate(zip(target.elts, results, strict=True)):
                found = self._new(f"extractvalue {_result_type(results)} {whole}, {place}")
                self._store(part, found, kind)
        else:
            self._store(target, self._value(node.value), self._kinds.of(node.value))

    def _augment(self, node: ast.AugAssign) -> None:
        """Print an augmented assignment; the element is read before the right-hand side."""
        load = ast.Subscript(node.target.value, node.target.slice, ast.Load())  # type: ignore[union-attr]
        value = ast.BinOp(load, node.op, node.value)
        self._store(node.target, self._value(value), self._kinds.of(value))

    def _store(self, target: ast.expr, value: str, kind: str) -> None:
        if isinstance(target, ast.Name):
            wanted = self._kinds.variables[target.id]
            found = self._converted(value, kind, wanted)
            self._lines.append(f"store {TYPES[wanted]} {found}, ptr %v.{target.id}")
            return
        assert isinstance(target, ast.Subscript)
        wanted = self._kinds.of(target)
        found = self._converted(value, kind, wanted)
        if wanted == BOOL:
            found = self._new(f"zext i1 {found} to i8")
        self._lines.append(f"store {_STORED[wanted]} {found}, ptr {self._address(target)}")

    # expressions: each returns the name of a value, or a constant

    def _value(self, node: ast.expr) -> str:
        return _EXPRESSIONS[type(node)](self, node)

    def _as(self, node: ast.expr, kind: str) -> str:
        """Return an expression converted to a kind."""
        return self._converted(self._value(node), self._kinds.of(node), kind)

    def _truth(self, node: ast.expr) -> str:
        return self._as(node, BOOL)

    def _converted(self, value: str, kind: str, wanted: str) -> str:
        if kind == wanted or {kind, wanted} == {INT, WORD}:
            return value
        if wanted == BOOL:
            test = "fcmp une double" if kind == FLOAT else "icmp ne i64"
            return self._new(f"{test} {value}, {_number(0.0) if kind == FLOAT else 0}")
        if kind == BOOL:
            wide = "uitofp i1" if wanted == FLOAT else "zext i1"
            return self._new(f"{wide} {value} to {TYPES[wanted]}")
        signed = "s" if WORD not in (kind, wanted) else "u"
        if wanted == FLOAT:
            return self._new(f"{signed}itofp i64 {value} to double")
        return self._new(f"fpto{signed}i double {value} to i64")

    def _constant(self, node: ast.Constant) -> str:
        if isinstance(node.value, bool):
            return "true" if node.value else "false"
        return str(node.value) if isinstance(node.value, int) else _number(float(node.value))  # type: ignore[arg-type]

    def _name(self, node: ast.Name) -> str:
        if node.id.startswith("word_"):
            return str(_signed(int(node.id[5:], 16)))
        return self._new(f"load {TYPES[self._kinds.variables[node.id]]}, ptr %v.{node.id}")

    def _attribute(self, node: ast.Attribute) -> str:
        return _number({"inf": math.inf, "nan": math.nan}[node.attr])

    def _subscript(self, node: ast.Subscript) -> str:
        kind = self._kinds.of(node)
        found = self._new(f"load {_STORED[kind]}, ptr {self._address(node)}")
        return self._new(f"icmp ne i8 {found}, 0") if kind == BOOL else found

    def _address(self, node: ast.Subscript) -> str:
        assert isinstance(node.value, ast.Name)
        if self._kinds.of(node.slice) != INT:
            raise CompilationFailed(f"{ast.unparse(node)} needs a whole number as its index.")
        place = self._value(node.slice)
        return self._new(
            f"getelementptr {_STORED[buffer_kind(node.value.id)]}, ptr %{node.value.id}, i64 {place}"
        )

    def _unary(self, node: ast.UnaryOp) -> str:
        if isinstance(node.op, ast.Not):
            return self._new(f"xor i1 {self._truth(node.operand)}, true")
        kind = self._kinds.of(node)
        value = self._as(node.operand, kind)
        return self._new(f"fneg double {value}" if kind == FLOAT else f"sub i64 0, {value}")

    def _binary(self, node: ast.BinOp) -> str:
        kind = self._kinds.of(node)
        if isinstance(node.op, ast.Pow):
            return self._power(node, kind)
        left, right = self._as(node.left, kind), self._as(node.right, kind)
        if kind == FLOAT:
            if type(node.op) not in _FLOATS:
                raise CompilationFailed(f"{ast.unparse(node)} is not defined for floating-point numbers.")
            return self._new(f"{_FLOATS[type(node.op)]} double {left}, {right}")
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            return self._divided(left, right, kind, isinstance(node.op, ast.Mod))
        if isinstance(node.op, ast.RShift):
            return self._new(f"{'lshr' if kind == WORD else 'ashr'} i64 {left}, {right}")
        return self._new(f"{_INTEGERS[type(node.op)]} {TYPES[kind]} {left}, {right}")

    def _divided(self, left: str, right: str, kind: str, remainder: bool) -> str:
        """Return the quotient, rounded down, or the remainder; 0 for a divisor of 0."""
        zero = self._new(f"icmp eq i64 {right}, 0")
        divisor = self._new(
            f"select i1 {zero}, i64 1, i64 {right}"
        )  # x86 stops the program at a division by 0
        if kind == WORD:
            found = self._new(f"{'urem' if remainder else 'udiv'} i64 {left}, {divisor}")
            return self._new(f"select i1 {zero}, i64 0, i64 {found}")
        rest = self._new(f"srem i64 {left}, {divisor}")
        signs = self._new(f"xor i64 {rest}, {divisor}")
        differ = self._new(f"icmp slt i64 {signs}, 0")
        inexact = self._new(f"icmp ne i64 {rest}, 0")
        above = self._new(f"and i1 {differ}, {inexact}")  # the quotient was rounded towards 0, not down
        if remainder:
            more = self._new(f"select i1 {above}, i64 {divisor}, i64 0")
            found = self._new(f"add i64 {rest}, {more}")
        else:
            quotient = self._new(f"sdiv i64 {left}, {divisor}")
            one = self._new(f"zext i1 {above} to i64")
            found = self._new(f"sub i64 {quotient}, {one}")
        return self._new(f"select i1 {zero}, i64 0, i64 {found}")

    def _power(self, node: ast.BinOp, kind: str) -> str:
        """Return a power: by squaring for a constant whole exponent."""
        value = self._as(node.left, kind)
        exponent = node.right.value if isinstance(node.right, ast.Constant) else None
        if isinstance(exponent, int) and 0 <= exponent <= _LARGEST_EXPONENT:
            multiply = "fmul double" if kind == FLOAT else "mul i64"
            found = _number(1.0) if kind == FLOAT else "1"
            while exponent:
                if exponent & 1:
                    found = self._new(f"{multiply} {found}, {value}")
                exponent >>= 1
                if exponent:
                    value = self._new(f"{multiply} {value}, {value}")
            return found
        if kind != FLOAT or self._kinds.of(node.right) != FLOAT:
            raise CompilationFailed(f"{ast.unparse(node)} needs a constant or a floating-point exponent.")
        return self._new(f"call double @llvm.pow.f64(double {value}, double {self._value(node.right)})")

    def _compare(self, node: ast.Compare) -> str:
        right, op = node.comparators[0], _COMPARE[type(node.ops[0])]
        kind = joined_kind(self._kinds.of(node.left), self._kinds.of(right))
        left_value, right_value = self._as(node.left, kind), self._as(right, kind)
        if kind == FLOAT:
            order = "u" if op == "ne" else "o"  # comparisons with NaN are false, but NaN != x is true
            return self._new(f"fcmp {order}{op} double {left_value}, {right_value}")
        sign = "" if op in ("eq", "ne") else "s" if kind == INT else "u"
        return self._new(f"icmp {sign}{op} {TYPES[kind]} {left_value}, {right_value}")

    def _boolean(self, node: ast.BoolOp) -> str:
        """Return `and` or `or`: operands after the one that settles it are not evaluated."""
        (after,) = self._labels("settled")
        place = self._place("i1")
        for position, part in enumerate(node.values):
            value = self._truth(part)
            self._lines.append(f"store i1 {value}, ptr {place}")
            if position < len(node.values) - 1:
                (more,) = self._labels("more")
                yes, no = (more, after) if isinstance(node.op, ast.And) else (after, more)
                self._end(f"br i1 {value}, label %{yes}, label %{no}")
                self._begin(more)
        self._begin(after)
        return self._new(f"load i1, ptr {place}")

    def _choice(self, node: ast.IfExp) -> str:
        kind = self._kinds.of(node)
        yes, no, after = self._labels("yes", "no", "chosen")
        place = self._place(TYPES[kind])
        self._branch(node.test, yes, no)
        for label, part in ((yes, node.body), (no, node.orelse)):
            self._begin(label)
            value = self._as(part, kind)
            self._lines.append(f"store {TYPES[kind]} {value}, ptr {place}")
            self._goto(after)
        self._begin(after)
        return self._new(f"load {TYPES[kind]}, ptr {place}")

    def _place(self, type_: str) -> str:
        """Return a new place on the stack, allocated at the beginning of the function."""
        self._count += 1
        self._lines.insert(0, f"%p{self._count} = alloca {type_}")
        return f"%p{self._count}"

    def _call(self, node: ast.Call) -> str:
        name = ast.unparse(node.func)
        if name in self._called:
            return self._call_function(node, name)
        if name in ("min", "max"):
            return self._extreme(name, node.args)
        (argument,) = node.args
        if name in _CASTS:
            return self._as(argument, _CASTS[name])
        if name == "abs":
            return self._absolute(argument, self._kinds.of(node))
        value = self._as(argument, FLOAT)
        if name == "bits_of":
            return self._new(f"bitcast double {value} to i64")
        if name == "math.isnan":
            return self._new(f"fcmp uno double {value}, {value}")
        if name in ("math.isinf", "math.isfinite"):
            size = self._new(f"call double @llvm.fabs.f64(double {value})")
            return self._new(
                f"fcmp {'oeq' if name == 'math.isinf' else 'olt'} double {size}, {_number(math.inf)}"
            )
        if name == "math.floor":
            whole = self._new(f"call double @llvm.floor.f64(double {value})")
            return self._new(f"fptosi double {whole} to i64")
        called = f"llvm.{_INTRINSICS[name]}.f64" if name in _INTRINSICS else _LIBRARY[name]
        return self._new(f"call double @{called}(double {value})")

    def _call_function(self, node: ast.Call, name: str) -> str:
        called = self._called[name]
        values = []
        for part, (_, kind) in zip(node.args, called.parameters, strict=True):
            if kind.startswith("*"):
                assert isinstance(part, ast.Name)
                values.append(f"ptr %{part.id}")
            else:
                values.append(f"{TYPES[kind]} {self._as(part, kind)}")
        call = f"call {_result_type(called.results)} @{called.name}({', '.join(values)})"
        if called.results:
            return self._new(call)
        self._lines.append(call)
        return "0"

    def _extreme(self, name: str, parts: list[ast.expr]) -> str:
        """Return min or max: the first, unless a later one is smaller or larger."""
        kind = joined_kind(*map(self._kinds.of, parts))
        found, *others = (self._as(part, kind) for part in parts)
        for other in others:
            order = "lt" if name == "min" else "gt"
            test = (
                f"fcmp o{order} double"
                if kind == FLOAT
                else f"icmp {'u' if kind == WORD else 's'}{order} i64"
            )
            better = self._new(f"{test} {other}, {found}")
            found = self._new(f"select i1 {better}, {TYPES[kind]} {other}, {TYPES[kind]} {found}")
        return found

    def _absolute(self, node: ast.expr, kind: str) -> str:
        value = self._as(node, kind)
        if kind == FLOAT:
            return self._new(f"call double @llvm.fabs.f64(double {value})")
        below = self._new(f"icmp slt i64 {value}, 0")
        opposite = self._new(f"sub i64 0, {value}")
        return self._new(f"select i1 {below}, i64 {opposite}, i64 {value}")


def _number(value: float) -> str:
    """Return a floating-point constant as LLVM reads it: by its bits."""
    return f"0x{struct.pack('>d', value).hex().upper()}"


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _parameter_type(kind: str) -> str:
    return "ptr noalias" if kind.startswith("*") else TYPES[kind]


def _result_type(kinds: list[str]) -> str:
    if not kinds:
        return "void"
    types = [TYPES[kind] for kind in kinds]
    return types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"


_STATEMENTS: dict[type[ast.stmt], Callable[[Lowering, Any], None]] = {
    ast.If: Lowering._if,
    ast.While: Lowering._while,
    ast.For: Lowering._for,
    ast.Break: Lowering._break,
    ast.Continue: Lowering._continue,
    ast.Pass: Lowering._pass,
    ast.Return: Lowering._return,
    ast.Expr: Lowering._expression,
    ast.Assign: Lowering._assign,
    ast.AugAssign: Lowering._augment,
}
_EXPRESSIONS: dict[type[ast.expr], Callable[[Lowering, Any], str]] = {
    ast.Constant: Lowering._constant,
    ast.Name: Lowering._name,
    ast.Attribute: Lowering._attribute,
    ast.Subscript: Lowering._subscript,
    ast.UnaryOp: Lowering._unary,
    ast.BinOp: Lowering._binary,
    ast.Compare: Lowering._compare,
    ast.BoolOp: Lowering._boolean,
    ast.IfExp: Lowering._choice,
    ast.Call: Lowering._call,
}
