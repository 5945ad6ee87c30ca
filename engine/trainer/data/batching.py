"""From samples to batches: each function is one part of the pipeline and applies the options of that part. Exported
scripts contain these functions as text (export/engine_source.py): every change here changes them as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from ...options import Options
from .batches import Share

TOKENS = 256  # levels that inputs are quantized to for the transformer
# Below it, handing a batch to another thread takes more of the CPU than copying it (measured; even at 3 MB).
COPIED_TOGETHER_BYTES = 1_000_000


@dataclass(frozen=True)
class Elements:
    """Elements that are cheap to shuffle, and their number in a pass. The functions `load` and `vary`, which changes a
    sample at random in each pass, make samples of them. Samples are taken out of `arrays` by their indexes. All
    elements of `whole` arrays are shuffled, whatever the size of the buffer, unless they are kept in a file.
    """

    dataset: tf.data.Dataset
    samples: int
    load: Callable[..., Any] | None = None
    vary: Callable[..., Any] | None = None
    arrays: Any = None
    whole: bool = False


@dataclass(frozen=True)
class Sizes:
    """The samples in a batch of all replicas, the batches in a pass, and the seed of the random orders."""

    global_batch: int
    per_pass: int
    seed: int


# Batches that are `numbered` come with the number of their pass and their own number in it. The first pass has the
# number `first_pass`, and leaves out `skipped` batches. `share` is this worker's, if several machines train.
def training_batches(
    data: Elements,
    sizes: Sizes,
    cache_file: Callable[[str], str],
    numbered: bool,
    first_pass: int,
    skipped: int,
    share: Share | None,
    options: Options,
) -> tf.data.Dataset:
    """Return batches without an end: pass after pass over the samples, each in an order of its own."""
    if options.input.cache != "off" and not options.input.one_batch:
        data = kept(data, "train", cache_file, options)

    def one_pass(number: Any) -> tf.data.Dataset:
        batches = pass_batches(data, sizes, number, share, options)
        if numbered:
            batches = batches.enumerate().map(lambda i, batch: ((number, i), batch))
        if skipped:
            batches = batches.skip(tf.where(number == first_pass, tf.constant(skipped, tf.int64), 0))
        return batches

    return tf.data.Dataset.range(first_pass, 2**62).flat_map(one_pass)  # begins sooner than Dataset.counter


def validation_batches(
    data: Elements, sizes: Sizes, cache_file: Callable[[str], str], share: Share | None, options: Options
) -> tf.data.Dataset:
    """Return the batches of an evaluation, always the same."""
    if share is not None:
        data = replace(data, dataset=share.elements(data.dataset))
    if options.input.cache != "off":
        data = kept(data, "validation", cache_file, options)
    samples = loaded(data.dataset, load=data.load, options=options)
    equal = are_equal(data, sizes)
    return batched(samples, sizes, equal, share, options, made=data.load is not None).take(sizes.per_pass)


def pass_batches(data: Elements, sizes: Sizes, number: Any, share: Share | None, options: Options) -> tf.data.Dataset:
    """Return the batches of the pass `number`: elements are shuffled while small, then loaded, varied and batched."""
    if options.input.shuffle != "off" and data.arrays is not None:
        batches = drawn_batches(data, sizes, number, share, options)
        if data.load is None and data.vary is None:  # nothing is done to single samples
            return batches.take(sizes.per_pass)
        elements = batches.unbatch()
    else:
        elements = shuffled(data, sizes.seed, number, options)
        if share is not None:
            elements = share.elements(elements)
    elements = loaded(elements, load=data.load, options=options)
    if data.vary is not None:
        elements = mapped(elements, data.vary, options)
    changed = data.load is not None or data.vary is not None
    drop_remainder = options.input.drop_remainder or are_equal(data, sizes)
    return batched(elements, sizes, drop_remainder, share, options, made=changed).take(sizes.per_pass)


def are_equal(data: Elements, sizes: Sizes) -> bool:
    """Return True for arrays of which Keras' fit knows that no batch is smaller."""
    return data.whole and data.samples % sizes.global_batch == 0


def shuffled(data: Elements, seed: int, number: Any, options: Options) -> tf.data.Dataset:
    """Return the elements in the order of the pass `number`, which `seed` and the number decide."""
    if options.input.shuffle == "off":
        return data.dataset
    in_memory = data.whole and options.input.cache in ("off", "memory")
    buffer = data.samples if in_memory else min(options.input.shuffle, data.samples)
    if seed % (2**31 - 1) == 0:  # TensorFlow compares its two seeds with (0, 0), which fails for 0 and a tensor
        tf.compat.v1.set_random_seed(1)  # of the graph of this function alone
    return data.dataset.shuffle(buffer, seed=tf.constant(seed, tf.int64) + number)


