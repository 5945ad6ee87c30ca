"""Everything that can be configured, run and measured, without a screen. Only `trainer/` imports TensorFlow."""

from typing import Any

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """`from gputui.engine import Monitor` loads the Keras callback here, as it imports Keras."""
    if name == "Monitor":
        from importlib import import_module  # by name: nothing here may load TensorFlow before it is asked for

        return import_module(".trainer.monitor.callback", __name__).Monitor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
