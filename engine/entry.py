"""Checks `workload.entry` without running it: a missing file or function, or invalid Python, is reported with file and
line before anything is launched.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from .files.reading import read_bytes, why
from .files.values import harmless
from .options.workload import ENTRY

MAX_SOURCE_BYTES = 1024**2  # a larger file was not written by a person, and takes seconds to parse


@dataclass(frozen=True)
class Entry:
    """Either `file` or `module` is None. Without a `function`, the file is a script."""

    file: str | None
    module: str | None
    function: str | None

    def __str__(self) -> str:
        return f"{self.file or self.module}{f':{self.function}' if self.function else ''}"


class EntryFault(Exception):
    """The user's code that workload.entry names cannot be used; `change` says what to do."""

    def __init__(self, message: str, change: str) -> None:
        self.message, self.change = harmless(message), change
        super().__init__(self.message)


def parse(text: str) -> Entry:
    """`text` is a valid value of workload.entry."""
    match = ENTRY.fullmatch(text)
    assert match is not None, "the option has been validated"
    place, function = match["place"], match["function"]
    return Entry(place, None, function) if place.endswith(".py") else Entry(None, place, function)


def source_file(entry: Entry, folder: Path, search_path: Sequence[str] | None = None) -> Path:
    """A file is searched in `folder`, a module in `folder` and `search_path` (by default this Python's). Raises
    EntryFault. The function itself is not searched.
    """
    if entry.file is not None:
        path = folder / os.path.expanduser(entry.file)
        if not os.path.isfile(path):  # does not raise, whatever the name is
            what = "is a folder" if os.path.isdir(path) else "is no file" if os.path.exists(path) else "does not exist"
            raise EntryFault(f"{path} {what}", "name a file with your code, such as train.py")
        return path
    spec = _find_module(str(entry.module), folder, sys.path if search_path is None else search_path)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise EntryFault(
            f"there is no module {entry.module} in {folder} or among the installed packages",
            "modules are searched in workload.folder, which defaults to the folder of the preset's file",
        )
    return Path(spec.origin)


def examine(text: str, folder: Path, search_path: Sequence[str] | None = None, newer_python: bool = False) -> None:
    """EntryFault for a missing file or function, invalid Python, or one that does not accept one argument; of a script
    only its syntax is checked. With `newer_python`, a syntax error is ignored: the Python that trains may accept it.
    """
    entry = parse(text)
    path = source_file(entry, folder, search_path)
    shown = entry.file or str(path)
    try:
        tree = _parsed(path, shown)
    except EntryFault as fault:
        if newer_python and isinstance(fault.__context__, SyntaxError):
            return
        raise
    if entry.function is None:
        return
    try:
        defined = dict(_top_level(tree.body))
    except RecursionError:
        raise EntryFault(f"{shown} is nested too deeply to be checked", "give another file") from None
    if "*" in defined or entry.function in defined:
        _takes_one_argument(defined.get(entry.function), entry.function, shown)
        return
    functions = [name for name, node in defined.items() if isinstance(node, ast.FunctionDef)]
    have = f"it has {', '.join(functions[:8])}" if functions else "it has none"
    raise EntryFault(f"{shown} has no function {entry.function} ({have})", f"write def {entry.function}(context): ...")


def source_text(text: str, folder: Path) -> str | None:
    """Return the text of the entry's file and of all files in `folder` that it imports. None if a file is missing or
    not valid Python, or if the function is imported from another place.
    """
    entry, texts = parse(text), []
    try:
        files = [first := source_file(entry, folder, ())]
        root = folder if first.is_relative_to(folder) else first.parent
        for file in files:  # gets longer meanwhile
            tree = _parsed(file, str(file))
            texts.append(ast.unparse(tree))
            imported = dict.fromkeys(path for _, paths in imports(tree, file, root) for path in paths)
            files += [path for path in imported if path not in files]
    except (EntryFault, RecursionError):
        return None
    whole = "\n".join(texts)
    if entry.function is None:
        return whole
    return whole if re.search(rf"(?m)\b(?:def|class) {entry.function}\b|^{entry.function} = ", whole) else None


def imports(tree: ast.Module, file: Path, root: Path) -> Iterator[tuple[str, list[Path]]]:
    """The modules that a file below `root` imports (of `from a import b` both a and a.b), each with its files: the
    __init__.py of its packages and its own, below `root` or else next to the file.
    """
    package, modules = file.relative_to(root).parts[:-1], list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join(filter(None, (*parents, node.module)))
            modules += filter(None, [module])
            modules += [f"{module}.{alias.name}".lstrip(".") for alias in node.names if module or node.level]
    for module in modules:
        parts, files = module.split("."), list[Path]()
        for base in (root, file.parent):
            packages = [base.joinpath(*parts[:count], "__init__.py") for count in range(1, len(parts) + 1)]
            files = files or [path for path in (*packages, base.joinpath(*parts).with_suffix(".py")) if path.is_file()]
        yield module, files


def _parsed(path: Path, shown: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the user's code; Python shows them when it runs
            return ast.parse(read_bytes(path, MAX_SOURCE_BYTES), str(path))
    except (RecursionError, MemoryError):
        raise EntryFault(f"{shown} is nested too deeply for Python to read it", "give another file") from None
    except SyntaxError as fault:
        line = f": {fault.text.strip()[:120]}" if fault.text and fault.text.strip() else ""
        if not fault.lineno:  # a null byte, or an unknown encoding
            raise EntryFault(f"{shown}: {fault.msg}", "correct the file") from None
        raise EntryFault(f"{shown}:{fault.lineno}: {fault.msg}{line}", "correct the line") from None
    except ValueError as fault:
        raise EntryFault(f"{shown} is not valid Python: {fault}", "give another file") from None
    except OSError as fault:
        raise EntryFault(f"{shown} cannot be read: {why(fault)}", "give another file") from None


def _top_level(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Names and statements of definitions, also inside conditions. `*` stands for an import of unknown names."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name.split(".")[0], node) for alias in node.names)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            for block in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(node, block, []))
            for handler in getattr(node, "handlers", []):
                yield from _top_level(handler.body)
        else:
            targets = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name))
            yield from ((name.id, node) for name in targets if isinstance(name.ctx, ast.Store))


def _takes_one_argument(node: ast.stmt | None, name: str, shown: str) -> None:
    if isinstance(node, ast.AsyncFunctionDef):
        raise EntryFault(f"{shown}:{node.lineno}: {name} is async", f"write def {name}(context): ...")
    if not isinstance(node, ast.FunctionDef):
        return
    taken = node.args
    positional = [*taken.posonlyargs, *taken.args]
    needed = len(positional) - len(taken.defaults)
    named = [arg for arg, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if default is None]
    if needed > 1 or named or not (positional or taken.vararg):
        raise EntryFault(
            f"{shown}:{node.lineno}: {name} must accept one argument, the context", f"write def {name}(context): ..."
        )


def _find_module(name: str, folder: Path, search_path: Sequence[str]) -> ModuleSpec | None:
    """Neither the module nor its packages are imported."""
    places: list[str] | None = [str(folder), *search_path]
    spec = None
    for length, _ in enumerate(name.split("."), start=1):
        spec = PathFinder.find_spec(".".join(name.split(".")[:length]), places)
        if spec is None:
            return None
        places = list(spec.submodule_search_locations or [])
    return spec
