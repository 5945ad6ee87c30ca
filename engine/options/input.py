"""The group `input`: how the data reaches the model, such as the batch size, shuffling, cache, prefetch and
augmentation.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from .catalogue import Group, Limits, off_if_false, option

Count = Annotated[int, Limits(ge=1, le=1_000_000_000)]
# A copy is queued behind the running step and ends after it. With a second batch the next step need not wait.
DEVICE_BATCHES = 2
# The changes of images in each word of input.augment, in the order in which they are made.
MOVED = ("flip", "shift")  # they only move pixels, so that bytes stay bytes
AUGMENTATIONS = {"off": (), "light": MOVED, "heavy": (*MOVED, "contrast", "brightness", "noise", "blur")}
NEEDS_FLOATS = "augmentation other than flip and shift needs floats on the host"
Augmentation = Literal["flip", "shift", "contrast", "brightness", "noise", "blur"]
AUGMENTATION_LIST = Limits("a list of flip, shift, contrast, brightness, noise and blur", min_length=1)


def _comma_list(value: Any) -> Any:
    if isinstance(value, str) and value not in AUGMENTATIONS:
        return [part.strip() for part in value.split(",")]
    return value


@dataclass(frozen=True)
class Input(Group):
    """How the data reaches the model: the tf.data pipeline."""

    batch_size: int = option(
        64,
        "samples in one step, on each replica; the global batch is this times the replicas",
        call="Dataset.batch",
        helps="a larger batch fills the GPU and spreads per-step overhead over more samples",
        hurts="takes more memory, and changes what is learnt at the same learning rate",
        unit="samples",
        ge=1,
        le=10_000_000,
        essential=5,
        own="pipeline",
        learning="the batch size changes what is learnt at the same learning rate",
        other_names="bs batch train_batch_size per_device_train_batch_size",
    )
    shuffle: Literal["off"] | Count = option(
        1024,
        "size of the shuffle buffer, or off",
        call="Dataset.shuffle",
        helps="a buffer as large as the data set shuffles it completely; arrays of your own code are shuffled "
        "completely by any number",
        hurts="keeps this many samples in host memory, and fills the buffer before the first step",
        unit="samples",
        own="order",
        learning="the order of the samples changes",
        other_names="shuffle_buffer buffer_size shuffle_size",
    )
    parallel_calls: Literal["off", "auto"] | Annotated[int, Limits(ge=1, le=1024)] = option(
        "auto",
        "how many samples or batches are prepared at once, ahead of the training: off (one), auto or a number",
        call="Dataset.map(num_parallel_calls=)",
        helps="the first remedy if the training waits for its input",
        hurts="takes CPU from other work; on few cores, off can be as fast",
        own="workers",
        other_names="workers num_workers n_workers autotune num_parallel_calls dataloader_num_workers loader",
    )
    cache: str = option(
        "off",
        "keep the decoded samples: off, memory, or a folder on a fast disk; a relative path in a preset is relative "
        "to the preset's folder",
        call="Dataset.cache",
        helps="from the second epoch on, no sample is read or decoded again",
        hurts="memory: the whole decoded data set stays in host memory",
        min_length=1,
        essential=13,
        own="cached",
        reads=off_if_false,
    )
    prefetch: Literal["off", "auto"] | Annotated[int, Limits(ge=1, le=1024)] = option(
        "auto",
        "batches that are prepared in advance, while the model trains: off (none), auto or a number",
        call="Dataset.prefetch",
        helps="input and training overlap",
        hurts="keeps this many batches in host memory",
        unit="batches",
        essential=14,
        own="prefetch",
        other_names="prefetch_factor prefetch_size buffer prefetch_buffer",
    )
    across_epochs: Literal["auto"] | bool = option(
        "auto",
        "batches of the next epoch are made before it begins; auto: unless data of your code may depend on the "
        "training (they read a variable, or Python code makes them)",
        call="an iterator for each epoch",
        helps="an epoch begins without a wait for its first batch",
        hurts="true: what a callback sets at the begin of an epoch reaches the data too late, other than in Keras' fit",
        own="across",
        learning="data that depend on the training may get older values",
        not_exported="a script reads as Keras' fit does",
        other_names="read_ahead persistent_workers epoch_boundary curriculum stale",
    )
    prefetch_to_device: Literal["off", "auto"] | Annotated[int, Limits(ge=1, le=4)] = option(
        "auto",
        "batches copied in advance into the memory of each GPU: off (each step waits for the copy of its batch), auto "
        "(2, or none if input.prefetch is off) or a number",
        call="tf.data.experimental.prefetch_to_device, tf.distribute.InputOptions",
        helps="the copy over the bus overlaps with computing",
        hurts="keeps this many batches in the memory of each GPU",
        unit="batches",
        gpu_only=True,
        own="device",
        other_names="device_prefetch copy_to_device pin_memory non_blocking",
    )
    cast: Literal["host", "device"] = option(
        "host",
        "where uint8 images are converted to float32: on the host, in the pipeline, or on the device, at the start of "
        "each step",
        call="tf.cast",
        helps="device: only a quarter of the bytes is copied to the GPU, and the host has less work",
        hurts="device has no effect on data other than uint8, on tokens, or if input.augment does more than flip and "
        "shift",
        own="unread",
        other_names="uint8 rescale rescaling normalize_on_device cast_on_device",
    )
    augment: Literal["off", "light", "heavy"] | Annotated[list[Augmentation], AUGMENTATION_LIST] = option(
        "off",
        "random changes of the images, made on the CPU inside the pipeline: light (flip, shift), heavy (also contrast, "
        "brightness, noise and blur), or a list of single ones, such as flip,brightness",
        call="Dataset.map",
        helps="less overfitting",
        hurts="heavy takes so much CPU time that the training may wait for its input",
        own="images",
        examples=("flip", "shift", "flip,brightness"),
        learning="the samples themselves change",
        other_names="aug augmentation data_augmentation augmentations",
        reads=_comma_list,
        checks=lambda value: isinstance(value, str) or len(set(value)) == len(value),
    )
    drop_remainder: bool = option(
        False,
        "leave out the last, smaller batch of each epoch, so that every step has the same shape",
        call="Dataset.batch(drop_remainder=)",
        helps="XLA compiles once instead of twice",
        hurts="up to batch_size - 1 samples of each epoch are not used",
        own="pipeline",
        learning="samples that do not fill a batch are left out of each pass",
        other_names="drop_last",
    )
    parallel_reads: Literal["off", "auto"] | Annotated[int, Limits(ge=1, le=1024)] = option(
        "off",
        "how many TFRecord files are read at once, one record of each in turn: off (one file after the other), auto "
        "(all, at most 16) or a number",
        call="Dataset.interleave(num_parallel_calls=)",
        helps="many files on a network file system or a slow disk; it also mixes the files, which helps a small "
        "shuffle buffer",
        hurts="the order of the records is another one, but the same each time",
        unit="files",
        own="unread",
        learning="the order of the samples changes",
        not_exported="only tfrecord data is read in this way",
        other_names="interleave num_parallel_reads",
    )
    deterministic_order: bool = option(
        True,
        "samples keep their order although they are prepared in parallel",
        call="tf.data.Options.deterministic",
        helps="the same seed gives the same order; resuming is exact",
        hurts="a slow sample delays the samples after it",
    )
    private_threads: Literal["auto"] | Annotated[int, Limits(ge=1, le=1024)] = option(
        "auto",
        "threads of a pool that only the pipeline uses; auto: it shares the pool of TensorFlow",
        call="tf.data.Options.threading.private_threadpool_size",
        helps="the pipeline and kernel launches do not take each other's threads",
        hurts="with too few, the training waits for its input",
        unit="threads",
        other_names="threadpool private_threadpool_size",
    )
    one_batch: bool = option(
        False,
        "train on one batch again and again, which is prepared once: the speed if the input costs nothing",
        call="Dataset.take(1).cache().repeat()",
        helps="compared with the speed without it, this shows what the input costs",
        hurts="the model learns nothing useful",
        learning="only one batch is learnt",
        other_names="overfit_batch overfit_one_batch",
    )

    @property
    def device_batches(self) -> int:
        """Copied in advance into the memory of each GPU, with `auto` resolved; 0 for off."""
        ahead = self.prefetch_to_device
        if isinstance(ahead, int):
            return ahead
        return DEVICE_BATCHES if ahead == "auto" and self.prefetch != "off" else 0

    @property
    def augmentations(self) -> tuple[str, ...]:
        """The random changes of the images that `augment` names, in the order in which they are made."""
        given = self.augment
        if isinstance(given, str):
            return AUGMENTATIONS[given]
        return tuple(name for name in AUGMENTATIONS["heavy"] if name in given)

    @property
    def only_moves(self) -> bool:
        """True if no augmentation changes the values of pixels, so that images may still be bytes."""
        return set(self.augmentations) <= set(MOVED)


def too_large_batch(batch: int, samples: int, replicas: int) -> tuple[str, str]:
    """Return the warning about a global batch that is larger than the data, and what to do about it."""
    each = max(1, min(32, samples // replicas // 4))
    return (
        f"a batch of {batch:,} samples is larger than the data: each step trains on all {samples:,}",
        f"set input.batch_size to a part of them, such as {each}",
    )
