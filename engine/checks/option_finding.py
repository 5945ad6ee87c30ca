"""A finding of a check: an error, a warning or a note, with the options that it is about and what to change."""

from __future__ import annotations

from dataclasses import dataclass

from ..files.values import LONGEST_LINE


@dataclass(frozen=True)
class Finding:
    """A result of a check. An `error` prevents the launch; a `warning` or a `note` is only shown.

    `options` are the keys of the options concerned; empty if the finding is about installed packages.
    """

    level: str
    options: tuple[str, ...]
    message: str
    change: str

    def __str__(self) -> str:
        about = f"{', '.join(self.options)}: " if self.options else ""
        return f"{about}{self.message}; {self.change}"

    def whole(self, line: str) -> str:
        """Return `line`, which ends with this finding.

        If it is too long for one line of a message, put the part that says what to change on a second line.
        """
        end = f"; {self.change}"
        return line if len(line) <= LONGEST_LINE else f"{line.removesuffix(end)}\n{self.change}"


def error(key: str, message: str, change: str) -> Finding:
    return Finding("error", (key,), message, change)
