"""The part of an exported script that reads the data and makes batches of it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..options import Options
from ..options.training import TESTED
from ..options.workload import BYTE_ENCODINGS, TESTED_SOURCES
from ..plan import SAMPLES
from .engine_source import Script, literal
from .specialised import Partly

DIGITS = Path(__file__).resolve().parents[1] / "trainer" / "data" / "digits.npz"
COPIED_TOGETHER_BYTES = 1_000_000  # as in trainer/data/batching.py
FOLDER = "data"  # in the folder of a script whose paths are relative
CACHE_FILE = {"off": {"cache_file": None}, "memory": {"cache_file": None}}  # options that need no file
# Values of parameters: a script begins at the first step, and Keras splits its batches over the replicas.
WHOLE_TRAINING = {"first_pass": 0, "skipped": 0, "replicas": 1, "share": None}


def settings(script: Script, options: Options) -> None:
    """Write the constants at the top: the data's path, and its shape and number of classes if an option gives them."""
    kind, place = options.workload.source
    if kind == "digits":
        file = DIGITS if script.base is None else script.base / FOLDER / DIGITS.name
        why = ["copy the file next to this script to move it"] if script.base is None else []
        script.add(f"DATA = {script.path(str(file))}", "workload.data", *why)
    elif kind == "tfrecord" and script.base is not None:
        pattern = literal(os.path.join(FOLDER, os.path.basename(place)))
        script.add(f"DATA = os.path.join(glob.escape(str(HERE)), {pattern})", "workload.data")
    elif place:
        script.add(f"DATA = {script.path(place)}", "workload.data")
    if kind in ("synthetic", "images", "tfrecord"):
        script.add(f"SHAPE = {tuple(options.workload.shape)}", "workload.shape")
    if kind in ("synthetic", "tfrecord"):
        script.add(f"CLASSES = {options.workload.classes}", "workload.classes")


def source(script: Script, options: Options) -> None:
    """Defines train, validation, samples, shape, classes and scale, and load if samples are loaded one by one."""
    kind = options.workload.source[0]
    _WRITERS.get(kind, _keras_dataset)(script, options)


def loads(options: Options) -> bool:
    """Return True if samples are generated or read one by one, and so have a function `load`."""
    return options.workload.source[0] in ("synthetic", "images", "tfrecord")


def _digits(script: Script, options: Options) -> None:
    script.text('with np.load(DATA) as file:\n    x, y = file["x"], file["y"]')
    _split(script, options, "1 / 16")


def _npz(script: Script, options: Options) -> None:
    script.text(
        "with np.load(DATA) as file:\n"
        '    x = file["x" if "x" in file else "x_train"]\n'
        '    y = file["y" if "y" in file else "y_train"]'
    )
    if options.train.reads_test:
        script.add('    x_test, y_test = file["x_test"], file["y_test"]', *_of_test(options))
    _split(script, options, "1 / 255 if x.dtype == np.uint8 else 1.0")


def _keras_dataset(script: Script, options: Options) -> None:
    test = "(x_test, y_test)" if options.train.reads_test else "_"
    keys = ["workload.data", *_of_test(options)]
    script.add(f"(x, y), {test} = keras.datasets.{options.workload.data}.load_data()", *keys)
    _split(script, options, "1 / 255")


def _of_test(options: Options) -> list[str]:
    return ["train.validation"] * (options.train.validation == "test") + [TESTED] * options.train.tests(own=False)


def _split(script: Script, options: Options, scale: str) -> None:
    """The order is drawn by the seed."""
    has_test = options.train.reads_test and options.workload.source[0] in TESTED_SOURCES
    script.text('y = y.reshape(-1).astype("int32")\nif x.ndim == 3:\n    x = x[..., np.newaxis]')
    script.text(f"shape, scale = x.shape[1:], {scale}\nclasses = max(2, int(y.max()) + 1)")
    if has_test:
        script.text('y_test = y_test.reshape(-1).astype("int32")\nif x_test.ndim == 3:')
        script.text("    x_test = x_test[..., np.newaxis]\nclasses = max(classes, int(y_test.max()) + 1)")
    _parts(script, validates_test=has_test and options.train.validation == "test")
    if has_test and options.train.tests(own=False):
        script.add("test = tf.data.Dataset.from_tensor_slices((x_test, y_test))", TESTED)


