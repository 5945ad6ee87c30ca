"""What is trained on which data (`workload`), and how the data reaches the model (`input`)."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from .field import Group, option

PATH_SOURCES = ("npz", "images", "tfrecord")
NAMED_SOURCES = ("digits", "synthetic", "mnist", "fashion_mnist", "cifar10")
TESTED_SOURCES = ("mnist", "fashion_mnist", "cifar10", "npz")  # that can bring a test part
# What stands before the last colon is a file or a module.
ENTRY = re.compile(r"(?P<place>.+\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*)")
BLOCKS = 2  # of the transformer, where no number is given
# What the models are known with.
NORMALIZATION = {"mlp": "none", "cnn": "none", "separable_cnn": "batch", "resnet50": "batch", "transformer": "layer"}
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
BYTE_ENCODINGS = ("encoded", "uint8")  # of tfrecord data
# A copy is queued behind the running step and ends after it. With a second batch the next step need not wait.
DEVICE_BATCHES = 2


def _is_plain(value: Any) -> bool:
    """Text, numbers, truth values, null, and lists and mappings of them: what YAML and JSON both know."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(key) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    if isinstance(value, str):
        return all(ord(character) >= 32 for character in value)
    return value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


class Workload(Group):
    """What is trained on which data."""

    model: Literal["mlp", "cnn", "separable_cnn", "resnet50", "transformer"] = option(
        "cnn",
        "the model that is trained",
        call="keras.Model",
        helps="mlp shows per-step overhead, resnet50 fills a GPU, transformer reads inputs as tokens",
        own="replaced",
    )
    width: float = option(
        1.0,
        "factor on every layer's width, so that a smaller sibling can be compared",
        helps="below 1 to try a change quickly; compare runs of two widths",
        hurts="memory and time grow about with its square",
        ge=0.05,
        le=16.0,
        own="replaced",
    )
    data: str = option(
        "digits",
        "digits, synthetic, mnist, fashion_mnist, cifar10, npz:PATH, images:DIR or tfrecord:GLOB; a path in a preset "
        "counts from the preset's folder, a typed one from the current folder",
        call="tf.data.Dataset",
        helps="digits ships with gputui; synthetic is made on the fly and takes no memory",
        hurts="synthetic costs CPU time for each sample, so that it can hide or cause an input wait",
        own="replaced",
    )
    shape: list[Annotated[int, Field(ge=1, le=8192)]] = option(
        [32, 32, 3],
        "shape of one sample of synthetic and tfrecord data; images are resized to it",
        helps="[224, 224, 3] with resnet50 is what published speeds are measured with; small shapes make quick trials",
        hurts="memory, and the time to read or make a sample, grow with the number of its values",
        min_length=1,
        max_length=3,
        own="replaced",
    )
    classes: int = option(
        10,
        "number of classes of synthetic and tfrecord data",
        helps="labels are whole numbers from 0 to classes - 1: files whose labels count from 1 need one more",
        hurts="the last layer grows with it",
        ge=2,
        le=1_000_000,
        own="replaced",
    )
    samples: Count | None = option(
        None,
        "number of samples: of synthetic data (4096 if not given); of tfrecord data (counted if not given)",
        helps="saves the counting pass over large TFRecord files",
        own="replaced",
    )
    blocks: Annotated[int, Field(ge=1, le=96)] | None = option(
        None,
        "number of encoder blocks of the transformer; not given: 2. The other models have a fixed depth",
        helps="width=12 and blocks=14 make a transformer of 100 million parameters",
        hurts="memory and time grow with it",
        own="replaced",
    )
    normalization: Literal["auto", "batch", "layer", "none"] = option(
        "auto",
        "normalization between the layers of the model; auto: batch in separable_cnn and resnet50, layer in "
        "transformer, none in mlp and cnn",
        call="keras.layers.BatchNormalization, keras.layers.LayerNormalization",
        helps="compare runs with and without it: deep models learn faster with it, and bear higher learning rates",
        hurts="batch depends on the batch size: small batches make its statistics noisy",
        own="replaced",
    )
    tfrecord_input: str = option(
        "image",
        "name of the feature that holds the input",
        helps="files that call it otherwise, such as image/encoded in those of TensorFlow's ImageNet scripts",
        min_length=1,
        own="replaced",
    )
    tfrecord_label: str = option(
        "label",
        "name of the feature that holds the label",
        helps="files that call it otherwise, such as image/class/label in those of TensorFlow's ImageNet scripts",
        min_length=1,
        own="replaced",
    )
    tfrecord_encoding: Literal["encoded", "uint8", "float32", "float_list", "int64_list"] = option(
        "encoded",
        "how the input is stored: an encoded image (JPEG, PNG), raw bytes of a type, or a list",
        call="tf.io.parse_single_example",
        helps="raw bytes (uint8, float32) need no decoding: less CPU time for each sample",
        hurts="an encoded image costs CPU time in each epoch, unless input.cache keeps it decoded",
        own="replaced",
    )
    entry: str | None = option(
        None,
        "your own training instead of a model and data of gputui's: FILE.py:FUNCTION or package.module:FUNCTION",
        helps="everything else here then works for your Keras program",
        hurts="takes the place of model, data and their settings: those of an extended preset are dropped, those "
        "set beside it are refused",
    )
    args: dict[str, Any] = option(
        {},
        "plain values that the entry's function finds in context.args",
        helps="try a value of your own code from the command line: --set 'workload.args={units: 128}'",
    )
    folder: str | None = option(
        None,
        "folder that the entry is found from and runs in; not given: that of the preset's file that names the entry, "
        "or the current one where the entry was typed",
        helps="a preset that lies elsewhere than the code it names",
        min_length=1,
    )

    @field_validator("data", mode="before")
    @classmethod
    def _mapping_is_a_source(cls, value: Any) -> Any:
        """`data: {npz: PATH}` and `data: "npz: PATH"` are spellings of `npz:PATH`."""
        if isinstance(value, dict) and len(value) == 1:
            kind, place = next(iter(value.items()))
            return f"{kind}:{place}" if isinstance(place, str) else value
        if isinstance(value, str) and ":" in value:
            kind, place = value.split(":", 1)
            return f"{kind.strip()}:{place.strip()}"
        return value

    @field_validator("data")
    @classmethod
    def _known_source(cls, value: str) -> str:
        kind, _, place = value.partition(":")
        if value in NAMED_SOURCES or (kind in PATH_SOURCES and place):
            return value
        raise ValueError("unknown data source")

    @field_validator("entry")
    @classmethod
    def _names_a_function(cls, value: str | None) -> str | None:
        if value is None or ENTRY.fullmatch(value):
            return value
        raise ValueError("not FILE.py:FUNCTION")

    @field_validator("args", mode="before")
    @classmethod
    def _nothing_is_no_args(cls, value: Any) -> Any:
        return {} if value is None else value

    @field_validator("args")
    @classmethod
    def _plain_values(cls, value: dict[str, Any]) -> dict[str, Any]:
        if _is_plain(value):
            return value
        raise ValueError("not plain")

    @property
    def normalization_of_model(self) -> str:
        """`batch`, `layer` or `none`."""
        return NORMALIZATION[self.model] if self.normalization == "auto" else self.normalization

    @property
    def source(self) -> tuple[str, str]:
        """The kind of data and its path, the path empty for data that has a name only."""
        kind, _, place = self.data.partition(":")
        return kind, place


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
        own="pipeline",
    )
    shuffle: Literal["off"] | Count = option(
        1024,
        "size of the shuffle buffer, or off",
        call="Dataset.shuffle",
        helps="as large as the data set for a full shuffle; arrays of your own code are shuffled whole by any number",
        hurts="holds that many samples in host memory, and fills the buffer before the first step",
        unit="samples",
        own="order",
    )
    parallel_calls: Literal["off", "auto"] | Annotated[int, Field(ge=1, le=1024)] = option(
        "auto",
        "how many samples or batches are prepared at once, ahead of the training: off (one), auto or a number",
        call="Dataset.map(num_parallel_calls=)",
        helps="the first remedy where the training waits for its input",
        hurts="takes CPU from other work; on few cores, off can be as fast",
        own="workers",
    )
    cache: str = option(
        "off",
        "keep the decoded samples: off, memory, or a folder on a fast disk (in a preset, from the preset's folder)",
        call="Dataset.cache",
        helps="from the second epoch on nothing is read or decoded again",
        hurts="memory: the whole decoded data set stays in host memory",
        min_length=1,
        own="pipeline",
    )
    prefetch: Literal["off", "auto"] | Annotated[int, Field(ge=1, le=1024)] = option(
        "auto",
        "batches prepared ahead while the model trains: off (truly none), auto or a number",
        call="Dataset.prefetch",
        helps="input and training overlap",
        hurts="holds that many batches in host memory",
        unit="batches",
        own="prefetch",
    )
    prefetch_to_device: Literal["off", "auto"] | Annotated[int, Field(ge=1, le=4)] = option(
        "auto",
        "batches copied in advance into the memory of each GPU: off (each step waits for the copy of its batch), auto "
        "(2, or none if input.prefetch is off) or a number",
        call="tf.data.experimental.prefetch_to_device, tf.distribute.InputOptions",
        helps="the copy over the bus overlaps with computing",
        hurts="holds that many batches in the memory of each GPU",
        unit="batches",
        gpu_only=True,
        own="device",
    )
    cast: Literal["host", "device"] = option(
        "host",
        "where uint8 images are converted to float32: on the host, in the pipeline, or on the device, at the start of "
        "each step",
        call="tf.cast",
        helps="device: only a quarter of the bytes is copied to the GPU, and the host has less work",
        hurts="nothing; device has no effect on data other than uint8, on tokens, or with augment=heavy",
        own="unread",
    )
    augment: Literal["off", "light", "heavy"] = option(
        "off",
        "random changes of the images, made on the CPU inside the pipeline: light (flip, shift), "
        "heavy (also brightness, contrast, noise and blur)",
        call="Dataset.map",
        helps="less overfitting",
        hurts="heavy costs CPU time enough to make the training wait for its input",
        own="images",
    )
    drop_remainder: bool = option(
        False,
        "leave out the last, smaller batch of each epoch, so that every step has the same shape",
        call="Dataset.batch(drop_remainder=)",
        helps="XLA compiles once instead of twice",
        hurts="up to batch_size - 1 samples of each epoch are not used",
        own="pipeline",
    )
    parallel_reads: Literal["off", "auto"] | Annotated[int, Field(ge=1, le=1024)] = option(
        "off",
        "how many TFRecord files are read at once, one record of each in turn: off (one file after the other), auto "
        "(all, at most 16) or a number",
        call="Dataset.interleave(num_parallel_calls=)",
        helps="many files on a network file system or a slow disk; it also mixes the files, which helps a small "
        "shuffle buffer",
        hurts="the records come in another order; the order is the same each time",
        unit="files",
        own="unread",
    )
    deterministic_order: bool = option(
        True,
        "samples keep their order although they are prepared in parallel",
        call="tf.data.Options.deterministic",
        helps="the same seed gives the same order; resuming is exact",
        hurts="one slow sample holds up those behind it",
    )
    private_threads: Literal["auto"] | Annotated[int, Field(ge=1, le=1024)] = option(
        "auto",
        "threads of the pipeline's own pool; auto: the pool is shared with the rest of TensorFlow",
        call="tf.data.Options.threading.private_threadpool_size",
        helps="keeps the pipeline from starving the kernel launches, or the other way round",
        hurts="too few and the training waits for its input",
        unit="threads",
    )
    one_batch: bool = option(
        False,
        "train on one batch again and again, prepared once: how fast the training were if its input cost nothing",
        call="Dataset.take(1).cache().repeat()",
        helps="the speed against the same without it shows what the input costs",
        hurts="nothing useful is learnt",
    )

    @property
    def device_batches(self) -> int:
        """How many batches are to be copied ahead into the memory of each GPU, `auto` resolved."""
        wanted = self.prefetch_to_device
        if isinstance(wanted, int):
            return wanted
        return DEVICE_BATCHES if wanted == "auto" and self.prefetch != "off" else 0

    @field_validator("cache", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: Any) -> Any:
        return "off" if value is False else value
