"""Adds and removes flags such as --name=value in an environment variable, which may instead name a file of flags."""

from __future__ import annotations

import os
from collections.abc import Callable


def flag_name(flag: str) -> str:
    return flag.partition("=")[0]


def in_file(variable: str) -> bool:
    """Whether the variable names a file that holds the flags, beside which none can be added."""
    given = os.environ.get(variable, "").split()
    return bool(given) and not given[0].startswith("-")


def add(variable: str, flags: list[str]) -> bool:
    """Add flags behind those that are set; false where the variable names a file that holds the flags instead."""
    if flags and in_file(variable):
        return False
    if flags:
        os.environ[variable] = " ".join([*os.environ.get(variable, "").split(), *flags])
    return True


def drop(variable: str, which: Callable[[str], bool]) -> list[str]:
    """Remove flags from a variable, and return them."""
    flags = os.environ.get(variable, "").split()
    dropped = [flag for flag in flags if which(flag)]
    if kept := [flag for flag in flags if flag not in dropped]:
        os.environ[variable] = " ".join(kept)
    else:
        os.environ.pop(variable, None)
    return dropped
