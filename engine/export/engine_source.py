"""The lines of a script while it is written, and functions and classes of the engine as its text: plan, models,
schedule and augmentation cannot differ from the trainer's, which is read as text and never imported.
"""

from __future__ import annotations

import ast
import copy
import io
import re
import textwrap
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..options import Options
from .specialised import LINE_LENGTH, Specialiser, above, notes, shorten

ENGINE = Path(__file__).resolve().parents[1]
_KEY = re.compile(r"\w+\.\w+")
_NAMED = re.compile(r"  # ((?:\w+\.\w+(?:, )?)+)")
Definition = ast.FunctionDef | ast.ClassDef


class Script:
    """Collects the lines of a script. `base` is its folder, if paths within it are to be relative."""

    def __init__(self, base: Path | None = None) -> None:
        self.base = base
        self.paths: list[str] = []  # paths of this machine
        self._lines: list[str] = []
        self._definitions: list[str] = []
        self._defined: set[str] = set()
        self._named: set[str] = set()

    @property
    def named(self) -> frozenset[str]:
        """The keys of all options that the comments of the lines so far name."""
        return frozenset(self._named)

    def add(self, line: str, *comments: str) -> None:
        """The comment has the option keys (`comments` without a blank), then the other words."""
        self._named.update(comment for comment in comments if " " not in comment)
        self._lines.append(line + _comment(comments))

    def path(self, path: str) -> str:
        """Return the expression for a path: relative to `HERE` if it is within the base, else added to `paths`."""
        if self.base is None or not Path(path).is_relative_to(self.base):
            self.paths.append(path)
            return literal(path)
        inside = Path(path).relative_to(self.base)
        return f"str(HERE / {literal(str(inside))})" if inside.parts else "str(HERE)"

    def text(self, lines: str) -> None:
        self._lines.extend(lines.split("\n"))

    def section(self, title: str) -> None:
        self._lines += ["", f"# ---- {title} ".ljust(80, "-")]

    def define(
        self, file: str, *names: str, options: Options | None = None, constants: Mapping[str, Any] | None = None
    ) -> None:
        """Add these definitions of the engine to those of the script, once, and note the options in their comments."""
        for source in definitions(file, *names, options=options, constants=constants):
            if source in self._defined:
                continue
            self._defined.add(source)
            for comment in _NAMED.findall(source):
                self._named.update(comment.rstrip(":").split(", "))
            apart = ["", ""] if source.startswith(("def ", "class ", "@")) else []
            self._definitions += [*apart, *source.split("\n"), *apart]

    def guarded(self) -> str:
        """Return a script that its processes may import: the other lines stand below `if __name__ == "__main__":`."""
        lines = [f"    {line}" if line else line for line in self._lines]
        return _text([*self._definitions, "", "", 'if __name__ == "__main__":', *lines])

    def __str__(self) -> str:
        return _text(self._lines)


def _text(lines: Sequence[str]) -> str:
    kept: list[str] = []
    for line in lines:
        if line or kept[-2:] != ["", ""]:
            kept.append(line.rstrip())
    return "\n".join(kept).strip("\n") + "\n"


def definitions(
    file: str, *names: str, options: Options | None = None, constants: Mapping[str, Any] | None = None
) -> list[str]:
    """Return these definitions, after all that they use, without underscores before names, and with the values of
    options and `constants` in place of their expressions. KeyError if one is not defined.
    """
    collected: dict[str, ast.stmt] = {}
    for name in names:
        _collect(ENGINE / file, name, collected, (), Specialiser(options, constants))
        if name not in collected:
            raise KeyError(f"{file} defines no {name}")
    shorten(collected, names)
    public = {name: name.lstrip("_") for name in collected}
    word = re.compile(r"\b(" + "|".join(map(re.escape, public)) + r")\b")
    return [word.sub(lambda match: public[match[1]], "\n".join(lines_of(node))) for node in collected.values()]


def _collect(
    path: Path, name: str, collected: dict[str, ast.stmt], under: tuple[str, ...], specialiser: Specialiser
) -> None:
    """Add the definition of the file, and before it all that it uses, to `collected`. `under` are those being added."""
    defined, imported = _module(path)
    if name in collected or name in under:
        return
    if name not in defined:
        if name in imported:
            _collect(imported[name], name, collected, under, specialiser)
        return
    node = specialiser.specialised(copy.deepcopy(defined[name]))
    bound = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.id not in bound:
            _collect(path, each.id, collected, (*under, name), specialiser)
    collected[name] = node


