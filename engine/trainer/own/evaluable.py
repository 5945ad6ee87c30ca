"""Whether Keras can evaluate a model: a train_step of the user's may compute a loss that nothing else knows."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from .build_by_step import host_random_kept
from .user_code import UserError

_NO_LOSS = "No loss to compute"  # Keras' compute_loss, where nothing was compiled and no layer has added a loss


def can_evaluate(model: keras.Model, loss: Any) -> bool:
    """`loss` is what the user's code returned beside the model; a compiled loss is in the model."""
    steps = ("train_step", "test_step", "compute_loss", "make_test_function", "evaluate")
    own = [name for name in steps if getattr(type(model), name) is not getattr(keras.Model, name)]
    return own != ["train_step"] or loss is not None or model.loss is not None or bool(model.losses)


def check(model: keras.Model, loss: Any, spec: Any) -> None:
    """Refuse a validation that would fail after the first epoch; raises UserError.

    Layers may add a loss when they are called, so the evaluation of a batch with this spec is traced. Nothing is
    computed, and whatever else goes wrong there is left to the evaluation itself.
    """
    if can_evaluate(model, loss):
        return
    if not _lacks_loss(model, spec):
        return
    name = type(model).__name__
    raise UserError(
        f"{name} cannot be evaluated: it has a train_step of its own, but neither a test_step nor a compiled loss",
        f"give {name} a test_step, or return no validation data",
    )


def _lacks_loss(model: keras.Model, spec: Any) -> bool:
    try:
        with host_random_kept():
            tf.function(model.test_step, autograph=False).get_concrete_function(spec)
    except Exception as fault:  # noqa: BLE001 - the user's code
        return _NO_LOSS in str(fault)
    finally:
        model._clear_losses()  # of the trace, which are no tensors
    return False
