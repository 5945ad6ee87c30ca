"""The training or validation data as a stream of batches, and this worker's share of the data of several machines. All
have the same order of samples. Of each global batch every worker takes its own rows, so that together they train the
very batches of one machine, before samples are read or decoded, wherever they are still numbers, names or records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ...options.own_code import Data
from ..common.training_errors import TrainerError
from .stage_times import Stage

BY_ELEMENT = (
    "by element: of each global batch every worker takes its own rows, before they are loaded; together the workers "
    "train each sample once in a pass"
)
BY_ROW = "by element: every worker loads each global batch and takes its own rows of it"
ENDLESS = 2**62  # the length of data without an end, as Grain gives it


@dataclass(frozen=True)
class Share:
    """The part of the data for worker `index` (from 0) of `workers`. All workers have the same number of replicas."""

    workers: int
    index: int

    def size(self, global_batch: int) -> int:
        return global_batch // self.workers

    def rows(self, batch: Any) -> Any:
        rows = tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]
        first, beyond = (number * rows // self.workers for number in (self.index, self.index + 1))
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


@dataclass(frozen=True)
class Nature:
    """What the batches of a user's data follow."""

    depends: str = ""  # why they may depend on the training
    draws: bool = False  # its functions draw from TensorFlow's random state, which begins again with each iterator
    reads: tuple[tf.Variable, ...] = ()  # variables that its functions only read
    writes: tuple[tf.Variable, ...] = ()  # and those that they change


INDEPENDENT = Nature()


class Stream:
    """The training or validation data as global batches, by default those that a user's code has batched, which keep
    nothing. The numbers in a pass are None if they are unknown.
    """

    kind: Data = "batched"
    smaller_last_batch: bool = True  # a pass may end with one
    nature: Nature = INDEPENDENT
    as_in_fit: bool = True  # if epochs are apart, batches are made as Keras' fit makes them
    at_their_step: bool = False  # each batch is then made when its step needs it
    begins_anew: bool = True  # each epoch can have an iterator of its own
    ends_with_begun_epoch: bool = False  # a fit that begins within an epoch gets the batches of this epoch alone
    draws: bool = False  # an iterator of its own is needed for the draws of tf.random
    follows: str = ""  # why single samples may depend on the training, so that none is cached
    device_scale: float | None = None  # scales bytes to floats on the device; None: inputs are unchanged
    inapplicable: Mapping[str, str] = {}  # options that have no effect, each with the reason
    fault: TrainerError | None = None  # TensorFlow hands on only its text
    samples: int | None
    batches: int | None
    batch_size: int
    spec: Any

    @property
    def sample_bytes(self) -> int | None:
        """The bytes of a sample as the model gets it, without its label. None if samples differ in size."""
        total = 0
        for part in tf.nest.flatten(self.spec[0] if isinstance(self.spec, tuple) else self.spec):
            if not isinstance(part, tf.TensorSpec) or part.shape.rank is None or None in part.shape[1:]:
                return None
            total += part.dtype.size * math.prod(part.shape[1:])
        return total

    def stages(self) -> tuple[Stage, ...]:
        return ()

    def global_batches(self, first_step: int) -> tf.data.Dataset:
        """Return the batches from step `first_step` on."""
        raise NotImplementedError

    def of_epoch(self, first_step: int, steps: int) -> tf.data.Dataset:
        """Return the batches of the `steps` steps from `first_step` on that an epoch still has."""
        return self.global_batches(first_step).take(steps)

    def of_evaluation(self, count: int, depends: bool) -> tf.data.Dataset:
        """Return the first `count` batches, without an end, or for one evaluation if they depend on the training."""
        batches = self.global_batches(0)
        if depends:
            return batches.take(count).apply(tf.data.experimental.assert_cardinality(count))
        return batches if count == self.batches else batches.take(count).repeat()

    def find_fault(self) -> None:
        """Raise the TrainerError for which drawing has failed, if it is known."""
        if self.fault is not None:
            raise self.fault

    def place(self, step: int) -> Any:  # noqa: ARG002
        """Return the place in the data after `step` steps, for JSON. None if it follows from the step."""
        return None

    def go_to(self, place: Any) -> None:
        """Continue from what `place` has returned. To be called before the first batch is drawn."""

    def fit_begins(self, first_step: int) -> None:
        """To be called when the batches of a fit from `first_step` on have been made, and will be drawn."""

    def fit_ended(self, step: int) -> None:
        """To be called after the fit of a script, which has trained up to `step` and may use the data again."""

    def evaluation_begins(self, before: int) -> None:
        """To be called before an evaluation: `before` is the number of earlier ones."""

    def epoch_trained(self) -> None:
        """To be called after the last step of an epoch, before its evaluation."""

    def close(self) -> None:
        """End the processes and threads that load the data. No further batch is drawn."""