def drawn_batches(data: Elements, sizes: Sizes, number: Any, share: Share | None, options: Options) -> tf.data.Dataset:
    """Return batches taken out of the arrays, in the order of the pass `number`."""
    seed = tf.stack([tf.constant(sizes.seed, tf.int64), number])
    order = tf.random.experimental.stateless_shuffle(tf.range(data.samples, dtype=tf.int64), seed)
    numbers = tf.data.Dataset.from_tensor_slices(order)
    drop_remainder = options.input.drop_remainder or are_equal(data, sizes)
    chosen = numbers.batch(sizes.global_batch, drop_remainder=drop_remainder)
    if share is not None:
        chosen = share.batches(chosen)
    return mapped(chosen, lambda at: tf.nest.map_structure(lambda array: tf.gather(array, at), data.arrays), options)


def kept(data: Elements, name: str, cache_file: Callable[[str], str], options: Options) -> Elements:
    """Return the samples, loaded once and kept. `cache_file` returns the file for the `name`."""
    samples = loaded(data.dataset, load=data.load, options=options)
    cached = samples.cache() if options.input.cache == "memory" else samples.cache(cache_file(name))
    return Elements(cached, data.samples, vary=data.vary, whole=data.whole)


def loaded(elements: tf.data.Dataset, load: Callable[..., Any] | None, options: Options) -> tf.data.Dataset:
    """Return the elements as samples. Without `load`, the elements are samples already."""
    return elements if load is None else mapped(elements, load, options)


def mapped(elements: tf.data.Dataset, function: Callable[..., Any], options: Options) -> tf.data.Dataset:
    """Map a function over the elements, in the order that input.deterministic_order sets. It is set at each map, as
    TensorFlow's options do not reach a map within a pass.
    """
    given = options.input
    if given.parallel_calls == "off":
        return elements.map(function)
    calls = tf.data.AUTOTUNE if given.parallel_calls == "auto" else given.parallel_calls
    return elements.map(function, num_parallel_calls=calls, deterministic=given.deterministic_order)


def batched(
    samples: tf.data.Dataset, sizes: Sizes, drop_remainder: bool, share: Share | None, options: Options, made: bool
) -> tf.data.Dataset:
    """Return batches of the samples, without a smaller last batch if `drop_remainder` is True. If a map has just
    `made` the samples, TensorFlow makes one parallel operation of both; `auto` leaves small batches to a single thread.
    """
    given = options.input
    size = sizes.global_batch if share is None else share.size(sizes.global_batch)
    if (
        made
        or given.parallel_calls == "off"
        or (given.parallel_calls == "auto" and is_small(samples.element_spec, size))
    ):
        return samples.batch(size, drop_remainder=drop_remainder)
    calls = tf.data.AUTOTUNE if given.parallel_calls == "auto" else given.parallel_calls
    order = given.deterministic_order
    return samples.batch(size, drop_remainder=drop_remainder, num_parallel_calls=calls, deterministic=order)


def is_small(sample: Any, size: int) -> bool:
    """Return True if a single thread best copies a batch of `size` samples of the type `sample`."""
    return batch_bytes(sample, size) < COPIED_TOGETHER_BYTES


def batch_bytes(sample: Any, size: int) -> float:
    """Return the bytes of a batch of `size` samples of the type `sample`. Return infinity if samples differ in size."""
    total = 0.0
    for part in tf.nest.flatten(sample):
        fixed = isinstance(part, tf.TensorSpec) and part.shape.is_fully_defined() and part.dtype != tf.string
        total += size * part.dtype.size * part.shape.num_elements() if fixed else math.inf
    return total


# ---- as the model takes them ----------------------------------------------------------------------


def prepared(batches: tf.data.Dataset, scale: float, shape: tuple[int, ...], options: Options) -> tf.data.Dataset:
    """Return batches of (x, y) as the model takes them: floats, tokens, or bytes if the device converts them."""
    return mapped(batches, lambda x, y: (tokens(inputs(x, scale, shape, options), shape, options), y), options)


def prepared_and_augmented(
    batches: tf.data.Dataset, scale: float, shape: tuple[int, ...], seed: int, options: Options
) -> tf.data.Dataset:
    """Return batches as the model takes them, changed at random by `seed` and the position of the batch. Each batch
    comes with its position. `scale` is the factor for the inputs, and `shape` the shape of a sample.
    """

    def prepare(position: Any, batch: Any) -> Any:
        x, y = batch
        x = augmented(inputs(x, scale, shape, options), position, seed, options)
        return tokens(x, shape, options), y

    return mapped(batches, prepare, options)


