"""Checks a user's model before it trains: if batches fit it, if Keras can evaluate it, and which methods it overrides.

A model that would fail in its first step, or in the evaluation after the first epoch, or that would not train as in
Keras' own fit, is refused here with a hint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from ..checkpoint.object_graph import optimizers
from ..checkpoint.training_state import host_random_kept
from . import unsaved_state
from .streams import Samples, Stream
from .user_code import OWN_STRATEGY, UserError

IN_A_GRAPH = "here its steps run as a graph, in which Python code runs only once"
EAGERLY = (
    "leave run_eagerly out, and put the Python code of a step into tf.py_function; or keep your own fit, and watch it "
    "with Monitor"
)
REPLACES = "which replaces the training step with its checkpoints, figures and stops"
OWN_STEP = "put the step into train_step; or keep your own fit, and watch it with Monitor"
TWO_PHASES = "train in two runs, or in build with a fit of its own for the first phase"
_NO_LOSS = "No loss to compute"  # Keras' compute_loss, if nothing was compiled and no layer has added a loss


def custom_step(model: keras.Model) -> bool:
    return type(model).train_step is not keras.Model.train_step


def overrides_fit(model: keras.Model) -> bool:
    """Return True if the class of the model has a fit method of its own."""
    return type(model).fit is not keras.Model.fit


def check_steps(model: keras.Model, callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """Raise UserError if the model's steps would not train as in Keras' fit if gputui runs them in a graph of its own.

    To be called in the scope of gputui's strategy.
    """
    name = type(model).__name__
    if model.run_eagerly:
        raise UserError(f"{name} is compiled with run_eagerly=True: {IN_A_GRAPH}", EAGERLY)
    if type(model).make_train_function is not keras.Model.make_train_function or "make_train_function" in vars(model):
        raise UserError(f"{name} has a make_train_function of its own, {REPLACES}", OWN_STEP)
    if places := unsaved_state.replacing_steps(callbacks):
        raise UserError(f"{places[0]}, {REPLACES}", TWO_PHASES)
    if tf.distribute.has_strategy():  # TensorFlow itself refuses another one within it
        return
    strategies = [model.distribute_strategy, *(own._distribution_strategy for own in optimizers(model))]
    if theirs := next((each for each in strategies if each is not tf.distribute.get_strategy()), None):
        raise UserError(f"{name} is made or compiled in the scope of your own {type(theirs).__name__}", OWN_STRATEGY)


def check_batches(model: keras.Model, stream: Stream) -> None:
    """Raise UserError if the batches have more or fewer axes than the only input of the model, so that the data was
    batched twice, or not at all.

    Models with several inputs are not checked.
    """
    x = stream.spec[0] if isinstance(stream.spec, tuple) else stream.spec
    inputs = getattr(model, "inputs", None)
    if not isinstance(x, tf.TensorSpec) or x.shape.rank is None or not inputs or len(inputs) != 1:
        return
    taken, given = tf.TensorShape(inputs[0].shape), x.shape
    if _of_its_rank(given, taken).is_compatible_with(taken):
        return
    if given.rank == taken.rank - 1 and not isinstance(stream, Samples):
        raise UserError(
            f"train's elements have shape {tuple(given)}, the model takes batches of {tuple(taken[1:])}",
            "batch the Dataset by context.global_batch_size, or return a dict with map: None to have gputui batch it",
        )
    if given.rank == taken.rank + 1 and isinstance(stream, Samples) and stream.kind == "mapped":
        raise UserError(
            "train is already batched, but with a map gputui batches it again",
            "remove Dataset.batch, or remove map from the dict",
        )


def _of_its_rank(given: tf.TensorShape, taken: tf.TensorShape) -> tf.TensorShape:
    """Return the shape `given`, fitted to the model's input `taken` as Keras does it: an axis of size 1 at the end is
    added or left out.
    """
    if given.rank == taken.rank - 1 and taken[-1] == 1:
        return given.concatenate([1])
    if given.rank == taken.rank + 1 and given[-1] == 1:
        return given[:-1]
    return given


def can_evaluate(model: keras.Model, loss: Any) -> bool:
    """Return True if Keras can evaluate the model. It cannot if only the model's own train_step computes the loss.

    `loss` is the loss that the user's code returned in addition to the model. A compiled loss is in the model.
    """
    steps = ("train_step", "test_step", "compute_loss", "make_test_function", "evaluate")
    own = [name for name in steps if getattr(type(model), name) is not getattr(keras.Model, name)]
    return own != ["train_step"] or loss is not None or model.loss is not None or bool(model.losses)


def check_evaluation(model: keras.Model, loss: Any, spec: Any) -> None:
    """Raise UserError if the validation would fail after the first epoch, as the model has no loss for it.

    Layers may add a loss when they are called, so the evaluation of a batch with this spec is traced. No values are
    computed, and any other fault is left to the evaluation itself.
    """
    if can_evaluate(model, loss):
        return
    try:
        with host_random_kept():
            tf.function(model.test_step, autograph=False).get_concrete_function(spec)
        return
    except Exception as fault:  # noqa: BLE001 - the user's code
        if _NO_LOSS not in str(fault):
            return
    finally:
        model._clear_losses()  # losses of the trace are no tensors
    name = type(model).__name__
    raise UserError(
        f"{name} cannot be evaluated: it has a train_step of its own, but neither a test_step nor a compiled loss",
        f"give {name} a test_step, or return no validation data",
    )
