"""Writes a run's result and last events to disk: in the trainer, which holds a GPU and waits only for a moment, or in
the engine, which can wait longer, and to which the trainer passes what it could not write through a pipe.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..files.appending import LineFile
from ..files.reading import Content
from ..files.writing import write_atomically
from .event_reading import RunEvents
from .events import EVENTS_FILE, Best, EpochEnd, Finished, Progress, Started, Warn
from .run import Run

TRAINER_SECONDS = 2.0
ENGINE_SECONDS = 120.0
RESULT_RETRY_SECONDS = 0.5
_BEST = tuple(info.name for info in fields(Best))
PIPE_BYTES = 1 << 20  # the largest size that Linux allows ordinary users
LEAST_PIPE_BYTES = 1 << 14


@dataclass(frozen=True)
class Report:
    """The trainer's result and last events that it could not write to the disk. `lost_events` is the number of events
    that it has dropped.
    """

    result: Mapping[str, Any] | None = None
    lines: Sequence[str] = ()
    lost_events: int = 0


@dataclass(frozen=True)
class Reached:
    """The progress of a training: the completed epochs, the steps over all epochs, and the last metrics."""

    epochs: int = 0
    steps: int = 0
    metrics: Mapping[str, float | None] = field(default_factory=dict)


INEXACT = ("callbacks_not_restored", "begins_anew", "data_state", "pydataset_state", "random_anew")  # of a resume


def not_restored(run_events: RunEvents) -> list[str]:
    """Return what resumes of the run have not restored: variables by their paths, and messages about other state."""
    names, is_resumed = list[str](), False
    for event in run_events.events:
        if isinstance(event, Started):
            is_resumed = event.resumed_at_step is not None
        elif isinstance(event, Warn):
            names += event.variables or [event.message] * (is_resumed and event.kind in INEXACT)
    return list(dict.fromkeys(names))


def reached(run_events: RunEvents) -> Reached:
    """Of a resumed run without new progress it is that before the resume."""
    finished, progress, epoch = run_events.last(Finished), run_events.last(Progress), run_events.last(EpochEnd)
    if finished is not None and (progress is None or finished.t >= progress.t):
        before = finished.summary
        return Reached(before.get("epochs") or 0, before.get("steps") or 0, before.get("metrics") or {})
    figures = {"loss": progress.loss, **progress.metrics} if progress else {}
    of_part = {name: value for name, value in figures.items() if value is not None}  # of an epoch that is not complete
    return Reached(
        epoch.epoch if epoch else 0, progress.step if progress else 0, (epoch.metrics if epoch else None) or of_part
    )


def best_epochs(run_events: RunEvents) -> dict[str, dict[str, Any]]:
    """Return the last event `best` of each option, as its fields by name, for the result."""
    return {event.option: {name: getattr(event, name) for name in _BEST} for event in run_events.of(Best)}


def write(
    run: Run, result: Mapping[str, Any], seconds: float, given_up: Callable[[], bool] = lambda: False
) -> OSError | None:
    """Retry for `seconds` or until `given_up()`. Returns the error if it could not be written."""
    refused = None
    for _ in tries(seconds, given_up):
        try:
            write_atomically(run.file("result.json"), json.dumps(result, indent=1))
            return None
        except OSError as fault:
            refused = fault
    return refused


def read(run: Run, seconds: float, given_up: Callable[[], bool] = lambda: False) -> Content[Mapping[str, Any]]:
    """While the disk cannot be read, retry for `seconds` or until `given_up()`."""
    results = (run.read_result() for _ in tries(seconds, given_up))
    return next((result for result in results if not result.unreadable), None) or run.read_result()


def append(run: Run, lines: Sequence[str], seconds: float, given_up: Callable[[], bool] = lambda: False) -> int:
    """The trainer's last events, with retries as in `write`. Returns how many are missing."""
    file = LineFile(run.file(EVENTS_FILE))
    for line in lines:
        file.append(line)
    for _ in tries(seconds, given_up):
        file.flush()
        if not file.waiting:
            break
    file.close()
    return file.missing


def tries(seconds: float, given_up: Callable[[], bool]) -> Iterator[None]:
    until = time.monotonic() + seconds
    yield
    while time.monotonic() < until and not given_up():
        time.sleep(RESULT_RETRY_SECONDS)
        yield


def hand_over(report: Report, pipe: int) -> None:
    """Write it into the pipe without waiting; if not all fits, the oldest events are dropped."""
    with contextlib.suppress(OSError):
        os.set_blocking(pipe, False)
        with contextlib.suppress(OSError, AttributeError):  # the size of a pipe can be changed only on Linux
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        kept, room_bytes = list[str](), LEAST_PIPE_BYTES
        with contextlib.suppress(OSError, AttributeError):
            room_bytes = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
        room_bytes -= len(json.dumps([report.result, [], 10**9]))
        for line in reversed(report.lines):
            room_bytes -= len(json.dumps(line)) + 2
            if room_bytes < 0:
                break
            kept.append(line)
        lost = report.lost_events + len(report.lines) - len(kept)
        os.write(pipe, json.dumps([report.result, kept[::-1], lost]).encode())


def take(pipe: int) -> Report:
    """What the trainer, which has ended, has written into the pipe."""
    try:
        os.set_blocking(pipe, False)
        result, lines, lost = json.loads(os.read(pipe, PIPE_BYTES))
    except (OSError, ValueError):
        return Report()
    return Report(result, lines, lost)
