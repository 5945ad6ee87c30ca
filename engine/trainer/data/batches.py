"""The interface between data and the training loop, and this worker's share of the data of several machines. All
have the same order of samples. Of each global batch every worker takes its own rows, so that together they train the
very batches of one machine, before samples are read or decoded, wherever they are still numbers, names or records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from .stages import Stage

BY_ELEMENT = (
    "by element: of each global batch every worker takes its own rows, before they are loaded; together the workers "
    "train each sample once in a pass"
)
BY_ROW = "by element: every worker loads each global batch and takes its own rows of it"


@dataclass(frozen=True)
class Share:
    """The part of the data for worker `index` (from 0) of `workers`. All workers have the same number of replicas."""

    workers: int
    index: int

    def size(self, global_batch: int) -> int:
        return global_batch // self.workers

    def bounds(self, rows: Any) -> tuple[Any, Any]:
        """Return the index of this worker's first row, and of the row after its last, in a batch of `rows` rows."""
        return self.index * rows // self.workers, (self.index + 1) * rows // self.workers

    def rows(self, batch: Any) -> Any:
        first, beyond = self.bounds(tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0])
        return tf.nest.map_structure(lambda tensor: tensor[first:beyond], batch)

    def batches(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        several = isinstance(batches.element_spec, tuple)
        return batches.map(lambda *batch: self.rows(batch if several else batch[0]))

    def elements(self, one_pass: tf.data.Dataset) -> tf.data.Dataset:
        # A global batch is a multiple of the workers: each batch of a worker has elements of one global batch only.
        return one_pass.shard(self.workers, self.index)


class Batches(Protocol):
    """Endless training and validation batches. Counts are None if they are unknown."""

    @property
    def replicas(self) -> int: ...
    @property
    def replicas_here(self) -> int: ...  # of this process
    @property
    def share(self) -> Share | None: ...  # None unless several machines train together
    @property
    def sharing(self) -> str: ...  # how the data is shared out among machines, in words
    @property
    def global_batch_size(self) -> int: ...
    @property
    def batches_per_pass(self) -> int: ...
    @property
    def validation_batches(self) -> int: ...
    @property
    def smaller_last_batch(self) -> bool: ...  # a pass may end with one
    @property
    def train_samples(self) -> int | None: ...
    @property
    def validation_samples(self) -> int | None: ...
    @property
    def sample_bytes(self) -> int | None: ...
    @property
    def device_scale(self) -> float | None: ...  # scales bytes to floats on the device; None: inputs are unchanged
    @property
    def batch_spec(self) -> Any: ...  # the type of an element of `stream`
    @property
    def apart(self) -> bool: ...  # `stream` ends with the epoch, so that each has an iterator of its own
    @property
    def on_demand(self) -> bool: ...  # each batch is made when its step needs it
    def stream(self, first_step: int = 0) -> tf.data.Dataset: ...
    def validation(self) -> tf.data.Dataset: ...
    def stages(self) -> tuple[Stage, ...]: ...
    def find_fault(self) -> None: ...


def full_batch(pipeline: Batches) -> int:
    """Return the samples in the largest batch: the global batch, or all samples if it is larger than they."""
    samples = pipeline.train_samples
    return pipeline.global_batch_size if samples is None else min(pipeline.global_batch_size, samples)
