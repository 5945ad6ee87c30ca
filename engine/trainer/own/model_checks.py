"""Checks a user's model before it trains, and creates its variables, from the types and shapes of a batch. A model with
its own train_step may have no call, or use some parts only in the step. Over several replicas all variables must exist
before the first step, so such a step is traced as Keras traces a call: without values.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from ..checkpoint.object_graph import optimizers
from ..checkpoint.training_state import host_random_kept
from ..common.versions import compute_output_spec, global_seed_generator, replaced
from ..data.batches import Stream
from ..data.pipeline import Samples
from . import unsaved_state
from .streams import TO_BATCH
from .user_code import OWN_STRATEGY, UserCode, UserError

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


def check_steps(model: keras.Model, callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """UserError if the model's steps would not train as in Keras' fit. In the scope of gputui's strategy."""
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
    """UserError for more or fewer axes than the model's only input: batched twice, or not at all."""
    x = stream.spec[0] if isinstance(stream.spec, tuple) else stream.spec
    inputs = getattr(model, "inputs", None)
    if not isinstance(x, tf.TensorSpec) or x.shape.rank is None or not inputs or len(inputs) != 1:
        return
    taken, given = tf.TensorShape(inputs[0].shape), x.shape
    as_taken = given  # Keras adds or leaves out an axis of size 1 at the end, so that the shape fits the input
    if given.rank == taken.rank - 1 and taken[-1] == 1:
        as_taken = given.concatenate([1])
    elif given.rank == taken.rank + 1 and given[-1] == 1:
        as_taken = given[:-1]
    if as_taken.is_compatible_with(taken):
        return
    if given.rank == taken.rank - 1 and not isinstance(stream, Samples):
        raise UserError(
            f"train's elements have shape {tuple(given)}, the model takes batches of {tuple(taken[1:])}", TO_BATCH
        )
    if given.rank == taken.rank + 1 and isinstance(stream, Samples) and stream.kind == "mapped":
        what = "train is already batched, but with a map gputui batches it again"
        raise UserError(what, "remove Dataset.batch, or remove map from the dict")


def can_evaluate(model: keras.Model, loss: Any) -> bool:
    """Return True if Keras can evaluate the model with the `loss` beside it: not if train_step alone computes one."""
    steps = ("train_step", "test_step", "compute_loss", "make_test_function", "evaluate")
    own = [name for name in steps if getattr(type(model), name) is not getattr(keras.Model, name)]
    return own != ["train_step"] or loss is not None or model.loss is not None or bool(model.losses)


def check_evaluation(model: keras.Model, loss: Any, spec: Any) -> None:
    """UserError without a loss; the evaluation is traced, as layers may add one when they are called."""
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
    what = f"{name} cannot be evaluated: it has a train_step of its own, but neither a test_step nor a compiled loss"
    raise UserError(what, f"give {name} a test_step, or return no validation data")


NARROW = {"float16", "bfloat16"}
MOST_TRACES = 8  # each attempt uses the variables that the previous attempts have created


def create(model: keras.Model, spec: Any, distribution: tf.distribute.Strategy | None, code: UserCode) -> None:
    """If that fails, the first step creates them; with a strategy UserError is raised."""
    batch = tf.nest.map_structure(_symbol, spec)
    try:
        model._symbolic_build(data_batch=batch)
    except Exception as fault:  # noqa: BLE001 - the user's code
        if distribution is None:
            why = traceback.format_exception_only(fault)[-1].strip()
            print(f"gputui: {type(model).__name__} gets its variables in the first step: {why}", file=sys.stderr)
            return
        fault_of_step: Exception | None = fault
        before = -1
        for _ in range(MOST_TRACES if custom_step(model) else 0):  # until no variable is missing
            created = len(model.variables) + sum(len(optimizer.variables) for optimizer in optimizers(model))
            if created == before:
                break
            before, fault_of_step = created, _trace_step(model, batch)
        if fault_of_step is not None:
            traceback.print_exception(fault_of_step)
            error = code.error_of(fault_of_step)
            reason, name = error.message if error else " ".join(str(fault_of_step).split())[:200], type(model).__name__
            raise UserError(
                f"{name} has no variables yet, and they cannot be created for strategy.kind=mirrored: {reason}",
                "call the model, and the models within it, on one batch in build: model(keras.ops.zeros((1, 28, 28)))",
            ) from fault_of_step
    if distribution is not None:
        # The first step would fail because of it, and only report that strategies are mixed.
        of_optimizers = (variable for optimizer in optimizers(model) for variable in optimizer.variables)
        for variable in [*model.variables, *of_optimizers]:
            if not distribution.extended.variable_created_in_scope(variable.value):
                raise UserError(
                    f"the variable {variable.path} was created outside the scope of strategy.kind=mirrored",
                    "create model and optimizer in build or at the top of its module, not in a scope or thread of your "
                    "own",
                )
        with host_random_kept():
            # The generator of keras.random without a seed: a replica's thread would create another at each trace.
            global_seed_generator()
    model._maybe_symbolic_build = lambda *_args, **_kwargs: None


def narrow_outputs(model: keras.Model, spec: Any) -> list[str]:
    """Return the 16-bit types among the model's outputs, such as `float16`. Empty if they are not known."""
    outputs = getattr(model, "outputs", None)
    if outputs is None and keras.config.dtype_policy().compute_dtype in NARROW:
        x = spec[0] if isinstance(spec, tuple) else spec
        with contextlib.suppress(Exception), host_random_kept():  # the user's code
            outputs = compute_output_spec(model, tf.nest.map_structure(_symbol, x))
    return sorted({str(output.dtype) for output in tf.nest.flatten(outputs)} & NARROW) if outputs is not None else []


def _symbol(spec: Any) -> Any:
    shape = (None, *spec.shape[1:]) if spec.shape.rank else spec.shape
    return keras.KerasTensor(shape, keras.backend.standardize_dtype(spec.dtype))


# ---- by the training step ------------------------------------------------------------------------


def _trace_step(model: keras.Model, batch: Any) -> Exception | None:
    """Trace the step without gradients. Return the exception if it cannot be traced to its end."""

    def step(data: Any) -> None:
        model.train_step(data)

    def gradient(_tape: Any, target: Any, sources: Any, *_more: Any, **_named: Any) -> Any:  # noqa: ARG001 - TensorFlow's
        # Zeros: a strategy has none outside its replicas, and only shapes matter here.
        return tf.nest.map_structure(lambda source: tf.zeros_like(tf.convert_to_tensor(source)), sources)

    no_gradients = replaced(tf.GradientTape, gradient=gradient)
    with host_random_kept(), no_gradients, contextlib.ExitStack() as only_built:
        for optimizer in optimizers(model):
            only_built.enter_context(_not_applied(optimizer))
        try:
            compute_output_spec(step, batch)
        except Exception as fault:  # noqa: BLE001 - the user's code, or Keras because a variable does not exist yet
            return fault
    return None


def _not_applied(optimizer: keras.optimizers.Optimizer) -> contextlib.AbstractContextManager[None]:
    """A context in which the optimizer does not apply gradients, but only creates its variables for them."""

    def apply(grads: Any, trainable_variables: Any = None) -> None:  # noqa: ARG001 - named so by Keras
        if not optimizer.built:
            optimizer.build(list(trainable_variables))
            optimizer.built = True

    def apply_gradients(grads_and_vars: Any, **_more: Any) -> None:
        grads, variables = zip(*grads_and_vars, strict=True)
        apply(grads, variables)

    return replaced(optimizer, apply=apply, apply_gradients=apply_gradients)
