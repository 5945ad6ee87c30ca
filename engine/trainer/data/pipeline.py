"""From a source to batches: shuffle, load, cache, batch, augment, prefetch, each as its option says. The stream is
endless and can start at any step: each pass is shuffled with a seed of its own, so that a resumed run continues with
the very next sample, without an iterator's state in the checkpoint.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from ... import plan
from ...options import Options
from ...options.input import NEEDS_FLOATS
from ..common.training_errors import DataError
from . import batching, sources
from .batches import BY_ELEMENT, Batches, Share
from .batching import Elements, Sizes
from .finishing import finish
from .sources import Source, digits, keras_dataset, synthetic
from .stages import SOURCE, Stage

SOURCES = {
    "digits": digits,
    "synthetic": synthetic,
    "mnist": keras_dataset,
    "fashion_mnist": keras_dataset,
    "cifar10": keras_dataset,
    "npz": sources.npz,
    "images": sources.images,
    "tfrecord": sources.tfrecord,
}


SEEDS_APART = 1_000_003  # between the seeds of two workers


@dataclass(eq=False)
class Pipeline(Batches):
    """Training and validation batches of gputui's own data, for `replicas` over all machines."""

    options: Options
    source: Source
    replicas: int
    seed: int
    share: Share | None = None  # of the data, if several machines train together

    def __post_init__(self) -> None:
        source, given, train = self.source, self.options.input, self.source.train.samples
        self.train_samples, self.validation_samples = train, source.validation.samples
        self.global_batch_size = size = plan.global_batch(self.options, self.replicas)
        self.batches_per_pass = plan.batches_per_pass(train, size, self.replicas, given.drop_remainder)
        self.validation_batches = plan.batches_per_pass(source.validation.samples, size, self.replicas)
        self.smaller_last_batch = plan.smaller_last_batch(train, size, self.batches_per_pass)
        self.sharing = BY_ELEMENT if self.share else ""
        self.sample_bytes = 4 * math.prod(source.shape)
        self.device_scale = source.scale if source.bytes and self.options.bytes_to_device else None
        self.apart = given.across_epochs is False and given.cache == "off" and not given.one_batch
        # A single batch that is repeated needs no cache.
        self._caches = given.cache != "off" and not given.one_batch
        # It differs between workers, so that each changes its rows in its own way.
        self._augment_seed = self.seed + SEEDS_APART * self.share.index if self.share else self.seed

    @property
    def inapplicable(self) -> dict[str, str]:
        if not self.source.bytes:
            return {"input.cast": "the data are not bytes (uint8)"}
        if self.options.workload.model == "transformer":
            return {"input.cast": "the transformer's tokens are created on the host"}
        given = self.options.input
        return {} if given.only_moves else {"input.cast": NEEDS_FLOATS}

    def not_applied(self, options: Options) -> list[dict[str, str]]:
        why = self.inapplicable.get("input.cast")
        return [{"option": "input.cast", "why": why}] if why and options.input.cast == "device" else []

    def find_fault(self) -> None:
        self.source.find_fault()

    @property
    def batch_spec(self) -> Any:
        return self.stream().element_spec

    def stream(self, first_step: int = 0) -> tf.data.Dataset:
        """Yield batches from `first_step` on, without an end, or to the end of the epoch if epochs are `apart`."""
        batches = self.global_batches(first_step)
        if self.apart:
            epoch = plan.steps_per_epoch(self.options.train, self.batches_per_pass)
            batches = batches.take(epoch - first_step % epoch)
        return finish(batches, self.options, self.replicas_here, trains=True)

    def global_batches(self, first_step: int) -> tf.data.Dataset:
        """Return the endless training batches from `first_step` on, before `stream` splits and prefetches them."""
        first_pass, skipped = divmod(first_step, self.batches_per_pass)
        augments = self.options.input.augment != "off"
        batches = batching.training_batches(
            self._elements, self._sizes(self.batches_per_pass), self._cache_file, augments, first_pass, skipped,
            self.share, self.options,
        )  # fmt: skip
        return self._augmented(batches) if augments else self._prepared(batches)

    @property
    def _elements(self) -> Elements:
        train = self.source.train
        return Elements(train.elements, train.samples, self.source.load, self.source.vary)

    def _sizes(self, batches: int) -> Sizes:
        return Sizes(self.global_batch_size, batches, self.seed)

    def stages(self) -> tuple[Stage, ...]:
        given = self.options.input
        cached, augmented = self._caches, given.augment != "off"
        load = Stage("load", "Map") if self.source.load else None
        prepared = Stage("augment" if augmented else "prepare", "Map")
        stages = (
            Stage(SOURCE, ""),
            load if cached else None,
            Stage("cache", "Cache") if cached else None,
            Stage("shuffle", "Shuffle") if given.shuffle != "off" else None,
            None if cached else load,
            Stage("augment", "Map") if self.source.vary else None,
            Stage("batch", "Batch"),
            Stage("pass", "Map") if augmented else None,  # numbers the batches
            Stage("pass", "FlatMap"),
            prepared if augmented or not self._ready else None,
            Stage("split", "FlatMap", splits=self.replicas_here) if self.replicas_here > 1 else None,
            Stage("one batch", "Cache") if given.one_batch else None,
            Stage("prefetch", "Prefetch") if given.prefetch != "off" else None,
        )
        return tuple(stage for stage in stages if stage is not None)

    def validation(self) -> tf.data.Dataset:
        """Return endless validation batches in a fixed order. One pass has `validation_batches` of them."""
        return finish(self.global_validation_batches(), self.options, self.replicas_here)

    def global_validation_batches(self) -> tf.data.Dataset:
        """Return the validation batches before `validation` splits and prefetches them."""
        part = self.source.validation
        elements = Elements(part.elements, part.samples, self.source.load)
        sizes = self._sizes(self.validation_batches)
        batches = batching.validation_batches(elements, sizes, self._cache_file, self.share, self.options)
        return self._prepared(batches.repeat())

    def _prepared(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        if self._ready:
            return batches
        return batching.prepared(batches, self.source.scale, self.source.shape, self.options)

    def _augmented(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        return batching.prepared_and_augmented(
            batches, self.source.scale, self.source.shape, self._augment_seed, self.options
        )

    @functools.cached_property
    def _ready(self) -> bool:
        x, _ = batching.loaded(self.source.train.elements, self.source.load, self.options).element_spec
        made = self.device_scale is not None or (x.dtype == tf.float32 and self.source.scale == 1.0)
        return made and x.shape == self.source.shape and self.options.workload.model != "transformer"

    def _cache_file(self, name: str) -> str:
        """Return the cache file's path: other data, shape, split or seed have another. Raises DataError."""
        folder = Path(self.options.input.cache)
        model = ("model", "width", "blocks", "normalization", "kernel_size", "stride", "separable")
        data = {name: value for name, value in asdict(self.options.workload).items() if name not in model}
        train, reads = self.options.train, self.options.input.parallel_reads
        identity = (data, train.validation, train.validation_split, reads, self.seed, self.source.stamp)
        digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise DataError(f"input.cache: {folder} cannot be created: {fault.strerror}") from None
        # Workers may share a folder, and each writes its own file.
        of_worker = f"-{self.share.index}-of-{self.share.workers}" if self.share else ""
        stem = folder / f"{digest}-{name}{of_worker}"
        if not stem.with_name(stem.name + ".index").exists():
            # A file that a killed run left half-written would look like that of a run that is still writing.
            for stale in folder.glob(f"{stem.name}_*"):
                with contextlib.suppress(OSError):
                    os.unlink(stale)
        return str(stem)


def build(options: Options, replicas: int, share: Share | None = None) -> Pipeline:
    """Return the pipeline for all `replicas`. Raises DataError, also if the data does not fill one global batch."""
    assert options.train.seed is not None, "the launcher draws a seed"
    kind = options.workload.source[0]
    source = SOURCES[kind](options, options.train.seed)
    pipeline = Pipeline(options, source, replicas, options.train.seed, share)
    if pipeline.batches_per_pass < 1:
        what = f"{source.train.samples} training samples do not fill one global batch of {pipeline.global_batch_size}"
        raise DataError(what, "lower input.batch_size, or set input.drop_remainder=false")
    return pipeline
