"""Random changes of image batches, on the CPU inside the pipeline, the same for the same seed."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def augment(x: Any, strength: str, seed: Any) -> Any:
    """Augment a batch. x: float32 (batch, height, width, channels) in 0 to 1, for `light` also bytes; seed: int64 (2,).
    Other ranks pass unchanged.
    """
    if x.shape.rank != 4:
        return x
    seeds = tf.unstack(tf.random.split(seed, 5), num=5)
    x = tf.image.stateless_random_flip_left_right(x, seeds[0])
    x = _shift(x, seeds[1])
    if strength == "heavy":
        x = _brighten(tf.image.stateless_random_contrast(x, 0.7, 1.3, seeds[2]), seeds[4])
        x = x + tf.random.stateless_normal(tf.shape(x), seeds[3], stddev=0.05)
        x = tf.clip_by_value(_blur(x), 0.0, 1.0)
    return x


def _brighten(x: Any, seed: Any) -> Any:
    """Each image lighter or darker by up to a fifth of the range; the caller clips values outside of it."""
    return x + tf.random.stateless_uniform((tf.shape(x)[0], 1, 1, 1), seed, -0.2, 0.2)


def _shift(x: Any, seed: Any) -> Any:
    """Each batch moved by up to an eighth of its size, edges filled with zeros."""
    height, width = x.shape[1], x.shape[2]
    pad_h, pad_w = max(1, height // 8), max(1, width // 8)
    padded = tf.pad(x, [[0, 0], [pad_h, pad_h], [pad_w, pad_w], [0, 0]])
    size = tf.concat([tf.shape(x)[:1], [height, width, x.shape[3]]], axis=0)
    return tf.ensure_shape(tf.image.stateless_random_crop(padded, size, seed), x.shape)


def _blur(x: Any) -> Any:
    """A 5x5 binomial blur of each channel, the most expensive part of `heavy`."""
    line = tf.constant([1.0, 4.0, 6.0, 4.0, 1.0]) / 16.0
    channels = x.shape[3]
    kernel = tf.tile((line[:, None] * line[None, :])[:, :, None, None], [1, 1, channels, 1])
    return tf.nn.depthwise_conv2d(x, kernel, strides=[1, 1, 1, 1], padding="SAME")
