"""What is trained on which data: the group `workload`."""

import contextlib
import math
import re
import shlex
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from .catalogue import Group, Limits, option

PATH_SOURCES = ("npz", "images", "tfrecord")
NAMED_SOURCES = ("digits", "synthetic", "mnist", "fashion_mnist", "cifar10")
TESTED_SOURCES = ("mnist", "fashion_mnist", "cifar10", "npz")  # sources that can have a test part
# What stands before the last colon is a file or a module. A file without a function is a script.
ENTRY = re.compile(r"(?P<place>.+\.py(?=:|$)|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?=:))(:(?P<function>[A-Za-z_]\w*))?")
BLOCKS = 2  # blocks of the transformer if no number is given
# What the models are known with.
NORMALIZATION = {"mlp": "none", "cnn": "none", "separable_cnn": "batch", "resnet50": "batch", "transformer": "layer"}
STRIDES = {"cnn": 1, "separable_cnn": 1, "resnet50": 2}  # of the first convolution; only these models have any
KERNEL_SIZE = 3
NO_CONVOLUTIONS = "only cnn, separable_cnn and resnet50 have convolutions"
# What the fit of a script decides, unless it is set.
LEFT_TO_FIT = ("train.epochs", "train.validation_split", "input.batch_size", "compile.steps_per_execution")
Count = Annotated[int, Limits(ge=1, le=1_000_000_000)]
BYTE_ENCODINGS = ("encoded", "uint8")  # of tfrecord data


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(key) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    if isinstance(value, str):
        return all(ord(character) >= 32 for character in value)
    return value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


