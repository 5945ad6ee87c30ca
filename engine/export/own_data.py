"""The data of an exported script of a user's own code: what build returned becomes what fit takes.

What it returned is seen only when the script runs; so the script holds the cases that docs/own-code.md names, each in
plain tf.data. Which options reach which case is the same as in the trainer (trainer/own/).
"""

from __future__ import annotations

import os

from ..options import Options
from .data import ahead, dataset_settings, parallel
from .source import extract
from .text import Script, literal

PYDATASET = "isinstance(train, keras.utils.PyDataset)"
VALIDATION_PYDATASET = "isinstance(validation, keras.utils.PyDataset)"

ARRAYS = '''def are_arrays(data):
    return not isinstance(data, (tf.data.Dataset, keras.utils.PyDataset))'''

LENGTH = '''def length(data, needed):
    """Elements of a Dataset; where TensorFlow cannot tell and it is needed, they are counted."""
    known = int(data.cardinality())
    return sum(1 for _ in data) if needed and known == tf.data.UNKNOWN_CARDINALITY else known'''

SINGLE = '''def single(data, count, needed):
    """Single samples, and how many of them a pass has: of arrays, or of a Dataset that comes with a map."""
    if are_arrays(data):
        data, count = tf.data.Dataset.from_tensor_slices(as_fitted(data)), None
    known = length(data, needed and not count)
    count = min(known, count or known) if known >= 0 else count
    return (data.take(count), count) if count else (data.repeat(), 2**62)'''

PASS = '''def batches_of(count, drop_remainder=False):
    """Batches of so many samples; each replica needs at least one of a last, smaller batch."""
    whole, rest = divmod(count, global_batch)
    return whole if drop_remainder or rest < replicas else whole + 1'''

BATCHED = '''def batches_in(data, count, needed):
    """Batches of a Dataset that your code has batched; below 0 where nobody knows."""
    known = length(data, needed and not count)
    if known < 0 and count:
        size = tf.nest.flatten(data.element_spec)[0].shape[0]  # where it is fixed, a smaller rest is left out
        known = count // size if size else math.ceil(count / len(tf.nest.flatten(next(iter(data)))[0]))
    return known'''

COPIED = '''class Copied(keras.utils.PyDataset):
    """Batches in memory of their own: over several replicas TensorFlow may write into the arrays that it is given."""

    def __init__(self, data):
        super().__init__(data.workers, data.use_multiprocessing, data.max_queue_size)
        self.data = data
        self.on_epoch_begin, self.on_epoch_end = data.on_epoch_begin, data.on_epoch_end

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return tf.nest.map_structure(np.array, as_tuples(self.data[index]))'''

AUGMENTED = '''def is_image(batch):
    x = batch[0] if isinstance(batch, tuple) else batch
    return isinstance(x, tf.TensorSpec) and x.dtype == tf.float32 and x.shape.rank == 4 and None not in x.shape[1:]'''


def data(script: Script, wanted: Options) -> None:
    """train and validation become what fit takes; batches_per_pass is known afterwards."""
    script.section("data")
    script.blocks([*extract("own/nests.py", "as_fitted", "as_array"), ARRAYS, LENGTH, SINGLE, PASS, BATCHED])
    if wanted.strategy.kind == "mirrored":
        script.blocks([COPIED])
    if wanted.input.augment != "off":
        script.blocks([*extract("data/augment.py", "augment"), AUGMENTED])
    if wanted.input.cache not in ("off", "memory"):
        folder = os.path.abspath(os.path.expanduser(wanted.input.cache))
        script.add(f"CACHE = Path({literal(folder)})", "input.cache", "empty it when the data or your code changes")
        script.text("CACHE.mkdir(parents=True, exist_ok=True)")
    _finished(script, wanted)
    _stream(script, wanted)
    _validating(script, wanted)
    _split(script)
    _handed_over(script, wanted)


def _finished(script: Script, wanted: Options) -> None:
    script.text('\n\ndef finished(batches):\n    """What applies to all batches, also to those of your code."""')
    if wanted.input.deterministic_order and not wanted.train.deterministic:
        unless = "batches.options().deterministic is not False"  # their code says that the order may differ
        dataset_settings(script, wanted, "    ", unless)
    else:
        dataset_settings(script, wanted, "    ")
    script.add(f"    return batches{ahead(wanted)}.with_options(settings)", "input.prefetch")
    script.text("\n")


def _stream(script: Script, wanted: Options) -> None:
    """The trainer's own stream: endless, each pass over the samples in an order of its own."""
    drop = wanted.input.drop_remainder
    script.text('\n\ndef stream(samples, count):\n    """Batches without an end, and how many of them a pass has."""')
    if wanted.input.shuffle != "off":
        buffer = f"count if are_arrays(train) else min({wanted.input.shuffle}, count)"
        script.add(f"    buffer = {buffer}", "input.shuffle", "arrays are shuffled whole")
    script.text('    load, vary = made.get("map"), made.get("augment")')
    script.add(f"    per_pass = batches_of(count, drop_remainder={drop})", "input.drop_remainder")
    kept = wanted.input.cache != "off"
    if kept:
        _load(script, wanted, "    ", "samples")
        _cache(script, wanted, "train")
    script.text("\n    def one_pass(number):")
    _order(script, wanted)
    if not kept:
        _load(script, wanted, "        ", "elements")
    script.text("        if vary:")
    script.add(f"            elements = elements.map(vary{parallel(wanted)})", "input.parallel_calls")
    batches = f"elements.batch(global_batch, drop_remainder={drop})"
    script.add(f"        return {batches}.take(per_pass)", "input.batch_size", "input.drop_remainder")
    script.text("")
    _endless(script, wanted)


