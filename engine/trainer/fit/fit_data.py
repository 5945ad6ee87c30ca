"""Passes batches from the pipeline to fit: directly, or ahead of their steps into the memory of the devices.

How far a training has come is counted in steps, never in batches that were drawn: those that wait on a device when a
checkpoint is written are drawn again by the training that resumes from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ...options import Options
from ..data.on_device import batches_ahead, prefetched_to, through_an_iterator
from ..setup.devices import Devices


class FitData:
    """Training and validation batches for fit, and the iterator that runs the training pipeline."""

    def __init__(self, options: Options, strategy: tf.distribute.Strategy, devices: Devices) -> None:
        self._strategy = strategy if options.strategy.kind != "single" else None
        self._devices, self._input = devices, options.input
        self._of_several = options.strategy.kind == "multi_worker"
        self.spec: Any = None  # the types of a batch for one device
        self._ours: Any = None
        self._iterator: Any = None

    def training(self, batches: tf.data.Dataset) -> Any:
        self.spec = batches.element_spec
        if self._strategy is None and not self._ahead(batches):
            return batches
        handed_on, self._ours = through_an_iterator(batches)
        return self._on_devices(handed_on, self._ahead(batches))

    def validation(self, batches: tf.data.Dataset) -> Any:
        """At most one batch ahead: Keras keeps the iterator, whose batches take the GPU's memory while it trains."""
        if self._of_several:  # else TensorFlow asks all machines before each batch whether there is one
            batches = batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        return self._on_devices(batches, min(1, self._ahead(batches)))

    @property
    def gpus(self) -> Sequence[str]:
        """The GPUs that get a batch in each step."""
        if self._devices.kind != "GPU":
            return ()
        return self._devices.names[:1] if self._strategy is None else self._strategy.extended.worker_devices

    def pipeline_iterator(self, of_fit: Any) -> Any:
        """The iterator of the pipeline, behind the one that fit uses."""
        # Kept until the process ends: dropping an iterator waits for TensorFlow's tuning thread, which may sleep for up
        # to a minute (19 and 49 s were measured).
        self._iterator = of_fit
        return of_fit if self._ours is None else self._ours

    def _ahead(self, batches: tf.data.Dataset) -> int:
        return batches_ahead(self._input, self._devices.kind, batches.element_spec)

    def _on_devices(self, batches: tf.data.Dataset, ahead: int) -> Any:
        if self._strategy is not None:
            return self._distributed(batches, ahead)
        return prefetched_to(self._devices.names[0], batches, ahead) if ahead else batches

    def _distributed(self, batches: tf.data.Dataset, ahead: int) -> Any:
        """Without GPUs a batch ahead of each replica, as the strategy does by itself."""
        if self._devices.kind != "GPU":
            ahead = int(self._input.prefetch != "off")
        settings = tf.distribute.InputOptions(
            experimental_fetch_to_device=ahead > 0, experimental_per_replica_buffer_size=ahead
        )
        assert self._strategy is not None
        return self._strategy.distribute_datasets_from_function(lambda _context: batches, settings)
