"""The commands of `gputui`: functions with their options and help. Modules are loaded when their commands are named,
and what the functions need when one is called: help and completion do not wait for it."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import click

_import = builtins.__import__
_declaring = False


@dataclass(frozen=True)
class DeferredName:
    """A name in a module of commands that is still to be imported."""

    load: Callable[[], Any]


def command_of(module: str, name: str) -> click.Command:
    """Load a command. The blocks `when_called` of its module wait for its call."""
    global _declaring
    _declaring = True
    try:
        command: click.Command = getattr(import_module(f".{module}", __name__), name)
    finally:
        _declaring = False
    _prepare(command)
    return command


@contextmanager
def when_called() -> Iterator[None]:
    """Each `from MODULE import NAME` in this block is done when a command is called; at once in a module that is loaded
    for its functions, not for a command."""
    import_or_note: Any = _later if _declaring else _import
    builtins.__import__ = import_or_note
    try:
        yield
    finally:
        builtins.__import__ = _import


def _later(module: str, importer: Any = None, _: Any = None, names: Sequence[str] | None = (), level: int = 0) -> Any:
    def load(name: str) -> Any:
        return getattr(_import(module, importer, None, (name,), level), name)

    return SimpleNamespace(**{name: DeferredName(partial(load, name)) for name in names or ()})


def _prepare(command: click.Command) -> None:
    for part in command.commands.values() if isinstance(command, click.Group) else ():
        _prepare(part)
    if command.callback is not None:
        command.callback = partial(_call, command.callback)


def _call(function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
    if click.get_current_context().invoked_subcommand is None:
        for module in [sys.modules[name] for name in sys.modules if name.startswith(f"{__name__}.")]:
            for name, value in list(vars(module).items()):
                if isinstance(value, DeferredName):
                    setattr(module, name, value.load())
    return function(*arguments, **options)
