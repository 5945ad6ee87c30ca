"""Options -> a plain TensorFlow script that trains the same without gputui.

The order of the script is the order TensorFlow obeys: environment, devices, precision, strategy, data, model,
compile, fit. Each line that an option caused names it; what plain code cannot express stands in a comment.
"""

from __future__ import annotations

import re

from . import export_callbacks, export_data
from .export_source import extract
from .export_text import Script, literal
from .options import Options
from .presets import Preset

BUILDERS = {"mlp": "_mlp", "cnn": "_cnn", "separable_cnn": "_separable_cnn", "resnet50": "_resnet50"}
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "rmsprop": "RMSprop"}
STANDARD = {
    "glob": "import glob",
    "math": "import math",
    "os": "import os",
    "random": "import random",
    "time": "import time",
    "Path": "from pathlib import Path",
    "Any": "from typing import Any",
}
PACKAGES = {
    "keras": "import keras",
    "np": "import numpy as np",
    "tf": "import tensorflow as tf",
    "layers": "from keras import layers",
}
OUTSIDE = {
    "run.hang_seconds": "needs a process that watches this one",
    "run.sample_seconds": "needs a process that watches this one",
    "run.measure_seconds": "ends a run that is measured; a script trains to its end",
    "run.pcie": "needs a process that watches this one",
    "run.keep": "Keras' callbacks keep one checkpoint",
    "train.nan_check_steps": "TerminateOnNaN looks at the loss of every batch, not at the weights",
}
NOTHING_TO_EXPORT = "your own code is plain Keras already, and runs without gputui"


def to_script(preset: Preset) -> str:
    """The source of a script; running it needs TensorFlow and nothing else."""
    wanted = preset.options
    if wanted.workload.entry is not None:
        return f'"""{_docstring(preset.name)}: {_docstring(wanted.workload.entry)}: {NOTHING_TO_EXPORT}."""\n'
    body = Script()
    for write in (_constants, _devices, _strategy, _data, _model, _compile, _fit):
        write(body, wanted)
    _leftovers(body, preset)
    environment = Script()
    _environment(environment, wanted)
    code = str(body)
    return "\n".join((_head(preset), _imports(code, STANDARD), str(environment), _imports(code, PACKAGES), code))


def _head(preset: Preset) -> str:
    title = _docstring(f"{preset.name}: {preset.description}" if preset.description else preset.name)
    return (
        f'"""{title}\n\nPlain TensorFlow, exported by gputui. The comment at the end of a line names the option '
        'that caused it.\n"""\n'
    )


def _docstring(text: str) -> str:
    """Text that cannot end or escape a docstring."""
    return "".join(c if c.isprintable() and c not in '"\\' else "'" for c in " ".join(text.split()))


def _imports(code: str, lines: dict[str, str]) -> str:
    """The imports that the code uses; os is for the environment."""
    used = [line for name, line in lines.items() if name == "os" or re.search(rf"(?<![.\w]){name}\b", code)]
    return "\n".join(used) + "\n"


def _environment(script: Script, wanted: Options) -> None:
    """What CUDA and TensorFlow read once, before they are imported."""
    visible = wanted.device.visible
    script.add('os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"', "device.visible")
    if visible != "all":
        names = "-1" if visible == "none" else ",".join(str(name) for name in visible)
        script.add(f'os.environ["CUDA_VISIBLE_DEVICES"] = {literal(names)}', "device.visible")
    if wanted.device.gpu_thread_mode != "global":
        mode = literal(wanted.device.gpu_thread_mode)
        script.add(f'os.environ["TF_GPU_THREAD_MODE"] = {mode}', "device.gpu_thread_mode")


def _constants(script: Script, wanted: Options) -> None:
    train = wanted.train
    export_data.settings(script, wanted)
    script.add(f"BATCH_SIZE = {wanted.input.batch_size}", "input.batch_size")
    script.add(f"EPOCHS = {train.epochs}", "train.epochs")
    script.add(f"LEARNING_RATE = {train.learning_rate}", "train.learning_rate")
    script.add(f"VALIDATION_SPLIT = {train.validation_split}", "train.validation_split")
    if train.seed is None:
        script.add("SEED = random.randrange(2**31)", "train.seed", "not given, so drawn at each start")
    else:
        script.add(f"SEED = {train.seed}", "train.seed")


