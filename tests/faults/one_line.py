"""Faults of a line, as people make them: a boundary, a sign, a flag, an operand or a keyword that is left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}  # fmt: skip
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
CONVERSIONS = {"sorted", "abs", "reversed", "round", "int"}  # a call of them that is left out changes the value only
# Keywords that change what only the writer sees, or that mypy and ruff watch.
OF_NO_MATTER = {"capture_output", "check", "daemon", "encoding", "frozen", "kw_only", "slots", "strict", "text"}
Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Fault:
    """A change of an expression or a statement of a module: `new` instead of the bytes from `start` to `end`."""

    line: int  # the first, from 1
    last_line: int
    start: int  # in UTF-8
    end: int
    new: str
    kind: str

    def planted(self, source: str) -> str:
        """The source with the fault. Raises SyntaxError if it is none of Python any more."""
        data = source.encode()
        changed = (data[: self.start] + self.new.encode() + data[self.end :]).decode()
        compile(changed, "<fault>", "exec")
        return changed


def faults(source: str) -> Iterator[Fault]:
    """All faults of a module's source. Texts, annotations, decorators, imports and assertions are left alone."""
    starts = [0, *accumulate(map(len, source.encode().splitlines(keepends=True)))]
    for node, new, kind in _changes(ast.parse(source)):
        last = node.end_lineno or node.lineno
        start, end = starts[node.lineno - 1] + node.col_offset, starts[last - 1] + (node.end_col_offset or 0)
        yield Fault(node.lineno, last, start, end, new, kind)


def by_hand(source: str, old: str, new: str) -> Fault:
    """The fault that a person gives. Raises ValueError if the text `old` is not there exactly once."""
    if source.count(old) != 1:
        raise ValueError(f"the text is there {source.count(old)} times")
    before = source[: source.index(old)]
    line, start = before.count("\n") + 1, len(before.encode())
    return Fault(line, line + old.rstrip("\n").count("\n"), start, start + len(old.encode()), new, "by hand")


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """Of each node: what is replaced, its new text, and the kind of the fault."""
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert():
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
        case ast.Expr(value=ast.Constant()):
            return
    yield from _changes_of(node)
    for child in _inner(node):
        yield from _changes(child)


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from (default for default in (*node.args.defaults, *node.args.kw_defaults) if default)
            yield from node.body
        case ast.ClassDef():
            yield from node.body
        case ast.AnnAssign():
            yield from filter(None, [node.value])
        case _:
            yield from ast.iter_child_nodes(node)


def _changes_of(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    match node:
        case ast.Compare():
            for n, operator in enumerate(node.ops):
                operators = [*node.ops[:n], COMPARISONS[type(operator)](), *node.ops[n + 1 :]]
                yield node, _text(ast.Compare(node.left, operators, node.comparators)), "comparison"
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node, _text(ast.BoolOp(other, node.values)), "and/or"
            for n in range(len(node.values)):
                rest = [*node.values[:n], *node.values[n + 1 :]]
                yield node, _text(rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)), "operand left out"
        case ast.BinOp() if type(node.op) in OPERATIONS and not any(map(_is_text, (node.left, node.right))):
            yield node, _text(ast.BinOp(node.left, OPERATIONS[type(node.op)](), node.right)), "arithmetic"
            yield node, _text(node.left), "operand left out"
        case ast.UnaryOp(op=ast.Not()):
            yield node, _text(node.operand), "not left out"
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            yield node, _text(node.operand), "sign"
        case ast.IfExp():
            yield node, _text(node.body), "always the first"
            yield node, _text(node.orelse), "always the second"
        case ast.Constant(value=bool(flag)):
            yield node, repr(not flag), "flag"
        case ast.Constant(value=int(number)):
            yield node, repr(number + 1), "number"
        case ast.Constant(value=float(number)):
            yield node, repr(number * 2 or 1.0), "number"
        case ast.Subscript(slice=ast.Slice()):
            yield node, _text(node.value), "slice left out"
        case ast.Call():
            yield from _changes_of_call(node)
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign():
            yield node, "None", "statement left out"
        case ast.Assign() if any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            yield node, "None", "statement left out"
        case ast.If():
            yield node.test, "False", "never"
            yield node.test, "True", "always"
        case ast.Continue() | ast.Break():
            yield node, "pass", "statement left out"


def _changes_of_call(node: ast.Call) -> Iterator[tuple[ast.expr, str, str]]:
    for n, keyword in enumerate(node.keywords):
        if keyword.arg and keyword.arg not in OF_NO_MATTER:
            rest = [*node.keywords[:n], *node.keywords[n + 1 :]]
            yield node, _text(ast.Call(node.func, node.args, rest)), "keyword left out"
    if isinstance(node.func, ast.Name):
        if node.func.id in FUNCTIONS:
            yield node.func, FUNCTIONS[node.func.id], "min/max, any/all"
        if node.func.id in CONVERSIONS and len(node.args) == 1:
            yield node, _text(node.args[0]), "call left out"


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
