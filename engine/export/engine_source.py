"""Functions and classes of the engine as source text, with all that they need, for exported scripts: plan, models,
schedule and augmentation cannot differ from the trainer's, which is read as text and never imported.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..options import Options
from .shortened import shorten
from .specialised import LINE_LENGTH, Specialiser

ENGINE = Path(__file__).resolve().parents[1]


class _Module:
    """A file of the engine: its definitions by name, and the files of its relative imports by the imported names."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.definitions: dict[str, ast.stmt] = {}
        self.imports: dict[str, Path] = {}
        for node in ast.parse(self.text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.definitions[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.definitions[node.targets[0].id] = node
            elif isinstance(node, ast.ImportFrom) and node.level and node.module:
                base = path.parents[node.level - 1].joinpath(*node.module.split(".")).with_suffix(".py")
                self.imports |= {alias.name: base for alias in node.names}

    def source(self, name: str) -> str:
        node = self.definitions[name]
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        return "\n".join(self.text.splitlines()[first - 1 : node.end_lineno])


Specialise = Callable[[_Module, str], str]


_module = cache(_Module)


def extract(file: str, *names: str) -> list[str]:
    """These definitions, after all that they use, without underscores before names. KeyError if one is not defined."""
    return _extract(file, names, None)


def specialised(file: str, *names: str, options: Options, constants: Mapping[str, Any] | None = None) -> list[str]:
    """Return the source as `extract` does, with the values of options and `constants` in place of their expressions."""

    def specialise(module: _Module, name: str) -> str:
        node, specialiser = module.definitions[name], Specialiser(module.text, options, constants or {})
        if isinstance(node, ast.ClassDef):
            return specialiser.without_known_fields(node, module.source(name))
        return specialiser.function(node) if isinstance(node, ast.FunctionDef) else module.source(name)

    return _extract(file, names, specialise)


def _extract(file: str, names: Sequence[str], specialise: Specialise | None) -> list[str]:
    sources: dict[str, str] = {}
    for name in names:
        _collect(ENGINE / file, name, sources, (), specialise)
        if name not in sources:
            raise KeyError(f"{file} defines no {name}")
    shorten(sources, names)
    public = {name: name.lstrip("_") for name in sources}
    word = re.compile(r"\b(" + "|".join(map(re.escape, public)) + r")\b")
    return [word.sub(lambda match: public[match[1]], _with_short_docstrings(source)) for source in sources.values()]


def _with_short_docstrings(source: str) -> str:
    """Return the source of a definition, with the first sentence of each docstring only."""
    lines = source.split("\n")
    definitions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for node in sorted(definitions, key=lambda node: -node.lineno):
        text, first = ast.get_docstring(node), node.body[0]
        if text is None or first.end_lineno == first.lineno:
            continue
        sentence = re.split(r"(?<=\.)\s", " ".join(text.split()))[0]
        margin = " " * first.col_offset
        shown = textwrap.wrap(f'"""{sentence}"""', LINE_LENGTH - len(margin))
        lines[first.lineno - 1 : first.end_lineno] = [margin + line for line in shown]
    return "\n".join(lines)


def _collect(
    path: Path, name: str, sources: dict[str, str], under: tuple[str, ...], specialise: Specialise | None
) -> None:
    """Add the definition of the file, and before it all that it uses, to `sources`. `under` are those being added."""
    module = _module(path)
    if name in sources or name in under:
        return
    if name not in module.definitions:
        if name in module.imports:
            _collect(module.imports[name], name, sources, under, specialise)
        return
    source = specialise(module, name) if specialise else module.source(name)
    tree = ast.parse(source)
    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound:
            _collect(path, node.id, sources, (*under, name), specialise)
    sources[name] = source
