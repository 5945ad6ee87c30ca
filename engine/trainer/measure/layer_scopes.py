"""Records in which scopes of the graph the layers of a model are traced, so that a profile can name its layers.

Keras opens a scope with the layer's name each time that it calls a layer, and TensorFlow appends a number to a scope
that exists already. So the names alone do not identify the layers: `conv2d_1` is the second call of `conv2d`, or the
first of `conv2d_1`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


class LayerScopes:
    """The layers by their scopes, in `names`, while the graph of a training step is traced.

    A layer within others has the names of all, such as `block_1/dense`, and the model itself only its own name. The
    methods `call` of the layers are replaced until `close`, which costs no time while a traced graph runs.
    """

    def __init__(self, model: keras.Model) -> None:
        self.names: dict[str, str] = {}
        self._model = model
        self._within: list[str] = []
        self._replaced: list[tuple[keras.Layer, Callable[..., Any] | None]] = []
        for layer in model._flatten_layers():
            self._replaced.append((layer, vars(layer).get("call")))
            layer.call = self._recording(layer, layer.call)

    def close(self) -> None:
        """Give the layers their own methods back."""
        for layer, own in self._replaced:
            if own is None:
                del layer.call
            else:
                layer.call = own
        self._replaced = []

    def _recording(self, layer: keras.Layer, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def recording(*given: Any, **named: Any) -> Any:
            if tf.executing_eagerly():
                return call(*given, **named)
            outer = self._within
            self._within = [] if layer is self._model else [*outer, layer.name]
            self.names.setdefault(tf.get_current_name_scope(), "/".join(self._within) or layer.name)
            try:
                return call(*given, **named)
            finally:
                self._within = outer

        return recording