def _parts(script: Script, validates_test: bool = False) -> None:
    script.define("trainer/data/sources.py", "split_order")
    if validates_test:
        script.add("trained, _ = split_order(len(x), 0.0, SEED)", "train.seed")
        script.add("x_held_out, y_held_out = x_test, y_test", "train.validation")
    else:
        drawn = "trained, held_out = split_order(len(x), VALIDATION_SPLIT, SEED)"
        script.add(drawn, "train.validation_split", "train.seed")
        script.text("x_held_out, y_held_out = x[held_out], y[held_out]")
    script.text(
        "train = tf.data.Dataset.from_tensor_slices((x[trained], y[trained]))\n"
        "validation = tf.data.Dataset.from_tensor_slices((x_held_out, y_held_out))\n"
        "samples, validation_samples = len(trained), len(x_held_out)"
    )


def _images(script: Script, _options: Options) -> None:
    script.define("trainer/data/sources.py", "class_names", "class_images", "image_sample")
    script.text(
        "names = class_names(Path(DATA))\n"
        "files = [(path, label) for label, name in enumerate(names) for path in class_images(Path(DATA) / name)]\n"
        "x = np.array([path for path, _ in files])\n"
        'y = np.array([label for _, label in files], "int32")\n'
        "shape, scale, classes = SHAPE, 1 / 255, len(names)"
    )
    _parts(script)
    script.text("\n\ndef load(path, label):\n    return image_sample(tf.io.read_file(path), SHAPE), label\n\n")


def _synthetic(script: Script, options: Options) -> None:
    script.define("plan.py", "trained_samples")
    script.define("trainer/data/sources.py", "synthetic_sample")
    script.add(f"total = {options.workload.samples or SAMPLES['synthetic']}", "workload.samples")
    script.add("samples = trained_samples(total, VALIDATION_SPLIT)", "train.validation_split")
    script.text("validation_samples = total - samples")
    script.add("train = tf.data.Dataset.range(samples)", "workload.data")
    script.add("validation = tf.data.Dataset.range(samples, total)", "workload.data")
    script.text("shape, classes, scale = SHAPE, CLASSES, 1.0\n\n")
    script.add("def load(index):", "workload.data")
    script.text("    return synthetic_sample(index, SHAPE, CLASSES, SEED)\n\n")


def _tfrecord(script: Script, options: Options) -> None:
    workload = options.workload
    script.define("plan.py", "trained_samples")
    script.define("trainer/data/sources.py", "record_stream", "record_sample", options=options)
    script.text("records = record_stream(sorted(glob.glob(DATA)))")
    if workload.samples:
        script.add(f"total = {workload.samples}", "workload.samples")
    else:
        script.add("total = sum(1 for _ in records)", "workload.samples", "not given, so they are counted")
    script.add("samples = trained_samples(total, VALIDATION_SPLIT)", "train.validation_split")
    script.text("validation_samples = total - samples")
    scale = "1 / 255" if workload.tfrecord_encoding in BYTE_ENCODINGS else "1.0"
    script.text(
        "train, validation = records.skip(validation_samples).take(samples), records.take(validation_samples)\n"
        f"shape, classes, scale = SHAPE, CLASSES, {scale}\n"
        "load = record_sample"
    )


_WRITERS: dict[str, Callable[[Script, Options], None]] = {
    "digits": _digits,
    "npz": _npz,
    "images": _images,
    "synthetic": _synthetic,
    "tfrecord": _tfrecord,
}


# ---- from samples to batches ---------------------------------------------------------------------


