"""`make fast`: runs the quick tests that a change concerns, the nearest by imports first.

A change is what differs from REV (default: HEAD, that is, what is not committed yet). A test file concerns it if it
imports a changed module, directly or through others; files with the fewest imports between come first, and at most
`--files` of them run. Tests marked slow, alone or slurm are left to `make check`, and so is everything that reaches the
change through a process of its own.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PACKAGES = ("engine", "presets", "tui")  # their modules are imported as gputui.NAME
OF_OTHERS = {  # the tests of what is no module, by how its path begins or ends
    "docs/": "tests/test_documents.py",
    ".md": "tests/test_documents.py",
    "extending.md": "tests/test_recipes.py",
    "pyproject.toml": "tests/test_packaging.py",
    "presets/": "tests/engine/test_presets.py",
    ".tcss": "tests/contract/test_screens.py",
}


def changed_files(base: str) -> list[str]:
    """Paths that differ from `base` and still exist, with those that git does not track yet."""
    commands = (
        ("git", "diff", "--name-only", "--diff-filter=d", base),
        ("git", "ls-files", "--others", "--exclude-standard"),
    )
    return [
        path
        for command in commands
        for path in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    ]


def module_of(path: str) -> str:
    """The import name of a Python file of the repository: engine/plan.py is gputui.engine.plan."""
    parts = Path(path).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(("gputui", *parts) if parts[0] in PACKAGES else parts)


def nearest_tests(graph: grimp.ImportGraph, modules: Iterable[str]) -> dict[str, int]:
    """Each test file that reaches one of the modules by imports, with the number of imports between."""
    distances = {module: 0 for module in modules if module in graph.modules}
    reached = list(distances)
    for module in reached:  # grows: breadth first
        for importer in graph.find_modules_that_directly_import(module):
            if importer not in distances:
                distances[importer] = distances[module] + 1
                reached.append(importer)
    return {
        f"{module.replace('.', '/')}.py": distance
        for module, distance in distances.items()
        if module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")
    }


def look_through_doors(graph: grimp.ImportGraph) -> None:
    """Let each test import the modules whose names it takes from tests/doors, instead of all that the doors import."""
    sources: dict[tuple[str, str], str] = {}
    doors = {module_of(str(path.relative_to(ROOT))): path for path in (ROOT / "tests" / "doors").glob("*.py")}
    for door, path in doors.items():
        for module, name, as_name in _taken(path):
            inner = f"{module}.{name}"
            sources[door, as_name] = inner if inner in graph.modules else module
    for path in (ROOT / "tests").rglob("*.py"):
        importer = module_of(str(path.relative_to(ROOT)))
        for door, name, _ in _taken(path):
            if (door, name) in sources and importer in graph.modules:
                graph.add_import(importer=importer, imported=sources[door, name])
    for door in doors.keys() & graph.modules:
        graph.remove_module(door)


def _taken(path: Path) -> list[tuple[str, str, str]]:
    """The module, the name and the name here of each `from ... import` of a file."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    return [(node.module or "", alias.name, alias.asname or alias.name) for node in nodes for alias in node.names]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fast", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--base", default="HEAD", metavar="REV", help="the revision to compare with (default: HEAD)")
    parser.add_argument("--files", type=int, default=16, help="run at most so many test files (default: 16)")
    given = parser.parse_args()
    paths = changed_files(given.base)
    graph = grimp.build_graph("gputui.engine", "gputui.tui", "tests")
    look_through_doors(graph)
    tests = nearest_tests(graph, (module_of(path) for path in paths if path.endswith(".py")))
    of_others = {
        test: 0 for path in paths for part, test in OF_OTHERS.items() if path.startswith(part) or path.endswith(part)
    }
    chosen = sorted(of_others | tests, key=lambda test: ((of_others | tests)[test], test))
    if not chosen:
        print(f"nothing differs from {given.base} that a test concerns")
        return 0
    left = len(chosen) - given.files
    print(
        f"{len(chosen[: given.files])} test files"
        + (f"; {left} that are farther away are left out" if left > 0 else "")
    )
    marks = "not slow and not alone and not slurm and not extras and not nightly"
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "4", "--dist", "loadfile", "-m", marks]
    code = subprocess.run([*pytest, *chosen[: given.files]], cwd=ROOT, check=False).returncode
    return 0 if code == 5 else code  # 5: all of them are marked


if __name__ == "__main__":
    sys.exit(main())
