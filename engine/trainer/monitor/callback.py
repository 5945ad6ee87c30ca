"""`Monitor`, a Keras callback: makes any model.fit in any script a run that gputui's viewers can follow. The fit is
not changed. The script's process is engine and trainer of its run. Without a result it counts as crashed when it
ends.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import sys
from collections.abc import Callable
from typing import Any

import keras

from ... import runs
from ...runs import Run
from ..common.logs import floats
from . import description
from .fit_life import Fit
from .watched_fit import WatchedFit

LONGEST = 300  # characters of a reason


def _harmless(method: Callable[..., None]) -> Callable[..., None]:
    """Return the method, wrapped so that an exception in it ends the watching with a warning, and never the script."""

    @functools.wraps(method)
    def guarded(self: Monitor, *arguments: Any, **named: Any) -> None:
        try:
            method(self, *arguments, **named)
        except Exception as fault:  # noqa: BLE001 - see above
            self._give_up(fault)

    return guarded


class Monitor(keras.callbacks.Callback):
    """model.fit(..., callbacks=[Monitor("name")]): `gputui watch`, `runs` and `compare` see the fit as a run.

    `batch_size` (over all replicas) is read from fit if fit knows it. Give it if the speed in samples is missing. The
    host waits for the device at most every 250 ms. `sample_seconds` is the time between two readings of GPUs and host.
    """

    async_safe = True

    def __init__(self, name: str = "fit", batch_size: int | None = None, sample_seconds: float = 1.0) -> None:
        super().__init__()
        self.name, self.batch_size, self.sample_seconds = name, batch_size, sample_seconds
        self.run: Run | None = None
        self._watched: WatchedFit | None = None

    @_harmless
    def on_train_begin(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.gone()
        fit = Fit()
        batch_size = self.batch_size or fit.batch_size()
        self._watched = self.run = None
        self.run = runs.create(self.name, description.preset(self.name, self.model, self.params or {}, batch_size))
        self._watched = WatchedFit(self.run, self.model, self.params or {}, batch_size, self.sample_seconds, fit)

    def _give_up(self, fault: Exception) -> None:
        """End the watching with the reason `fault`. A run that has not begun is deleted. The fit continues."""
        why = " ".join(f"{type(fault).__name__}: {fault}".split())[:LONGEST]
        if isinstance(fault, OSError):
            why = f"{fault.strerror or fault}: {fault.filename}"
        with contextlib.suppress(Exception):  # stderr may be redirected to the same disk
            print(f"gputui: this fit is not watched: {why}", file=sys.stderr)
        watched, self._watched = self._watched, None
        with contextlib.suppress(Exception):
            if watched:
                watched.failed(why)
            elif self.run is not None:
                shutil.rmtree(self.run.path, ignore_errors=True)  # the run has not begun
                self.run = None

    @_harmless
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._watched:
            self._watched.epoch_begins(epoch)

    @_harmless
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._watched:
            self._watched.execution_begins(batch)

    @_harmless
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # Keras calls this in a thread of its own, and the loop waits neither for it nor for the logs.
        if self._watched:
            self._watched.execution_ended(batch, logs)

    @_harmless
    def on_test_begin(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.evaluation_begins()

    @_harmless
    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._watched and batch:
            self._watched.evaluation_runs()

    @_harmless
    def on_test_end(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.evaluation_ends()

    @_harmless
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._watched:
            self._watched.epoch_ends(epoch, floats(logs))

    @_harmless
    def on_train_end(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.finish()
            self._watched = None
