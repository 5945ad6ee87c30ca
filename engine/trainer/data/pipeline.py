"""From a source to batches: shuffle, load, cache, batch, augment, prefetch, each one obeying its option.

The training stream has no end and starts at any step: each pass over the data is shuffled by a seed of its own,
so that a resumed run goes on with the very sample it stopped at, without an iterator's state in the checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from ...options import Options
from ..faults import DataError
from . import files, named
from .augment import augment
from .source import Batch, Part, Source

TOKENS = 256  # levels that inputs are cut into for the transformer
_SOURCES = {
    "digits": named.digits,
    "synthetic": named.synthetic,
    "mnist": named.keras_dataset,
    "fashion_mnist": named.keras_dataset,
    "cifar10": named.keras_dataset,
    "npz": files.npz,
    "images": files.images,
    "tfrecord": files.tfrecord,
}


@dataclass(frozen=True)
class Pipeline:
    """Batches of both parts. `stream(step)` starts the endless training stream at a global step."""

    options: Options
    source: Source
    replicas: int
    seed: int

    @property
    def global_batch_size(self) -> int:
        return self.options.input.batch_size * self.replicas

    @property
    def batches_per_pass(self) -> int:
        return self._batches(self.source.train.samples, self.options.input.drop_remainder)

    @property
    def validation_batches(self) -> int:
        return self._batches(self.source.validation.samples, drop_remainder=False)

    def _batches(self, samples: int, drop_remainder: bool) -> int:
        whole, rest = divmod(samples, self.global_batch_size)
        # Each replica needs at least one sample of a last, smaller batch.
        return whole if drop_remainder or rest < self.replicas else whole + 1

    def stream(self, first_step: int = 0) -> tf.data.Dataset:
        """Endless training batches from `first_step` on; per-replica batches where there are replicas."""
        wanted = self.options.input
        first_pass, skipped = divmod(first_step, self.batches_per_pass)
        cached = wanted.cache != "off"
        elements = self._cached(self.source.train, "train") if cached else self.source.train.elements

        def one_pass(number: Any) -> tf.data.Dataset:
            batches = self._shuffled_batches(elements, number)
            if skipped:
                batches = batches.skip(tf.where(number == first_pass, tf.constant(skipped, tf.int64), 0))
            offset = tf.where(number == first_pass, tf.constant(skipped, tf.int64), 0)
            if self.options.input.augment == "off":
                return batches
            return batches.enumerate().map(lambda i, batch: ((number, i + offset), batch))

        stream = tf.data.Dataset.counter(first_pass).flat_map(one_pass)
        if self.options.input.augment == "off":
            return self._finish(self._prepared(stream))
        return self._finish(self._mapped(stream, self._prepare_augmented))

    def validation(self) -> tf.data.Dataset:
        """Endless validation batches in a fixed order, `validation_batches` of them a pass."""
        part, cached = self.source.validation, self.options.input.cache != "off"
        elements = self._cached(part, "validation") if cached else self._loaded(part.elements)
        batches = elements.batch(self.global_batch_size)
        batches = batches.take(self.validation_batches).repeat()
        return self._finish(self._prepared(batches))

    def _cached(self, part: Part, name: str) -> tf.data.Dataset:
        """Elements, loaded once and kept."""
        cache = self.options.input.cache
        loaded = self._loaded(part.elements)
        return loaded.cache() if cache == "memory" else loaded.cache(self._cache_file(Path(cache), name))

    def _loaded(self, elements: tf.data.Dataset) -> tf.data.Dataset:
        if self.source.load is None:
            return elements
        return self._mapped(elements, self.source.load)

    def _mapped(self, elements: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
        """Each element through the function; TensorFlow applies the order of its options to no map inside a pass."""
        wanted = self.options.input
        if wanted.parallel_calls == "off":
            return elements.map(function)
        calls = _parallel(wanted.parallel_calls)
        return elements.map(function, num_parallel_calls=calls, deterministic=wanted.deterministic_order)

    def _shuffled_batches(self, elements: tf.data.Dataset, number: Any) -> tf.data.Dataset:
        """One pass: shuffled while the elements are cheap, loaded if they are not cached, batched."""
        wanted = self.options.input
        if wanted.shuffle != "off":
            buffer = min(wanted.shuffle, self.source.train.samples)
            elements = elements.shuffle(buffer, seed=tf.constant(self.seed, tf.int64) + number)
        if wanted.cache == "off":
            elements = self._loaded(elements)
        batches = elements.batch(self.global_batch_size, drop_remainder=wanted.drop_remainder)
        return batches if wanted.drop_remainder else batches.take(self.batches_per_pass)

    def _prepared(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        """Float32 (or token) batches; those that are so already pass without a stage of their own."""
        x, _ = batches.element_spec
        ready = x.dtype == tf.float32 and self.source.scale == 1.0 and x.shape[1:] == self.source.shape
        if ready and self.options.workload.model != "transformer":
            return batches
        return self._mapped(batches, self._prepare)

    def _prepare_augmented(self, position: Any, batch: Batch) -> Batch:
        x, y = self._floats(batch)
        seed = tf.stack([tf.constant(self.seed, tf.int64) + position[0], position[1]])
        return self._tokens(augment(x, self.options.input.augment, seed)), y

    def _prepare(self, *batch: Any) -> Batch:
        x, y = self._floats(batch)
        return self._tokens(x), y

    def _floats(self, batch: Any) -> Batch:
        x, y = batch
        x = tf.ensure_shape(tf.cast(x, tf.float32) * self.source.scale, (None, *self.source.shape))
        return x, y

    def _tokens(self, x: Any) -> Any:
        """For the transformer an input is a sequence of levels: (batch, n) of 0 to TOKENS - 1."""
        if self.options.workload.model != "transformer":
            return x
        flat = tf.reshape(x, (-1, sequence_length(self.source.shape)))
        return tf.cast(tf.clip_by_value(flat, 0.0, 1.0) * (TOKENS - 1), tf.int32)

    def _finish(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        if self.replicas > 1:
            batches = batches.flat_map(self._split)
        wanted = self.options.input
        settings = tf.data.Options()
        settings.deterministic = wanted.deterministic_order
        if wanted.private_threads != "auto":
            settings.threading.private_threadpool_size = wanted.private_threads
        # Left alone, TensorFlow rewrites what is off to a parallel map, a batch filled ahead and a prefetch.
        rewrites = settings.experimental_optimization
        if wanted.parallel_calls == "off":
            rewrites.map_parallelization = False
        if not wanted.deterministic_order:
            rewrites.map_and_batch_fusion = False  # it would keep the order
        if wanted.prefetch == "off":
            rewrites.map_and_batch_fusion = False
            rewrites.inject_prefetch = False
        else:
            batches = batches.prefetch(_parallel(wanted.prefetch))
        return batches.with_options(settings)

    def _split(self, x: Any, y: Any) -> tf.data.Dataset:
        """A global batch as one batch for each replica, sizes as equal as can be."""
        samples = tf.shape(x, out_type=tf.int64)[0]

        def part(i: Any) -> Batch:
            first, beyond = i * samples // self.replicas, (i + 1) * samples // self.replicas
            return x[first:beyond], y[first:beyond]

        return tf.data.Dataset.range(self.replicas).map(part)

    def _cache_file(self, folder: Path, name: str) -> str:
        """A cache file of these very samples: other data, shape, split or seed get another file."""
        data = self.options.workload.model_dump_json(exclude={"model", "width"})
        told = (data, self.options.train.validation_split, self.seed, self.source.stamp)
        digest = hashlib.sha256(repr(told).encode()).hexdigest()[:16]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise DataError(f"input.cache: {folder} cannot be made: {fault.strerror}") from None
        stem = folder / f"{digest}-{name}"
        if not stem.with_name(stem.name + ".index").exists():
            # What a killed run left half-written would be taken for a run that is still writing.
            for stale in folder.glob(f"{stem.name}_*"):
                with contextlib.suppress(OSError):
                    os.unlink(stale)
        return str(stem)


def build(options: Options, replicas: int) -> Pipeline:
    """Open the source and check that it makes at least one batch; raises DataError."""
    assert options.train.seed is not None, "the launcher draws a seed"
    kind = options.workload.source[0]
    source = _SOURCES[kind](options, options.train.seed)
    pipeline = Pipeline(options, source, replicas, options.train.seed)
    if pipeline.batches_per_pass < 1:
        raise DataError(
            f"{source.train.samples} training samples do not fill one global batch of {pipeline.global_batch_size}",
            "lower input.batch_size, or set input.drop_remainder=false",
        )
    return pipeline


def sequence_length(shape: tuple[int, ...]) -> int:
    """Tokens in one sample."""
    length = 1
    for size in shape:
        length *= size
    return length


def _parallel(wanted: int | str) -> int:
    """auto or a number -> what tf.data takes."""
    return tf.data.AUTOTUNE if wanted == "auto" else int(wanted)
