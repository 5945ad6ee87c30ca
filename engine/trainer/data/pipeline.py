"""From a source to batches: shuffle, load, cache, batch, augment, prefetch, each as its option says.

The training stream is endless and can start at any step: each pass over the data is shuffled with a seed of its own, so
that a resumed run continues with the very next sample, without an iterator's state in the checkpoint.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from ...options import Options
from ..common.faults import DataError
from . import files, named
from .augment import augment
from .finishing import autotuned, finish
from .source import Batch, Part, Source
from .stage_names import SOURCE, Stage

TOKENS = 256  # levels that inputs are quantized to for the transformer
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
    """Training and validation batches. `stream(step)` starts the endless training stream at a global step."""

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

    @property
    def smaller_last_batch(self) -> bool:
        return self.batches_per_pass * self.global_batch_size > self.source.train.samples

    @property
    def train_samples(self) -> int:
        return self.source.train.samples

    @property
    def validation_samples(self) -> int:
        return self.source.validation.samples

    @property
    def sample_bytes(self) -> int:
        """The size of one sample as the model gets it, without its label."""
        return 4 * math.prod(self.source.shape)

    def find_fault(self) -> None:
        """Find the cause of a TensorFlow error in the data: raises DataError where it finds the sample at fault."""
        self.source.find_fault()

    def stream(self, first_step: int = 0) -> tf.data.Dataset:
        """Endless training batches from `first_step` on; per-replica batches where there are replicas."""
        return finish(self.global_batches(first_step), self.options, self.replicas, self.options.input.one_batch)

    def global_batches(self, first_step: int) -> tf.data.Dataset:
        """The batches before `stream` splits them over the replicas and prefetches them."""
        wanted = self.options.input
        first_pass, skipped = divmod(first_step, self.batches_per_pass)
        elements = self._cached(self.source.train, "train") if self._caches else self.source.train.elements

        def one_pass(number: Any) -> tf.data.Dataset:
            batches = self._shuffled_batches(elements, number)
            if skipped:
                batches = batches.skip(tf.where(number == first_pass, tf.constant(skipped, tf.int64), 0))
            offset = tf.where(number == first_pass, tf.constant(skipped, tf.int64), 0)
            if wanted.augment == "off":
                return batches
            return batches.enumerate().map(lambda i, batch: ((number, i + offset), batch))

        stream = tf.data.Dataset.counter(first_pass).flat_map(one_pass)
        if wanted.augment == "off":
            return self._prepared(stream)
        return self._mapped(stream, self._prepare_augmented)

    @property
    def _caches(self) -> bool:
        """Whether training samples are cached, which is pointless for a single batch."""
        return self.options.input.cache != "off" and not self.options.input.one_batch

    def stages(self) -> tuple[Stage, ...]:
        """The stages of `stream`, from the source to the end; those over the data begin again in each pass."""
        wanted = self.options.input
        cached, augmented = self._caches, wanted.augment != "off"
        load = Stage("load", "Map") if self.source.load else None
        prepared = Stage("augment" if augmented else "prepare", "Map")
        found = (
            Stage(SOURCE, ""),
            load if cached else None,
            Stage("cache", "Cache") if cached else None,
            Stage("shuffle", "Shuffle") if wanted.shuffle != "off" else None,
            None if cached else load,
            Stage("augment", "Map") if self.source.vary else None,
            Stage("batch", "Batch"),
            Stage("pass", "Map") if augmented else None,  # numbers the batches
            Stage("pass", "FlatMap"),
            prepared if augmented or not self._ready else None,
            Stage("split", "FlatMap", splits=self.replicas) if self.replicas > 1 else None,
            Stage("one batch", "Cache") if wanted.one_batch else None,
            Stage("prefetch", "Prefetch") if wanted.prefetch != "off" else None,
        )
        return tuple(stage for stage in found if stage is not None)

    def validation(self) -> tf.data.Dataset:
        """Endless validation batches in a fixed order, `validation_batches` of them in a pass."""
        return finish(self.global_validation_batches(), self.options, self.replicas)

    def global_validation_batches(self) -> tf.data.Dataset:
        """The batches before `validation` splits them over the replicas and prefetches them."""
        part, cached = self.source.validation, self.options.input.cache != "off"
        elements = self._cached(part, "validation") if cached else self._loaded(part.elements)
        batches = elements.batch(self.global_batch_size)
        batches = batches.take(self.validation_batches).repeat()
        return self._prepared(batches)

    def _cached(self, part: Part, name: str) -> tf.data.Dataset:
        """Elements that are loaded once and kept."""
        cache = self.options.input.cache
        loaded = self._loaded(part.elements)
        return loaded.cache() if cache == "memory" else loaded.cache(self._cache_file(Path(cache), name))

    def _loaded(self, elements: tf.data.Dataset) -> tf.data.Dataset:
        if self.source.load is None:
            return elements
        return self._mapped(elements, self.source.load)

    def _mapped(self, elements: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
        """Map a function over the elements, with the order set here: TensorFlow's options do not reach a map within a
        pass.
        """
        wanted = self.options.input
        if wanted.parallel_calls == "off":
            return elements.map(function)
        calls = autotuned(wanted.parallel_calls)
        return elements.map(function, num_parallel_calls=calls, deterministic=wanted.deterministic_order)

    def _shuffled_batches(self, elements: tf.data.Dataset, number: Any) -> tf.data.Dataset:
        """One pass: shuffled while the elements are still small, loaded if they are not cached, then batched."""
        wanted = self.options.input
        if wanted.shuffle != "off":
            elements = self._shuffled(elements, number)
        if not self._caches:
            elements = self._loaded(elements)
        if self.source.vary is not None:
            elements = self._mapped(elements, self.source.vary)
        batches = elements.batch(self.global_batch_size, drop_remainder=wanted.drop_remainder)
        return batches if wanted.drop_remainder else batches.take(self.batches_per_pass)

    def _shuffled(self, elements: tf.data.Dataset, number: Any) -> tf.data.Dataset:
        return elements.shuffle(self._shuffle_buffer, seed=tf.constant(self.seed, tf.int64) + number)

    @property
    def _shuffle_buffer(self) -> int:
        wanted = self.options.input.shuffle
        assert wanted != "off"
        return min(wanted, self.source.train.samples)

    def _prepared(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        """Float32 (or token) batches; batches that are already prepared pass without a further stage."""
        return batches if self._ready else self._mapped(batches, self._prepare)

    @functools.cached_property
    def _ready(self) -> bool:
        """Whether batches already have the form that the model takes."""
        x, _ = self._loaded(self.source.train.elements).element_spec
        ready = x.dtype == tf.float32 and self.source.scale == 1.0 and x.shape == self.source.shape
        return ready and self.options.workload.model != "transformer"

    def _prepare_augmented(self, position: Any, batch: Batch) -> Batch:
        x, y = self._floats(batch)
        return self._tokens(self._augmented(position, x)), y

    def _augmented(self, position: Any, x: Any) -> Any:
        """`position` holds the number of the pass and of the batch in it."""
        seed = tf.stack([tf.constant(self.seed, tf.int64) + position[0], position[1]])
        return augment(x, self.options.input.augment, seed)

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

    def _cache_file(self, folder: Path, name: str) -> str:
        """A cache file for these very samples: other data, another shape, split or seed get another file."""
        data = self.options.workload.model_dump_json(exclude={"model", "width", "blocks", "normalization"})
        train, reads = self.options.train, self.options.input.parallel_reads
        told = (data, train.validation, train.validation_split, reads, self.seed, self.source.stamp)
        digest = hashlib.sha256(repr(told).encode()).hexdigest()[:16]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise DataError(f"input.cache: {folder} cannot be created: {fault.strerror}") from None
        stem = folder / f"{digest}-{name}"
        if not stem.with_name(stem.name + ".index").exists():
            # A file that a killed run left half-written would look like that of a run that is still writing.
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
    """The number of tokens in one sample."""
    length = 1
    for size in shape:
        length *= size
    return length
