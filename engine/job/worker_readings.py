"""Reads the figures of all workers of a training on several machines, for the chief (the first worker). This is a
thread of the chief's engine, which reads the run folders of the workers, if it can. The workers do nothing for it.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from ..runs import Run, Tail, run_cluster
from ..runs.event_reading import in_time
from ..runs.events import EVENT_FILES, EVENTS_FILE, Event, GpuReadings, Progress, Started, WorkerFigures, WorkerReadings

LOOK_SECONDS = 1.0
TELL_SECONDS = 10.0
APART = 0.10  # share of the step by which the slowest worker waits longer for its input than the others
NOT_SHARED = "its run folder cannot be read from the chief's machine"
NOTHING_YET = "it has no figures yet"


class Worker:
    """The latest figures of the worker `member` (run_cluster.members), read from its run. All have `replicas` replicas
    together.
    """

    def __init__(self, member: Mapping[str, Any], replicas: int) -> None:
        self.member, self._all_replicas = member, replicas
        self._run = run_cluster.run_of(member)
        self._tails = [Tail(self._run.file(name), from_now=True) for name in EVENT_FILES] if self._run else []
        self._progress: Progress | None = None
        self._busy: list[float | None] = []

    def update(self) -> None:
        for event in in_time(event for tail in self._tails for event in tail.read()):
            if isinstance(event, Progress):
                self._progress = event
            elif isinstance(event, GpuReadings):
                own = self.member.get("gpus") or ()
                self._busy = [gpu.busy for gpu in event.gpus if gpu.uuid in own]

    def figures(self) -> WorkerFigures:
        """If nothing is known of its speed, `missing` has the reason."""
        figures: WorkerFigures = {"index": self.member["index"], "address": self.member["address"]}
        now = self._progress
        if now is None:
            return {**figures, "missing": NOTHING_YET if self._run else NOT_SHARED}
        part = (self.member.get("replicas") or 0) / self._all_replicas if self._all_replicas else None
        speed = now.samples_per_second
        return {
            **figures,
            "samples_per_second": None if speed is None or not part else speed * part,
            "step_ms_p50": now.step_ms_p50,
            "input_wait": now.input_wait,
            "gpus_busy": self._busy,
        }


class Workers(threading.Thread):
    """A thread of the chief's engine that passes the figures of all workers to `tell` every 10 s. In the engines of
    others, and in a training on one machine, it ends at once.
    """

    def __init__(self, run: Run, tell: Callable[[Event], None]) -> None:
        super().__init__(name="workers", daemon=True)
        self._folder, self._tell = run, tell
        self._events = Tail(run.file(EVENTS_FILE), from_now=True)  # a resumed run may have other workers
        self._done = threading.Event()

    def run(self) -> None:
        joined = run_cluster.of_run(self._folder)
        if joined is None or not joined.is_chief:
            return
        try:
            self._follow()
        except Exception:  # noqa: BLE001 - the figures of others must not fail the run; the log says why
            traceback.print_exc()

    def stop(self) -> None:
        """Make the thread pass the last figures to `tell` and end. Waits for its end, at most 5 s."""
        self._done.set()
        self.join(timeout=5)

    def _follow(self) -> None:
        members: Sequence[Mapping[str, Any]] = ()
        while not members:
            if self._done.wait(LOOK_SECONDS):
                return
            started = [event for event in self._events.read() if isinstance(event, Started)]
            members = started[-1].workers if started else ()
        replicas = sum(member.get("replicas") or 0 for member in members)
        workers = [Worker(member, replicas) for member in members]
        known_before, due, done = -1, 0.0, False
        while not done:
            done = self._done.wait(LOOK_SECONDS)
            for worker in workers:
                worker.update()
            figures = [worker.figures() for worker in workers]
            known_now = sum("missing" not in figure for figure in figures)
            if done or known_now != known_before or time.monotonic() >= due:
                known_before, due = known_now, time.monotonic() + TELL_SECONDS
                self._say(figures)

    def _say(self, figures: Sequence[WorkerFigures]) -> None:
        self._tell(WorkerReadings(workers=figures, slowest=slowest(figures)))


def slowest(figures: Sequence[WorkerFigures]) -> int | None:
    """The index of the worker for which the others wait: its share of the step that it waits for input is at least 0.10
    above the median of theirs. None if there is none.
    """
    waits = {worker["index"]: wait for worker in figures if (wait := worker.get("input_wait")) is not None}
    if len(waits) < 2:
        return None
    last = max(waits, key=lambda index: waits[index])
    others = median(wait for index, wait in waits.items() if index != last)
    return last if waits[last] - others >= APART else None
