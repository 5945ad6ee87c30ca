"""The interpreter in which gputui itself is installed: a trainer may run in another one (run.python)."""

from __future__ import annotations

import os
import sys

VARIABLE = "GPUTUI_OWN_PYTHON"  # environment variable of a trainer that runs in another interpreter


def path() -> str:
    return os.environ.get(VARIABLE) or sys.executable
