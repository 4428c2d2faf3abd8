"""Print generated functions (plain Python over numbers and buffers) as CUDA C++."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from evenhand.compile.arithmetic import BINARY, COMPARE, joined_kind
from evenhand.compile.kind_inference import TESTS, Kinds
from evenhand.compile.residual import Function
from evenhand.compile.values import BOOL, FLOAT, INT, WORD
from evenhand.errors import CompilationFailed

TYPES = {FLOAT: "real", INT: "whole", BOOL: "bool", WORD: "word"}
STORED = TYPES | {BOOL: "unsigned char"}
MEMORY = "m"  # the parameter with the address of a thread's own buffers
_CASTS = {"int": "whole", "np.int64": "whole", "float": "real", "bool": "bool", "np.uint64": "word"}
_LARGEST_INT = 2**31
# a loop is unrolled if it has at most so many turns and lines, and none of the operations of much code
SHORT_LOOP, SHORT_BODY = 5, 7
_LONG_CODE = re.compile(r"\bk_\w+\(|call_|sqrt|/ ")


def tuple_name(kinds: list[str]) -> str:
    """Return the type name for several results."""
    return "results_" + "".join(kind[0] for kind in kinds)


def tuple_type(kinds: list[str]) -> str:
    """Return the type definition for several results."""
    members = " ".join(f"{TYPES[kind]} r{place};" for place, kind in enumerate(kinds))
    return f"struct {tuple_name(kinds)} {{ {members} }};"


class Printer:
    """Prints one function.

    `functions` are those of the program by name; buffers in `own` belong to a thread, others to all of them;
    `writing` are the functions that write to buffers.
    """

    def __init__(
        self, function: Function, functions: Mapping[str, Function], own: set[str], writing: set[str]
    ) -> None:
        self.function, self._functions, self._own, self._writing = function, functions, own, writing
        (definition,) = ast.parse(function.source).body
        assert isinstance(definition, ast.FunctionDef)
        self._body = definition.body
        self._kinds = Kinds(function, self._body, functions)
        self._temporaries = 0

    def printed(self, qualifier: str) -> str:
        """Return the function's source."""
        lines = [f"{qualifier} {self.signature()} {{"]
        kinds = self._kinds
        for name, kind in sorted(kinds.variables.items()):
            if name not in kinds.parameters:
                lines.append(f"    {TYPES[kind]} {self._named(name)};")
        lines += self._block(self._body, "    ")
        if self.function.results and not isinstance(self._body[-1], ast.Return):
            lines.append("    return {};")  # never reached
        return "\n".join([*lines, "}", ""])

    def signature(self) -> str:
        """Return result type, name and parameters."""
        results = self.function.results
        result = "void" if not results else TYPES[results[0]] if len(results) == 1 else tuple_name(results)
        numbers = [f"{TYPES[kind]} {self._named(name)}" for name, kind in self._kinds.parameters.items()]
        memory = [f"Memory *{MEMORY}"] if uses_memory(self.function, self._own) else []
        return f"{result} {self.function.name}({', '.join(memory + numbers)})"

    def _block(self, body: list[ast.stmt], indent: str) -> list[str]:
        return [line for statement in body for line in self._statement(statement, indent)]

    def _statement(self, node: ast.stmt, indent: str) -> list[str]:
        if isinstance(node, ast.If):
            return self._if(node, indent)
        if isinstance(node, ast.While):
            self._check_order(node.test)
            return [f"{indent}while ({self._text(node.test)}) {{", *self._nested(node.body, indent)]
        if isinstance(node, ast.For):
            return self._for(node, indent)
        if isinstance(node, (ast.Break, ast.Continue, ast.Pass)):
            return [indent + {ast.Break: "break;", ast.Continue: "continue;", ast.Pass: ";"}[type(node)]]
        if isinstance(node, ast.Return):
            return [indent + self._return(node)]
        if isinstance(node, ast.Expr):
            self._check_order(node.value)
            return [f"{indent}{self._text(node.value)};"]
        if isinstance(node, ast.Assign):
            return [indent + line for line in self._assign(node)]
        assert isinstance(node, ast.AugAssign)
        return [indent + self._augment(node)]

    def _nested(self, body: list[ast.stmt], indent: str) -> list[str]:
        return [*self._block(body, indent + "    "), f"{indent}}}"]

    def _if(self, node: ast.If, indent: str) -> list[str]:
        self._check_order(node.test)
        lines = [f"{indent}if ({self._text(node.test)}) {{", *self._nested(node.body, indent)]
        if node.orelse:
            lines[-1] = f"{indent}}} else {{"
            lines += self._nested(node.orelse, indent)
        return lines

    def _for(self, node: ast.For, indent: str) -> list[str]:
        """Print a loop over a range, whose bounds are evaluated once."""
        assert isinstance(node.target, ast.Name)
        assert isinstance(node.iter, ast.Call)
        bounds = node.iter.args
        for bound in bounds:
            self._check_order(bound)
        texts = [self._text(bound) for bound in bounds]
        first, last = ("0", texts[0]) if len(texts) == 1 else (texts[0], texts[1])
        step = ast.literal_eval(bounds[2]) if len(bounds) == 3 else 1
        self._temporaries += 1
        turn, end = f"step_{self._temporaries}", f"end_{self._temporaries}"
        test = f"{turn} < {end}" if step > 0 else f"{turn} > {end}"
        head = f"for (whole {turn} = {first}, {end} = {last}; {test}; {turn} += {step}) {{"
        name = self._named(node.target.id)
        body = [f"{indent}    {name} = {turn};", *self._nested(node.body, indent)]
        short = (
            _is_constant(first)
            and _is_constant(last)
            and abs(int(last.strip("()")) - int(first.strip("()"))) <= SHORT_LOOP
        )
        unrolled = short and len(body) <= SHORT_BODY and not _LONG_CODE.search("\n".join(body))
        return [f"{indent}{'UNROLLED' if unrolled else 'NOT_UNROLLED'}", indent + head, *body]

    def _return(self, node: ast.Return) -> str:
        results = self.function.results
        if node.value is None:
            return "return;"
        self._check_order(node.value)
        if isinstance(node.value, ast.Tuple):
            parts = zip(node.value.elts, results, strict=True)
            values = ", ".join(self._as(part, kind) for part, kind in parts)
            return f"return {tuple_name(results)}{{{values}}};"
        return f"return {self._as(node.value, results[0])};"

    def _assign(self, node: ast.Assign) -> list[str]:
        (target,) = node.targets
        self._check_order(node.value)
        if isinstance(target, ast.Tuple):
            assert isinstance(node.value, ast.Call)
            self._temporaries += 1
            name = f"found_{self._temporaries}"
            kinds = self._functions[ast.unparse(node.value.func)].results
            receive = [
                f"{self._named(ast.unparse(part))} = {name}.r{place};"
                for place, part in enumerate(target.elts)
            ]
            return [f"const {tuple_name(kinds)} {name} = {self._text(node.value)};", *receive]
        if isinstance(target, ast.Name):
            kind = self._kinds.variables[target.id]
            return [f"{self._named(target.id)} = {self._as(node.value, kind)};"]
        return [f"{self._text(target)} = {self._as(node.value, self._kinds.of(target))};"]

    def _augment(self, node: ast.AugAssign) -> str:
        """Print an augmented assignment; the element is read before the right-hand side."""
        assert isinstance(node.target, ast.Subscript)
        load = ast.Subscript(node.target.value, node.target.slice, ast.Load())
        value = ast.BinOp(load, node.op, node.value)
        self._check_order(value)
        return f"{self._text(node.target)} = {self._as(value, self._kinds.of(node.target))};"

    def _text(self, node: ast.expr) -> str:
        return _PRINT[type(node)](self, node)

    def _as(self, node: ast.expr, kind: str) -> str:
        """Return an expression converted to a kind."""
        text = self._text(node)
        return text if self._kinds.of(node) == kind else f"({TYPES[kind]})({text})"

    def _constant(self, node: ast.Constant) -> str:
        if isinstance(node.value, bool):
            return "true" if node.value else "false"
        if isinstance(node.value, int):
            return f"{node.value}" if node.value < _LARGEST_INT else f"{node.value}LL"
        return repr(node.value)

    def _name(self, node: ast.Name) -> str:
        if node.id.startswith("word_"):
            return f"0x{node.id[5:]}ULL"
        return self._named(node.id)

    def _named(self, name: str) -> str:
        return f"v_{name}"  # the prefix avoids the keywords of C++

    def _attribute(self, node: ast.Attribute) -> str:
        return {"inf": "INFINITE", "nan": "UNDEFINED"}[node.attr]

    def _subscript(self, node: ast.Subscript) -> str:
        assert isinstance(node.value, ast.Name)
        buffer = node.value.id
        if self._kinds.of(node.slice) != INT:
            raise CompilationFailed(f"{ast.unparse(node)} in {self.function.name} needs a whole number.")
        place = self._text(node.slice)
        return f"OWN({buffer}, {place})" if buffer in self._own else f"{buffer}[{place}]"

    def _unary(self, node: ast.UnaryOp) -> str:
        symbol = "!" if isinstance(node.op, ast.Not) else "-"
        return f"({symbol}{self._text(node.operand)})"

    def _binary(self, node: ast.BinOp) -> str:
        kind = self._kinds.of(node)
        left, right = self._as(node.left, kind), self._as(node.right, kind)
        if isinstance(node.op, ast.Pow):
            return self._power(node, kind)
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            if kind == FLOAT:
                raise CompilationFailed(f"{ast.unparse(node)} in {self.function.name} is not whole.")
            name = "floor_division" if isinstance(node.op, ast.FloorDiv) else "floor_remainder"
            return f"{name}(({TYPES[kind]})({left}), ({TYPES[kind]})({right}))"
        return f"({left} {BINARY[type(node.op)][0]} {right})"

    def _power(self, node: ast.BinOp, kind: str) -> str:
        """Print a power: by squaring for a constant exponent, as the CPU's compiler does."""
        if isinstance(node.right, ast.Constant) and isinstance(node.right.value, int):
            return f"power_{node.right.value}<{TYPES[kind]}>({self._as(node.left, kind)})"
        if kind != FLOAT:
            raise CompilationFailed(f"{ast.unparse(node)} in {self.function.name} has no constant exponent.")
        if self._kinds.of(node.right) != FLOAT:
            raise CompilationFailed(f"{ast.unparse(node)} in {self.function.name} has a whole exponent.")
        return f"call_pow({self._as(node.left, FLOAT)}, {self._as(node.right, FLOAT)})"

    def _compare(self, node: ast.Compare) -> str:
        right = node.comparators[0]
        return f"({self._text(node.left)} {COMPARE[type(node.ops[0])][0]} {self._text(right)})"

    def _boolean(self, node: ast.BoolOp) -> str:
        symbol = " && " if isinstance(node.op, ast.And) else " || "
        return "(" + symbol.join(map(self._text, node.values)) + ")"

    def _choice(self, node: ast.IfExp) -> str:
        kind = self._kinds.of(node)
        return f"({self._text(node.test)} ? {self._as(node.body, kind)} : {self._as(node.orelse, kind)})"

    def _call(self, node: ast.Call) -> str:
        name = ast.unparse(node.func)
        if name in self._functions:
            return self._call_function(node, self._functions[name])
        if name in ("min", "max"):
            kind = joined_kind(*map(self._kinds.of, node.args))
            parts = ", ".join(f"({TYPES[kind]})({self._text(part)})" for part in node.args)
            return f"{'lesser' if name == 'min' else 'greater'}({parts})"
        (argument,) = node.args
        if name in _CASTS:
            return f"({_CASTS[name]})({self._text(argument)})"
        if name == "abs":
            return f"absolute(({TYPES[self._kinds.of(node)]})({self._text(argument)}))"
        if name == "bits_of":
            return f"bits_of({self._text(argument)})"
        if name == "math.floor":
            return f"(whole)floor({self._as(argument, FLOAT)})"
        short = name.removeprefix("math.")
        plain = name in TESTS or short == "sqrt"
        return f"{'' if plain else 'call_'}{short}({self._as(argument, FLOAT)})"

    def _call_function(self, node: ast.Call, called: Function) -> str:
        pairs = zip(node.args, called.parameters, strict=True)
        numbers = [self._as(part, kind) for part, (_, kind) in pairs if not kind.startswith("*")]
        memory = [MEMORY] if uses_memory(called, self._own) else []
        return f"{called.name}({', '.join(memory + numbers)})"

    def _check_order(self, node: ast.expr) -> None:
        """Refuse an expression whose value depends on the evaluation order of its operands.

        C++ does not specify the order of operands and arguments; conditional expressions, lists of results,
        and operands of `and` and `or` are evaluated from left to right.
        """
        for part in ast.walk(node):
            if not isinstance(part, (ast.BinOp, ast.Compare, ast.Call)):
                continue
            operands = [child for child in ast.iter_child_nodes(part) if isinstance(child, ast.expr)]
            writing = [operand for operand in operands if any(map(self._writes, ast.walk(operand)))]
            reading = [operand for operand in operands if any(map(self._reads, ast.walk(operand)))]
            if writing and len(reading) > 1:
                raise CompilationFailed(
                    f"{ast.unparse(node)} in {self.function.name} depends on the order of evaluation."
                )

    def _reads(self, node: ast.AST) -> bool:
        """Return whether this loads from a buffer, or calls a function that may."""
        return isinstance(node, ast.Subscript) or self._is_ours(node)

    def _is_ours(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func) in self._functions

    def _writes(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func) in self._writing


def _is_constant(text: str) -> bool:
    return re.fullmatch(r"\(?-?\d+\)?", text) is not None


def uses_memory(function: Function, own: set[str]) -> bool:
    """Return whether a function uses buffers that belong to a thread."""
    return any(kind.startswith("*") and name in own for name, kind in function.parameters)


_PRINT: dict[type[ast.expr], Callable[[Printer, Any], str]] = {
    ast.Constant: Printer._constant,
    ast.Name: Printer._name,
    ast.Attribute: Printer._attribute,
    ast.Subscript: Printer._subscript,
    ast.UnaryOp: Printer._unary,
    ast.BinOp: Printer._binary,
    ast.Compare: Printer._compare,
    ast.BoolOp: Printer._boolean,
    ast.IfExp: Printer._choice,
    ast.Call: Printer._call,
}
