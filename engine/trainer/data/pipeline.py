"""From samples to batches: shuffle, load, cache, batch, augment, each as its option says. The stream is endless and
can start at any step: each pass is shuffled with a seed of its own, so that a resumed run continues with the very next
sample, without an iterator's state in the checkpoint. The pipeline joins the training data with the validation data.
"""

# mypy: disable-error-code="override"
# What some streams compute is a field of others.

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from ... import plan
from ...options import Options
from ...options.input import NEEDS_FLOATS
from ...options.own_code import Data
from ..common.training_errors import DataError
from . import batching, sources
from .batches import BY_ELEMENT, BY_ROW, ENDLESS, INDEPENDENT, NO_ARGUMENTS, FitArguments, Nature, Share, Stream
from .batching import Elements, Sizes
from .finishing import finish
from .sources import Part, Source, digits, keras_dataset, synthetic
from .stage_times import SOURCE, Stage

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
class Samples(Stream):
    """The samples of a source, gputui's own or made of a user's, as a stream: every option of the pipeline applies.
    Users' arrays in memory are shuffled completely, as in Keras: their indices are shuffled, and batches are gathered.
    """

    options: Options
    source: Source
    replicas: int
    seed: int
    share: Share | None = None  # of the data, if several machines train together
    role: str = "train"  # or `validation`, `test`
    kind: Data = "mapped"
    arrays: Any = None  # tensors, if samples can be gathered by index
    nature: Nature = INDEPENDENT
    images: bool = False  # x of a user's samples is images that input.augment can change

    def __post_init__(self) -> None:
        given, part = self.options.input, self.part
        self.batch_size = size = plan.global_batch(self.options, self.replicas)
        drop = given.drop_remainder and self.role == "train"
        self._per_pass = plan.batches_per_pass(part.samples, size, self.replicas, drop)
        self.smaller_last_batch = plan.smaller_last_batch(part.samples, size, self._per_pass)
        ends = part.samples != ENDLESS
        self.samples, self.batches = (part.samples, self._per_pass) if ends else (None, None)
        self.begins_anew = ends and given.cache == "off"
        self.as_in_fit = not self.source.classes
        self.device_scale = self.source.scale if self.source.bytes and self.options.bytes_to_device else None
        # A single batch that is repeated needs no cache.
        self._caches = given.cache != "off" and not given.one_batch
        # It differs between workers, so that each changes its rows in its own way.
        self._augment_seed = self.seed + SEEDS_APART * self.share.index if self.share else self.seed

    @property
    def part(self) -> Part:
        part: Part = getattr(self.source, self.role)
        return part

    @property
    def follows(self) -> str:
        return "" if self.options.input.across_epochs is True else self.nature.depends

    @property
    def inapplicable(self) -> dict[str, str]:
        if not self.source.bytes:
            return {"input.cast": "the data are not bytes (uint8)"}
        if self.options.workload.model == "transformer":
            return {"input.cast": "the transformer's tokens are created on the host"}
        return {} if self.options.input.only_moves else {"input.cast": NEEDS_FLOATS}

    @property
    def sample_bytes(self) -> int | None:
        return 4 * math.prod(self.source.shape) if self.source.classes else super().sample_bytes

    @functools.cached_property
    def spec(self) -> Any:
        batches = self.global_batches(0)
        if not tf.distribute.has_strategy():  # what is made in its scope is not for the training, which begins outside
            vars(self)["_for_training"] = batches
        return batches.element_spec

    def find_fault(self) -> None:
        self.source.find_fault()

    def global_batches(self, first_step: int) -> tf.data.Dataset:
        # The batches that were made for `spec` are those of the first training: the pipeline is not traced again.
        made = vars(self).pop("_for_training", None)
        if made is not None and not first_step:
            return made
        source, sizes = self.source, Sizes(self.batch_size, self._per_pass, self.seed)
        vary = source.vary if self.role == "train" else None
        whole = self.kind == "arrays"
        data = Elements(self.part.elements, self.part.samples, source.load, vary, self.arrays, whole)
        augments = self.options.input.augment != "off"
        if self.role == "train":
            first_pass, skipped = divmod(first_step, self._per_pass)
            batches = batching.training_batches(
                data, sizes, self._cache_file, augments, first_pass, skipped, self.share, self.options
            )
        else:
            augments = False
            batches = batching.validation_batches(data, sizes, self._cache_file, self.share, self.options).repeat()
        if not source.classes:
            return batching.augmented_batches(batches, self._augment_seed, self.options) if augments else batches
        if augments:
            scale, shape, seed = source.scale, source.shape, self._augment_seed
            return batching.prepared_and_augmented(batches, scale, shape, seed, self.options)
        return batches if self._ready else batching.prepared(batches, source.scale, source.shape, self.options)

    @functools.cached_property
    def _ready(self) -> bool:
        if not self.source.classes:
            return True
        x, _ = batching.loaded(self.source.train.elements, self.source.load, self.options).element_spec
        made = self.device_scale is not None or (x.dtype == tf.float32 and self.source.scale == 1.0)
        return made and x.shape == self.source.shape and self.options.workload.model != "transformer"

    def stages(self) -> tuple[Stage, ...]:
        given = self.options.input
        cached, augmented, varied = self._caches, given.augment != "off", self.source.vary is not None
        load = Stage("load", "Map") if self.source.load else None
        prepared = Stage("augment" if augmented else "prepare", "Map")
        drawn = self.arrays is not None and given.shuffle != "off" and not cached  # arrays, by number
        whole = drawn and not load and not varied  # no function changes single samples
        shuffle = Stage("shuffle", "Batch" if whole else "Map" if drawn else "Shuffle")
        stages = (
            Stage(SOURCE, ""),
            load if cached else None,
            Stage("cache", "Cache") if cached else None,
            shuffle if given.shuffle != "off" else None,
            None if cached else load,
            Stage("augment", "Map") if varied else None,
            Stage("batch", "Map" if whole else "Batch"),
            Stage("pass", "Map") if augmented else None,  # numbers the batches
            Stage("pass", "FlatMap"),
            prepared if augmented or not self._ready else None,
        )
        return tuple(stage for stage in stages if stage is not None)

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


