"""The rules that keep it one house: who may import whom, which packages are installed, how long a file may be."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import needs

ROOT = Path(__file__).parent.parent
PACKAGES = ("engine", "presets", "tui")
HEAVY = {"tensorflow", "keras", "numpy"}
MAX_LINES = 900


def files(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert found
    return found


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def nodes(tree: ast.Module) -> dict[type[ast.AST], list[Any]]:
    """Those of a file by their kinds: to look through all of them takes most of the time of these tests."""
    found = defaultdict[type[ast.AST], list[Any]](list)
    for node in ast.walk(tree):
        found[type(node)].append(node)
    return found


def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    return [*nodes(parsed(path))[ast.Import], *nodes(parsed(path))[ast.ImportFrom]]


def functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [*nodes(tree)[ast.FunctionDef], *nodes(tree)[ast.AsyncFunctionDef]]


def imported(path: Path, typing_too: bool = True) -> Iterator[str]:
    """Full names of all modules that a file imports, wherever in it; relative ones from the root."""
    package = path.relative_to(ROOT).parent.parts
    unused = [] if typing_too else [node for node in nodes(parsed(path))[ast.If] if is_for_types(node)]
    left_out = {inner for node in unused for inner in ast.walk(node)}
    for node in imports(path):
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *([node.module] if node.module else [])))
            yield from (f"{base}.{alias.name}" for alias in node.names)


def is_for_types(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_a_test_is_left_out_on_a_machine_that_lacks_a_tool_and_fails_if_all_are_demanded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(needs.NEEDS, "tmux", needs.Need(lambda: False, "install the package tmux"))
    monkeypatch.setenv(needs.DEMAND, "1")
    with pytest.raises(pytest.fail.Exception, match="tmux is missing here: install the package tmux"):
        needs.require("tmux")
    monkeypatch.delenv(needs.DEMAND)
    with pytest.raises(pytest.skip.Exception, match="install the package tmux"):
        needs.require("tmux")


def offences(paths: list[Path], forbidden: set[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in paths
        for name in imported(path)
        if any(f"{name}.".startswith(f"{bad}.") for bad in forbidden)
    ]


def outside_trainer() -> list[Path]:
    trainer = ROOT / "engine" / "trainer"
    return [path for path in files(*PACKAGES) if trainer not in path.parents]


def test_only_the_trainer_imports_tensorflow_keras_and_numpy() -> None:
    assert offences(outside_trainer(), HEAVY) == []


def test_private_names_of_tensorflow_and_keras_stand_in_one_module() -> None:
    """What one version has and another has not is then found in one place."""
    elsewhere = [path for path in files("engine") if path != ROOT / "engine/trainer/common/versions.py"]
    private = {"keras.src", "tensorflow.python"}
    assert offences(elsewhere, private) == []
    assert offences(files("engine"), private) != []


def test_only_the_trainer_process_imports_the_trainer() -> None:
    assert offences(outside_trainer(), {"engine.trainer", "gputui.engine.trainer"}) == []


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_a_trainer_needs_nothing_but_the_standard_library_numpy_and_tensorflow() -> None:
    """With the packages that an import runs through. It may run in an interpreter that has nothing else (run.python).

    monitor is part of a script in whose interpreter gputui is installed.
    """
    paths = {name_of(path): path for path in files("engine")}
    monitor = "engine.trainer.monitor"
    found = [name for name in paths if name.startswith("engine.trainer") and not name.startswith(monitor)]
    for name in found:  # which grows
        parts = name.split(".")
        above = [".".join(parts[:length]) for length in range(1, len(parts))]
        at_run_time = list(imported(paths[name], typing_too=False))
        named = [word if word in paths else word.rpartition(".")[0] for word in at_run_time]
        found += dict.fromkeys(one for one in (*above, *named) if one in paths and one not in found)
        foreign = {word.split(".")[0] for word in at_run_time} - sys.stdlib_module_names - HEAVY - {"engine"}
        foreign -= {"msgspec"} if name == "engine.files.typed" else set()  # not in a trainer: trust_files
        assert not foreign, (name, foreign)
        assert not name.startswith(monitor), name
    assert "engine.runs.parsing" in found


def test_the_names_of_the_event_files_stand_in_one_module() -> None:
    named = [path for path in files("engine", "tui") if re.search(r"events\.jsonl|telemetry\.jsonl", path.read_text())]
    assert named == [ROOT / "engine/runs/events.py"]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@functools.cache
def private_names(kind: type) -> frozenset[str]:
    """The private names that a class defines, or sets on `self`."""
    body = parsed(Path(inspect.getfile(kind))).body
    for name in kind.__qualname__.split("."):
        defined = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == name)
        body = defined.body
    stored = {
        node.attr for node in ast.walk(defined) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return frozenset(name for name in {*vars(kind), *stored} if is_private(name))


def names_used(kind: ast.ClassDef) -> Iterator[str]:
    """The names that a class defines, or uses of `self` and `super()`."""
    for node in ast.walk(kind):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "super()"):
            yield node.attr
    yield from (target.id for line in kind.body for target in ast.walk(line) if isinstance(target, ast.Name))


def of_textual(path: Path) -> Iterator[str]:
    """The private names of Textual that a file imports, or that its classes share with classes of Textual."""
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("textual"):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from (name for name in names if is_private(name))
    module = importlib.import_module(f"gputui.{name_of(path)}")
    for kind in (
        node for node in nodes(parsed(path))[ast.ClassDef] if isinstance(getattr(module, node.name, None), type)
    ):
        above = [base for base in getattr(module, kind.name).__mro__ if base.__module__.startswith("textual.")]
        theirs = frozenset[str]().union(*map(private_names, above))
        yield from (f"{kind.name}.{name}" for name in names_used(kind) if name in theirs)


def test_private_names_of_textual_stand_in_one_folder() -> None:
    """What a version of Textual changes is then found in one place, and what could be removed with a later version."""
    upstream = [path for path in files("tui") if path.parent.name == "upstream"]
    found = {path.relative_to(ROOT): set(of_textual(path)) for path in files("tui") if path not in upstream}
    assert {path: names for path, names in found.items() if names} == {}
    assert {"_dispatch_message", "_scroll_to"} <= {
        name.rpartition(".")[2] for path in upstream for name in of_textual(path)
    }


def test_private_names_are_used_where_they_are_defined() -> None:
    """Of objects that are not `self`: those of other packages are used in tui/upstream alone."""
    defined = {"_replace"}  # of named tuples, which is documented
    for path in files("tui"):
        defined.update(function.name for function in functions(parsed(path)))
        defined.update(node.attr for node in nodes(parsed(path))[ast.Attribute] if isinstance(node.ctx, ast.Store))
        defined.update(node.id for node in nodes(parsed(path))[ast.Name] if isinstance(node.ctx, ast.Store))
    foreign = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.attr}"
        for path in files("tui")
        for node in nodes(parsed(path))[ast.Attribute]
        if is_private(node.attr) and node.attr not in defined
        if path.parent.name != "upstream"
    ]
    assert foreign == []


def test_a_training_on_several_machines_is_known_by_one_constant() -> None:
    """plan.MULTI_WORKER; the option declares the word once more, as a Literal has to."""
    named = [
        path.relative_to(ROOT).as_posix()
        for path in files("engine", "tui")
        for node in nodes(parsed(path))[ast.Constant]
        if node.value == "multi_worker"
    ]
    assert named == ["engine/options/hardware.py", "engine/plan.py"]


def test_tests_use_the_product_through_their_doors() -> None:
    """A module of the product that is moved, split or joined changes a line in tests/doors and no test."""
    others = [path for path in files("tests") if not {"doors", "programs", "site"} & {*path.parts}]
    assert [path for path in others if any(re.match(r"gputui\.\w+\.", name) for name in imported(path))] == []


def test_nobody_imports_the_folders_by_their_bare_names() -> None:
    found = [
        f"{path.relative_to(ROOT)} imports {node.module}"
        for path in files(*PACKAGES, "tests", "benchmarks")
        for node in imports(path)
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in PACKAGES
    ]
    assert found == []


def test_importing_all_but_the_trainer_loads_nothing_heavy() -> None:
    modules = [
        "gputui." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in outside_trainer()
        if path.stem not in ("__main__", "__init__")
    ]
    assert "gputui.tui.cli" in modules
    assert "gputui.engine.process.supervisor" in modules
    program = (
        f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\n"
        f"print([name for name in {sorted(HEAVY)} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


RACE = """
import importlib.machinery, importlib.util, sys, threading, time
from gputui.tui.app import GputuiApp
GputuiApp()
begun, faults, folder = threading.Event(), [], sys.argv[1] + "/parted"
class Slow(importlib.machinery.SourceFileLoader):
    def create_module(self, spec):
        begun.set()
        time.sleep(0.2)
    def find_spec(name, path, target=None):
        if name == "parted":
            file = folder + "/__init__.py"
            places = {"submodule_search_locations": [folder]}
            return importlib.util.spec_from_file_location(name, file, loader=Slow(name, file), **places)
