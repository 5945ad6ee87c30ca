"""The part of an exported script that reads the data and makes batches of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..options import Options
from .source import extract
from .text import Script, literal

DIGITS = Path(__file__).resolve().parents[1] / "trainer" / "data" / "digits.npz"


def settings(script: Script, options: Options) -> None:
    """Constants at the top: where the data is, and its shape."""
    kind, place = options.workload.source
    if kind == "digits":
        script.add(f"DATA = {literal(str(DIGITS))}", "workload.data", "copy the file beside this script to move it")
    elif place:
        script.add(f"DATA = {literal(place)}", "workload.data")
    if kind in ("synthetic", "images", "tfrecord"):
        script.add(f"SHAPE = {tuple(options.workload.shape)}", "workload.shape")
    if kind in ("synthetic", "tfrecord"):
        script.add(f"CLASSES = {options.workload.classes}", "workload.classes")


def source(script: Script, options: Options) -> None:
    """train, validation (datasets of samples), samples, shape, classes, scale; and load where it costs something."""
    kind = options.workload.source[0]
    _WRITERS.get(kind, _keras_dataset)(script, options)


def loads(options: Options) -> bool:
    """Whether a sample has to be made or read one by one."""
    return options.workload.source[0] in ("synthetic", "images", "tfrecord")


def _digits(script: Script, options: Options) -> None:
    script.text('with np.load(DATA) as file:\n    x, y = file["x"], file["y"]')
    _split(script, "1 / 16")


def _npz(script: Script, options: Options) -> None:
    script.text(
        "with np.load(DATA) as file:\n"
        '    x = file["x" if "x" in file else "x_train"]\n'
        '    y = file["y" if "y" in file else "y_train"]'
    )
    tested = options.train.validation == "test"
    if tested:
        script.add('    x_test, y_test = file["x_test"], file["y_test"]', "train.validation")
    _split(script, "1 / 255 if x.dtype == np.uint8 else 1.0", tested=tested)


def _keras_dataset(script: Script, options: Options) -> None:
    tested = options.train.validation == "test"
    test, told = ("(x_test, y_test)", ["train.validation"]) if tested else ("_", [])
    script.add(f"(x, y), {test} = keras.datasets.{options.workload.data}.load_data()", "workload.data", *told)
    _split(script, "1 / 255", tested=tested)


def _split(
    script: Script, scale: str, classes: str = "max(2, int(y.max()) + 1)", images: bool = True, tested: bool = False
) -> None:
    """Arrays x and y in an order drawn by the seed; the last of them validate, or x_test and y_test."""
    if images:
        script.text('y = y.reshape(-1).astype("int32")\nif x.ndim == 3:\n    x = x[..., np.newaxis]')
        script.text("shape = x.shape[1:]")
    if tested:
        _tested(script, scale)
        return
    script.text(f"scale = {scale}\nclasses = {classes}")
    script.add("order = np.random.default_rng(SEED).permutation(len(x))", "train.seed")
    script.add("kept = len(x) - min(len(x) - 1, round(len(x) * VALIDATION_SPLIT))", "train.validation_split")
    script.text(
        "train = tf.data.Dataset.from_tensor_slices((x[order[:kept]], y[order[:kept]]))\n"
        "validation = tf.data.Dataset.from_tensor_slices((x[order[kept:]], y[order[kept:]]))\n"
        "samples = kept"
    )


def _tested(script: Script, scale: str) -> None:
    script.text(
        'y_test = y_test.reshape(-1).astype("int32")\nif x_test.ndim == 3:\n    x_test = x_test[..., np.newaxis]\n'
        f"scale = {scale}\nclasses = max(2, int(y.max()) + 1, int(y_test.max()) + 1)"
    )
    script.add("order = np.random.default_rng(SEED).permutation(len(x))", "train.seed")
    script.text("train = tf.data.Dataset.from_tensor_slices((x[order], y[order]))\nsamples = len(x)")
    script.add("validation = tf.data.Dataset.from_tensor_slices((x_test, y_test))", "train.validation")


def _images(script: Script, options: Options) -> None:
    script.text(
        "names = sorted(f.name for f in Path(DATA).iterdir() if f.is_dir() and not f.name.startswith('.'))\n"
        'ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif")\n'
        "files = [\n"
        "    (str(path), label)\n"
        "    for label, name in enumerate(names)\n"
        "    for path in sorted((Path(DATA) / name).iterdir())\n"
        "    if path.suffix.lower() in ENDINGS\n"
        "]\n"
        "x = np.array([path for path, _ in files])\n"
        'y = np.array([label for _, label in files], "int32")\n'
        "shape = SHAPE"
    )
    _split(script, "1 / 255", "len(names)", images=False)
    script.text(
        "\n\n"
        "def load(path, label):\n"
        "    image = tf.io.decode_image(tf.io.read_file(path), channels=SHAPE[2], expand_animations=False)\n"
        "    return tf.cast(tf.round(tf.image.resize(image, SHAPE[:2])), tf.uint8), label\n\n"
    )


def _synthetic(script: Script, options: Options) -> None:
    script.add(f"total = {options.workload.samples or 4096}", "workload.samples")
    script.add("samples = total - min(total - 1, round(total * VALIDATION_SPLIT))", "train.validation_split")
    script.add("train = tf.data.Dataset.range(samples)", "workload.data")
    script.add("validation = tf.data.Dataset.range(samples, total)", "workload.data")
    script.text("shape, classes, scale = SHAPE, CLASSES, 1.0\n\n")
    script.add("def load(index):", "workload.data")
    script.text(
        "    # A pattern for each class plus noise, so that it can be learnt.\n"
        "    label = tf.cast(index % CLASSES, tf.int32)\n"
        "    pattern = tf.random.stateless_uniform(SHAPE, (SEED, tf.cast(label, tf.int64)))\n"
        "    noise = tf.random.stateless_uniform(SHAPE, (SEED + 1, index))\n"
        "    return (pattern + noise) / 2, label\n\n"
    )


def _tfrecord(script: Script, options: Options) -> None:
    workload = options.workload
    encoding = workload.tfrecord_encoding
    reads = options.input.parallel_reads
    if reads == "off":
        script.text("records = tf.data.TFRecordDataset(sorted(glob.glob(DATA)))")
    else:
        script.text("paths = sorted(glob.glob(DATA))\nnames = tf.data.Dataset.from_tensor_slices(paths)")
        script.add(f"files = min(len(paths), {16 if reads == 'auto' else reads})", "input.parallel_reads")
        script.text(
            "records = names.interleave(\n"
            "    tf.data.TFRecordDataset, cycle_length=files, num_parallel_calls=files, deterministic=True\n)"
        )
    if workload.samples:
        script.add(f"total = {workload.samples}", "workload.samples")
    else:
        script.add("total = sum(1 for _ in records)", "workload.samples", "not given, so they are counted")
    script.add("held_out = min(total - 1, round(total * VALIDATION_SPLIT))", "train.validation_split")
    script.text(
        "samples = total - held_out\n"
        "train, validation = records.skip(held_out).take(samples), records.take(held_out)\n"
        f"shape, classes, scale = SHAPE, CLASSES, {'1 / 255' if encoding in ('encoded', 'uint8') else '1.0'}\n"
        "\n\ndef load(record):"
    )
    lists = {"float_list": "[int(np.prod(SHAPE))], tf.float32", "int64_list": "[int(np.prod(SHAPE))], tf.int64"}
    stored = f"tf.io.FixedLenFeature({lists.get(encoding, '[], tf.string')})"
    listed = ["workload.tfrecord_encoding"] if encoding in lists else []
    script.text("    features = {")
    script.add(f"        {literal(workload.tfrecord_input)}: {stored},", "workload.tfrecord_input", *listed)
    script.add(
        f"        {literal(workload.tfrecord_label)}: tf.io.FixedLenFeature([], tf.int64),", "workload.tfrecord_label"
    )
    script.text("    }\n    example = tf.io.parse_single_example(record, features)")
    script.text(f"    value, label = example[{literal(workload.tfrecord_input)}], "
                f"example[{literal(workload.tfrecord_label)}]")
    if encoding == "encoded":
        script.add(
            "    value = tf.io.decode_image(value, channels=SHAPE[2], expand_animations=False)",
            "workload.tfrecord_encoding",
        )
        script.text("    value = tf.cast(tf.round(tf.image.resize(value, SHAPE[:2])), tf.uint8)")
    elif encoding in ("uint8", "float32"):
        script.add(f'    value = tf.io.decode_raw(value, "{encoding}")', "workload.tfrecord_encoding")
    script.text("    return tf.reshape(value, SHAPE), tf.cast(label, tf.int32)\n\n")


_WRITERS: dict[str, Callable[[Script, Options], None]] = {
    "digits": _digits,
    "npz": _npz,
    "images": _images,
    "synthetic": _synthetic,
    "tfrecord": _tfrecord,
}


# ---- from samples to batches ---------------------------------------------------------------------


def batches(script: Script, options: Options) -> None:
    """train and validation become datasets of batches; batches_per_pass is known afterwards."""
    if options.workload.model == "transformer":
        script.blocks(extract("data/pipeline.py", "TOKENS", "sequence_length"))
    if options.input.augment != "off":
        script.blocks(extract("data/augment.py", "augment"))
    _prepare(script, options)
    _training_batches(script, options)
    _validation_batches(script, options)
    _dataset_options(script, options)


def _prepare(script: Script, options: Options) -> None:
    script.text(
        "\n\ndef floats(x, y):\n"
        "    return tf.ensure_shape(tf.cast(x, tf.float32) * scale, (None, *shape)), y\n\n"
    )
    if options.workload.model == "transformer":
        script.text("\n\ndef tokens(x, y):\n    # An input is a sequence of levels.")
        script.add("    flat = tf.reshape(x, (-1, sequence_length(shape)))", "workload.model")
        script.text("    return tf.cast(tf.clip_by_value(flat, 0.0, 1.0) * (TOKENS - 1), tf.int32), y\n\n")


def _training_batches(script: Script, options: Options) -> None:
    """The trainer's own stream (trainer/data/pipeline.py): endless, each pass over the data in an order of its own."""
    wanted, calls = options.input, parallel(options)
    rounding = "samples // global_batch" if wanted.drop_remainder else "math.ceil(samples / global_batch)"
    script.text(f"batches_per_pass = {rounding}")
    if wanted.cache != "off":
        if loads(options):
            script.add(f"train = train.map(load{calls})", "input.parallel_calls")
        _cache(script, "train", wanted.cache)
    _one_pass(script, options)
    script.text("train = tf.data.Dataset.counter().flat_map(one_pass)")
    if wanted.augment != "off":
        script.add(f"train = train.map(augmented{calls})", "input.augment", "input.parallel_calls")
    else:
        script.add(f"train = train.map(floats{calls})", "input.parallel_calls")
    if options.workload.model == "transformer":
        script.add("train = train.map(tokens)", "workload.model")
    if wanted.one_batch:
        script.add("train = train.take(1).cache().repeat()", "input.one_batch", "nothing useful is learnt")


