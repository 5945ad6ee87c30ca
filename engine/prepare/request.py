"""What `gputui prepare` was asked for, and the settings that decide the content of the files."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..files.values import to_json
from ..files.writing import write_atomically
from ..options import Notify, Options
from ..options.training import TESTED
from ..presets import Preset, saving
from .manifest import ARRAY_FILE, ARRAYS, INPUT, LABEL, PARTS, RECORDS, TRAIN, VALIDATION, Manifest


class PrepareError(Exception):
    """The data cannot be prepared. The text is one or two lines that say what to do. `began`: files were written, or
    would have been, so that this is a failure and not a refusal.
    """

    def __init__(self, text: str, began: bool = False) -> None:
        super().__init__(text)
        self.began = began


SEED = 0  # draws the order of the samples if the preset has no train.seed
# Options of `workload` that decide what is stored.
_OF_DATA = (
    "data", "shape", "classes", "samples", "tfrecord_input", "tfrecord_label", "tfrecord_encoding", "entry", "args",
    "folder",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """The preset whose data is prepared, the folder to write to, and the settings of the command. None: not given."""

    preset: Preset
    folder: Path
    format: str = RECORDS
    dtype: str | None = None
    size: tuple[int, int] | None = None
    limit: int | None = None
    shards: int | None = None
    workers: int | None = None

    @property
    def options(self) -> Options:
        given = self.preset.options
        seed = SEED if given.train.seed is None else given.train.seed
        return replace(given, train=replace(given.train, seed=seed))

    def settings(self) -> dict[str, Any]:
        options = self.options
        workload = {f"workload.{name}": getattr(options.workload, name) for name in _OF_DATA}
        train = {f"train.{name}": getattr(options.train, name) for name in ("seed", "validation", "validation_split")}
        reads = {"input.parallel_reads": options.input.parallel_reads}
        command = {"dtype": self.dtype, "size": list(self.size) if self.size else None, "limit": self.limit}
        return workload | train | reads | {"format": self.format, "shards": self.shards} | command

    def for_worker(self) -> dict[str, Any]:
        """Return the request that a worker's first line holds (trainer/prepare/work.py)."""
        given = {name: value for name, value in self.settings().items() if name in ("format", "dtype", "size", "limit")}
        return given | {"options": asdict(self.options), "folder": str(self.folder)}

    def differences(self, manifest: Manifest) -> list[str]:
        """Return the settings that differ from those of an earlier start, as `NAME VALUE, not VALUE`."""
        given = self.settings()
        return [
            f"{name} is {_text(given[name])}, and was {_text(value)}"
            for name, value in manifest.settings.items()
            if name in given and given[name] != value
        ]


def _text(value: Any) -> str:
    return "not given" if value is None else str(value)


def of(preset: Preset, folder: Path, given: Mapping[str, Any]) -> Request:
    """Return the request for a preset; `given` are the command's options. Raises PrepareError if they do not go."""
    if preset.options.workload.command:
        raise PrepareError("a command reads its data itself")
    if preset.options.workload.is_script:
        raise PrepareError("a script makes its data itself: move model and data into a function build (gputui guide)")
    if preset.options.train.evaluate_at_end is True and preset.options.workload.entry is None:
        raise PrepareError(f"prepared data have no test part next to the validation: leave out {TESTED}")
    if preset.options.workload.entry is not None:
        for name, value in (("size", given["size"]), ("dtype", given["dtype"])):
            if value is not None:
                raise PrepareError(f"--{name} is for gputui's own data; your code decides what a sample is: its `map`")
        if given["format"] == ARRAYS:
            raise PrepareError(f"--format {ARRAYS} is for gputui's own data; leave it out with your own code")
    return Request(preset, folder, **given)


PRESET, READER = "preset.yaml", "dataset.py"


def write(manifest: Manifest, request: Request) -> None:
    """Write both files into the request's folder (for own code only dataset.py). Raises SaveError or OSError."""
    folder = request.folder
    write_atomically(folder / READER, reader(manifest))
    if request.preset.options.workload.entry is None:
        # without the layout of the preset's file, as its comments may hold a secret
        saving.save_as(preset_of(manifest, request), folder / PRESET, overwrite=True)


