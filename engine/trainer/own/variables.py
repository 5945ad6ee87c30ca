"""Creates the variables of a user's model before its first step, from what a batch looks like."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import keras
import tensorflow as tf

from ..checkpoint.object_graph import optimizers
from . import build_by_step
from .compiling import custom_step
from .user_code import UserCode, UserError


def create(model: keras.Model, spec: Any, distribution: tf.distribute.Strategy | None, code: UserCode) -> None:
    """Create the variables from what a batch looks like; where that fails, the first step creates them."""
    batch = tf.nest.map_structure(_symbol, spec)
    try:
        model._symbolic_build(data_batch=batch)
    except Exception as fault:  # noqa: BLE001 - the user's code
        if distribution is None:
            why = traceback.format_exception_only(fault)[-1].strip()
            print(f"gputui: {type(model).__name__} gets its variables in the first step: {why}", file=sys.stderr)
            return
        _build_by_step(model, batch, fault, code)
    if distribution is not None:
        _made_in_scope(model, distribution)
        build_by_step.share_generator()
    model._maybe_symbolic_build = lambda *_args, **_kwargs: None


def _build_by_step(model: keras.Model, batch: Any, by_call: Exception, code: UserCode) -> None:
    """Over several replicas each variable must be there before the first step."""
    fault = build_by_step.build(model, batch) if custom_step(model) else by_call
    if fault is None:
        return
    traceback.print_exception(fault)
    found = code.error_of(fault)
    reason = found.message if found else " ".join(str(fault).split())[:200]
    raise UserError(
        f"{type(model).__name__} has no variables yet, and they cannot be created for strategy.kind=mirrored: {reason}",
        "call the model, and the models within it, on one batch in build: model(keras.ops.zeros((1, 28, 28)))",
    ) from fault


def _made_in_scope(model: keras.Model, distribution: tf.distribute.Strategy) -> None:
    """Refuse here what fails in the first step with words about mixed strategies."""
    for variable in [*model.variables, *(one for optimizer in optimizers(model) for one in optimizer.variables)]:
        if not distribution.extended.variable_created_in_scope(variable.value):
            raise UserError(
                f"the variable {variable.path} was created outside the scope of strategy.kind=mirrored",
                "create model and optimizer in build or at the top of its module, not in a scope or thread of your own",
            )


def _symbol(spec: Any) -> Any:
    shape = (None, *spec.shape[1:]) if spec.shape.rank else spec.shape
    return keras.KerasTensor(shape, keras.backend.standardize_dtype(spec.dtype))