def _one_pass(script: Script, options: Options) -> None:
    wanted = options.input
    script.text("\n\ndef one_pass(number):")
    if wanted.shuffle != "off":
        order = f"train.shuffle(min({wanted.shuffle}, samples), seed=SEED + number)"
        script.add(f"    elements = {order}", "input.shuffle", "train.seed")
    else:
        script.add("    elements = train", "input.shuffle")
    if wanted.cache == "off" and loads(options):
        script.add(f"    elements = elements.map(load{parallel(options)})", "input.parallel_calls")
    script.add(f"    batches = elements.batch(global_batch, drop_remainder={wanted.drop_remainder})",
               "input.batch_size", "input.drop_remainder")
    if wanted.augment == "off":
        script.text("    return batches\n\n")
        return
    script.text("    return batches.enumerate().map(lambda i, batch: ((number, i), batch))\n\n")
    script.text("\n\ndef augmented(position, batch):\n    x, y = floats(*batch)")
    script.add("    seed = tf.stack([SEED + position[0], position[1]])", "train.seed")
    script.add(f'    return augment(x, "{wanted.augment}", seed), y', "input.augment")
    script.text("\n")


def _validation_batches(script: Script, options: Options) -> None:
    calls = parallel(options)
    if loads(options):
        script.add(f"validation = validation.map(load{calls})", "input.parallel_calls")
    if options.input.cache != "off":
        _cache(script, "validation", options.input.cache)
    script.add(f"validation = validation.batch(global_batch).map(floats{calls})", "input.batch_size")
    if options.workload.model == "transformer":
        script.add("validation = validation.map(tokens)", "workload.model")