def preset_of(manifest: Manifest, request: Request) -> Preset:
    """Return the preset of the request with the prepared data in place of the original."""
    preset, data, samples = request.preset, manifest.data, manifest.samples
    of_training: dict[str, Any] = {"validation_split": manifest.good(VALIDATION) / samples}
    if manifest.format == ARRAYS:
        of_data: dict[str, Any] = {"data": f"npz:{request.folder}/{ARRAY_FILE}"}
        of_training = {} if data["test"] else of_training
    else:
        of_data = {
            "data": f"tfrecord:{glob.escape(str(request.folder))}/*.{RECORDS}",
            "shape": list(data["shape"]),
        }
        of_data |= {"classes": int(data["classes"]), "samples": samples, "tfrecord_encoding": data["dtype"]}
        of_data |= {"tfrecord_input": INPUT, "tfrecord_label": LABEL}
        of_training |= {"validation": "split"}
    given = preset.options
    options = replace(
        given,
        workload=replace(given.workload, **of_data),
        train=replace(given.train, **of_training),
        input=replace(given.input, parallel_reads="off"),
        notify=Notify(),  # which may hold a secret, and prepared data is shared
    )
    return replace(preset, options=options)


# ---- for plain TensorFlow -------------------------------------------------------------------------

_HEAD = """\
# Reads the data in this folder with plain TensorFlow. Written by `gputui prepare`.
# train() and validation() return single samples: shuffle, batch and prefetch them.
"""
_ARRAYS = """\
from pathlib import Path

import numpy as np

with np.load(Path(__file__).with_name("{file}")) as arrays:
    {names} = ({read})
"""
_RECORDS = """\
from pathlib import Path

import tensorflow as tf

FOLDER = Path(__file__).parent
COUNTS = {counts}

{parse}

def samples(part):
    files = sorted(str(path) for path in FOLDER.glob(f"*-{{part}}.tfrecord"))
    data = tf.data.TFRecordDataset(tf.constant(files, tf.string)).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return data.apply(tf.data.experimental.assert_cardinality(COUNTS[part]))


def train():
    return samples("train")


def validation():
    return samples("validation")
"""
_OF_PRESET = """
def parse(record):
    features = {{"{input}": tf.io.FixedLenFeature([], tf.string), "{label}": tf.io.FixedLenFeature([], tf.int64)}}
    example = tf.io.parse_single_example(record, features)
    return tf.reshape(tf.io.decode_raw(example["{input}"], tf.{dtype}), {shape}), example["{label}"]
"""
_OF_ENTRY = """
def tensor(example, number, dtype, shape):
    return tf.ensure_shape(tf.io.parse_tensor(example[str(number)], dtype), shape)


def parse(record):
    features = {{str(number): tf.io.FixedLenFeature([], tf.string) for number in range({tensors})}}
    example = tf.io.parse_single_example(record, features)
    return {structure}
"""


def reader(manifest: Manifest) -> str:
    """Return the text of dataset.py."""
    data = manifest.data
    if manifest.format == ARRAYS:
        names = ("x_train", "y_train", "x_test", "y_test") if data["test"] else ("x", "y")
        read = ", ".join(f'arrays["{name}"]' for name in names)
        return _HEAD + _ARRAYS.format(file=ARRAY_FILE, names=", ".join(names), read=read)
    if (structure := data.get("structure")) is None:
        shape = tuple(data["shape"])
        parse = _OF_PRESET.format(input=INPUT, label=LABEL, dtype=data["dtype"], shape=shape)
    else:
        node = structure[TRAIN]
        parse = _OF_ENTRY.format(tensors=_tensors(node), structure=_expression(node))
    counts = to_json({part: manifest.good(part) for part in PARTS})
    return _HEAD + _RECORDS.format(counts=counts, parse=parse)


def _tensors(node: Any) -> int:
    inner = node["tuple"] if "tuple" in node else list(node["dict"].values()) if "dict" in node else None
    return 1 if inner is None else sum(map(_tensors, inner))


def _expression(node: Any) -> str:
    if "tuple" in node:
        inside = ", ".join(map(_expression, node["tuple"]))
        return f"({inside},)" if len(node["tuple"]) == 1 else f"({inside})"
    if "dict" in node:
        return "{" + ", ".join(f"{key!r}: {_expression(each)}" for key, each in node["dict"].items()) + "}"
    return f"tensor(example, {node['number']}, tf.{node['dtype']}, {node['shape']})"
