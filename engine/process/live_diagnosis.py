"""Diagnoses the run every few seconds, and reports each new diagnosis.

A thread of the engine reads the events of the run, so that neither the trainer nor the supervisor is delayed.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable

from ..diagnosis import diagnose
from ..diagnosis.collector import Collector
from ..runs import Run, Tail
from ..runs.event_reading import in_time
from ..runs.events import EVENT_FILES, Diagnosis, Event
from ..runs.launched_with import options_of
from ..system.run_clock import RunClock

INTERVAL_SECONDS = 2.0
FIRST_REPEAT_SECONDS, LAST_REPEAT_SECONDS = 4.0, 60.0
MORE_CONFIDENCE = 0.15  # an increase that is worth reporting


class LiveDiagnosis(threading.Thread):
    """A thread that calls `emit` with a Diagnosis of the run each time a verdict changes or becomes clearly more
    certain (by 0.15).

    Otherwise it emits one with newer figures at intervals that grow from 4 s to 60 s. `clock` has the time of the
    launch: earlier events do not count.
    """

    def __init__(self, run: Run, emit: Callable[[Event], None], clock: RunClock) -> None:
        super().__init__(name="diagnosis", daemon=True)
        self._emit = emit
        self._collector = Collector(options_of(run), os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._tails = [Tail(run.file(name)) for name in EVENT_FILES]
        self._began_t = clock.date
        self._done = threading.Event()
        self._last: Diagnosis | None = None
        self._has_news = False
        self._reported_at, self._repeat_seconds = 0.0, FIRST_REPEAT_SECONDS

    def run(self) -> None:
        try:
            while not self._done.wait(INTERVAL_SECONDS):
                self._update()
            self._update(final=True)
        except Exception:  # noqa: BLE001 - a diagnosis that fails must not fail the run; the log says why
            traceback.print_exc()

    def stop(self) -> None:
        """Make the thread emit the last diagnosis and end. Waits for its end, at most 5 s."""
        self._done.set()
        self.join(timeout=5)

    def _update(self, final: bool = False) -> None:
        fresh = in_time(event for tail in self._tails for event in tail.read())
        self._collector.feed(fresh)
        newest = self._collector.newest_t
        self._has_news = self._has_news or bool(fresh)  # earlier events may not have led to a report
        if newest is None or newest < self._began_t:  # older figures are from before the run was resumed
            return
        if self._has_news:
            diagnosis = diagnose(self._collector.measurements())
            if final or self._is_news(diagnosis):
                self._last, self._reported_at, self._has_news = diagnosis, time.monotonic(), False
                self._emit(diagnosis)

    def _is_news(self, now: Diagnosis) -> bool:
        last = self._last
        if last is None:
            return now.verdict != "undecided" or bool(now.learning)
        changed = now.verdict != last.verdict or bool(now.learning) != bool(last.learning)
        if changed or now.confidence >= last.confidence + MORE_CONFIDENCE:
            self._repeat_seconds = FIRST_REPEAT_SECONDS
            return True
        if time.monotonic() - self._reported_at < self._repeat_seconds:
            return False
        self._repeat_seconds = min(2 * self._repeat_seconds, LAST_REPEAT_SECONDS)
        return True
