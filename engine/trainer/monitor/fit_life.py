"""Shows that a watched `model.fit` is alive while it runs: the run's status, its readings, its reaction to a stop.
Two threads and a signal handler do this. They end with the fit, also if Keras does not report its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ...files.writing import write_atomically
from ...runs import Run
from ...runs.events import TELEMETRY_FILE
from ...runs.parsing import EventWriter
from ...system import locks, stop_signals
from ...system.identity import Place, Process
from ...system.locks import ENGINE_LOCK
from ...system.run_clock import RunClock
from ...telemetry.sampler import Sampler
from ..common.versions import current_iterator

HEARTBEAT_SECONDS = 1.0


class Life:
    """Keeps the status of the run, takes readings, and handles the stop signals while `fit` runs. `stop` asks the
    fit to stop, and `gone` is called if the fit has ended without a report.
    """

    def __init__(
        self,
        run: Run,
        sample_seconds: float,
        fit: Fit,
        stop: Callable[[], None],
        gone: Callable[[], None],
        clock: RunClock,
    ) -> None:
        self._run, self._fit, self._stop, self._gone = run, fit, stop, gone
        self._me = Process.current()
        self._lock = locks.take(run.file(ENGINE_LOCK))
        self._telemetry = EventWriter(run.file(TELEMETRY_FILE), run.id, clock)
        self._sampler = Sampler(self._telemetry, os.getpid(), sample_seconds)
        self._done = threading.Event()
        self._asked_at, self._by_person, self._listens = 0.0, 0, False
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def begin(self) -> None:
        """Begin with the thread that notices the end of the fit: an interruption may come at any time after it."""
        self._heart.start()
        self._write(alive=True)
        self._sampler.start()
        self._listens = self._listen()

    def _listen(self) -> bool:
        """Handle the stop signals in the main thread, unless the script has handlers that no ended fit has left."""
        present = signal.getsignal(signal.SIGTERM)
        left = getattr(present, "__self__", None)
        free = present == signal.SIG_DFL or (isinstance(left, Life) and not left.needed)
        if not free or threading.current_thread() is not threading.main_thread():
            return False
        signal.signal(signal.SIGTERM, self._on_signal)
        if signal.getsignal(stop_signals.BY_PERSON) in (signal.SIG_DFL, getattr(left, "_on_person", None)):
            signal.signal(stop_signals.BY_PERSON, self._on_person)
        return True

    @property
    def needed(self) -> bool:
        return not self._done.is_set() and self._fit.runs()

    def _on_signal(self, _number: int, _frame: Any) -> None:
        """Ask the fit to stop. After stop_signals.GRACE_SECONDS, or without a fit, end the script as the signal
        would. Schedulers may send it several times.
        """
        self._asked_at = self._asked_at or time.monotonic()
        if self.needed and time.monotonic() - self._asked_at < stop_signals.GRACE_SECONDS:
            self._stop()
        else:
            self._end_script()

    def _on_person(self, _number: int, _frame: Any) -> None:
        # SIGTERM comes with the first one.
        self._by_person += 1
        if self._by_person > 1:
            self._end_script()

    def _end_script(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _beat(self) -> None:
        while not self._done.wait(HEARTBEAT_SECONDS):
            if not self._fit.runs():
                self._gone()
                return
            self._write(alive=True)

    def _write(self, alive: bool) -> None:
        phase = "training" if alive else "ended"
        status: dict[str, Any] = {"phase": phase, "heartbeat": time.time(), "stop_requests": 0}
        if alive:
            status |= Place.here().as_fields() | self._me.as_fields("engine") | self._me.as_fields("trainer")
        with contextlib.suppress(OSError):  # the disk is full: it is written again with the next heartbeat
            write_atomically(self._run.file("status.json"), json.dumps(status), durable=False)

    def end(self) -> None:
        """End the readings and the status when the fit has ended. The script itself continues."""
        self._done.set()
        self._fit.forget()
        if threading.current_thread() is not self._heart:
            self._heart.join()
        self._sampler.stop()
        self._telemetry.close()
        self._lock.release()
        self._write(alive=False)
        mine = self._listens and signal.getsignal(signal.SIGTERM) == self._on_signal
        if mine and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if signal.getsignal(stop_signals.BY_PERSON) == self._on_person:
                signal.signal(stop_signals.BY_PERSON, signal.SIG_DFL)


class Fit:
    """Knows whether a fit still runs, by its frame, held until `forget`. It is created in a callback."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        fits = (frame for frame, _ in traceback.walk_stack(sys._getframe())
                if frame.f_code.co_name == "fit" and "epoch_iterator" in frame.f_locals)  # fmt: skip
        self._frame = next(fits, None)
        self._known = self._frame is not None
        # Read once: each reading of f_locals keeps the iterator of that moment, with its buffers, until the next one.
        self._batches = self._frame.f_locals["epoch_iterator"] if self._frame else None
        self.iterator: Any = None  # over the batches of the present epoch, None if it is not available

    def batch_size(self) -> int | None:
        """Return the batch size, read from fit's iterator: at most the samples of the data, if it is available."""
        data = self._data()
        size = getattr(data, "batch_size", None)
        if not isinstance(size, int) or size < 1:
            return None
        return getattr(data, "partial_batch_size", None) or size if getattr(data, "num_batches", None) == 1 else size

    def samples_per_step(self) -> float | None:
        """Return the mean number of samples of a step of an epoch. None if it is not available."""
        data = self._data()
        size, batches = getattr(data, "batch_size", None), getattr(data, "num_batches", None)
        last = getattr(data, "partial_batch_size", None)
        return size - (size - last) / batches if size and batches and last else size

    def _data(self) -> Any:
        return getattr(self._batches, "data_adapter", None)

    def epoch_begins(self) -> None:
        self.iterator = current_iterator(self._batches)

    def epoch_ends(self) -> None:
        """Release the iterator, which holds the buffers of its data."""
        self.iterator = None

    def gaps(self) -> list[float]:
        """Return the seconds from the end of the last requests for a batch to the next, if TensorFlow notes them."""
        try:
            return [gap / 1e6 for gap in tf.data.experimental.get_model_proto(self.iterator).gap_times]
        except (ValueError, AttributeError, TypeError, tf.errors.OpError):  # of several replicas, or no model is kept
            return []

    def runs(self) -> bool:
        """Return True if the fit still runs. Always True for a training loop other than Keras' own."""
        present = sys._current_frames().get(self._thread)
        frames = traceback.walk_stack(present) if present is not None else ()
        return not self._known or any(each is self._frame for each, _ in frames)

    def forget(self) -> None:
        """Release the frame, which holds the data of the fit."""
        self._frame = self._batches = self.iterator = None
