"""Reads the state of a folder's git repository: commit, branch, and the changes of Python files since the commit. Git
is run for at most 2 seconds in all, never asks for anything, and changes nothing in the repository.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SECONDS = 2.0
MOST_DIFF_BYTES = 1_000_000
CUT = b"\n(cut here: the diff is longer)\n"
# Neither git's file watcher nor programs that a repository's settings name are started.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "diff.external=", "-c", "core.pager=cat")
_STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=all")
_DIFF = ("diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--", ":(top)*.py")


@dataclass(frozen=True)
class GitState:
    """`commit` is the full hash; `branch` None without one; `dirty`: a tracked file differs; `diff` of the Python
    files, cut after 1 MB, empty if it could not be read in time.
    """

    commit: str
    branch: str | None
    dirty: bool
    diff: bytes = b""


def read(folder: Path) -> GitState | None:
    """None without a repository or a commit, or if git is missing, fails or takes longer than 2 s."""
    ends = time.monotonic() + SECONDS
    if (answer := _answer(folder, _STATUS, ends)) is None:
        return None
    lines = answer.decode(errors="replace").splitlines()
    facts = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch.") and line.count(" ") > 1)
    commit, branch = facts.get("branch.oid", "(initial)"), facts.get("branch.head", "(detached)")
    if commit.startswith("("):
        return None
    dirty = any(not line.startswith("#") for line in lines)
    diff = (_answer(folder, _DIFF, ends) or b"") if dirty else b""
    return GitState(commit, None if branch.startswith("(") else branch, dirty, diff)


def _answer(folder: Path, words: tuple[str, ...], ends: float) -> bytes | None:
    """None if it fails or has not ended at `ends` (monotonic)."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    with tempfile.TemporaryFile() as output:  # a pipe would be kept open by a child of git
        try:
            subprocess.run(
                [*_GIT, "-C", str(folder), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                env=settings,
                timeout=max(0.01, ends - time.monotonic()),
                check=True,
            )
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        output.seek(0)
        block = output.read(MOST_DIFF_BYTES + 1)
    return block if len(block) <= MOST_DIFF_BYTES else block[:MOST_DIFF_BYTES] + CUT
