"""Passes batches from the pipeline to fit: directly, or through the strategy to its devices.

A strategy creates the iterator over its data set internally, where the state of the pipeline cannot be read; so it gets
its training batches through an iterator that is created here.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ...options import Options


class FitData:
    """Training and validation batches for fit, and the iterator that runs the training pipeline."""

    def __init__(self, options: Options, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy if options.strategy.kind != "single" else None
        self._ahead = options.input.prefetch != "off"
        self._ours: Any = None
        self._iterator: Any = None

    def training(self, batches: tf.data.Dataset) -> Any:
        if self._strategy is None:
            return batches
        handed_on, self._ours = _through_an_iterator(batches)
        return self._distributed(handed_on)

    def validation(self, batches: tf.data.Dataset) -> Any:
        return batches if self._strategy is None else self._distributed(batches)

    def pipeline_iterator(self, of_fit: Any) -> Any:
        """The iterator of the pipeline, behind the one that fit uses."""
        # Kept until the process ends: dropping an iterator waits for TensorFlow's tuning thread, which may sleep for up
        # to a minute (19 and 49 s were measured).
        self._iterator = of_fit
        return of_fit if self._ours is None else self._ours

    def _distributed(self, batches: tf.data.Dataset) -> Any:
        # Otherwise the strategy also prefetches for each replica.
        settings = tf.distribute.InputOptions(
            experimental_fetch_to_device=self._ahead, experimental_per_replica_buffer_size=int(self._ahead)
        )
        assert self._strategy is not None
        return self._strategy.distribute_datasets_from_function(lambda context: batches, settings)


def _through_an_iterator(batches: tf.data.Dataset) -> tuple[tf.data.Dataset, Any]:
    """The same batches, one after the other on demand, and the iterator that they come from."""
    with tf.device("/CPU:0"):
        iterator = iter(batches)
    # The pipeline behind the iterator is complete; TensorFlow must not add anything here.
    settings = tf.data.Options()
    settings.autotune.enabled = False
    settings.experimental_optimization.inject_prefetch = False
    settings.experimental_optimization.map_parallelization = False
    return tf.data.Dataset.counter().map(lambda _: iterator.get_next()).with_options(settings), iterator
