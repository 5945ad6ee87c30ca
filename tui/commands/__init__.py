"""The commands of `gputui`: functions with their options and help. Modules are loaded when their commands are named,
and what only the functions need, under `if is_called():`, not for the help and the completion of a command."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

_declares = False


class Called(Exception):
    """A command that was loaded for its help is called."""


def is_called() -> bool:
    """Return False while a module is loaded only for the help and the completion of its commands."""
    return not _declares


def command_of(module: str, name: str, only_declared: bool) -> click.Command:
    """Load a command or, with `only_declared`, only its help: it then raises Called, and its module is forgotten."""
    global _declares
    before = {*sys.modules}
    _declares = only_declared and f"{__name__}.{module}" not in before
    try:
        command: click.Command = getattr(import_module(f".{module}", __name__), name)
        if _declares:
            for part in (command, *(command.commands.values() if isinstance(command, click.Group) else ())):
                part.callback = _called
        return command
    finally:
        for loaded in [name for name in sys.modules if _declares and name.startswith(f"{__name__}.")]:
            if loaded not in before:
                del sys.modules[loaded]
                delattr(sys.modules[__name__], loaded.removeprefix(f"{__name__}."))
        _declares = False


def _called(**_options: Any) -> None:
    if click.get_current_context().invoked_subcommand is None:
        raise Called
