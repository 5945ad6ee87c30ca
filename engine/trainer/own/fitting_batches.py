"""Whether the batches of a user's data are what their model takes."""

from __future__ import annotations

import keras
import tensorflow as tf

from .pipeline import OwnPipeline
from .streams import Samples
from .user_code import UserError


def check(model: keras.Model, pipeline: OwnPipeline) -> None:
    """Whether batches have as many axes as a model of one input wants: batched too often or not at all is told here."""
    spec = pipeline.train.spec
    x = spec[0] if isinstance(spec, tuple) else spec
    inputs = getattr(model, "inputs", None)
    if not isinstance(x, tf.TensorSpec) or x.shape.rank is None or not inputs or len(inputs) != 1:
        return
    wanted, found = tf.TensorShape(inputs[0].shape), x.shape
    if _of_its_rank(found, wanted).is_compatible_with(wanted):
        return
    if found.rank == wanted.rank - 1 and not isinstance(pipeline.train, Samples):
        raise UserError(
            f"train's elements have shape {tuple(found)}, the model takes batches of {tuple(wanted[1:])}",
            "batch the Dataset by context.global_batch_size, or return a dict with map: None to have gputui batch it",
        )
    if found.rank == wanted.rank + 1 and isinstance(pipeline.train, Samples) and pipeline.train.kind == "mapped":
        raise UserError(
            "train is already batched, but with a map gputui batches it again",
            "remove Dataset.batch, or remove map from the dict",
        )


def _of_its_rank(found: tf.TensorShape, wanted: tf.TensorShape) -> tf.TensorShape:
    """As Keras makes it fit a model's input: an axis of one at the end is added or left out."""
    if found.rank == wanted.rank - 1 and wanted[-1] == 1:
        return found.concatenate([1])
    if found.rank == wanted.rank + 1 and found[-1] == 1:
        return found[:-1]
    return found
