"""Paths in sentences that have little room: their first folders are left out, and bin/python at the end of one."""

from __future__ import annotations

import re

from rich.cells import cell_len

_PATH = re.compile(r"(?<![^\s(])/[^\s:;,()'\"]+")
_OF_ENVIRONMENT = re.compile(r"(.*[^/]+/[^/]+)/bin/python[\d.]*")
_UNTELLING = ("env", "venv", ".venv")  # names that people give to the environment of each project


def within(sentence: str, room: int) -> str:
    """The sentence with its paths shortened where it is longer than the room."""
    return sentence if cell_len(sentence) <= room else _PATH.sub(lambda path: _short(path[0]), sentence)


def _short(path: str) -> str:
    environment = _OF_ENVIRONMENT.fullmatch(path)
    folders = (environment[1] if environment else path).split("/")
    kept = folders[-2 if folders[-1] in _UNTELLING else -1 :]
    return "/".join(("...", *kept)) if len(kept) + 2 < len(folders) else path