def augmented_batches(batches: tf.data.Dataset, seed: int, options: Options) -> tf.data.Dataset:
    """The changes are drawn by `seed` and the batch's position, which is left out of the result."""

    def change(position: Any, batch: Any) -> Any:
        if not isinstance(batch, tuple):
            return augmented(batch, position, seed, options)
        return (augmented(batch[0], position, seed, options), *batch[1:])

    return mapped(batches, change, options)


def augmented(x: Any, position: Any, seed: int, options: Options) -> Any:
    """Return the images x changed at random, by `seed` and `position` (pass, batch), as input.augment says."""
    return augment(x, options.input.augmentations, tf.stack([tf.constant(seed, tf.int64) + position[0], position[1]]))


def inputs(x: Any, scale: float, shape: tuple[int, ...], options: Options) -> Any:
    """Return the inputs x as floats, scaled by `scale`. Bytes are unchanged if the device converts them to floats."""
    if options.bytes_to_device and x.dtype == tf.uint8:
        return tf.ensure_shape(x, (None, *shape))
    return floats(x, scale, shape)


def floats(x: Any, scale: float, shape: tuple[int, ...]) -> Any:
    return tf.ensure_shape(tf.cast(x, tf.float32) * scale, (None, *shape))


def tokens(x: Any, shape: tuple[int, ...], options: Options) -> Any:
    """For the transformer, return the inputs x (0 to 1) as sequences of levels, integers from 0 to TOKENS - 1."""
    if options.workload.model != "transformer":
        return x
    flat = tf.reshape(x, (-1, sequence_length(shape)))
    return tf.cast(tf.clip_by_value(flat, 0.0, 1.0) * (TOKENS - 1), tf.int32)


def sequence_length(shape: tuple[int, ...]) -> int:
    """Return the number of tokens in one sample of this shape."""
    length = 1
    for size in shape:
        length *= size
    return length


def augment(x: Any, changes: tuple[str, ...], seed: Any) -> Any:
    """Return a batch of images with these changes, named as in input.augment, each drawn at random. x: float32 (batch,
    height, width, channels) in 0 to 1; for flip and shift alone also bytes. seed: int64 (2,), of which each change has
    one of its own. Inputs with another rank are returned unchanged.
    """
    if x.shape.rank != 4:
        return x
    seeds = tf.unstack(tf.random.split(seed, 5), num=5)
    if "flip" in changes:
        x = tf.image.stateless_random_flip_left_right(x, seeds[0])
    if "shift" in changes:
        x = _shift(x, seeds[1])
    if "contrast" in changes:
        x = tf.image.stateless_random_contrast(x, 0.7, 1.3, seeds[2])
    if "brightness" in changes:
        x = _brighten(x, seeds[4])
    if "noise" in changes:
        x = x + tf.random.stateless_normal(tf.shape(x), seeds[3], stddev=0.05)
    if "blur" in changes:
        x = _blur(x)
    return x if set(changes) <= {"flip", "shift"} else tf.clip_by_value(x, 0.0, 1.0)


def _brighten(x: Any, seed: Any) -> Any:
    """Return each image of x lighter or darker by up to a fifth of the range 0 to 1."""
    return x + tf.random.stateless_uniform((tf.shape(x)[0], 1, 1, 1), seed, -0.2, 0.2)


def _shift(x: Any, seed: Any) -> Any:
    """Return the whole batch x moved by up to an eighth of the image size. The edges are filled with zeros."""
    height, width = x.shape[1], x.shape[2]
    pad_h, pad_w = max(1, height // 8), max(1, width // 8)
    padded = tf.pad(x, [[0, 0], [pad_h, pad_h], [pad_w, pad_w], [0, 0]])
    size = tf.concat([tf.shape(x)[:1], [height, width, x.shape[3]]], axis=0)
    return tf.ensure_shape(tf.image.stateless_random_crop(padded, size, seed), x.shape)


def _blur(x: Any) -> Any:
    """Return a 5x5 binomial blur of each channel, the most expensive change."""
    line = tf.constant([1.0, 4.0, 6.0, 4.0, 1.0]) / 16.0
    channels = x.shape[3]
    kernel = tf.tile((line[:, None] * line[None, :])[:, :, None, None], [1, 1, channels, 1])
    return tf.nn.depthwise_conv2d(x, kernel, strides=[1, 1, 1, 1], padding="SAME")
