"""Creates the variables of a user's model before its first step, from the types and shapes of a batch.

Keras builds a model by its call. But a model with its own train_step may have no call, or use some parts only in the
step. Over several replicas all variables must exist before the first step runs, so the step of such a model is traced
as Keras traces a call: no values are computed, no variable changes, and missing variables are created in the strategy's
scope.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from ..checkpoint.object_graph import optimizers
from ..checkpoint.training_state import host_random_kept
from ..common.versions import compute_output_spec, global_seed_generator
from .model_checks import custom_step
from .user_code import UserCode, UserError

NARROW = {"float16", "bfloat16"}
MOST_TRACES = 8  # each attempt uses the variables that the previous attempts have created


def create(model: keras.Model, spec: Any, distribution: tf.distribute.Strategy | None, code: UserCode) -> None:
    """Create the variables for batches of this spec.

    If that fails with a strategy, raises UserError. Without a strategy, the first step then creates the variables.
    """
    batch = tf.nest.map_structure(_symbol, spec)
    try:
        model._symbolic_build(data_batch=batch)
    except Exception as fault:  # noqa: BLE001 - the user's code
        if distribution is None:
            why = traceback.format_exception_only(fault)[-1].strip()
            print(f"gputui: {type(model).__name__} gets its variables in the first step: {why}", file=sys.stderr)
            return
        fault_of_step = _create_by_step(model, batch) if custom_step(model) else fault
        if fault_of_step is not None:
            traceback.print_exception(fault_of_step)
            raise _not_created(model, fault_of_step, code) from fault_of_step
    if distribution is not None:
        _require_scope(model, distribution)
        with host_random_kept():
            # The generator of keras.random without a seed: a replica's thread would create another at each trace.
            global_seed_generator()
    model._maybe_symbolic_build = lambda *_args, **_kwargs: None


def narrow_outputs(model: keras.Model, spec: Any) -> list[str]:
    """Return the 16-bit types among the model's outputs, such as `float16`. Empty also if they are not known, as the
    model has no call.
    """
    outputs = getattr(model, "outputs", None)
    if outputs is None and keras.config.dtype_policy().compute_dtype in NARROW:
        x = spec[0] if isinstance(spec, tuple) else spec
        with contextlib.suppress(Exception), host_random_kept():  # the user's code
            outputs = compute_output_spec(model, tf.nest.map_structure(_symbol, x))
    return sorted({str(output.dtype) for output in tf.nest.flatten(outputs)} & NARROW) if outputs is not None else []


def _symbol(spec: Any) -> Any:
    shape = (None, *spec.shape[1:]) if spec.shape.rank else spec.shape
    return keras.KerasTensor(shape, keras.backend.standardize_dtype(spec.dtype))


def _not_created(model: keras.Model, fault: Exception, code: UserCode) -> UserError:
    error = code.error_of(fault)
    reason = error.message if error else " ".join(str(fault).split())[:200]
    return UserError(
        f"{type(model).__name__} has no variables yet, and they cannot be created for strategy.kind=mirrored: {reason}",
        "call the model, and the models within it, on one batch in build: model(keras.ops.zeros((1, 28, 28)))",
    )


def _require_scope(model: keras.Model, distribution: tf.distribute.Strategy) -> None:
    """Raise UserError if a variable was created outside the strategy's scope.

    The first step would fail because of it, and only report that strategies are mixed.
    """
    of_optimizers = (variable for optimizer in optimizers(model) for variable in optimizer.variables)
    for variable in [*model.variables, *of_optimizers]:
        if not distribution.extended.variable_created_in_scope(variable.value):
            raise UserError(
                f"the variable {variable.path} was created outside the scope of strategy.kind=mirrored",
                "create model and optimizer in build or at the top of its module, not in a scope or thread of your own",
            )


# ---- by the training step ------------------------------------------------------------------------


def _create_by_step(model: keras.Model, batch: Any) -> Exception | None:
    """Trace the model's step with `batch` until no variable is missing. Returns the exception if it cannot be traced to
    its end, else None.
    """
    before = -1
    fault: Exception | None = None
    for _ in range(MOST_TRACES):
        created = len(model.variables) + sum(len(optimizer.variables) for optimizer in optimizers(model))
        if created == before:
            return fault
        before, fault = created, _trace_step(model, batch)
    return fault


def _trace_step(model: keras.Model, batch: Any) -> Exception | None:
    def step(data: Any) -> None:
        model.train_step(data)

    with host_random_kept(), _no_gradients(), contextlib.ExitStack() as only_built:
        for optimizer in optimizers(model):
            only_built.enter_context(_not_applied(optimizer))
        try:
            compute_output_spec(step, batch)
        except Exception as fault:  # noqa: BLE001 - the user's code, or Keras because a variable does not exist yet
            return fault
    return None


@contextlib.contextmanager
def _not_applied(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """A context in which the optimizer does not apply gradients, but only creates its variables for them."""

    def apply(grads: Any, trainable_variables: Any = None) -> None:  # noqa: ARG001 - named so by Keras
        if not optimizer.built:
            optimizer.build(list(trainable_variables))
            optimizer.built = True

    def apply_gradients(grads_and_vars: Any, **_more: Any) -> None:
        grads, variables = zip(*grads_and_vars, strict=True)
        apply(grads, variables)

    optimizer.apply, optimizer.apply_gradients = apply, apply_gradients
    try:
        yield
    finally:
        del optimizer.apply, optimizer.apply_gradients


@contextlib.contextmanager
def _no_gradients() -> Iterator[None]:
    """A context in which gradients are zeros. A strategy has none outside its replicas, and only their shapes matter
    here.
    """
    real = tf.GradientTape.gradient

    def gradient(_tape: Any, target: Any, sources: Any, *_more: Any, **_named: Any) -> Any:  # noqa: ARG001 - TensorFlow's
        return tf.nest.map_structure(lambda source: tf.zeros_like(tf.convert_to_tensor(source)), sources)

    tf.GradientTape.gradient = gradient
    try:
        yield
    finally:
        tf.GradientTape.gradient = real
