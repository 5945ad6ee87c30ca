"""Lets only one thread at a time import new modules. Python takes the lock of a module before it imports the package of
the module, so two threads that import the same package first, one by a module of it, each wait for the other's lock.
Python (3.11 to 3.13) lets one fail: `_DeadlockError`, `KeyError` in importlib, or a missing name. A single lock taken
before all others prevents that. Waits for a Python in which such imports do not fail."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from importlib import _bootstrap
from typing import Any, TypeVar

from textual.widget import Widget

_importlib: Any = _bootstrap
_one_at_a_time = threading.RLock()


def import_one_at_a_time() -> None:
    """Make only one thread at a time import new modules. To be called before the first thread starts. The import
    statement (in C), `import_module` and imports of submodules all call `_find_and_load`, only for modules that are not
    imported yet: other imports take no more time than before."""
    find_and_load = _importlib._find_and_load
    if getattr(find_and_load, "one_at_a_time", False):
        return

    def locked(name: str, import_: Any) -> Any:
        with _one_at_a_time:
            return find_and_load(name, import_)

    vars(locked)["one_at_a_time"] = True
    _importlib._find_and_load = locked


# ---- workers that end with the process ------------------------------------------------------------


Result = TypeVar("Result")


def in_background(owner: Widget, reading: Callable[[], Result], take: Callable[[Result], None]) -> None:
    """Call `reading` in a daemon thread, then `take` with its result in the calling thread. Returns at once. If `owner`
    has been removed, `take` is not called. An exception is handled as an exception of `owner`'s application."""
    loop, context = asyncio.get_running_loop(), copy_context()

    def done(act: Callable[[], None]) -> None:
        if owner.is_attached:
            try:
                act()
            except Exception as error:  # noqa: BLE001 - shown like a fault in the handling of a message
                owner.app._handle_exception(error)

    def run() -> None:
        try:
            act = partial(take, reading())
        except Exception as error:  # noqa: BLE001 - raised again in the thread of the screens
            act = partial(raised, error)
        with contextlib.suppress(RuntimeError):  # the application has been left
            loop.call_soon_threadsafe(partial(done, act), context=context)

    threading.Thread(target=run, daemon=True).start()


def raised(error: Exception) -> None:
    raise error
