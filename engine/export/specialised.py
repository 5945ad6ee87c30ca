"""A function of the engine as an exported script needs it: what depends on options alone is worked out.

Where the function reads `options.input.shuffle` the text gets the value, a condition that is thereby decided leaves one
branch, and the line is given the option's name as a comment. Parameters whose values are known are taken out of
signatures and calls. All else stays as it was written: the text is edited in place by what its syntax tree tells.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import textwrap
import tokenize
from collections.abc import Mapping, Sequence
from typing import Any

from ..options.field import Group
from .expressions import Expressions, Partly, UnknownValue, marked

LINE_LENGTH = 110
_MARK = re.compile("\0([^\0]*)\0")  # option keys in the text, until its lines are put together


class Specialiser(Expressions):
    """Rewrites definitions of one file. `known` are the values of names: options, and parameters that are constant."""

    def function(self, node: ast.FunctionDef) -> str:
        """The function's new text."""
        lines = self._function(node, dict(self._known))
        return "\n".join(_commented(line) for line in textwrap.dedent("\n".join(lines)).split("\n"))

    # ---- statements ---------------------------------------------------------------------------

    def _function(self, node: ast.FunctionDef, known: dict[str, Any]) -> list[str]:
        self._refuse_new_values(node, known)
        return [*self._header(node, known), *self._body(node.body, known)]

    def _refuse_new_values(self, node: ast.FunctionDef, known: Mapping[str, Any]) -> None:
        """A name whose value is known keeps it: raises ValueError for a function that gives it another."""
        stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if again := sorted(name for name in stored & set(known) if not isinstance(known[name], Partly)):
            raise ValueError(f"{node.name} cannot be exported: it gives {', '.join(again)} another value")

    def _body(self, body: Sequence[ast.stmt], known: dict[str, Any]) -> list[str]:
        """The statements below a header, of which at least one must stay."""
        return self._block(body, known) or [" " * body[0].col_offset + "pass"]

    def _header(self, node: Any, known: Mapping[str, Any]) -> list[str]:
        """The lines of a compound statement above its body."""
        edits = self._edits_of(node, known, skip=node.body)
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        last = max(first, node.body[0].lineno - 1)
        while last > first and not self._line(last).split("#")[0].rstrip().endswith(":"):
            last -= 1
        return _joined(self._edited(first, last, edits).split("\n"))

    def _block(self, body: Sequence[ast.stmt], known: dict[str, Any]) -> list[str]:
        """Statements after each other, up to the first that surely leaves."""
        lines: list[str] = []
        keys: list[str] = []  # of conditions that were decided, told at the statement that follows from them
        before = body[0].lineno - 1
        for node in body:
            made, left = self._statement(node, known, keys)
            if made:
                gap = self._between(before, node) if lines else []
                lines += [*gap, *_told(made, keys)]
                keys = []
            before = node.end_lineno or node.lineno
            if left:
                break
        if keys and lines:
            lines[-1:] = _told([lines[-1]], keys)
        return lines

    def _statement(self, node: ast.stmt, known: dict[str, Any], keys: list[str]) -> tuple[list[str], bool]:
        """New lines, and whether what follows is never reached. `keys` gets options that took something away."""
        if self._binds_group(node, known):
            return [], False
        if isinstance(node, ast.FunctionDef):
            return self._function(node, dict(known)), False
        if isinstance(node, ast.If):
            return self._if(node, known, keys)
        if isinstance(node, ast.For | ast.With | ast.While):
            if getattr(node, "orelse", None):
                raise ValueError(f"line {node.lineno} cannot be exported: a loop with else")
            return [*self._header(node, known), *self._body(node.body, known)], False
        text = self._edited(node.lineno, node.end_lineno or node.lineno, self._edits_of(node, known))
        return text.split("\n"), isinstance(node, ast.Return | ast.Raise)

    def _if(self, node: ast.If, known: dict[str, Any], keys: list[str]) -> tuple[list[str], bool]:
        try:
            used: list[str] = []
            chosen = node.body if self._value(node.test, known, used) else node.orelse
        except UnknownValue:
            return self._undecided(node, known), False
        if not chosen:
            keys += [key for key in used if self._is_changed(key)]
            return [], False
        keys += used
        lines = self._block(chosen, known)
        lines = _indented(lines, node.col_offset - chosen[0].col_offset)
        return lines, isinstance(chosen[-1], ast.Return | ast.Raise)

    def _undecided(self, node: ast.If, known: dict[str, Any]) -> list[str]:
        margin = " " * node.col_offset
        opened = f"{margin}if {self._rendered(node.test, known)}:"
        lines = [opened, *self._body(node.body, dict(known))]
        if node.orelse:
            inner = self._block(node.orelse, dict(known))
            elif_shift = 4 if node.orelse[0].col_offset == node.col_offset else 0
            lines += [f"{margin}else:", *_indented(inner, elif_shift)] if inner else []
        return lines

    def _binds_group(self, node: ast.stmt, known: dict[str, Any]) -> bool:
        """`wanted = options.input`: the name stands for the group from there on."""
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
            return False
        pairs: list[tuple[ast.expr, ast.expr]] = [(node.targets[0], node.value)]
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(node.targets[0].elts, node.value.elts, strict=True))
        found = {}
        for target, expression in pairs:
            try:
                value = self._value(expression, known, [])
            except UnknownValue:
                return False
            if not (isinstance(target, ast.Name) and isinstance(value, Group)):
                return False
            found[target.id] = value
        known |= found
        return True


def _told(lines: list[str], keys: Sequence[str]) -> list[str]:
    """The options at the end of the first line."""
    return [lines[0] + marked(keys), *lines[1:]] if keys else lines


def _joined(lines: list[str]) -> list[str]:
    """A signature in one line, where it has room there."""
    margin = lines[-1][: len(lines[-1]) - len(lines[-1].lstrip())]
    text = margin + " ".join(line.strip() for line in lines).replace("( ", "(").replace(", )", ")").replace(" )", ")")
    return [text] if len(text) <= LINE_LENGTH and not lines[0].lstrip().startswith("@") else lines


def _indented(lines: list[str], by: int) -> list[str]:
    if by >= 0:
        return [" " * by + line if line else line for line in lines]
    return [line[-by:] if line[:-by].isspace() else line for line in lines]


def _commented(line: str) -> str:
    """Marks become a comment: option keys first, then the words that stood there."""
    keys = dict.fromkeys(_MARK.findall(line))
    if not keys:
        return line
    code, words = _without_comment(_MARK.sub("", line))
    return f"{code.rstrip()}  # {', '.join(keys)}" + (f": {words}" if words else "")


def _without_comment(line: str) -> tuple[str, str]:
    """A line and its comment; a # within a text is none. A line may be a part of a statement."""
    with contextlib.suppress(tokenize.TokenError):
        for token in tokenize.generate_tokens(io.StringIO(line.lstrip()).readline):
            if token.type == tokenize.COMMENT:
                at = len(line) - len(line.lstrip()) + token.start[1]
                return line[:at], line[at:].lstrip("# ")
    return line, ""