def batches(script: Script, options: Options) -> None:
    """Write the code that turns train and validation into datasets of batches, and that defines per_pass."""
    script.define("plan.py", "batches_per_pass")
    _functions(script, options)
    drop = options.input.drop_remainder
    script.add(
        f"per_pass = batches_per_pass(samples, global_batch, replicas, drop_remainder={drop})", "input.drop_remainder"
    )
    script.text("validation_per_pass = batches_per_pass(validation_samples, global_batch, replicas)")
    file = cache_file(script, options)
    load = ", load" if loads(options) else ""
    script.text(f"train = training_batches(Elements(train, samples{load}), Sizes(global_batch, per_pass, SEED){file})")
    augmented = "prepared_and_augmented(train, scale, shape, SEED)"
    prepared = augmented if _augments(options) else "prepared(train, scale, shape)"
    script.text(f"train = ahead({f'one_batch({prepared})' if options.input.one_batch else prepared})")
    script.text(
        f"validation = Elements(validation, validation_samples{load})\n"
        f"validation = validation_batches(validation, Sizes(global_batch, validation_per_pass, SEED){file})\n"
        "validation = ahead(prepared(validation, scale, shape))"
    )
    if options.train.tests(own=False):
        own_file = file and ', lambda _name: cache_file("test")'
        script.text(
            "test_per_pass = batches_per_pass(len(x_test), global_batch, replicas)\n"
            f"test = Elements(test, len(x_test){load})\n"
            f"test = validation_batches(test, Sizes(global_batch, test_per_pass, SEED){own_file})\n"
            "test = ahead(prepared(test, scale, shape))"
        )
    if options.strategy.kind == "mirrored":
        script.text("if not validation_per_pass:\n    validation = None  # fewer samples than replicas")


def _functions(script: Script, options: Options) -> None:
    """Write the functions of the trainer's own pipeline, with the values of these options filled in."""
    constants: dict[str, Any] = {
        "data": Partly(vary=None, arrays=None, whole=False, **({} if loads(options) else {"load": None})),
        **WHOLE_TRAINING, "numbered": _augments(options), "are_equal": False, **CACHE_FILE.get(options.input.cache, {}),
        **({} if loads(options) else {"load": None, "made": False}), "on_demand": False,
        **_is_small(options),
    }  # fmt: skip
    prepared = "prepared_and_augmented" if _augments(options) else "prepared"
    pipeline = ("training_batches", "validation_batches", prepared, "prepared")
    finishing = ("one_batch", "ahead") if options.input.one_batch else ("ahead",)
    script.define("trainer/data/batching.py", *pipeline, options=options, constants=constants)
    script.define("trainer/data/finishing.py", *finishing, options=options, constants=constants)


def _is_small(options: Options) -> dict[str, bool]:
    """Return if a single thread copies each batch, as trainer/data/batching.py decides; empty if it is not known."""
    samples = {"digits": 8 * 8 + 4, "synthetic": 4 * math.prod(options.workload.shape) + 4}  # bytes with the label
    least = options.input.batch_size * samples.get(options.workload.source[0], math.nan)
    most = least * (16 if options.strategy.kind == "mirrored" else 1)  # of so many replicas
    is_known = least >= COPIED_TOGETHER_BYTES or most < COPIED_TOGETHER_BYTES
    return {"is_small": least < COPIED_TOGETHER_BYTES} if is_known else {}


def _augments(options: Options) -> bool:
    return options.input.augment != "off"


def cache_file(script: Script, options: Options, more: str = "") -> str:
    """For a cache on disk, write the function cache_file, and return `, cache_file`, an argument for calls, else an
    empty text. `more` is a cause besides the data that makes the cache invalid, for the comment.
    """
    if options.input.cache in CACHE_FILE:
        return ""
    folder = script.path(os.path.abspath(os.path.expanduser(options.input.cache)))
    script.add(f"CACHE = Path({folder})", "input.cache", f"empty it when the data{more} changes")
    script.text("CACHE.mkdir(parents=True, exist_ok=True)\n\n\ndef cache_file(name):\n    return str(CACHE / name)\n\n")
    return ", cache_file"
