"""What the commands of `gputui` do.
Deferred imports: each module is imported at its first use, as a command loads only what it uses."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import compare, gpus, prepare, presets, proof, queue, runs, serve, train  # noqa: F401 - seen by mypy
else:

    def __getattr__(name):
        from importlib import import_module

        if name.startswith("_"):
            raise AttributeError(name)
        return import_module(f".{name}", __name__)
