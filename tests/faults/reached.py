"""Which tests reach which line of the product, from one run of the whole suite under coverage.py.

A process that a test starts counts for that test: coverage.py starts with each Python process of the run, and takes the
test's name from the environment, as pytest puts it there.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from xml.etree import ElementTree

from coverage import CoverageData

from tests.faults.one_line import Functions

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / ".faults"
SETTINGS = f"""[run]
parallel = true
data_file = {FOLDER}/coverage
include = {ROOT}/engine/*, {ROOT}/tui/*
context = ${{PYTEST_CURRENT_TEST-}}
patch = fork, _exit
disable_warnings = no-data-collected, module-not-measured, couldnt-parse, trace-changed
"""
SUITE = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder", "-m", "not alone and not slurm and not extras")


def run_suite(tests: Iterable[str] = ()) -> int:
    """Runs the suite (or only `tests`) under coverage.py and keeps what it finds; gives the exit status of pytest."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    settings = FOLDER / "coveragerc"
    settings.write_text(SETTINGS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.faults.contexts", f"--junitxml={FOLDER}/times.xml", "-q"]
    environment = os.environ | {"COVERAGE_PROCESS_START": str(settings)}
    ran = subprocess.run([*command, *SUITE, *tests], cwd=ROOT, env=environment, check=False)
    combine = [sys.executable, "-m", "coverage", "combine", "--quiet", f"--rcfile={settings}"]
    subprocess.run(combine, cwd=ROOT, check=True)
    return ran.returncode


class Reached:
    """The tests of a run. Raises FileNotFoundError if there was none."""

    def __init__(self) -> None:
        file = FOLDER / "coverage"
        if not file.exists():
            raise FileNotFoundError(file)
        self._data = CoverageData(str(file))
        self._data.read()

    @cached_property
    def seconds(self) -> dict[str, float]:
        """The wall time of each test in that run, by its name as pytest writes it."""
        cases = ElementTree.parse(FOLDER / "times.xml").iter("testcase")
        return {
            f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}": float(case.get("time", 0))
            for case in cases
        }

    def total_seconds(self, tests: list[str]) -> float:
        """Their time in that run; a test that is newer counts as ten seconds."""
        return sum(self.seconds.get(test, 10.0) for test in tests)

    def tests(self, file: str, source: str, first: int, last: int) -> list[str]:
        """Names of the tests that reach a line from `first` to `last` of a file of the product, the quickest first.

        What runs when a module is imported is reached by all: then those that reach a function which uses its name.
        """
        lines = self._data.contexts_by_lineno(str(ROOT / file))
        wanted = set(range(first, last + 1))
        tree = ast.parse(source)
        inside = any(
            isinstance(node, Functions) and node.body[0].lineno <= last and first <= (node.end_lineno or 0)
            for node in ast.walk(tree)
        )
        if not inside:
            wanted = _lines_that_use(tree, first, last)
        contexts = {context for line in wanted for context in lines.get(line, ())}
        names = {re.sub(r" \((setup|call|teardown)\)$", "", context.rpartition("|")[2]) for context in contexts}
        return sorted(names & self.seconds.keys(), key=self.seconds.__getitem__)

    def chosen(self, tests: list[str], at_most_seconds: float) -> list[str]:
        """The quickest tests of each file in turn, until `at_most_seconds` are full; in the order of their files."""
        by_file: dict[str, list[str]] = {}
        for test in tests:
            by_file.setdefault(test.partition("::")[0], []).append(test)
        chosen: list[str] = []
        total = 0.0
        for test in (test for row in zip_longest(*by_file.values()) for test in row if test):
            if not chosen or total + self.seconds[test] <= at_most_seconds:
                chosen.append(test)
                total += self.seconds[test]
        return sorted(chosen, key=lambda test: list(by_file).index(test.partition("::")[0]))


def _lines_that_use(tree: ast.Module, first: int, last: int) -> set[int]:
    """Lines in functions which use a name that the statement at these lines assigns; all of functions if none does."""
    names = {
        node.id
        for statement in ast.walk(tree)
        if isinstance(statement, (ast.Assign, ast.AnnAssign))
        and statement.lineno <= last and first <= (statement.end_lineno or 0)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        for node in ast.walk(target)
        if isinstance(node, ast.Name)
    }  # fmt: skip
    every, using = set[int](), set[int]()
    for function in ast.walk(tree):
        if isinstance(function, Functions):
            every |= set(range(function.body[0].lineno, (function.end_lineno or 0) + 1))
            using |= {
                node.lineno
                for node in ast.walk(function)
                if (isinstance(node, ast.Name) and node.id in names)
                or (isinstance(node, ast.Attribute) and node.attr in names)
            }
    return using or every
