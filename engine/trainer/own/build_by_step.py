"""Builds a model by its training step, where a strategy needs all variables before the first step runs.

Keras builds a model by its call. A model with a train_step of its own may have none, or may use its parts only there.
The step is traced here as Keras traces a call: nothing is computed, no variable changes, and those that are missing are
made in the strategy's scope.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend import compute_output_spec
from keras.src.random.seed_generator import global_seed_generator

from ..checkpoint import random_states
from ..checkpoint.object_graph import optimizers

MOST_TRACES = 8  # each gets as far as the variables that the one before has made allow


def build(model: keras.Model, batch: Any) -> Exception | None:
    """Trace the step until nothing is missing; what it failed of, where it cannot be traced to its end."""
    before = -1
    fault: Exception | None = None
    for _ in range(MOST_TRACES):
        made = len(model.variables) + sum(len(optimizer.variables) for optimizer in optimizers(model))
        if made == before:
            return fault
        before, fault = made, _trace(model, batch)
    return fault


def share_generator() -> None:
    """Make what keras.random draws from without a seed: a replica's thread would make another at each trace."""
    with _host_random_kept():
        global_seed_generator()


def _trace(model: keras.Model, batch: Any) -> Exception | None:
    def step(data: Any) -> None:
        model.train_step(data)

    with _host_random_kept(), _no_gradients(), contextlib.ExitStack() as only_built:
        for optimizer in optimizers(model):
            only_built.enter_context(_not_applied(optimizer))
        try:
            compute_output_spec(step, batch)
        except Exception as fault:  # of their code, or of Keras because a variable is not there yet
            return fault
    return None


@contextlib.contextmanager
def _not_applied(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """Gradients given to it build it."""

    def apply(grads: Any, trainable_variables: Any = None) -> None:
        if not optimizer.built:
            optimizer.build(list(trainable_variables))
            optimizer.built = True

    def apply_gradients(grads_and_vars: Any, **more: Any) -> None:
        grads, variables = zip(*grads_and_vars, strict=True)
        apply(grads, variables)

    optimizer.apply, optimizer.apply_gradients = apply, apply_gradients
    try:
        yield
    finally:
        del optimizer.apply, optimizer.apply_gradients


@contextlib.contextmanager
def _no_gradients() -> Iterator[None]:
    """Variables of a strategy have none outside its replicas; here only their shapes matter."""
    real = tf.GradientTape.gradient

    def gradient(tape: Any, target: Any, sources: Any, *arguments: Any, **named: Any) -> Any:
        return tf.nest.map_structure(lambda source: tf.zeros_like(tf.convert_to_tensor(source)), sources)

    tf.GradientTape.gradient = gradient
    try:
        yield
    finally:
        tf.GradientTape.gradient = real


@contextlib.contextmanager
def _host_random_kept() -> Iterator[None]:
    states = random_states.read([])
    try:
        yield
    finally:
        random_states.write([], states)
