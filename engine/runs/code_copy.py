"""The copy of a user's Python files in the run folder, which the run trains with run.code=copy, and the commit they
belong to. It has links to the user's other files, as code may open a file next to itself. Data and hidden files are not
copied.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import entry as entries
from ..entry import Entry
from ..files import places, typed
from ..files.places import home
from ..files.reading import read_bytes, why
from ..files.writing import write_atomically
from ..options import Options
from ..units import size
from .run import Run

FOLDER, RECORD, DIFF = "code", "source.json", "source.diff"
MOST_FILES, MOST_BYTES, MOST_FILE_BYTES = 2_000, 20 * 1024**2, 1024**2
MOST_NAMES, MOST_NAMES_OF_DATA = 20_000, 2_000  # names that are listed in all, and in one folder below the entry's
SHORT_COMMIT = 7
_SKIPPED = {"__pycache__", "site-packages", "node_modules"}
_OF_ENVIRONMENT = {"pyvenv.cfg", "conda-meta"}  # a folder that has one of these is a virtual environment


@dataclass(frozen=True)
class Source:
    """The record of the copied code. `folder` is the folder of the entry. `left_out` is the reason why it was not
    copied; empty if it was. `commit` and `branch` are git's; None if unknown. `dirty` is True if tracked files differed
    from the commit.
    """

    folder: str = ""
    left_out: str = ""
    commit: str | None = None
    branch: str | None = None
    dirty: bool = False

    @property
    def short_commit(self) -> str:
        """Text such as `1a2b3c4` or `1a2b3c4 with changes`; empty without a commit."""
        return f"{self.commit[:SHORT_COMMIT]}{' with changes' * self.dirty}" if self.commit else ""


def read(run: Run) -> Source:
    """Return the record of the run's copied code; an empty record if there is no file or it is damaged."""
    return typed.read_usable(run.file(RECORD), Source)


def of(run: Run) -> Path | None:
    """Return the folder with the run's copy of the code; None if the run has no copy."""
    folder = run.file(FOLDER)
    return folder.absolute() if folder.is_dir() else None


def trained(run: Run, options: Options) -> Path | None:
    """Return the folder with the run's copy of the code if run.code is `copy`; else, and without a copy, None."""
    return of(run) if options.run.code == "copy" else None


def home_of(options: Options) -> Path | None:
    """The folder of the file that workload.entry names; None without one."""
    workload = options.workload
    if workload.entry is None or (file := entries.parse(workload.entry).file) is None:
        return None
    return Path(os.path.abspath(os.path.join(*map(os.path.expanduser, (workload.folder or ".", file))))).parent


def as_trained(run: Run, options: Options) -> Options:
    """Return the options; if the run trains its copy of the code, workload.entry names the file in the copy."""
    if options.workload.entry is None or (copy := trained(run, options)) is None:
        return options
    entry = str(used_entry(entries.parse(options.workload.entry), copy))
    return options.with_values({"workload.entry": entry})


def used_entry(entry: Entry, copy: Path | None) -> Entry:
    """The entry with the path of its file, not a module, in the folder `copy`, if there is one."""
    return entry if copy is None else Entry(str(copy / Path(str(entry.file)).name), None, entry.function)


def make(run: Run, options: Options) -> None:
    """Copy the Python files of the entry's folder, if it names a file, and record folder, commit, diff, and why they
    could not be copied. An earlier copy is kept as `code-1`. OSError if the record cannot be written.
    """
    if (folder := home_of(options)) is None:
        if options.workload.entry is not None and options.run.code == "copy":
            _record(run, {"left_out": f"{options.workload.entry} names a module, which is not copied"})
        return
    facts, diff = git_state(folder)
    put_aside(run)
    record = {"folder": str(folder), "left_out": _copy(run, folder, options.run.code == "copy")}
    if diff:
        with contextlib.suppress(OSError):
            run.file(DIFF).write_bytes(diff)
    _record(run, record | facts)


def _record(run: Run, record: Mapping[str, Any]) -> None:
    write_atomically(run.file(RECORD), json.dumps(record, indent=1), durable=False)


def put_aside(run: Run) -> None:
    """Rename the run's copy of the code and its diff to numbered names such as `code-1`. Errors are ignored."""
    number = max(places.next_number(run.path, f"{FOLDER}-"), places.next_number(run.path, "source-", ".diff"))
    for name, kept in ((FOLDER, f"{FOLDER}-{number}"), (DIFF, f"source-{number}.diff")):
        with contextlib.suppress(OSError):
            run.file(name).rename(run.file(kept))


def link_data(run: Run, options: Options) -> None:
    """Add links to the other files, for a copy that was made without. Errors are ignored."""
    folder, copy = home_of(options), of(run)
    if folder is not None and copy is not None:
        with contextlib.suppress(OSError):
            _link(_search(folder, run), folder, copy)


