"""Records TensorFlow's profile of a range of steps, with the step markers that Keras 3 does not set. A marker
reaches from the start of one execution to the start of the next. Evaluation, checkpoints, and starting and writing
the profile lie outside the markers.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ...files import writing
from ...profile.layer_times import LAYERS_FILE
from ..common.versions import replaced
from .run_report import RunReport


class Profiler:
    """Profiles the executions that contain the steps `steps`, first and last (from 1), with the layers' scopes."""

    def __init__(self, report: RunReport, steps: tuple[int, int] | None, model: keras.Model) -> None:
        self._report, self._steps = report, steps
        self._scopes = LayerScopes(model) if steps is not None else None
        self._folder = report.run.file("profile")
        self.running = False
        self._marker: Any = None

    def begins(self, number: int, count: int) -> bool:
        """Return True if recording starts before the execution of `count` steps from `number` (from 1) on."""
        if self._steps is None or self.running:
            return False
        first, last = self._steps
        return number <= last and number + count > first

    def ends(self, step: int) -> bool:
        return self.running and self._steps is not None and step >= self._steps[1]

    def start(self) -> None:
        """Start recording. If the disk refuses, there is a warning and no profile, and the training continues."""
        try:
            tf.profiler.experimental.start(str(self._folder))
            self.running = True
        except (OSError, tf.errors.OpError) as fault:
            self._give_up(fault)

    def begin_step(self, number: int) -> None:
        """The execution whose first step is `number` starts, and the one before ends."""
        self.end_step()
        self._marker = tf.profiler.experimental.Trace("train", step_num=number, _r=1)
        self._marker.__enter__()

    def end_step(self) -> None:
        """Mark the end of the execution, if one is marked, so that the time after it does not count as a step."""
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


class LayerScopes:
    """The layers by their scopes, in `names`, while a step is traced: names alone do not tell, as TensorFlow appends
    a number to a scope that exists (`conv2d_1`). A layer within others has the names of all, such as
    `block_1/dense`. The methods `call` of the layers are replaced until `close`.
    """

    def __init__(self, model: keras.Model) -> None:
        self.names: dict[str, str] = {}
        self._model = model
        self._within: list[str] = []
        self._replaced = contextlib.ExitStack()
        for layer in model._flatten_layers():
            self._replaced.enter_context(replaced(layer, call=self._recording(layer, layer.call)))
        self.close = self._replaced.close  # gives the layers their own methods back

    def _recording(self, layer: keras.Layer, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def recording(*given: Any, **named: Any) -> Any:
            if tf.executing_eagerly():
                return call(*given, **named)
            outer = self._within
            self._within = [] if layer is self._model else [*outer, layer.name]
            self.names.setdefault(tf.get_current_name_scope(), "/".join(self._within) or layer.name)
            try:
                return call(*given, **named)
            finally:
                self._within = outer

        return recording