@cache
def _module(path: Path) -> tuple[dict[str, ast.stmt], dict[str, Path]]:
    """Return a file's definitions by name, and the files of its relative imports by the imported names."""
    defined, imported = dict[str, ast.stmt](), dict[str, Path]()
    for node in parsed(path.read_text(encoding="utf-8")).body:
        if isinstance(node, Definition):
            above(node).clear()
            defined[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            above(node).clear()
            defined[node.targets[0].id] = node
        elif isinstance(node, ast.ImportFrom) and node.level and node.module:
            base = path.parents[node.level - 1].joinpath(*node.module.split(".")).with_suffix(".py")
            imported |= {alias.name: base for alias in node.names}
    return defined, imported


def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a text. Its statements have their comments, and the `source` of their first lines."""
    tree, lines = ast.parse(text), text.split("\n")
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        *_, innermost = [tree, *(node for node in statements if node.lineno <= line <= (node.end_lineno or 0))]
        if lines[line - 1][:column].strip():
            notes(innermost).append(token.string.lstrip("# "))
            lines[line - 1] = lines[line - 1][:column].rstrip()
        elif hasattr(innermost, "body") and (following := [node for node in statements if node.lineno > line]):
            above(min(following, key=lambda node: node.lineno)).append(token.string)
    for node in statements:
        (body, _), decorators = _blocks(node), getattr(node, "decorator_list", [])
        first, end = (
            min([node, *decorators], key=lambda each: each.lineno),
            body[0].lineno - 1 if body else node.end_lineno,
        )
        source = textwrap.dedent("\n".join(lines[first.lineno - 1 : end]))
        node.__dict__["source"] = re.sub(r"(\n *(#.*)?)*$", "", source).removeprefix(
            "el" if isinstance(node, ast.If) else ""
        )
    return tree


# ---- lines -------------------------------------------------------------------------------------------


def lines_of(node: ast.stmt, margin: str = "") -> Iterator[str]:
    """Yield the lines of a statement, each docstring of several lines with its first sentence only."""
    yield from (f"{margin}{comment}" for comment in above(node))
    head, blocks = copy.copy(node), _blocks(node)
    head.__dict__ |= {"body": [ast.Pass()], "orelse": []} if blocks[0] else {}
    *first, last = _head(head).split("\n")
    yield from (margin + line for line in first)
    yield margin + last + _comment(_notes_within(node))
    for word, block in zip(("", "else:"), blocks, strict=True):
        yield from [margin + word] if word and block else []
        before: ast.stmt | None = None
        for inner in block:
            is_apart = isinstance(inner, Definition) or isinstance(before, Definition)
            if before is not None and (is_apart or (isinstance(node, ast.ClassDef) and isinstance(before, ast.Expr))):
                yield ""
            yield from lines_of(inner, margin + "    ")
            before = inner


def _blocks(node: ast.stmt) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the statements within, and after `else`, that have lines of their own: those of `try` stay as they are."""
    is_whole = isinstance(node, ast.Try)
    return ([], []) if is_whole else (getattr(node, "body", []), getattr(node, "orelse", []))


def _head(node: ast.stmt) -> str:
    """Return the text of a statement, without those within it: its source if nothing is changed in it."""
    source: str = node.__dict__.get("source", "")
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and "\n" in source:
        sentence = re.split(r"(?<=\.)\s", " ".join(str(node.value.value).split()))[0]
        return "\n".join(textwrap.wrap(f'"""{sentence}"""', LINE_LENGTH - node.col_offset))
    passed = "\n    pass" if source.endswith(":") else ""
    if source and ast.dump(ast.parse(source + passed).body[0]) == ast.dump(node):
        return source
    text, value = ast.unparse(node).removesuffix(passed), getattr(node, "value", None)
    if isinstance(value, ast.Tuple) and len(value.elts) > 1:
        text = text.removesuffix(ast.unparse(value)) + ast.unparse(value)[1:-1]
    if isinstance(node, ast.FunctionDef):
        text = re.sub(r"(: [^,=]+)=", r"\1 = ", text)
    lines = text.split("\n")
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        if token.type == tokenize.STRING and token.string.startswith("'"):
            (row, start), (_, end) = token.start, token.end
            line = lines[row - 1]
            lines[row - 1] = line[:start] + literal(ast.literal_eval(token.string)) + line[end:]
    return "\n".join(lines)


def _comment(notes: Iterable[str]) -> str:
    """The comment at the end of a line: the options' keys, then the words."""
    parts = dict.fromkeys(notes)
    keys, words = [part for part in parts if _KEY.fullmatch(part)], [part for part in parts if not _KEY.fullmatch(part)]
    comment = ": ".join(filter(None, (", ".join(keys), "; ".join(words))))
    return f"  # {comment}" if comment else ""


def _notes_within(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            yield from _notes_within(child)
    yield from notes(node)


def literal(value: object) -> str:
    """Return the Python source of a value. A text without double quotes is put in double quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(literal, value)) + ("," if len(value) == 1 else "") + ")"
    if not isinstance(value, str):
        return repr(value)
    text = repr(value)
    if text.startswith("'") and '"' not in text:
        return '"' + text[1:-1].replace("\\'", "'") + '"'
    return text