def take(name):
    try: importlib.import_module(name)
    except BaseException as fault: faults.append(repr(fault))
sys.meta_path.insert(0, Slow)
threads = [threading.Thread(target=take, args=(name,)) for name in ("parted", "parted.part")]
threads[0].start(); begun.wait(); threads[1].start()
for thread in threads: thread.join()
print(faults)
"""


def test_threads_of_the_screens_may_import_the_same_package_at_once(tmp_path: Path) -> None:
    """One of them the package and the other its module: Python itself lets one of the two fail."""
    package = tmp_path / "parted"
    package.mkdir()
    (package / "__init__.py").write_text("from .part import name\n")
    (package / "part.py").write_text("name = 1\n")
    words = [sys.executable, "-P", "-c", RACE, str(tmp_path)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("command", [["--help"], ["presets"], ["--preset", "quickstart", "--dry-run"]], ids=" ".join)
def test_the_command_itself_loads_neither_tensorflow_nor_the_screen(command: list[str]) -> None:
    program = (
        f"import sys\nfrom gputui.tui.cli import run\ncode = run({command})\n"
        f"print(code, [name for name in {[*sorted(HEAVY), 'textual']} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_every_package_is_installed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent for path in files(*PACKAGES, "examples")}
    assert sorted(listed) == sorted("gputui." + ".".join(folder.relative_to(ROOT).parts) for folder in folders)
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_no_file_is_long() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in files(*PACKAGES, "tests", "benchmarks")
        if (count := len(path.read_text().splitlines())) > MAX_LINES
    }
    assert long == {}


def deferred(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that are made only when a function is called."""
    lines = {line for node in functions(tree) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    yield from (node for kind in (ast.Import, ast.ImportFrom) for node in nodes(tree)[kind] if node.lineno in lines)


def test_imports_that_are_deferred_give_their_reason() -> None:
    """In a comment on their line, or for all of a module in its docstring."""
    silent = []
    for path in files("engine", "tui"):
        text = path.read_text()
        lines = text.splitlines()
        if "\nDeferred imports: " not in (ast.get_docstring(parsed(path)) or ""):
            without = (node.lineno for node in deferred(parsed(path)) if "  # " not in lines[node.lineno - 1])
            silent += [f"{path.relative_to(ROOT)}:{line}" for line in without]
    assert silent == []


SAYS_NOTHING = {"told", "one", "found", "wanted", "said", "known"}  # of a value: a name says what the value is


def named_values(path: Path) -> Iterator[tuple[str, int]]:
    """The variables and parameters of a file, with their lines; not the fields of classes."""
    fields = {node.target for node in nodes(parsed(path))[ast.AnnAssign] if node.value is None}
    names = (node for node in nodes(parsed(path))[ast.Name] if isinstance(node.ctx, ast.Store) and node not in fields)
    yield from ((node.id, node.lineno) for node in names)
    yield from ((node.arg, node.lineno) for node in nodes(parsed(path))[ast.arg])


def test_values_are_named_after_what_they_hold() -> None:
    values = [(path, *value) for path in files("engine", "tui") for value in named_values(path)]
    assert ("engine/plan.py", "replicas") in {(str(path.relative_to(ROOT)), name) for path, name, _ in values}
    assert [f"{path.relative_to(ROOT)}:{line} {name}" for path, name, line in values if name in SAYS_NOTHING] == []


def test_docstrings_say_if_and_where_only_of_a_place() -> None:
    """At most one in a hundred of the docstrings has the word at all."""
    docstrings = [
        docstring
        for path in files("engine", "tui")
        for node in (parsed(path), *nodes(parsed(path))[ast.ClassDef], *functions(parsed(path)))
        if (docstring := ast.get_docstring(node))
    ]
    where = [docstring for docstring in docstrings if re.search(r"\b[Ww]here\b", docstring)]
    assert len(where) <= len(docstrings) / 100, where


def test_every_benchmark_can_be_imported() -> None:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files("benchmarks")]
    program = f"import importlib\nfor name in {[n for n in names if '__' not in n]}: importlib.import_module(name)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    assert "benchmarks.faults.lives" in names
