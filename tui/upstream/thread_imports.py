"""Lets only one thread at a time import new modules.

Python takes the lock of a module before it imports the package of the module. Two threads that import the same package
for the first time, one of them by a module of it, then each wait for a lock that the other holds. Python (3.11 to 3.13)
lets one of the two fail: with `_DeadlockError`, with `KeyError` in importlib, or with a name that is missing. That
happens to packages of gputui and to those of others, wherever imports are deferred.

With a single lock that is taken before all others, only the importing thread holds any. Waits for a Python in which
such imports do not fail.
"""

from __future__ import annotations

import threading
from importlib import _bootstrap
from typing import Any

_importlib: Any = _bootstrap
_one_at_a_time = threading.RLock()


def import_one_at_a_time() -> None:
    """Let only one thread at a time import new modules. Call it before the first thread starts; a second call does
    nothing.

    The import statement (in C), `import_module` and imports of submodules all call `_find_and_load`, and only for
    modules that are not imported yet. Imports of modules that are already imported take no lock and take no more time
    than before.
    """
    find_and_load = _importlib._find_and_load
    if getattr(find_and_load, "one_at_a_time", False):
        return

    def locked(name: str, import_: Any) -> Any:
        with _one_at_a_time:
            return find_and_load(name, import_)

    vars(locked)["one_at_a_time"] = True
    _importlib._find_and_load = locked