def _cache(script: Script, name: str, cache: str) -> None:
    if cache == "memory":
        script.add(f"{name} = {name}.cache()", "input.cache")
        return
    if name == "train":
        script.add(f"CACHE = Path({literal(cache)}).expanduser()", "input.cache", "empty it when the data changes")
        script.text("CACHE.mkdir(parents=True, exist_ok=True)")
    script.add(f'{name} = {name}.cache(str(CACHE / "{name}"))', "input.cache")


def _dataset_options(script: Script, options: Options) -> None:
    dataset_settings(script, options)
    for name in ("train", "validation"):
        script.add(f"{name} = {name}{ahead(options)}.with_options(settings)", "input.prefetch")


def dataset_settings(script: Script, options: Options, margin: str = "", order_if: str = "") -> None:
    """Defines `settings`. Left alone, TensorFlow rewrites what is off to a parallel map and a prefetch."""
    wanted, rewrites = options.input, f"{margin}settings.experimental_optimization"
    script.text(f"{margin}settings = tf.data.Options()")
    if order_if:
        script.text(f"{margin}if {order_if}:")
    inner = margin + "    " if order_if else margin
    script.add(f"{inner}settings.deterministic = {wanted.deterministic_order}", "input.deterministic_order")
    if wanted.private_threads != "auto":
        threads = f"settings.threading.private_threadpool_size = {wanted.private_threads}"
        script.add(f"{margin}{threads}", "input.private_threads")
    if wanted.parallel_calls == "off":
        script.add(f"{rewrites}.map_parallelization = False", "input.parallel_calls")
    if wanted.prefetch == "off":
        script.add(f"{rewrites}.map_and_batch_fusion = False", "input.prefetch")
        script.add(f"{rewrites}.inject_prefetch = False", "input.prefetch")
    elif not wanted.deterministic_order:
        script.add(f"{rewrites}.map_and_batch_fusion = False", "input.deterministic_order")


def ahead(options: Options) -> str:
    """The call that prepares batches ahead, or nothing."""
    wanted = options.input.prefetch
    return "" if wanted == "off" else f".prefetch({_number(wanted)})"


def parallel(options: Options) -> str:
    """The further arguments of Dataset.map."""
    wanted = options.input
    if wanted.parallel_calls == "off":
        return ""
    order = "" if wanted.deterministic_order else ", deterministic=False"
    return f", num_parallel_calls={_number(wanted.parallel_calls)}{order}"


def _number(wanted: int | str) -> str:
    return "tf.data.AUTOTUNE" if wanted == "auto" else str(wanted)
