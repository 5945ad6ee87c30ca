"""Whether Keras can evaluate a model: a train_step of the user's may compute a loss that nothing else knows."""

from __future__ import annotations

from typing import Any

import keras


def can_evaluate(model: keras.Model, loss: Any) -> bool:
    """`loss` is what the user's code returned beside the model; a compiled loss is in the model."""
    steps = ("train_step", "test_step", "compute_loss")
    own = [name for name in steps if getattr(type(model), name) is not getattr(keras.Model, name)]
    return own != ["train_step"] or loss is not None or model.loss is not None or bool(model.losses)
