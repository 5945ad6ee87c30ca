"""Asks gputui's own interpreter, in a process of its own, what a trainer cannot find out with the standard library."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from ...system import own_python

ANSWER_SECONDS = 20.0  # more than NVML is waited for by the process that is asked


class NoAnswer(Exception):
    """The text says why there is none."""


def ask(module: str, *words: str, given: str = "") -> Any:
    """What `python -m gputui.engine.MODULE WORDS` prints as JSON, given a text on standard input; raises NoAnswer."""
    command = [own_python.path(), "-P", "-m", f"gputui.engine.{module}", *words]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, errors="replace", timeout=ANSWER_SECONDS, check=False
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"no answer within {ANSWER_SECONDS:g} s") from None
    except OSError as fault:
        raise NoAnswer(f"{command[0]} cannot be run: {fault.strerror}") from None
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"return code {done.returncode}"])[-1]
        raise NoAnswer(last) from None
