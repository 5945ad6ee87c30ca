"""What a person asks of a training while it goes on, such as a checkpoint now: each is a line of a file in the run
folder, which the trainer reads between two steps and answers by a `control` event.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from ..files.reading import last_lines
from ..options import options_json
from . import part_of_sweep, run_cluster
from .event_reading import Tail
from .events import EVENTS_FILE, Control, ControlName
from .run import STATE_LABELS, Run, RunError, refuse_elsewhere

FILE = "controls.jsonl"
ANSWER_SECONDS, POLL_SECONDS = 10.0, 0.1
NAMES: tuple[ControlName, ...] = get_args(ControlName)
MOST_BYTES = 2**20  # of the file


@dataclass(frozen=True)
class ControlRequest:
    id: str
    control: ControlName
    factor: float | None = None  # of the learning rate
    at_step: int | None = None  # None: at the next step


def tell(run: Run, control: ControlName, factor: float | None = None, at_step: int | None = None) -> Control | None:
    """Ask a run that trains, and return its answer; None if that takes longer than 10 s, or waits for a step. RunError
    if the run cannot do it; the trainer refuses what only it knows.
    """
    now = run.liveness
    refuse_elsewhere(run, now, "tell")
    state, why = run.state_of(now), ""
    if not now.engine:
        why = "it is a fit of your own script" if now.trainer else f"it is {STATE_LABELS.get(state, state)}"
    elif options_json.read(run.path).workload.command:
        why = "it is a command"
    elif run_cluster.of_run(run) is not None:
        why = "it trains on several machines"
    elif part_of_sweep.read(run).sweep:
        why = "it is a trial, which others are compared with"
    if why:
        raise RunError(f"{run.name} cannot be told: {why}")
    answers = Tail(run.file(EVENTS_FILE), from_now=True)
    request = ControlRequest(os.urandom(4).hex(), control, factor, at_step)
    descriptor = os.open(run.file(FILE), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(json.dumps(asdict(request)) + "\n")
    until = time.monotonic() + (0.0 if at_step else ANSWER_SECONDS)
    while time.monotonic() < until and run.alive("engine"):
        for event in answers.read():
            if isinstance(event, Control) and event.id == request.id:
                return event
        time.sleep(POLL_SECONDS)
    return None


def read(path: Path) -> Iterator[ControlRequest]:
    """Yield what was asked, in this order, without lines that are damaged."""
    for line in last_lines(path, MOST_BYTES):
        with contextlib.suppress(ValueError, TypeError):
            request = ControlRequest(**json.loads(line))
            if request.control in NAMES and isinstance(request.factor, float) == (request.control == "rate"):
                yield request