def _mapping_is_a_source(value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1:
        kind, place = next(iter(value.items()))
        return f"{kind}:{place}" if isinstance(place, str) else value
    if isinstance(value, str) and ":" in value:
        kind, place = value.split(":", 1)
        return f"{kind.strip()}:{place.strip()}"
    return value


def _words(value: Any) -> Any:
    if isinstance(value, str):
        with contextlib.suppress(ValueError):  # an open quote
            return shlex.split(value)
    numbers = (int, float)
    return [str(word) if isinstance(word, numbers) else word for word in value] if isinstance(value, list) else value


def _is_source(value: str) -> bool:
    kind, _, place = value.partition(":")
    return value in NAMED_SOURCES or (kind in PATH_SOURCES and place != "")


@dataclass(frozen=True)
class Workload(Group):
    """What is trained on which data."""

    learning = "another model or other data is learnt"

    model: Literal["mlp", "cnn", "separable_cnn", "resnet50", "transformer"] = option(
        "cnn",
        "the model that is trained",
        call="keras.Model",
        helps="mlp shows per-step overhead, resnet50 fills a GPU, transformer reads inputs as tokens",
        essential=1,
        own="replaced",
        other_names="arch architecture network net backbone",
    )
    width: float = option(
        1.0,
        "factor of the width of every layer",
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
        helps="digits ships with gputui; synthetic is computed while it is read, and takes no memory",
        hurts="synthetic costs CPU time for each sample, which can hide or cause an input wait",
        essential=3,
        own="replaced",
        other_names="dataset data_dir train_data data_path",
        reads=_mapping_is_a_source,
        checks=_is_source,
    )
    shape: list[Annotated[int, Limits(ge=1, le=8192)]] = option(
        [32, 32, 3],
        "shape of one sample of synthetic and tfrecord data; images are resized to it",
        helps="[224, 224, 3] with resnet50 is the usual case of published speeds; small shapes make quick trials",
        hurts="memory, and the time to read or make a sample, grow with the number of its values",
        min_length=1,
        max_length=3,
        own="replaced",
        not_exported="only synthetic, images and tfrecord data take it",
        other_names="input_shape image_size img_size resolution",
    )
    classes: int = option(
        10,
        "number of classes of synthetic and tfrecord data",
        helps="labels are whole numbers from 0 to classes - 1: if the labels of your files begin with 1, add one",
        hurts="the last layer grows with it",
        ge=2,
        le=1_000_000,
        own="replaced",
        not_exported="only synthetic and tfrecord data take it",
        other_names="num_classes n_classes",
    )
    samples: Count | None = option(
        None,
        "number of samples: of synthetic data (4096 if not given); of tfrecord data (counted if not given)",
        helps="large TFRecord files need not be counted",
        own="replaced",
        not_exported="only synthetic and tfrecord data take it",
        other_names="num_samples n_samples",
    )
    blocks: Annotated[int, Limits(ge=1, le=96)] | None = option(
        None,
        "number of encoder blocks of the transformer; not given: 2. The other models have a fixed depth",
        helps="width=12 and blocks=14 make a transformer of 100 million parameters",
        hurts="memory and time grow with it",
        own="replaced",
        not_exported="only the transformer takes it",
        other_names="depth layers num_layers n_layers",
    )
    normalization: Literal["auto", "batch", "layer", "none"] = option(
        "auto",
        "normalization between the layers of the model; auto: batch in separable_cnn and resnet50, layer in "
        "transformer, none in mlp and cnn",
        call="keras.layers.BatchNormalization, keras.layers.LayerNormalization",
        helps="compare runs with and without it: with it deep models learn faster, and allow higher learning rates",
        hurts="batch depends on the batch size: small batches make its statistics noisy",
        own="replaced",
        other_names="norm bn batchnorm batch_norm layernorm layer_norm",
    )
    kernel_size: Annotated[int, Limits(ge=1, le=31)] | None = option(
        None,
        "height and width of the kernels of the convolutions; not given: 3. In resnet50 those in the middle of each "
        "block",
        call="keras.layers.Conv2D(kernel_size=)",
        helps="larger kernels see more of the image in one layer",
        hurts="weights and products grow with its square",
        unit="pixels",
        own="replaced",
        not_exported=NO_CONVOLUTIONS,
        other_names="kernel filter_size",
    )
    stride: Annotated[int, Limits(ge=1, le=8)] | None = option(
        None,
        "step of the first convolution over the image; not given: 1 in cnn and separable_cnn, 2 in resnet50",
        call="keras.layers.Conv2D(strides=)",
        helps="2 leaves a quarter of the work to the layers after it; 1 suits resnet50 with small images",
        hurts="details of the image are lost in the first layer",
        unit="pixels",
        own="replaced",
        not_exported=NO_CONVOLUTIONS,
        other_names="strides subsampling downsampling",
    )
    separable: Literal["auto"] | bool = option(
        "auto",
        "depthwise separable convolutions in place of plain ones, except in the first layer; auto: in separable_cnn. "
        "In resnet50 those in the middle of each block",
        call="keras.layers.SeparableConv2D",
        helps="several times fewer weights and products",
        hurts="the products are spread over more and smaller operations: with few channels, or on a GPU, it can be "
        "slower",
        own="replaced",
        not_exported=NO_CONVOLUTIONS,
        other_names="depthwise depthwise_separable separable_conv mobilenet",
    )
    tfrecord_input: str = option(
        "image",
        "name of the feature that holds the input",
        helps="files with another name, such as image/encoded in those of TensorFlow's ImageNet scripts",
        min_length=1,
        own="replaced",
        not_exported="only tfrecord data takes it",
    )
    tfrecord_label: str = option(
        "label",
        "name of the feature that holds the label",
        helps="files with another name, such as image/class/label in those of TensorFlow's ImageNet scripts",
        min_length=1,
        own="replaced",
        not_exported="only tfrecord data takes it",
    )
    tfrecord_encoding: Literal["encoded", "uint8", "float16", "float32", "float_list", "int64_list"] = option(
        "encoded",
        "how the input is stored: an encoded image (JPEG, PNG), raw bytes of a type, or a list",
        call="tf.io.parse_single_example",
        helps="raw bytes (uint8, float16, float32) need no decoding: less CPU time for each sample; `gputui prepare` "
        "writes such files",
        hurts="an encoded image costs CPU time in each epoch, unless input.cache keeps it decoded",
        own="replaced",
        not_exported="only tfrecord data takes it",
    )
    entry: str | None = option(
        None,
        "your own training in place of gputui's model and data: a script as it is (FILE.py), or a function that "
        "returns model and data (FILE.py:FUNCTION or package.module:FUNCTION)",
        helps="most other options then apply to your Keras program (docs/own-code.md)",
        hurts="replaces model, data and their settings: those of an extended preset are dropped, and next to it "
        "values other than the defaults are refused",
        essential=2,
        label="own code",
        other_names="script program train_file build own",
        checks=ENTRY.fullmatch,
    )
    args: dict[str, Any] = option(
        {},
        "plain values that your function finds in context.args; a script gets each as --NAME VALUE",
        helps="try a value of your own code from the command line: --set workload.args.units=128",
        not_exported="workload.entry is not set",
        other_names="hparams hyperparameters params",
        reads=lambda value: {} if value is None else value,
        checks=_is_plain,
    )
    argv: list[str] = option(
        [],
        "arguments of a script, as after `python train.py`; a name in workload.args replaces the one given here",
        reads=lambda value: [] if value is None else _words(value),
        not_exported="workload.entry is not set",
        other_names="arguments command_line",
    )
    fit: Annotated[int, Limits(ge=1, le=1000)] = option(
        1,
        "which call of fit in a script becomes the run; the others train as they are, and are runs of Monitor",
        not_exported="workload.entry is not set",
    )
    left_to_fit: list[str] | None = option(
        None,
        "written by gputui: options that a script's fit decides, as nothing has set them",
        not_exported="workload.entry is not set",
    )
    command: list[str] = option(
        [],
        "any program with its arguments, in place of a training; its output is the log",
        helps="the queue takes what gputui does not train itself: gputui queue add -- COMMAND",
        hurts="other options are refused, except those of its devices, its end and its notice",
        reads=lambda value: [] if value is None else _words(value),
        checks=lambda words: all(words[:1]),
        not_exported="a command is no training",
        other_names="program shell",
    )
    folder: str | None = option(
        None,
        "folder in which the entry's file is searched and runs, or the command; not given: that of the preset's file "
        "that names it, or the current one if it was typed",
        helps="a preset in another folder than its code",
        min_length=1,
        not_exported="workload.entry is not set",
        other_names="cwd chdir workdir working_dir",
    )

    @property
    def is_script(self) -> bool:
        """True if the entry is a script that runs as it is, up to its fit."""
        return self.entry is not None and self.entry.endswith(".py")

    @property
    def normalization_of_model(self) -> str:
        """The normalization of the model, with `auto` resolved: `batch`, `layer` or `none`."""
        return NORMALIZATION[self.model] if self.normalization == "auto" else self.normalization

    @property
    def first_stride(self) -> int:
        """The stride of the first convolution of a model that has any, resolved if none is given."""
        return self.stride or STRIDES[self.model]

    @property
    def is_separable(self) -> bool:
        """True if convolutions after the first are separable, with `auto` resolved."""
        return self.model == "separable_cnn" if self.separable == "auto" else self.separable

    @property
    def source(self) -> tuple[str, str]:
        """The kind of data and its path or pattern, empty for data that has only a name, such as `digits`."""
        kind, _, place = self.data.partition(":")
        return kind, place
