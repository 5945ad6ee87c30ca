"""A function of the engine as an exported script needs it: expressions of options are replaced by their values. A
condition that is decided by a value leaves one branch, and the line gets the option's key as a comment. Known
parameters are taken out of signatures and calls. All other text stays: edits are made in place, by the syntax tree.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import operator
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..options import GROUPS, Options
from ..options.catalogue import Group
from .lines import literal

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_CALLS = ("tuple", "int", "str", "bool", "max", "min")
_PLAIN = (str, int, float, bool, tuple, list, type(None))
_FIELDS = {"workload.source": "workload.data", "workload.normalization_of_model": "workload.normalization",
           "input.augmentations": "input.augment", "bytes_to_device": "input.cast"}  # fmt: skip


class Partly(dict[str, Any]):
    """A value of which only some attributes are known: attribute -> value."""


class UnknownValue(Exception):
    """Raised if the value of an expression depends on names whose values are unknown."""


class Edit(NamedTuple):
    """New text for the text from `start` to `end`, each a line (from 1) and a column in bytes (from 0)."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


class Expressions:
    """Evaluates and shortens the expressions of one file. `constants` maps names to their known values."""

    def __init__(self, text: str, options: Options, constants: Mapping[str, Any]) -> None:
        self._lines = [line.encode() for line in text.split("\n")]
        self._options, self._known = options, {**constants, "options": options}
        self._groups = {id(getattr(options, name)): name for name in GROUPS}
        partly = [pair for value in constants.values() if isinstance(value, Partly) for pair in value.items()]
        self._fields = {name for name, value in partly if isinstance(value, _PLAIN)}

    def _value(self, node: ast.expr, constants: Mapping[str, Any], used: list[str]) -> Any:
        """Return the value of an expression, whose options' keys are added to `used`. Raises UnknownValue."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if isinstance(constants.get(owner), Partly):
                if name in constants[owner]:
                    return constants[owner][name]
            case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if _is_known(name, constants):  # or its result
                return constants[name]
            case ast.Attribute(value=inner, attr=name):
                return self._attribute(self._value(inner, constants, used), name, used)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(self._value(part, constants, used) for part in parts)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return not self._value(inner, constants, used)
            case ast.BoolOp():
                return self._boolean(node, constants, used)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return _COMPARE[type(op)](self._value(left, constants, used), self._value(right, constants, used))
            case ast.IfExp(test=test, body=body, orelse=other):
                return self._value(body if self._value(test, constants, used) else other, constants, used)
            case ast.Subscript(value=inner, slice=ast.Constant(value=index)):
                return self._value(inner, constants, used)[index]
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
                return getattr(builtins, name)(*(self._value(arg, constants, used) for arg in args))
        raise UnknownValue

    def _attribute(self, owner: Any, name: str, used: list[str]) -> Any:
        if isinstance(owner, Options):
            used += [_FIELDS[name]] if name in _FIELDS else []
            return getattr(owner, name)
        if not isinstance(owner, Group):
            raise UnknownValue
        key = f"{self._groups[id(owner)]}.{name}"
        used.append(_FIELDS.get(key, key))
        return getattr(owner, name)

    def _boolean(self, node: ast.BoolOp, constants: Mapping[str, Any], used: list[str]) -> Any:
        """Return the value of an `and` or `or`, which a single part can decide. Raises UnknownValue."""
        decides = isinstance(node.op, ast.Or)
        value, unknown = None, False
        for part in node.values:
            keys: list[str] = []
            try:
                value = self._value(part, constants, keys)
            except UnknownValue:
                unknown = True
                continue
            used += keys
            if bool(value) == decides:
                if unknown and not isinstance(value, bool):
                    raise UnknownValue
                return value
        if unknown:
            raise UnknownValue
        return value

    def _edits_of(self, node: ast.AST, constants: Mapping[str, Any], skip: Sequence[ast.AST] = ()) -> list[Edit]:
        return list(self._edits(node, constants, {id(part) for part in skip}))

    def _edits(self, node: ast.AST, constants: Mapping[str, Any], skip: set[int]) -> Iterator[Edit]:
        """Yield the edits, which do not overlap, that replace known expressions within a node; ids in `skip` stay."""
        if id(node) in skip:
            return
        if isinstance(node, ast.expr):
            replaced = self._replaced(node, constants)
            if replaced is not None:
                yield Edit(_start(node), _end(node), replaced)
                return
        removed: set[int] = set()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in dir(builtins):
            removed = {id(arg) for arg in node.args if isinstance(arg, ast.Name) and _is_known(arg.id, constants)}
            of_class, words = node.func.id[0].isupper(), (word for word in node.keywords if word.arg)
            names = self._fields if of_class else {name for name in constants if _is_known(name, constants)}
            removed |= {id(word) for word in words if word.arg in names}
            yield from _without([*node.args, *node.keywords], removed)
        elif isinstance(node, ast.arguments):
            removed = {id(arg) for arg in (*node.args, *node.kwonlyargs) if _is_known(arg.arg, constants)}
            yield from self._without_parameters(node, removed)
        for child in ast.iter_child_nodes(node):
            if id(child) not in removed:
                yield from self._edits(child, constants, skip)

    def _without_parameters(self, node: ast.arguments, removed: set[int]) -> Iterator[Edit]:
        # Python lists defaults for the last parameters only. Ids of removed ones are added to `removed`.
        defaults = dict(zip(map(id, reversed(node.args)), reversed(node.defaults), strict=False))
        removed |= {id(defaults[parameter]) for parameter in removed & set(defaults)}
        ends = {id(arg): defaults.get(id(arg), arg) for arg in node.args}
        yield from _without(node.args, removed, ends)

    def _replaced(self, node: ast.expr, constants: Mapping[str, Any]) -> str | None:
        """Return the new text of an expression whose value is known, wholly or in part, else None."""
        if isinstance(node, ast.Constant) or isinstance(getattr(node, "ctx", None), ast.Store):
            return None
        used: list[str] = []
        try:
            value = self._value(node, constants, used)
            if isinstance(value, _PLAIN) and not isinstance(node, ast.Tuple | ast.List):
                return literal(value) + marked(used)
        except UnknownValue:
            pass
        if isinstance(node, ast.IfExp):
            return self._of_choice(node, constants)
        if isinstance(node, ast.BoolOp):
            return self._of_boolean(node, constants)
        return None

    def _of_choice(self, node: ast.IfExp, constants: Mapping[str, Any]) -> str | None:
        used: list[str] = []
        try:
            chosen = node.body if self._value(node.test, constants, used) else node.orelse
        except UnknownValue:
            return None
        return self._rendered(chosen, constants) + marked(used)

    def _of_boolean(self, node: ast.BoolOp, constants: Mapping[str, Any]) -> str | None:
        """Leave out the known parts that do not decide it. A last part that is no bool may be the value."""
        kept: list[str] = []
        used: list[str] = []
        for part in node.values:
            keys: list[str] = []
            try:
                value = self._value(part, constants, keys)
            except UnknownValue:
                kept.append(self._rendered(part, constants))
                continue
            if part is node.values[-1] and not isinstance(value, bool):
                kept.append(self._rendered(part, constants))
            else:
                used += keys
        if len(kept) == len(node.values):
            return None
        return (" or " if isinstance(node.op, ast.Or) else " and ").join(kept) + marked(used)

    def _rendered(self, node: ast.expr, constants: Mapping[str, Any]) -> str:
        (line, column), (last, end) = _start(node), _end(node)
        text = self._edited(line, last, self._edits_of(node, constants))
        cut = len(self._lines[last - 1]) - end
        encoded = text.encode()[column:]
        return encoded[: len(encoded) - cut].decode() if cut else encoded.decode()

    # ---- text -----------------------------------------------------------------------------------

    def _line(self, number: int) -> str:
        return self._lines[number - 1].decode()

    def _between(self, before: int, node: ast.stmt) -> list[str]:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        return [self._line(number) for number in range(before + 1, first)]

    def _edited(self, first: int, last: int, edits: Sequence[Edit]) -> str:
        """Return the text of the lines `first` to `last` (from 1) with the `edits`, which must not overlap."""
        starts = [0]
        for line in self._lines[first - 1 : last]:
            starts.append(starts[-1] + len(line) + 1)
        text = b"\n".join(self._lines[first - 1 : last])
        for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
            begin = starts[edit.start[0] - first] + edit.start[1]
            end = starts[edit.end[0] - first] + edit.end[1]
            text = text[:begin] + edit.text.encode() + text[end:]
        return text.decode()

    def _is_changed(self, key: str) -> bool:
        return bool(self._options.value(key) != Options().value(key))


def _is_known(name: str, constants: Mapping[str, Any]) -> bool:
    return name in constants and not isinstance(constants[name], Partly)


def _start(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: Any) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset


def _without(items: Sequence[Any], removed: set[int], ends: Mapping[int, Any] | None = None) -> Iterator[Edit]:
    """Remove items with the comma before, or else after; `ends` has the node with which an item ends."""
    kept_before = False
    for i, item in enumerate(items):
        if id(item) not in removed:
            kept_before = True
        elif kept_before:
            previous = items[i - 1]
            yield Edit(_end((ends or {}).get(id(previous), previous)), _end((ends or {}).get(id(item), item)), "")
        elif i + 1 < len(items):
            yield Edit(_start(item), _start(items[i + 1]), "")
        else:
            yield Edit(_start(item), _end((ends or {}).get(id(item), item)), "")


def marked(keys: Sequence[str]) -> str:
    return "".join(f"\0{key}\0" for key in dict.fromkeys(keys))


# ---- functions ---------------------------------------------------------------------------------


LINE_LENGTH = 120
_MARK = re.compile("\0([^\0]*)\0")  # option keys in the text, until its lines are put together


class Specialiser(Expressions):
    """Rewrites functions of one file for known values of options and of constant parameters."""

    def function(self, node: ast.FunctionDef) -> str:
        """Return the new text of the function. Raises ValueError if the function cannot be rewritten."""
        lines = self._function(node, dict(self._known))
        return "\n".join(_commented(line) for line in textwrap.dedent("\n".join(lines)).split("\n"))

    def without_known_fields(self, node: ast.ClassDef, source: str) -> str:
        """Return the source of a dataclass, of which a value that is partly known is an object."""
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
        left_out = {self._line(each.lineno) for each in fields if ast.unparse(each.target) in self._fields}
        return "\n".join(line for line in source.split("\n") if line not in left_out)

    # ---- statements ---------------------------------------------------------------------------

    def _function(self, node: ast.FunctionDef, constants: dict[str, Any]) -> list[str]:
        self._refuse_new_values(node, constants)
        return [*self._header(node, constants), *self._body(node.body, constants)]

    def _refuse_new_values(self, node: ast.FunctionDef, constants: Mapping[str, Any]) -> None:
        stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if again := sorted(name for name in stored & set(constants) if not isinstance(constants[name], Partly)):
            raise ValueError(f"{node.name} cannot be exported: it gives {', '.join(again)} another value")

    def _body(self, body: Sequence[ast.stmt], constants: dict[str, Any]) -> list[str]:
        return self._block(body, constants) or [" " * body[0].col_offset + "pass"]

    def _header(self, node: Any, constants: Mapping[str, Any]) -> list[str]:
        edits = self._edits_of(node, constants, skip=node.body)
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        last = max(first, node.body[0].lineno - 1)
        while last > first and not self._line(last).split("#")[0].rstrip().endswith(":"):
            last -= 1
        return _joined(self._edited(first, last, edits).split("\n"))

    def _block(self, body: Sequence[ast.stmt], constants: dict[str, Any]) -> list[str]:
        """Return the new lines of consecutive statements, up to the first that always returns or raises."""
        lines: list[str] = []
        keys: list[str] = []  # of decided conditions, named at the statement that follows from them
        before = body[0].lineno - 1
        for node in body:
            made, left = self._statement(node, constants, keys)
            if made:
                gap = self._between(before, node) if lines else []
                lines += [*gap, *_with_marks(made, keys)]
                keys = []
            before = node.end_lineno or node.lineno
            if left:
                break
        if keys and lines:
            lines[-1:] = _with_marks([lines[-1]], keys)
        return lines

    def _statement(self, node: ast.stmt, constants: dict[str, Any], keys: list[str]) -> tuple[list[str], bool]:
        """The new lines, and True if those after it are unreachable. Keys of removed ones are added to `keys`."""
        if self._binds_group(node, constants):
            return [], False
        if isinstance(node, ast.FunctionDef):
            return self._function(node, dict(constants)), False
        if isinstance(node, ast.If):
            return self._if(node, constants, keys)
        if isinstance(node, ast.For | ast.With | ast.While):
            if getattr(node, "orelse", None):
                raise ValueError(f"line {node.lineno} cannot be exported: a loop with else")
            return [*self._header(node, constants), *self._body(node.body, constants)], False
        text = self._edited(node.lineno, node.end_lineno or node.lineno, self._edits_of(node, constants))
        return text.split("\n"), isinstance(node, ast.Return | ast.Raise)

    def _if(self, node: ast.If, constants: dict[str, Any], keys: list[str]) -> tuple[list[str], bool]:
        try:
            used: list[str] = []
            chosen = node.body if self._value(node.test, constants, used) else node.orelse
        except UnknownValue:
            return self._undecided(node, constants), False
        if not chosen:
            keys += [key for key in used if self._is_changed(key)]
            return [], False
        keys += used
        lines = self._block(chosen, constants)
        lines = _indented(lines, node.col_offset - chosen[0].col_offset)
        last = lines[-1] if lines else ""
        ends = last.startswith(tuple(" " * node.col_offset + word for word in ("return", "raise")))
        return lines, ends or isinstance(chosen[-1], ast.Return | ast.Raise)

    def _undecided(self, node: ast.If, constants: dict[str, Any]) -> list[str]:
        margin = " " * node.col_offset
        opened = f"{margin}if {self._rendered(node.test, constants)}:"
        lines = [opened, *self._body(node.body, dict(constants))]
        if node.orelse:
            inner = self._block(node.orelse, dict(constants))
            elif_shift = 4 if node.orelse[0].col_offset == node.col_offset else 0
            lines += [f"{margin}else:", *_indented(inner, elif_shift)] if inner else []
        return lines

    def _binds_group(self, node: ast.stmt, constants: dict[str, Any]) -> bool:
        """Return True for a statement such as `given = options.input`, whose name is added to `constants`."""
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
            return False
        pairs: list[tuple[ast.expr, ast.expr]] = [(node.targets[0], node.value)]
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(node.targets[0].elts, node.value.elts, strict=True))
        groups = {}
        for target, expression in pairs:
            try:
                value = self._value(expression, constants, [])
            except UnknownValue:
                return False
            if not (isinstance(target, ast.Name) and isinstance(value, Group)):
                return False
            groups[target.id] = value
        constants |= groups
        return True


def _with_marks(lines: list[str], keys: Sequence[str]) -> list[str]:
    return [lines[0] + marked(keys), *lines[1:]] if keys else lines


def _joined(lines: list[str]) -> list[str]:
    margin = lines[-1][: len(lines[-1]) - len(lines[-1].lstrip())]
    text = margin + " ".join(line.strip() for line in lines).replace("( ", "(").replace(", )", ")").replace(" )", ")")
    return [text] if len(text) <= LINE_LENGTH and not lines[0].lstrip().startswith("@") else lines


def _indented(lines: list[str], by: int) -> list[str]:
    if by >= 0:
        return [" " * by + line if line else line for line in lines]
    return [line[-by:] if line[:-by].isspace() else line for line in lines]


def _commented(line: str) -> str:
    keys = dict.fromkeys(_MARK.findall(line))
    if not keys:
        return line
    code, words = without_comment(_MARK.sub("", line))
    return f"{code.rstrip()}  # {', '.join(keys)}" + (f": {words}" if words else "")


def without_comment(line: str) -> tuple[str, str]:
    with contextlib.suppress(tokenize.TokenError):
        for token in tokenize.generate_tokens(io.StringIO(line.lstrip()).readline):
            if token.type == tokenize.COMMENT:
                at = len(line) - len(line.lstrip()) + token.start[1]
                return line[:at], line[at:].lstrip("# ")
    return line, ""
