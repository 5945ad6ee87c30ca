"""A finding of a check: an error, a warning or a note, with the options that it is about and what to change."""

from __future__ import annotations

from dataclasses import dataclass

from ..files.values import LONGEST_LINE


@dataclass(frozen=True)
class Finding:
    """An `error` refuses the launch; a `warning` or a `note` is only shown. `options` are the keys of the options
    concerned; none if it is about what is installed.
    """

    level: str
    options: tuple[str, ...]
    message: str
    change: str

    def __str__(self) -> str:
        about = f"{', '.join(self.options)}: " if self.options else ""
        return f"{about}{self.message}; {self.change}"

    def whole(self, line: str) -> str:
        """A line that ends with this finding; what to change on a line of its own if one line would be cut."""
        end = f"; {self.change}"
        return line if len(line) <= LONGEST_LINE else f"{line.removesuffix(end)}\n{self.change}"


def error(key: str, message: str, change: str) -> Finding:
    return Finding("error", (key,), message, change)
