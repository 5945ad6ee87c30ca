"""Records TensorFlow's profile of a range of steps, with the step markers that Keras 3 does not set.

A marker reaches from the start of one execution to the start of the next, as the clock's steps do, so that Python
between two executions is part of the step. Evaluation, checkpoints, and starting and writing the profile lie outside
the markers. The training loop decides when to record.
"""

from __future__ import annotations

import json
from typing import Any

import keras
import tensorflow as tf

from ...files import writing
from ...profile.layer_times import LAYERS_FILE
from .layer_scopes import LayerScopes
from .run_report import RunReport


class Profiler:
    """Records a profile of the executions that contain the steps `steps`, the first and the last step (from 1).

    The scopes of the layers of `model` are written next to the profile. If `steps` is None, it does nothing.
    """

    def __init__(self, report: RunReport, steps: tuple[int, int] | None, model: keras.Model) -> None:
        self._report, self._steps = report, steps
        self._scopes = LayerScopes(model) if steps is not None else None
        self._folder = report.run.file("profile")
        self.running = False
        self._marker: Any = None

    def begins(self, number: int, count: int) -> bool:
        """Return True if recording starts before the execution of the steps `number` to `number + count - 1` (from
        1).
        """
        if self._steps is None or self.running:
            return False
        first, last = self._steps
        return number <= last and number + count > first

    def ends(self, step: int) -> bool:
        """Return True if recording ends after `step`: a profile is being recorded, and its last step is done."""
        return self.running and self._steps is not None and step >= self._steps[1]

    def start(self) -> None:
        """Start recording. If the disk refuses, there is a warning and no profile, and the training continues."""
        try:
            tf.profiler.experimental.start(str(self._folder))
            self.running = True
        except (OSError, tf.errors.OpError) as fault:
            self._give_up(fault)

    def begin_step(self, number: int) -> None:
        """Mark the start of the execution whose first step is `number`, and the end of the execution before it.

        To be called only while recording.
        """
        self.end_step()
        self._marker = tf.profiler.experimental.Trace("train", step_num=number, _r=1)
        self._marker.__enter__()

    def end_step(self) -> None:
        """Mark the end of the execution, so that the time after it does not count as a step. Does nothing if none is
        marked.
        """
        if self._marker is not None:
            self._marker.__exit__(None, None, None)
            self._marker = None

    def close(self) -> None:
        """Write the profile if one is being recorded, and end the recording. No further profile is recorded."""
        self.end_step()
        if self.running:
            self.running, self._steps = False, None
            try:
                tf.profiler.experimental.stop()
                if self._scopes is not None:
                    self._folder.mkdir(exist_ok=True)
                    writing.write_atomically(self._folder / LAYERS_FILE, json.dumps(self._scopes.names, indent=1))
            except (OSError, tf.errors.OpError) as fault:
                self._give_up(fault)
        if self._scopes is not None:
            self._scopes.close()

    def _give_up(self, fault: BaseException) -> None:
        self.running, self._steps = False, None
        if writing.refusal(fault) is None:
            raise fault
        message = f"{writing.reason(fault)}: {self._folder}: there is no profile"
        self._report.warn("profile", message, option="run.profile")
