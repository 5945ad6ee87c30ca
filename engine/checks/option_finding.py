"""A finding of a check: an error, a warning or a note, with the options that it is about and what to change."""

from __future__ import annotations

from dataclasses import dataclass

from ..files.values import LONGEST_LINE


@dataclass(frozen=True)
class Finding:
    """A result of a check. With the level `error` it prevents the launch; a `warning` or a `note` is only shown.

    `options` are the keys of the options concerned; empty if the finding is about installed packages. `change` says
    what the user can do.
    """

    level: str
    options: tuple[str, ...]
    message: str
    change: str

    def __str__(self) -> str:
        about = f"{', '.join(self.options)}: " if self.options else ""
        return f"{about}{self.message}; {self.change}"

    def whole(self, line: str) -> str:
        """Return `line`, which ends with the text of this finding.

        If it is longer than 200 characters, the part that says what to change is put on a second line.
        """
        end = f"; {self.change}"
        return line if len(line) <= LONGEST_LINE else f"{line.removesuffix(end)}\n{self.change}"


def error(key: str, message: str, change: str) -> Finding:
    return Finding("error", (key,), message, change)
