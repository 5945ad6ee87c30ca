"""`Monitor`, a Keras callback: makes any model.fit in any script a run that gputui's viewers can follow.

The fit itself is not changed. The script's process is both engine and trainer of its run and writes the events of both;
a run without a result whose process has ended counts as crashed.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import keras

from ... import runs
from ...runs import Run
from ..common.step_logs import floats
from . import description
from .fit_frame import Fit
from .watched_fit import WatchedFit


class Monitor(keras.callbacks.Callback):
    """model.fit(..., callbacks=[Monitor("name")]): `gputui watch`, `runs` and `compare` see the fit as a run.

    `batch_size` (over all replicas) is found out where fit knows it; give it where the speed in samples is missing. The
    host waits for the device at most every 250 ms.
    """

    async_safe = True

    def __init__(self, name: str = "fit", batch_size: int | None = None, sample_seconds: float = 1.0) -> None:
        super().__init__()
        self.name, self.batch_size, self.sample_seconds = name, batch_size, sample_seconds
        self.run: Run | None = None
        self._watched: WatchedFit | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.gone()
        fit = Fit()
        batch_size = self.batch_size or fit.batch_size()
        try:
            self.run = runs.create(self.name, description.preset(self.name, self.model, self.params or {}, batch_size))
            self._watched = WatchedFit(self.run, self.model, self.params or {}, batch_size, self.sample_seconds, fit)
        except OSError as fault:  # an observer must not end what it observes
            self._watched = self.run = None
            with contextlib.suppress(OSError):  # stderr may be redirected to the same disk
                print(f"gputui: this fit is not watched: {fault.strerror or fault}: {fault.filename}", file=sys.stderr)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._watched:
            self._watched.epoch_begins(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._watched:
            self._watched.execution_begins(batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Called in a thread of Keras; the loop waits neither for it nor for the logs."""
        if self._watched:
            self._watched.execution_ended(batch, logs)

    def on_test_begin(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.evaluation_begins()

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._watched and batch:
            self._watched.evaluation_runs()

    def on_test_end(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.evaluation_ends()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._watched:
            self._watched.epoch_ends(epoch, floats(logs))

    def on_train_end(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.finish()
            self._watched = None
