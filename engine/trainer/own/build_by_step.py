"""Builds a model by its training step, where a strategy needs all variables before the first step runs.

Keras builds a model by its call, but a model with its own train_step may have no call, or use some parts only in the
step. The step is traced here as Keras traces a call: nothing is computed, no variable changes, and missing variables
are created in the strategy's scope.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from ..checkpoint import random_states
from ..checkpoint.object_graph import optimizers
from ..common.versions import compute_output_spec, global_seed_generator

MOST_TRACES = 8  # each attempt gets as far as the variables of the previous attempts allow


def build(model: keras.Model, batch: Any) -> Exception | None:
    """Trace the step until no variable is missing; returns the exception where it cannot be traced to its end."""
    before = -1
    fault: Exception | None = None
    for _ in range(MOST_TRACES):
        made = len(model.variables) + sum(len(optimizer.variables) for optimizer in optimizers(model))
        if made == before:
            return fault
        before, fault = made, _trace(model, batch)
    return fault


def share_generator() -> None:
    """Create the generator that keras.random uses without a seed; a replica's thread would create another at each
    trace.
    """
    with host_random_kept():
        global_seed_generator()


def _trace(model: keras.Model, batch: Any) -> Exception | None:
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
    """Build the optimizer with the gradients, without applying them."""

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
    """Return zeros for gradients: a strategy has none outside its replicas, and only their shapes matter here."""
    real = tf.GradientTape.gradient

    def gradient(_tape: Any, target: Any, sources: Any, *_more: Any, **_named: Any) -> Any:  # noqa: ARG001 - TensorFlow's
        return tf.nest.map_structure(lambda source: tf.zeros_like(tf.convert_to_tensor(source)), sources)

    tf.GradientTape.gradient = gradient
    try:
        yield
    finally:
        tf.GradientTape.gradient = real


@contextlib.contextmanager
def host_random_kept() -> Iterator[None]:
    states = random_states.read([])
    try:
        yield
    finally:
        random_states.write([], states)
