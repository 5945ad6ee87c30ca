"""The data of an exported script of a user's own code: what build returned becomes what fit takes.

The type of the data is known only when the script runs, so the script has all cases that docs/own-code.md names. Arrays
and single samples go through the trainer's own pipeline (trainer/data/batching.py); batched data is left as it is.
"""

from __future__ import annotations

from typing import Any

from ..options import Options
from .data import CACHE_FILE, WHOLE_TRAINING, cache_file
from .lines import Script
from .source import extract, specialised

PYDATASET = "isinstance(train, keras.utils.PyDataset)"
VALIDATION_PYDATASET = "isinstance(validation, keras.utils.PyDataset)"


def data(script: Script, options: Options) -> None:
    """Writes the code that turns train and validation into the data that fit takes, and that defines per_pass."""
    script.section("data")
    script.blocks(extract("plan.py", "batches_per_pass"))
    script.blocks(extract("trainer/data/source.py", "split_order"))
    script.named_blocks(_functions(options))
    script.blocks(extract("trainer/exported.py", "are_arrays", "elements_of", "batches_in"))
    script.blocks(extract("trainer/own/streams.py", "as_array"))
    script.blocks(extract("trainer/own/model_checks.py", "can_evaluate"))
    if options.strategy.kind == "mirrored":
        script.blocks(extract("trainer/exported.py", "Copied"))
    file = cache_file(script, options, " or your code")
    _stream(script, options, file)
    _validating(script, file)
    _split(script)
    _handed_over(script, options)


def _functions(options: Options) -> list[str]:
    """The source of the functions of the trainer's own pipeline, with the values of these options."""
    constants: dict[str, Any] = {**WHOLE_TRAINING, **CACHE_FILE.get(options.input.cache, {})}
    augmenting = []
    if options.input.augment == "off":
        constants["numbered"] = False
    else:
        augmenting = specialised(
            "trainer/own/streams.py", "is_image", "augmented_batches", options=options, constants=constants
        )
    pipeline = ("training_batches", "validation_batches")
    return [
        *specialised("trainer/data/batching.py", *pipeline, options=options, constants=constants),
        *specialised("trainer/data/finishing.py", "one_batch", "ahead", options=options, constants=constants),
        *augmenting,
    ]


def _stream(script: Script, options: Options, file: str) -> None:
    script.text('\n\ndef stream(elements, per_pass):\n    """Batches without an end."""')
    script.text("    sizes = Sizes(global_batch, per_pass, SEED)")
    if options.input.augment == "off":
        script.text(f"    return training_batches(elements, sizes{file})\n\n")
        return
    script.add("    images = is_image(loaded(elements.dataset, elements.load).element_spec)", "input.augment")
    script.text(f"    batches = training_batches(elements, sizes{file}, numbered=images)")
    script.text("    return augmented_batches(batches, SEED) if images else batches\n\n")


def _validating(script: Script, file: str) -> None:
    script.text('\n\ndef validating(data):\n    """The same batches in each epoch."""')
    script.text('    count, some = made.get("validation_samples"), made.get("validation_steps") or -1')
    script.text('    if isinstance(data, tf.data.Dataset) and "map" not in made:')
    script.text("        return ahead(data.take(batches_in(data, count, some < 0)).take(some))")
    script.text('    elements = elements_of(data, count, made.get("validation_map", made.get("map")), None, some < 0)')
    script.text("    per_pass = batches_per_pass(elements.samples, global_batch, replicas)")
    script.text("    sizes = Sizes(global_batch, per_pass, SEED)")
    script.text(f"    return ahead(validation_batches(elements, sizes{file}).take(some))\n\n")


def _split(script: Script) -> None:
    script.text('if are_arrays(train) and validation is None and can_evaluate(model, made.get("loss")):')
    script.text("    arrays = tf.nest.map_structure(as_array, as_fitted(train))")
    script.text("    total = len(tf.nest.flatten(arrays)[0])")
    drawn = "trained, held_out = split_order(total, VALIDATION_SPLIT, SEED)"
    script.add(f"    {drawn}", "train.validation_split", "train.seed")
    script.text("    if len(held_out):")
    script.text("        validation = tf.nest.map_structure(lambda array: array[held_out], arrays)")
    script.text("        train = tf.nest.map_structure(lambda array: array[trained], arrays)")


def _handed_over(script: Script, options: Options) -> None:
    mirrored = options.strategy.kind == "mirrored"
    needed = options.train.steps_per_epoch is None
    script.text(f"if {PYDATASET}:\n    per_pass = len(train)")
    if mirrored:
        script.add("    train = Copied(train)", "strategy.kind")
    script.text('elif are_arrays(train) or "map" in made:')
    script.text(
        f'    elements = elements_of(train, made.get("samples"), made.get("map"), made.get("augment"), {needed})'
    )
    drop = f"drop_remainder={options.input.drop_remainder}"
    counted = f"batches_per_pass(elements.samples, global_batch, replicas, {drop})"
    script.add(f"    per_pass = {counted}", "input.drop_remainder")
    script.text("    train = ahead(one_batch(stream(elements, per_pass)))")
    script.text(f'else:\n    per_pass = batches_in(train, made.get("samples"), {needed})')
    script.text("    train = ahead(one_batch(train.repeat()))")
    script.text("if validation is not None and not isinstance(validation, keras.utils.PyDataset):")
    script.text("    validation = validating(validation)")
    if mirrored:
        script.text("elif validation is not None:")
        script.add("    validation = Copied(validation)", "strategy.kind")
    if needed:
        script.text("if not 0 < per_pass < 2**50:")
        script.text('    sys.exit("train has no end, or no batch: set train.steps_per_epoch")')