def _devices(script: Script, wanted: Options) -> None:
    device = wanted.device
    script.section("devices: before anything touches them")
    for name in ("inter_op", "intra_op"):
        threads = getattr(device, f"{name}_threads")
        if threads != "auto":
            script.add(f"tf.config.threading.set_{name}_parallelism_threads({threads})", f"device.{name}_threads")
    if device.log_placement:
        script.add("tf.debugging.set_log_device_placement(True)", "device.log_placement")
    script.text('gpus = tf.config.list_physical_devices("GPU")')
    if device.logical_devices > 1 or device.memory_limit_mb is not None:
        _partitions(script, wanted)
    else:
        script.text("for gpu in gpus:")
        script.add(f"    tf.config.experimental.set_memory_growth(gpu, {device.memory_growth})", "device.memory_growth")
    tf32 = wanted.precision.tf32
    script.add(f"tf.config.experimental.enable_tensor_float_32_execution({tf32})", "precision.tf32")
    script.add("keras.utils.set_random_seed(SEED)", "train.seed")
    if wanted.train.deterministic:
        script.add("tf.config.experimental.enable_op_determinism()", "train.deterministic")
    if wanted.precision.policy != "float32":
        script.add(f'keras.mixed_precision.set_global_policy("{wanted.precision.policy}")', "precision.policy")


def _partitions(script: Script, wanted: Options) -> None:
    """Limited or divided memory; a CPU is divided without limits."""
    device = wanted.device
    if device.memory_limit_mb is None:
        script.add("LIMIT_MB = 4096", "device.memory_limit_mb", "not given: gputui shares out 90 % of each GPU")
    else:
        script.add(f"LIMIT_MB = {device.memory_limit_mb}", "device.memory_limit_mb")
    parts = f"[tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_MB)] * {device.logical_devices}"
    script.text("for gpu in gpus:")
    script.add(f"    tf.config.set_logical_device_configuration(gpu, {parts})", "device.logical_devices")
    if device.logical_devices > 1:
        cpu = 'tf.config.list_physical_devices("CPU")[0]'
        parts = f"[tf.config.LogicalDeviceConfiguration()] * {device.logical_devices}"
        script.text("if not gpus:")
        script.add(f"    tf.config.set_logical_device_configuration({cpu}, {parts})", "device.logical_devices")


def _strategy(script: Script, wanted: Options) -> None:
    strategy = wanted.strategy
    if strategy.kind == "single":
        script.text("global_batch = BATCH_SIZE")
        return
    script.section("strategy")
    script.text('devices = tf.config.list_logical_devices("GPU" if gpus else "CPU")')
    if strategy.devices == "all":
        script.text("names = [device.name for device in devices]")
    else:
        script.add(f"names = [devices[i].name for i in {list(strategy.devices)}]", "strategy.devices")
    if strategy.kind == "one_device":
        script.add("strategy = tf.distribute.OneDeviceStrategy(names[0])", "strategy.kind")
    elif strategy.kind == "mirrored":
        _mirrored(script, strategy.communication)
    else:
        script.add("strategy = tf.distribute.get_strategy()", "strategy.kind", f"{strategy.kind} is not expressed")
    script.text("global_batch = BATCH_SIZE * strategy.num_replicas_in_sync")


def _mirrored(script: Script, communication: str) -> None:
    kinds = {
        "nccl": "NcclAllReduce",
        "hierarchical_copy": "HierarchicalCopyAllReduce",
        "reduction_to_one_device": "ReductionToOneDevice",
    }
    told = ["strategy.kind"]
    given = ""
    if communication in kinds:
        given, told = f", cross_device_ops=tf.distribute.{kinds[communication]}()", [*told, "strategy.communication"]
    script.add(f"strategy = tf.distribute.MirroredStrategy(names{given})", *told)


def _data(script: Script, wanted: Options) -> None:
    script.section("data")
    export_data.source(script, wanted)
    export_data.batches(script, wanted)


def _model(script: Script, wanted: Options) -> None:
    script.section("model")
    name, width = wanted.workload.model, wanted.workload.width
    if name == "transformer":
        script.blocks(extract("models.py", "_transformer"))
    else:
        script.blocks(extract("models.py", BUILDERS[name], "_logits"))
    script.text("\n\ndef build():")
    if name == "transformer":
        script.add(f"    return transformer(tuple(shape), classes, {width})", "workload.model", "workload.width")
    else:
        script.text("    inputs = keras.Input(tuple(shape))")
        script.add(f"    features = {name}(inputs, {width})", "workload.model", "workload.width")
        script.text(f'    return keras.Model(inputs, logits(features, classes), name="{name}")')
    script.text("")


