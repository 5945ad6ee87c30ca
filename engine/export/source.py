"""Functions and classes of the trainer as source text, with all they need: what the exported script is made of.

The script holds the very models, schedule and augmentation that the trainer runs, so the two cannot drift apart.
The trainer is read as text and never imported.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TRAINER = Path(__file__).resolve().parents[1] / "trainer"


class _Module:
    """One file: its definitions by name, and where its relative imports lead."""

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


@cache
def _module(path: Path) -> _Module:
    return _Module(path)


def extract(file: str, *names: str) -> list[str]:
    """The source of definitions of a trainer file and of all they use, what is used before what uses it."""
    found: dict[str, str] = {}
    for name in names:
        _collect(TRAINER / file, name, found, ())
        if name not in found:
            raise KeyError(f"{file} defines no {name}")
    public = {name: name.lstrip("_") for name in found}
    word = re.compile(r"\b(" + "|".join(map(re.escape, public)) + r")\b")
    return [word.sub(lambda match: public[match[1]], source) for source in found.values()]


def _collect(path: Path, name: str, found: dict[str, str], under: tuple[str, ...]) -> None:
    """Depth first, so that constants and helpers stand above their users."""
    module = _module(path)
    if name in found or name in under:
        return
    if name not in module.definitions:
        if name in module.imports:
            _collect(module.imports[name], name, found, under)
        return
    for node in ast.walk(module.definitions[name]):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            _collect(path, node.id, found, (*under, name))
    found[name] = module.source(name)
