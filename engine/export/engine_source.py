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


@cache
def _module(path: Path) -> _Module:
    return _Module(path)


def extract(file: str, *names: str) -> list[str]:
    """These definitions, after all that they use, without underscores before names. KeyError if one is not defined."""
    return _extract(file, names, None)


def specialised(file: str, *names: str, options: Options, constants: Mapping[str, Any] | None = None) -> list[str]:
    """Return the source as `extract` does, with the values of options and `constants` in place of their expressions."""

    def specialise(module: _Module, name: str) -> str:
        node = module.definitions[name]
        if not isinstance(node, ast.FunctionDef):
            return module.source(name)
        return Specialiser(module.text, options, constants or {}).function(node)

    return _extract(file, names, specialise)


def _extract(file: str, names: Sequence[str], specialise: Specialise | None) -> list[str]:
    sources: dict[str, str] = {}
    for name in names:
        _collect(ENGINE / file, name, sources, (), specialise)
        if name not in sources:
            raise KeyError(f"{file} defines no {name}")
    if specialise is not None:
        _inline(sources, names)
    public = {name: name.lstrip("_") for name in sources}
    word = re.compile(r"\b(" + "|".join(map(re.escape, public)) + r")\b")
    return [word.sub(lambda match: public[match[1]], _with_short_docstrings(source)) for source in sources.values()]


def _inline(sources: dict[str, str], names: Sequence[str]) -> None:
    """Functions that only return a parameter, or an attribute of one, go into the place of their calls."""
    for name in [name for name in sources if name not in names]:
        node = ast.parse(sources[name]).body[0]
        if not isinstance(node, ast.FunctionDef):
            continue
        *before, last = node.body[1:] if ast.get_docstring(node) else node.body
        parameters = [parameter.arg for parameter in node.args.args]
        returned = _PARAMETER.fullmatch(ast.unparse(last))
        if before or not returned or returned[1] not in parameters:
            continue
        of_option = sources.pop(name).splitlines()[-1].partition("  # ")[2]
        for user, source in sources.items():
            sources[user] = _called(source, name, parameters.index(returned[1]), returned[2], of_option)


_PARAMETER = re.compile(r"return (\w+)((?:\.\w+)*)")
_NOTHING = re.compile(r"^ +(\w+) = \1\n", re.M)


def _called(source: str, name: str, at: int, attribute: str, of_option: str) -> str:
    """Return the source with argument `at`, and its `attribute`, in place of the calls, naming the option."""
    while calls := [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]:
        call, lines = calls[-1], source.split("\n")
        text = (ast.get_source_segment(source, call.args[at]) or "") + attribute
        line = lines[call.lineno - 1]
        changed = line[: call.col_offset] + text + line[call.end_col_offset :]
        lines[call.lineno - 1] = f"{changed}  # {of_option}" if of_option and of_option not in changed else changed
        source = "\n".join(lines)
    return _NOTHING.sub("", source)


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
