"""Brings a run's result to the disk: the trainer does, or the engine where the disk takes nothing for a while.

The trainer holds a GPU and waits a moment only. What it could not write it hands to its engine through a pipe, which
needs no disk; the engine can wait longer.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .runs import Run
from .writing import write_atomically

TRAINER_SECONDS = 2.0
ENGINE_SECONDS = 120.0
_RETRY_SECONDS = 0.5
_PIPE_BYTES = 1 << 16


@dataclass(frozen=True)
class Report:
    """What the trainer could not bring to the disk: its result, and how many of its last events."""

    result: Mapping[str, Any] | None = None
    missing_events: int = 0


def write(
    run: Run, result: Mapping[str, Any], seconds: float, given_up: Callable[[], bool] = lambda: False
) -> OSError | None:
    """Write result.json, trying again for so long; the fault where it could not be written."""
    until = time.monotonic() + seconds
    while True:
        try:
            write_atomically(run.file("result.json"), json.dumps(result, indent=1))
            return None
        except OSError as fault:
            if time.monotonic() >= until or given_up():
                return fault
        time.sleep(_RETRY_SECONDS)


def hand_over(report: Report, pipe: int) -> None:
    """Give the engine what it is to know; never waits."""
    with contextlib.suppress(OSError):
        os.set_blocking(pipe, False)
        os.write(pipe, json.dumps([report.result, report.missing_events]).encode())


def take(pipe: int) -> Report:
    """What the trainer, which has ended, has handed over."""
    try:
        os.set_blocking(pipe, False)
        result, missing = json.loads(os.read(pipe, _PIPE_BYTES))
    except (OSError, ValueError):
        return Report()
    return Report(result, missing)