def _compile(script: Script, wanted: Options) -> None:
    script.section("training")
    steps = wanted.train.steps_per_epoch
    if steps is None:
        script.text("steps_per_epoch = batches_per_pass")
    else:
        script.add(f"steps_per_epoch = {steps}", "train.steps_per_epoch")
    script.text("steps = steps_per_epoch * EPOCHS")
    together = wanted.compile.steps_per_execution
    if together > 1 and wanted.strategy.kind != "mirrored":
        script.text("# Keras runs whole executions only: they have to divide the epoch.")
        script.add(f"steps_together = max(n for n in range(1, {together} + 1) if steps_per_epoch % n == 0)",
                   "compile.steps_per_execution")
    _rate(script, wanted)
    inner = wanted.strategy.kind != "single"
    if inner:
        script.add("with strategy.scope():", "strategy.kind")
    margin = "    " if inner else ""
    script.text(f"{margin}model = build()\n{margin}model.compile(")
    _optimizer(script, wanted, margin)
    script.text(f"{margin}    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),")
    script.text(f'{margin}    metrics=["accuracy"],')
    _compiled(script, wanted, margin)
    script.text(f"{margin})")


def _compiled(script: Script, wanted: Options, margin: str) -> None:
    """Keras' own fit cannot do both of XLA and several steps an execution over replicas."""
    mirrored = wanted.strategy.kind == "mirrored"
    xla, together = wanted.compile.xla, wanted.compile.steps_per_execution
    unable = ("Keras' fit fails with it over several replicas",) if mirrored else ()
    script.add(f"{margin}    jit_compile={xla and not mirrored},", "compile.xla", *(unable if xla else ()))
    script.add(
        f"{margin}    steps_per_execution={1 if mirrored or together == 1 else 'steps_together'},",
        "compile.steps_per_execution",
        *(unable if together > 1 else ()),
    )


def _rate(script: Script, wanted: Options) -> None:
    """`rate`: a number, one of Keras' schedules, or the trainer's own where Keras has none like it."""
    train = wanted.train
    if train.schedule == "constant" and not train.warmup_steps:
        script.text("rate = LEARNING_RATE")
        return
    after = f"max(1, steps - {train.warmup_steps})" if train.warmup_steps else "steps"
    default = {"step": f"max(1, {after} // 3)", "cyclical": "steps_per_epoch"}
    decay = train.decay_steps or default.get(train.schedule, after)
    script.add(f"decay_steps = {decay}", "train.decay_steps")
    schedules = "keras.optimizers.schedules"
    calls = {
        "cosine": f"{schedules}.CosineDecay(LEARNING_RATE, decay_steps, alpha={train.decay_rate})",
        "exponential": f"{schedules}.ExponentialDecay(LEARNING_RATE, decay_steps, {train.decay_rate})",
        "step": f"{schedules}.ExponentialDecay(LEARNING_RATE, decay_steps, {train.decay_rate}, staircase=True)",
    }
    if train.schedule in calls and not train.warmup_steps:
        script.add(f"rate = {calls[train.schedule]}", "train.schedule", "train.decay_rate")
        return
    script.blocks(extract("optimizer.py", "Schedule"))
    script.text("rate = Schedule(")
    script.add(f'    kind="{train.schedule}",', "train.schedule")
    script.add("    learning_rate=LEARNING_RATE,", "train.learning_rate")
    script.add(f"    warmup_steps={train.warmup_steps},", "train.warmup_steps")
    script.add("    decay_steps=decay_steps,", "train.decay_steps")
    script.add(f"    decay_rate={train.decay_rate},", "train.decay_rate")
    script.text(")")


def _optimizer(script: Script, wanted: Options, margin: str) -> None:
    train = wanted.train
    script.add(f"{margin}    optimizer=keras.optimizers.{OPTIMIZERS[train.optimizer]}(", "train.optimizer")
    script.text(f"{margin}        learning_rate=rate,")
    for name, argument in (
        ("clip_norm", "clipnorm"), ("clip_value", "clipvalue"), ("global_clip_norm", "global_clipnorm")
    ):
        value = getattr(train, name)
        if value is not None:
            script.add(f"{margin}        {argument}={value},", f"train.{name}")
    script.text(f"{margin}    ),")


def _fit(script: Script, wanted: Options) -> None:
    export_callbacks.callbacks(script, wanted)
    script.text("model.fit(\n    train,\n    epochs=EPOCHS,")
    script.text("    steps_per_epoch=steps_per_epoch,  # the stream has no end")
    if wanted.train.validation_split:
        script.add("    validation_data=validation,", "train.validation_split")
    script.text("    callbacks=callbacks,\n    shuffle=False,  # the dataset is shuffled already\n    verbose=2,\n)")
    if wanted.run.save_model:
        script.add('model.save("model.keras")', "run.save_model")


def _leftovers(script: Script, preset: Preset) -> None:
    """Changed options that no line obeys are named, so that nothing is lost in silence."""
    code = str(script)
    environment = Script()
    _environment(environment, preset.options)
    code += str(environment)
    left = [key for key in preset.changed() if key not in code]
    if left:
        script.text("\n# Not in this script:")
    for key in left:
        script.text(f"# {key}: {OUTSIDE.get(key, 'changes nothing here')}")
