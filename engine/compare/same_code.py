"""Compares the user's own code of runs, by the files that they have imported."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..files.reading import read_bytes
from ..runs import Run, code_copy, code_files

NAMED = 2  # files in a cell


@dataclass(frozen=True)
class CodeRow:
    """The code of each run: the short commit, the files that differ from the baseline's (None: unknown), and the same
    number for the same code.
    """

    commits: tuple[str, ...]
    differing: tuple[tuple[str, ...] | None, ...]
    numbers: tuple[int, ...]

    def text(self, position: int) -> str:
        """Return the cell of the run at `position`: its commit, and for all runs but the baseline `same` or `differs`
        with files.
        """
        commit, names = self.commits[position], self.differing[position]
        if names is None or position == 0:
            return commit
        more = f" +{len(names) - NAMED}" if len(names) > NAMED else ""
        text = f"differs: {', '.join(names[:NAMED])}{more}" if names else "same"
        return f"{text} ({commit})" if commit else text


def code_row(runs: Sequence[Run]) -> CodeRow | None:
    """Return the comparison of the code with that of the first run. None if no run has recorded code of its own."""
    codes = [_Code(run) for run in runs]
    if not any(code.files for code in codes):
        return None
    commits = tuple(code_copy.read(run).short_commit for run in runs)
    alike = [[code.files == other.files or code.differing(other) == () for other in codes] for code in codes]
    return CodeRow(commits, tuple(codes[0].differing(code) for code in codes), tuple(row.index(True) for row in alike))


class _Code:
    """The hashes of the files that a run has imported, by their names relative to the entry's folder."""

    def __init__(self, run: Run) -> None:
        record = code_files.read(run)
        self.files = {record.name_of(path): digest for path, digest in record.files.items()}
        self._copy = code_copy.of(run)

    def differing(self, other: _Code) -> tuple[str, ...] | None:
        # a file that only one run has imported is compared with the other's copy; None if one has recorded no file
        if not self.files or not other.files:
            return None
        names = sorted(self.files.keys() | other.files.keys())
        return tuple(name for name in names if self._hash(name) != other._hash(name))

    def _hash(self, name: str) -> str | None:
        if name in self.files or self._copy is None:
            return self.files.get(name)
        try:
            return hashlib.sha256(read_bytes(Path(self._copy) / name)).hexdigest()
        except OSError:
            return None
