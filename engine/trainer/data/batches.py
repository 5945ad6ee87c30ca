"""The interface between data and the training loop, and this worker's share of the data of several machines. All
have the same order of samples. Of each global batch every worker takes its own rows, so that together they train the
very batches of one machine, before samples are read or decoded, wherever they are still numbers, names or records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from ...options import Options
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


@dataclass(frozen=True)
class FitArguments:
    """The arguments for Keras' fit, named and meant as there. A `sample_weight` is a part of the data."""

    class_weight: Mapping[int, float] | None = None
    initial_epoch: int = 0
    validation_freq: int | list[int] = 1
    validation_steps: int | None = None

    def evaluates_after(self, epoch: int) -> bool:
        every = self.validation_freq
        return (epoch + 1) % every == 0 if isinstance(every, int) else epoch + 1 in every


NO_ARGUMENTS = FitArguments()


class Drawn(Protocol):
    """What happens around the steps of a training. By default the data keeps nothing but its batches."""

    def find_fault(self) -> None:
        """Raise the TrainerError for which drawing has failed, if it is known: TensorFlow hands on only a text."""
        return

    def place(self, step: int) -> Any:  # noqa: ARG002
        """Return the place in the data after `step` steps, for JSON. None if it follows from the step."""
        return None

    def go_to(self, place: Any) -> None:  # noqa: ARG002
        """Continue from what `place` has returned. To be called before the first batch is drawn."""
        return

    def fit_begins(self, first_step: int) -> None:  # noqa: ARG002
        """To be called when the batches of a fit from `first_step` on have been made, and will be drawn."""
        return

    def evaluation_begins(self, before: int) -> None:  # noqa: ARG002
        """To be called before an evaluation: `before` is the number of earlier ones (of a pipeline: of epochs)."""
        return

    def epoch_trained(self) -> None:
        """To be called after the last step of an epoch, before its evaluation."""
        return

    def close(self) -> None:
        """End the processes and threads that load the data. No further batch is drawn."""
        return


class Batches(Drawn, Protocol):
    """Endless training and validation batches. Counts are None if they are unknown."""

    options: Options
    replicas: int
    share: Share | None  # None unless several machines train together
    fit: FitArguments = NO_ARGUMENTS
    held_back: str = ""  # why the batches of an epoch are made only when it begins
    on_demand: bool = False  # each batch is made when its step needs it
    ends_by_a_step: bool = False  # as in Keras' fit, a step without a batch follows the last one of an epoch
    sharing: str  # how the data is shared out among machines, in words
    global_batch_size: int
    batches_per_pass: int
    validation_batches: int
    sample_bytes: int | None
    train_samples: int | None
    validation_samples: int | None
    smaller_last_batch: bool  # a pass may end with one
    device_scale: float | None  # scales bytes to floats on the device; None: inputs are unchanged
    apart: bool  # `stream` ends with the epoch, so that each has an iterator of its own

    @property
    def replicas_here(self) -> int:
        return self.replicas if self.share is None else self.replicas // self.share.workers

    @property
    def batch_spec(self) -> Any: ...  # the type of an element of `stream`
    def stream(self, first_step: int = 0) -> tf.data.Dataset: ...
    def validation(self) -> tf.data.Dataset: ...
    def stages(self) -> tuple[Stage, ...]: ...


def full_batch(pipeline: Batches) -> int:
    """Return the samples in the largest batch: the global batch, or all samples if it is larger than they."""
    samples = pipeline.train_samples
    return pipeline.global_batch_size if samples is None else min(pipeline.global_batch_size, samples)
