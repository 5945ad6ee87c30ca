"""`python -m tests.versions [2.18 2.19:3.10 ...]`: runs the engine's tests against each version, and prints a table."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tests.doors.engine import clock
from tests.versions.environment import ROOT, Wanted, made, versions, wanted

# The ends of the range first, and each version with the Keras that pip gives with it.
VERSIONS = ("2.18:3.10", "2.21", "2.18", "2.20", "2.19")
# All that the trainer does, and runs as a user makes them: quickstart, own code, stopped and resumed, exported.
TESTS = (
    "tests/trainer",
    "tests/contract/test_rules.py",
    "tests/end_to_end/test_run_life.py",
    "tests/end_to_end/test_own_runs.py",
    "tests/end_to_end/test_programs.py",
    "tests/end_to_end/test_examples.py",
    "tests/end_to_end/test_export.py",
)


@dataclass(frozen=True)
class Ran:
    """The tests against one version: what is installed, how many passed, and the names of those that failed."""

    wish: Wanted
    installed: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    failed: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def row(self) -> str:
        shown = [self.installed.get(name, "?") for name in ("tensorflow", "keras", "numpy", "protobuf", "python")]
        counted = [str(self.counts[outcome]) for outcome in ("passed", "failed", "skipped")]
        return f"| {' | '.join([*shown, *counted, clock(self.seconds)])} |"


HEAD = """| TensorFlow | Keras | NumPy | protobuf | Python | passed | failed | skipped | time |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def main() -> int:
    asked = _arguments()
    ran = []
    for wish in asked.versions:
        print(f"--- {wish.name}", flush=True)
        ran.append(_tested(wish, asked))
        print(*ran[-1].failed, sep="\n", end="\n" if ran[-1].failed else "", flush=True)
    print(HEAD, *(one.row for one in ran), sep="\n")
    return 1 if any(one.failed for one in ran) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("versions", nargs="*", type=_wanted, default=[wanted(word) for word in VERSIONS])
    parser.add_argument("--environments", type=Path, default=ROOT / ".versions", metavar="FOLDER")
    parser.add_argument("--tests", default=" ".join(TESTS), help="files, folders and options of pytest")
    parser.add_argument("--workers", type=int, default=3, help="tests at a time (default: 3)")
    return parser.parse_args()


def _wanted(word: str) -> Wanted:
    try:
        return wanted(word)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from None


def _tested(wish: Wanted, asked: argparse.Namespace) -> Ran:
    folder = asked.environments.resolve()
    try:
        python = made(wish, folder)
    except subprocess.CalledProcessError as fault:
        return Ran(wish, failed=(f"the environment could not be made: {fault}",))
    report, log = folder / f"{wish.name}.xml", folder / f"{wish.name}.log"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    with open(log, "w") as output:
        command = [str(python), "-m", "pytest", "-m", "not alone", "-o", f"cache_dir={folder / wish.name / 'cache'}"]
        command += ["-n", str(asked.workers), "--dist", "loadfile", f"--junitxml={report}", *asked.tests.split()]
        subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False)
    counts, failed = _outcomes(report)
    return Ran(wish, versions(python), counts, failed or _nothing_ran(counts, log), time.monotonic() - began)


def _outcomes(report: Path) -> tuple[Counter[str], tuple[str, ...]]:
    """How many tests passed, failed and were skipped, and which failed."""
    counts: Counter[str] = Counter()
    failed = []
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        found = {child.tag for child in case}
        outcome = "failed" if found & {"failure", "error"} else "skipped" if "skipped" in found else "passed"
        counts[outcome] += 1
        if outcome == "failed":
            failed.append(f"FAILED {case.get('classname')}::{case.get('name')}")
    return counts, tuple(failed)


def _nothing_ran(counts: Counter[str], log: Path) -> tuple[str, ...]:
    return () if counts["passed"] else (f"no test passed: see {log}",)


if __name__ == "__main__":
    sys.exit(main())
