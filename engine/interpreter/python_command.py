"""The command that runs one of gputui's modules in an interpreter, and the environment of that process."""

from __future__ import annotations

import os
import sys

from ..system.child_process import OWN_PYTHON

_SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bootstrap", "run.py")


def of(python: str, module: str, *words: str) -> list[str]:
    """`-P`, as bootstrap/run.py without it, keeps a file in the current folder from replacing one of gputui's."""
    start = ["-P"] if python == sys.executable else [_SCRIPT]
    return [python, *start, "-m", module, *words]


def environment(python: str) -> dict[str, str]:
    """That of this process; for another interpreter with its programs on the path, as if it were activated."""
    variables = dict(os.environ)
    variables.pop(OWN_PYTHON, None)
    if python == sys.executable:
        return variables
    programs, path = os.path.dirname(python), variables.get("PATH", "")
    if programs not in path.split(os.pathsep):
        variables["PATH"] = os.pathsep.join([programs, path] if path else [programs])
    return variables | {OWN_PYTHON: sys.executable}
