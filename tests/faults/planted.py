"""Runs tests on the product with a fault in it, in name spaces of their own.

The file with the fault is mounted over the real one for these processes only, and all of them end with the first: the
working tree stays as it is, and nothing goes on that a fault keeps from ending.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.reached import ROOT

IN_NAME_SPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
MOUNTED = ("sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh")
# Bytecode of a file with a fault must not stay.
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}


def noticed_by(file: str, source: str, tests: Sequence[str], at_most_seconds: float) -> str | None:
    """The first of the tests that fails with `source` in the place of `file`, and not in name spaces alone.

    Of tests that hang it is the first of all. Raises RuntimeError with the end of the output if they could not be run.
    """
    without = (ROOT / file).read_text(encoding="utf-8")
    left_out: list[str] = []
    while failed := _first_failing(file, source, [*tests, *left_out], at_most_seconds):
        if _first_failing(file, without, [failed], at_most_seconds) is None:
            return failed
        left_out.append(f"--deselect={failed}")
    return None


def _first_failing(file: str, source: str, tests: Sequence[str], at_most_seconds: float) -> str | None:
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        changed = Path(folder) / "changed.py"
        changed.write_text(source, encoding="utf-8")
        changed.chmod((ROOT / file).stat().st_mode)
        os.utime(changed, (time.time() + 10, time.time() + 10))  # never that of the file whose bytecode is kept
        options = ["-x", "-q", "-rfE", "-p", "no:cacheprovider", f"--basetemp={folder}/tests"]
        run = [sys.executable, "-m", "pytest", *options, *tests]
        command = [*IN_NAME_SPACES, *MOUNTED, str(changed), str(ROOT / file), *run]
        try:
            ran = subprocess.run(
                command, cwd=ROOT, env=os.environ | ENVIRONMENT | {"TMPDIR": folder}, capture_output=True, text=True,
                timeout=at_most_seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return tests[0]
    if ran.returncode in (0, 5):  # 5: all tests were left out
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+\.py(?:::[^\s\[]+(?:\[.*?\])?)?)(?: - |$)", ran.stdout, re.MULTILINE)
    if failed and ran.returncode in (1, 2):  # 2: a file of tests can no longer be imported
        return failed[1]
    raise RuntimeError((ran.stdout + ran.stderr)[-600:].strip())