def _order(script: Script, wanted: Options) -> None:
    if wanted.input.shuffle == "off":
        script.add("        elements = samples", "input.shuffle")
    else:
        script.add("        elements = samples.shuffle(buffer, seed=SEED + number)", "input.shuffle", "train.seed")


def _load(script: Script, wanted: Options, margin: str, name: str) -> None:
    script.text(f"{margin}if load:")
    script.add(f"{margin}    {name} = {name}.map(load{parallel(wanted)})", "input.parallel_calls")


def _cache(script: Script, wanted: Options, name: str) -> None:
    place = "" if wanted.input.cache == "memory" else f'str(CACHE / "{name}")'
    script.add(f"    samples = samples.cache({place})", "input.cache")


def _endless(script: Script, wanted: Options) -> None:
    if wanted.input.augment == "off":
        script.text("    return tf.data.Dataset.counter().flat_map(one_pass), per_pass\n\n")
        return
    script.text("    def numbered(number):")
    script.text("        return one_pass(number).enumerate().map(lambda i, batch: ((number, i), batch))\n")
    script.text("    def augmented(position, batch):")
    script.text("        x, *rest = batch if isinstance(batch, tuple) else (batch,)")
    script.add("        seed = tf.stack([SEED + position[0], position[1]])", "train.seed")
    script.add(f'        return (augment(x, "{wanted.input.augment}", seed), *rest)', "input.augment")
    script.text("\n    passes = tf.data.Dataset.counter()")
    script.add("    if not is_image(passes.flat_map(one_pass).element_spec):", "input.augment")
    script.text("        return passes.flat_map(one_pass), per_pass")
    changed = f"passes.flat_map(numbered).map(augmented{parallel(wanted)})"
    script.add(f"    return {changed}, per_pass", "input.augment", "input.parallel_calls")
    script.text("\n")


def _validating(script: Script, wanted: Options) -> None:
    script.text('\n\ndef validating(data):\n    """The same batches in each epoch."""')
    script.text('    count, some = made.get("validation_samples"), made.get("validation_steps") or -1')
    script.text('    if isinstance(data, tf.data.Dataset) and "map" not in made:')
    script.text("        return finished(data.take(batches_in(data, count, some < 0)).take(some))")
    script.text("    samples, count = single(data, count, some < 0)")
    script.text('    load = made.get("validation_map", made.get("map"))')
    _load(script, wanted, "    ", "samples")
    if wanted.input.cache != "off":
        _cache(script, wanted, "validation")
    batches = "samples.batch(global_batch).take(batches_of(count))"
    script.add(f"    return finished({batches}.take(some))", "input.batch_size")
    script.text("\n")


def _split(script: Script) -> None:
    script.text("if are_arrays(train) and validation is None:")
    script.text("    arrays = tf.nest.map_structure(as_array, as_fitted(train))")
    script.text("    total = len(tf.nest.flatten(arrays)[0])")
    script.add("    held_out = min(total - 1, round(total * VALIDATION_SPLIT))", "train.validation_split")
    script.add("    order = np.random.default_rng(SEED).permutation(total)", "train.seed")
    script.text("    if held_out:")
    script.text("        validation = tf.nest.map_structure(lambda array: array[order[total - held_out :]], arrays)")
    script.text("        train = tf.nest.map_structure(lambda array: array[order[: total - held_out]], arrays)")


def _handed_over(script: Script, wanted: Options) -> None:
    mirrored = wanted.strategy.kind == "mirrored"
    script.text(f"if {PYDATASET}:\n    batches_per_pass = len(train)")
    if mirrored:
        script.add("    train = Copied(train)", "strategy.kind")
    script.text('elif are_arrays(train) or "map" in made:')
    needed = wanted.train.steps_per_epoch is None
    script.text(f'    train, batches_per_pass = stream(*single(train, made.get("samples"), {needed}))')
    script.text(f'else:\n    batches_per_pass = batches_in(train, made.get("samples"), {needed})')
    script.text("    train = train.repeat()")
    script.text(f"if not {PYDATASET}:")
    if wanted.input.one_batch:
        script.add("    train = train.take(1).cache().repeat()", "input.one_batch", "nothing useful is learnt")
    script.text("    train = finished(train)")
    script.text("if validation is not None and not isinstance(validation, keras.utils.PyDataset):")
    script.text("    validation = validating(validation)")
    if mirrored:
        script.text("elif validation is not None:")
        script.add("    validation = Copied(validation)", "strategy.kind")
    if wanted.train.steps_per_epoch is None:
        script.text("if not 0 < batches_per_pass < 2**50:")
        script.text('    sys.exit("train has no end, or no batch: set train.steps_per_epoch")')
