"""A finding: what is wrong or worth knowing of options, a machine or a job, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LEVELS = ("error", "warning", "note", "ok")  # the worst first


@dataclass(frozen=True)
class Finding:
    """An `error` prevents a training; a `warning` or a `note` is only shown; `ok` is as it should be. `about` names a
    part of the machine; `options` are the keys of the options concerned.
    """

    level: str
    about: str
    what: str
    remedy: str = ""
    options: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.what}; {self.remedy}" if self.remedy else self.what

    def __str__(self) -> str:
        return f"{', '.join(self.options)}: {self.text}" if self.options else self.text

    @property
    def line(self) -> str:
        return f"{self.level}: {self}"


def on_options(level: str, keys: str | tuple[str, ...], what: str, remedy: str = "") -> Finding:
    return Finding(level, "", what, remedy, (keys,) if isinstance(keys, str) else keys)


def error(keys: str | tuple[str, ...], what: str, remedy: str = "") -> Finding:
    return on_options("error", keys, what, remedy)


def warning(keys: str | tuple[str, ...], what: str, remedy: str = "") -> Finding:
    return on_options("warning", keys, what, remedy)


def note(keys: str | tuple[str, ...], what: str, remedy: str = "") -> Finding:
    return on_options("note", keys, what, remedy)


def errors(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == "error"]


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))
