"""The lines of a script while it is written, each with a comment that names the options it comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..options import Options
from .engine_source import definitions, literal

_NAMED = re.compile(r"  # ((?:\w+\.\w+(?:, )?)+)")


class Script:
    """Collects the lines of a script. `base` is its folder, if paths within it are to be relative."""

    def __init__(self, base: Path | None = None) -> None:
        self.base = base
        self.paths: list[str] = []  # paths of this machine
        self._lines: list[str] = []
        self._definitions: list[str] = []
        self._defined: set[str] = set()
        self._named: set[str] = set()

    @property
    def named(self) -> frozenset[str]:
        """The keys of all options that the comments of the lines so far name."""
        return frozenset(self._named)

    def add(self, line: str, *comments: str) -> None:
        """The comment has the option keys (`comments` without a blank), then the other words."""
        keys = [comment for comment in comments if " " not in comment]
        self._named.update(keys)
        words = [comment for comment in comments if " " in comment]
        comment = ": ".join(filter(None, (", ".join(keys), "; ".join(words))))
        self._lines.append(f"{line}  # {comment}" if comment else line)

    def path(self, path: str) -> str:
        """Return the expression for a path: relative to `HERE` if it is within the base, else added to `paths`."""
        if self.base is None or not Path(path).is_relative_to(self.base):
            self.paths.append(path)
            return literal(path)
        inside = Path(path).relative_to(self.base)
        return f"str(HERE / {literal(str(inside))})" if inside.parts else "str(HERE)"

    def text(self, lines: str) -> None:
        self._lines.extend(lines.split("\n"))

    def section(self, title: str) -> None:
        self._lines += ["", f"# ---- {title} ".ljust(80, "-")]

    def define(
        self, file: str, *names: str, options: Options | None = None, constants: Mapping[str, Any] | None = None
    ) -> None:
        """Add these definitions of the engine to those of the script, once, and note the options in their comments."""
        for source in definitions(file, *names, options=options, constants=constants):
            if source in self._defined:
                continue
            self._defined.add(source)
            for comment in _NAMED.findall(source):
                self._named.update(comment.rstrip(":").split(", "))
            apart = ["", ""] if source.startswith(("def ", "class ", "@")) else []
            self._definitions += [*apart, *source.split("\n"), *apart]

    def guarded(self) -> str:
        """Return a script that its processes may import: the other lines stand below `if __name__ == "__main__":`."""
        lines = [f"    {line}" if line else line for line in self._lines]
        return _text([*self._definitions, "", "", 'if __name__ == "__main__":', *lines])

    def __str__(self) -> str:
        return _text(self._lines)


def _text(lines: Sequence[str]) -> str:
    kept: list[str] = []
    for line in lines:
        if line or kept[-2:] != ["", ""]:
            kept.append(line.rstrip())
    return "\n".join(kept).strip("\n") + "\n"
