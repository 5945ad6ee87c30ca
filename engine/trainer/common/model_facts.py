"""What a model says of its training: its loss, and the learning rate of its optimizer."""

from __future__ import annotations

import math
from typing import Any

import keras

from ...runs.events import ActualSettings
from .versions import BACKEND, TENSORFLOW


def as_numpy(value: Any) -> Any:
    """Return what a tensor or a variable of any backend holds, once the device has computed it."""
    is_of_tensorflow = BACKEND == TENSORFLOW and hasattr(value, "numpy")
    return value.numpy() if is_of_tensorflow else keras.ops.convert_to_numpy(value)


def present_rate(optimizer: Any) -> float | None:
    """Return the learning rate of the next step. None if this is no optimizer of Keras with a single one."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return None
    value = float(as_numpy(optimizer.learning_rate))
    return value if math.isfinite(value) else None


def loss_of(model: keras.Model) -> ActualSettings:
    """Return Keras' loss, None if the model computes another one, and the classes if it is a crossentropy of them."""
    loss = getattr(model, "loss", None)
    loss = keras.losses.get(loss) if isinstance(loss, str) else loss
    computed = getattr(loss, "fn", loss)
    name = getattr(computed, "__name__", "")
    own = any(getattr(type(model), step) is not getattr(keras.Model, step) for step in ("train_step", "compute_loss"))
    if own or computed is None or getattr(keras.losses, name, None) is not computed:
        return {"loss": None, "classes": None}
    outputs = getattr(model, "outputs", None) or []
    units = outputs[0].shape[-1] if len(outputs) == 1 else None
    among = {"sparse_categorical_crossentropy": units, "categorical_crossentropy": units}
    classes = 2 if name == "binary_crossentropy" and units == 1 else among.get(name)
    regularized = any(getattr(variable, "regularizer", None) for variable in model.trainable_variables)
    return {"loss": name + " + regularization" * regularized, "classes": classes}
