"""The command that runs one of gputui's modules in an interpreter, and the environment of that process."""

from __future__ import annotations

import os
import sys

from ..system.child_process import OWN_PYTHON

_SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bootstrap", "run.py")


def of(python: str, module: str, *words: str) -> list[str]:
    """Return the command that runs `module` with the arguments `words` in an interpreter.

    -P, or bootstrap/run.py in another interpreter, prevents that a file in the current folder replaces a module of
    gputui.
    """
    start = ["-P"] if python == sys.executable else [_SCRIPT]
    return [python, *start, "-m", module, *words]


def environment(python: str) -> dict[str, str]:
    """Return the environment for that command.

    For another interpreter its programs are on the path, as if its environment was activated.
    """
    variables = dict(os.environ)
    variables.pop(OWN_PYTHON, None)
    if python == sys.executable:
        return variables
    programs, path = os.path.dirname(python), variables.get("PATH", "")
    if programs not in path.split(os.pathsep):
        variables["PATH"] = os.pathsep.join([programs, path] if path else [programs])
    return variables | {OWN_PYTHON: sys.executable}
