"""A finding of a check: an error, a warning or a note, with the options that it is about and what to change."""

from __future__ import annotations

from dataclasses import dataclass

from ..files.values import LONGEST_LINE


@dataclass(frozen=True)
class Finding:
    """An `error` prevents the launch; a `warning` or a `note` is only shown. `options` are the keys concerned, and
    `change` is what the user can do.
    """

    level: str
    options: tuple[str, ...]
    message: str
    change: str

    def __str__(self) -> str:
        about = f"{', '.join(self.options)}: " if self.options else ""
        return f"{about}{self.message}; {self.change}"

    def whole(self, line: str) -> str:
        """`line`, which ends with this finding's text, with the change on a second line if it is long."""
        end = f"; {self.change}"
        return line if len(line) <= LONGEST_LINE else f"{line.removesuffix(end)}\n{self.change}"


def _keys(keys: str | tuple[str, ...]) -> tuple[str, ...]:
    return (keys,) if isinstance(keys, str) else keys


def error(keys: str | tuple[str, ...], message: str, change: str) -> Finding:
    return Finding("error", _keys(keys), message, change)


def warning(keys: str | tuple[str, ...], message: str, change: str) -> Finding:
    return Finding("warning", _keys(keys), message, change)


def note(keys: str | tuple[str, ...], message: str, change: str) -> Finding:
    return Finding("note", _keys(keys), message, change)
