"""The warm engine: a process that has imported TensorFlow while the form is open, so that the form's run starts sooner.
Deferred imports: nothing of this is needed for the first paint."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...engine.finding import errors

if TYPE_CHECKING:
    from ...engine.process.launch import Warm
    from .base_app import BaseApp

AFTER_SECONDS = 1.0  # by then the user has first looked at the form


def start(app: BaseApp, is_busy: Callable[[], bool]) -> None:
    """Start the warm engine as `app.warm`, in a thread, unless there is one, `is_busy()`, or GPUTUI_WARM=0."""
    if app.is_headless or os.environ.get("GPUTUI_WARM") == "0" or app.warm is not None or is_busy():
        return
    from ...engine import checks
    from ...engine.interpreter import interpreter
    from ...engine.process.launch import Warm

    python = app.training_python
    # An interpreter that does not answer is not started: it would outlive this application.
    if not errors(checks.of_packages(python)) and app.is_running:
        app.warm = Warm(interpreter.chosen(python))


def take(app: BaseApp) -> Warm | None:
    """Return the warm engine and remove it from the application; None if there is no warm engine."""
    warm, app.warm = app.warm, None
    return warm


def close(app: BaseApp) -> None:
    if (warm := take(app)) is not None:
        warm.close()
