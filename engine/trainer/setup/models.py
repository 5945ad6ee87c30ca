"""The models that gputui contains: plain functional Keras, each with a width factor and a float32 last layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
from keras import layers

from ...options import Options
from ...options.workload import BLOCKS, KERNEL_SIZE
from ..common.training_errors import TrainerError
from ..data.batching import TOKENS, sequence_length

MAX_TOKENS = 2048
HEAD_SIZE = 64  # channels of an attention head in wide models, as in Vaswani et al. 2017; narrow models have four heads
# Batch norm's moving statistics settle within tens of steps, so that short runs validate meaningfully.
MOMENTUM = 0.9


def build(options: Options, shape: tuple[int, ...], classes: int) -> keras.Model:
    """Return an uncompiled model for samples of this shape with logits of (batch, classes). Raises TrainerError."""
    workload = options.workload
    name, width, norm = workload.model, workload.width, workload.normalization_of_model
    if name == "transformer":
        return _transformer(shape, classes, width, norm, workload.blocks or BLOCKS)
    inputs = keras.Input(shape)
    if name == "mlp":
        features = _mlp(inputs, width, norm)
    else:
        if len(shape) != 3:
            raise TrainerError(
                "model",
                f"{name} needs images (height, width, channels), but the data has shape {list(shape)}",
                "choose workload.model=mlp or transformer, or other data",
            )
        kernel = workload.kernel_size or KERNEL_SIZE
        features = _IMAGE_MODELS[name](inputs, width, norm, kernel, workload.first_stride, workload.is_separable)
    return keras.Model(inputs, _logits(features, classes), name=name)


def save(model: keras.Model, path: Path) -> None:
    """Save a trained model for plain Keras: without the optimizer, as its schedule is a class of gputui."""
    keras.Model(model.inputs, model.outputs, name=model.name).save(path)


def _logits(features: Any, classes: int) -> Any:
    return layers.Dense(classes, dtype="float32", name="logits")(features)


def _units(base: int, width: float) -> int:
    """Return `base` times `width` units, rounded to a multiple of 8, at least 8, which suits tensor cores."""
    return max(8, round(base * width / 8) * 8)


def _normalized(x: Any, norm: str) -> Any:
    """Return x after batch or layer normalization over its last axis, or with `none` unchanged."""
    if norm == "none":
        return x
    return layers.BatchNormalization(momentum=MOMENTUM)(x) if norm == "batch" else layers.LayerNormalization()(x)


def _relu(layer: Any, x: Any, norm: str, **settings: Any) -> Any:
    """Return the output of a layer (its class and `settings`) for x, then normalized, then after relu. Only without a
    normalization, which would cancel it, there is a bias.
    """
    if norm == "none":
        return layer(**settings, activation="relu")(x)
    return layers.Activation("relu")(_normalized(layer(**settings, use_bias=False)(x), norm))


def _convolution(x: Any, norm: str, filters: int, kernel_size: int, separable: bool = False, strides: int = 1) -> Any:
    layer = layers.SeparableConv2D if separable else layers.Conv2D
    return _relu(layer, x, norm, filters=filters, kernel_size=kernel_size, strides=strides, padding="same")


def _mlp(inputs: Any, width: float, norm: str) -> Any:
    x = layers.Flatten()(inputs)
    for base in (256, 128):
        x = _relu(layers.Dense, x, norm, units=_units(base, width))
    return layers.Dropout(0.1)(x)


# In the image models `kernel` is the size of the kernels, `stride` that of the first convolution, and with `separable`
# the convolutions after it are separable.
def _cnn(inputs: Any, width: float, norm: str, kernel: int, stride: int, separable: bool) -> Any:
    x, base = _convolution(inputs, norm, _units(32, width), kernel, strides=stride), 32
    while min(x.shape[1], x.shape[2]) > 8:
        x = layers.MaxPooling2D()(x)
        base = min(2 * base, 256)
        x = _convolution(x, norm, _units(base, width), kernel, separable)
    x = _convolution(x, norm, _units(2 * base, width), kernel, separable)
    x = layers.MaxPooling2D(padding="same")(x)
    x = layers.Flatten()(x)
    x = _relu(layers.Dense, x, norm, units=_units(128, width))
    return layers.Dropout(0.3)(x)


def _separable_cnn(inputs: Any, width: float, norm: str, kernel: int, stride: int, separable: bool) -> Any:
    x = _convolution(inputs, norm, _units(32, width), kernel, strides=stride)
    for base in (64, 128, 128):
        x = _convolution(x, norm, _units(base, width), kernel, separable)
        if min(x.shape[1], x.shape[2]) > 4:
            x = layers.MaxPooling2D()(x)
    return layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x))


def _resnet50(inputs: Any, width: float, norm: str, kernel: int, stride: int, separable: bool) -> Any:
    """Return the features of ResNet-50 (He et al. 2015, table 1), which has kernel 3 and stride 2, for `inputs`."""
    x = _convolution(inputs, norm, _units(64, width), 7, strides=stride)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            strides = 2 if stage > 0 and block == 0 else 1
            x = _bottleneck(x, _units(64 * 2**stage, width), strides, block == 0, norm, kernel, separable)
    return layers.GlobalAveragePooling2D()(x)


def _bottleneck(x: Any, filters: int, strides: int, project: bool, norm: str, kernel: int, separable: bool) -> Any:
    def convolve(y: Any, n: int, size: int, step: int, layer: Any = layers.Conv2D) -> Any:
        y = layer(n, size, strides=step, padding="same", use_bias=norm == "none")(y)
        return _normalized(y, norm)

    shortcut = convolve(x, 4 * filters, 1, strides) if project else x
    y = layers.Activation("relu")(convolve(x, filters, 1, 1))
    middle = layers.SeparableConv2D if separable else layers.Conv2D
    y = layers.Activation("relu")(convolve(y, filters, kernel, strides, middle))
    return layers.Activation("relu")(layers.Add()([convolve(y, 4 * filters, 1, 1), shortcut]))


def _transformer(shape: tuple[int, ...], classes: int, width: float, norm: str, blocks: int) -> keras.Model:
    """Return a model of `blocks` encoder blocks over tokens, with normalization before each part of a block. An image
    is read pixel by pixel. Raises TrainerError if a sample has more than MAX_TOKENS tokens.
    """
    length = sequence_length(shape)
    if length > MAX_TOKENS:
        raise TrainerError(
            "model",
            f"a sample of shape {list(shape)} is {length} tokens; the transformer takes at most {MAX_TOKENS}",
            "use smaller samples or workload.model=cnn",
        )
    size = _units(64, width)
    heads = max(4, size // HEAD_SIZE)
    tokens = keras.Input((length,), dtype="int32")
    counted = keras.ops.cumsum(keras.ops.ones_like(tokens), axis=1) - 1
    x = layers.Embedding(TOKENS, size, name="tokens")(tokens)
    x = x + layers.Embedding(length, size, name="positions")(counted)
    for _ in range(blocks):
        y = _normalized(x, norm)
        x = x + layers.MultiHeadAttention(heads, size // heads, dropout=0.1)(y, y)
        y = layers.Dense(4 * size, activation="gelu")(_normalized(x, norm))
        x = x + layers.Dropout(0.1)(layers.Dense(size)(y))
    features = layers.GlobalAveragePooling1D()(_normalized(x, norm))
    return keras.Model(tokens, _logits(features, classes), name="transformer")


_IMAGE_MODELS: dict[str, Callable[[Any, float, str, int, int, bool], Any]] = {
    "cnn": _cnn,
    "separable_cnn": _separable_cnn,
    "resnet50": _resnet50,
}