def _copy(run: Run, folder: Path, with_links: bool) -> str:
    """Why the files were not copied, or an empty text. `with_links` adds links to all other files."""
    target = run.file(FOLDER)
    try:
        tree = _search(folder, run)
        if tree.excess:
            return f"the Python files in {folder} are not copied: {tree.excess}"
        target.mkdir(mode=0o700)
        for name in tree.files:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(read_bytes(folder / name, MOST_FILE_BYTES))
        if with_links:
            _link(tree, folder, target)
    except OSError as fault:
        shutil.rmtree(target, ignore_errors=True)
        return f"the Python files in {folder} are not copied: {fault.filename or folder}: {why(fault)}"
    return ""


@dataclass
class _Tree:
    """The entries of a folder as paths relative to it. `files` are the Python files to copy. `others` are all other
    entries that are not hidden, and the folders that are not searched. `excess` is the limit that the files exceed;
    empty if they exceed none.
    """

    files: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    excess: str = ""


def _search(folder: Path, run: Run) -> _Tree:
    """A folder's entries, upper levels first, without virtual environments, runs and data (MOST_NAMES_OF_DATA)."""
    tree, ours = _Tree(), {os.path.realpath(home()), os.path.realpath(run.path.parent), os.path.realpath(run.path)}
    names = copied_bytes = 0
    waiting = deque([""])
    while waiting:
        below = waiting.popleft()
        try:
            with os.scandir(folder / below) as iterator:
                listed = list(itertools.islice(iterator, MOST_NAMES_OF_DATA + 1 if below else None))
        except OSError:
            if not below:
                raise
            listed = []
        names += len(listed)
        if below and (not listed or len(listed) > MOST_NAMES_OF_DATA or names > MOST_NAMES):
            tree.others.append(below)
            continue
        if below and _OF_ENVIRONMENT.intersection(entry.name for entry in listed):
            continue
        for entry in sorted(listed, key=lambda entry: entry.name):
            name = os.path.join(below, entry.name)
            if entry.name.startswith(".") or entry.name in _SKIPPED:
                continue
            if entry.is_dir(follow_symlinks=False):
                if os.path.realpath(entry.path) not in ours:
                    waiting.append(name)
            elif (length := _bytes_of_python(entry)) is None:
                tree.others.append(name)
            else:
                tree.files.append(name)
                copied_bytes += length
        if len(tree.files) > MOST_FILES or copied_bytes > MOST_BYTES:
            tree.excess = f"there are more than {MOST_FILES:,}, or they are larger than {size(MOST_BYTES)}"
            break
    return tree


def _bytes_of_python(entry: os.DirEntry[str]) -> int | None:
    # None for any other or a too large file.
    if not entry.name.endswith(".py") or not entry.is_file():
        return None
    length = entry.stat().st_size
    return length if length <= MOST_FILE_BYTES else None


def _link(tree: _Tree, folder: Path, copy: Path) -> None:
    # To what is not copied; if nothing in a subfolder is copied, one link leads to the subfolder.
    copied = {""} | {str(parent) for name in tree.files for parent in Path(name).parents}
    copied = {"" if parent == "." else parent for parent in copied}
    for name in tree.others:
        while os.path.dirname(name) not in copied:
            name = os.path.dirname(name)
        with contextlib.suppress(FileExistsError):
            os.symlink(folder / name, copy / name)


# ---- the commit ---------------------------------------------------------------------------------

# Git is run for at most 2 seconds in all, never asks for anything, and changes nothing in the repository.
GIT_SECONDS = 2.0
MOST_DIFF_BYTES = 1_000_000
CUT = b"\n(cut here: the diff is longer)\n"
# Neither git's file watcher nor programs that a repository's settings name are started.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "diff.external=", "-c", "core.pager=cat")
_STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=all")
_DIFF = ("diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--", ":(top)*.py")


def git_state(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The fields of Source that git knows, and the diff of the Python files, cut after 1 MB. Empty without a repository
    or a commit, or if git is missing, fails or takes longer than 2 s.
    """
    ends = time.monotonic() + GIT_SECONDS
    if (answer := _git(folder, _STATUS, ends)) is None:
        return {}, b""
    lines = answer.decode(errors="replace").splitlines()
    facts = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch.") and line.count(" ") > 1)
    commit, branch = facts.get("branch.oid", "(initial)"), facts.get("branch.head", "(detached)")
    if commit.startswith("("):
        return {}, b""
    dirty = any(not line.startswith("#") for line in lines)
    diff = (_git(folder, _DIFF, ends) or b"") if dirty else b""
    return {"commit": commit, "branch": None if branch.startswith("(") else branch, "dirty": dirty}, diff


def _git(folder: Path, words: tuple[str, ...], ends: float) -> bytes | None:
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