@dataclass(eq=False)
class Pipeline:
    """Endless training and validation batches for `replicas` over all machines. Counts are None if they are unknown."""

    options: Options
    replicas: int
    train: Stream
    held_out: Stream | None
    share: Share | None = None  # of the data, if several machines train together
    fit: FitArguments = NO_ARGUMENTS
    weighed: Callable[[tf.data.Dataset], tf.data.Dataset] = lambda batches: batches  # with those of `class_weight`
    test: Stream | None = None  # evaluated once, when the training has ended
    ends_by_a_step: bool = False  # as in Keras' fit, a step without a batch follows the last one of an epoch

    def __post_init__(self) -> None:
        train, held_out = self.train, self.held_out
        batches = train.batches or self.options.train.steps_per_epoch
        assert batches is not None, "refused when the data was opened"
        self.batches_per_pass = batches
        counts = (0,) if held_out is None else (held_out.batches, self.fit.validation_steps)
        self.validation_batches = min(count for count in counts if count is not None)
        self.streams = [train] if held_out is None else [train, held_out]
        self.global_batch_size, self.smaller_last_batch = train.batch_size, train.smaller_last_batch
        self.train_samples, self.validation_samples = train.samples, held_out.samples if held_out is not None else 0
        self.replicas_here = self.replicas if self.share is None else self.replicas // self.share.workers
        by = BY_ELEMENT if isinstance(train, Samples) else BY_ROW
        self.sharing = "" if self.share is None else by  # how the data is shared out among machines
        self.full_batch = min(train.batch_size, train.samples or train.batch_size)  # the largest one

    # ---- what happens around the steps of a training ----------------------------------------------

    def find_fault(self) -> None:
        for stream in (*self.streams, self.test):
            if stream is not None:
                stream.find_fault()

    def place(self, step: int) -> Any:
        # What functions of a tf.data.Dataset change is known only if its batches are made for the epoch of the step.
        trained = self.train.place(step) if self.apart or not self.train.nature.writes else None
        if self.held_out is not None and self.held_out.kind == "pydataset":
            return {"train": trained, "validation": self.held_out.place(step)}
        return trained

    def go_to(self, place: Any) -> None:
        places = place if isinstance(place, dict) and "validation" in place else {"train": place}
        for role, stream in zip(("train", "validation"), self.streams, strict=False):
            if places.get(role) is not None:
                stream.go_to(places[role])

    def evaluation_begins(self, before: int) -> None:
        """`before` is the number of epochs before."""
        if self.held_out is not None:
            epochs = range(self.fit.initial_epoch, before)
            self.held_out.evaluation_begins(sum(map(self.fit.evaluates_after, epochs)))

    def close(self) -> None:
        for stream in self.streams:
            stream.close()

    # ---- whether batches are made ahead of their epoch --------------------------------------------

    def _depends(self, stream: Stream) -> str:
        across = self.options.input.across_epochs
        if across == "auto" or not stream.as_in_fit:
            return stream.nature.depends
        return "" if across else "input.across_epochs is false"

    @functools.cached_property
    def held_back(self) -> str:
        """Why the batches of an epoch are made only when it begins. Empty if they are not."""
        return "" if self.options.input.one_batch else self._depends(self.train)

    @functools.cached_property
    def follows(self) -> str:
        return next(filter(None, (stream.follows for stream in self.streams)), "")

    @functools.cached_property
    def apart(self) -> bool:
        """`stream` ends with the epoch: each has an iterator of its own, with which draws of tf.random begin again."""
        across, one_batch = self.options.input.across_epochs, self.options.input.one_batch
        draws = across is False or (across == "auto" and self.train.draws)
        anew = self.ends_by_a_step or bool(self.held_back) or (draws and not one_batch)
        return anew and self.train.begins_anew

    @functools.cached_property
    def on_demand(self) -> bool:
        return bool(self.held_back) and self.train.at_their_step

    # ---- batches ----------------------------------------------------------------------------------

    @functools.cached_property
    def spec(self) -> Any:
        """The types and shapes of a training batch, with the weights of `class_weight`."""
        if self.fit.class_weight is None:
            return self.train.spec
        return self.weighed(self.train.global_batches(0)).element_spec

    @property
    def batch_spec(self) -> Any:
        """The type of an element of `stream`."""
        return self._finished(self.weighed(self.train.global_batches(0)), self.train, "").element_spec

    def stream(self, first_step: int = 0) -> tf.data.Dataset:
        """Yield batches from `first_step` on, without an end, or to the end of the epoch if epochs are `apart`."""
        epoch = plan.steps_per_epoch(self.options.train, self.batches_per_pass)
        done = first_step % epoch
        if self.apart or (done and self.train.ends_with_begun_epoch):
            batches = self.train.of_epoch(first_step, epoch - done)
        else:
            batches = self.train.global_batches(first_step)
        return self._finished(self.weighed(batches), self.train, self.held_back, trains=True)

    def evaluated(self, stream: Stream, count: int) -> tf.data.Dataset:
        """The first `count` batches of `held_out` or `test`, always the same: without an end, or one pass if they may
        depend on the training.
        """
        depends = self._depends(stream)
        return self._finished(stream.of_evaluation(count, bool(depends)), stream, depends)

    def validation(self) -> tf.data.Dataset:
        assert self.held_out is not None
        return self.evaluated(self.held_out, self.validation_batches)

    def _finished(self, batches: tf.data.Dataset, stream: Stream, held_back: str, trains: bool = False) -> Any:
        # `held_back`: as Keras' fit makes them, which is at their step for a tf.data.Dataset
        options = self.options.with_values({"input.prefetch": "auto"}) if held_back else self.options
        if self.share is not None and not isinstance(stream, Samples):  # that has only this worker's rows already
            batches = self.share.batches(batches)
        return finish(batches, options, self.replicas_here, trains, bool(held_back) and stream.at_their_step)

    def stages(self) -> tuple[Stage, ...]:
        given, here = self.options.input, self.replicas_here
        ends = (
            Stage("split", "FlatMap", splits=here) if here > 1 else None,
            Stage("one batch", "Cache") if given.one_batch else None,
            Stage("prefetch", "Prefetch") if given.prefetch != "off" else None,
        )
        stages = self.train.stages()
        return (*stages, *(stage for stage in ends if stage is not None)) if stages else ()


def build(options: Options, replicas: int, share: Share | None = None) -> Pipeline:
    """Return the pipeline for all `replicas`. Raises DataError, also if the data does not fill one global batch."""
    assert options.train.seed is not None, "the launcher draws a seed"
    kind = options.workload.source[0]
    source = SOURCES[kind](options, options.train.seed)
    train, held_out = (
        Samples(options, source, replicas, options.train.seed, share, role) for role in ("train", "validation")
    )
    test = None
    if source.test is not None and options.run.measure_seconds is None:
        uncached = options.with_values({"input.cache": "off"})
        test = Samples(uncached, source, replicas, options.train.seed, share, "test")
    if not train.batches:
        what = f"{source.train.samples} training samples do not fill one global batch of {train.batch_size}"
        raise DataError(what, "lower input.batch_size, or set input.drop_remainder=false")
    return Pipeline(options, replicas, train, held_out if held_out.samples else None, share, test=test)
