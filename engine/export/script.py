"""Makes a plain TensorFlow script from a preset: the script does the same training without gputui. Its parts are in
the order that TensorFlow requires. A comment on each line names the option that it comes from, and changed options
without such a line are listed at the end. multi_worker is replaced by mirrored.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import cast

from ..interpreter import interpreter
from ..interpreter.compatibility import BLACKWELL_CAPABILITY
from ..options import BY_KEY, OPTIONS, Options
from ..options.own_code import Data, Handed, obstacle
from ..options.workload import BLOCKS, KERNEL_SIZE, STRIDES
from ..plan import MULTI_WORKER
from ..presets import Preset
from . import compile_and_fit, data, own_code
from .engine_source import Script, literal
from .own_code import Form

BUILDERS = {"mlp": "_mlp", "cnn": "_cnn", "separable_cnn": "_separable_cnn", "resnet50": "_resnet50"}
# Variables that TensorFlow and NVIDIA's libraries read in addition to a call that the options make.
OVERRULED = (
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_PER_DEVICE_MEMORY_LIMIT_MB",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "TF_DETERMINISTIC_OPS",
    "TF_CUDNN_DETERMINISTIC",
)
STANDARD = {
    "glob": "import glob",
    "importlib": "import importlib.util",
    "itertools": "import itertools",
    "math": "import math",
    "os": "import os",
    "random": "import random",
    "sys": "import sys",
    "time": "import time",
    "Path": "from pathlib import Path",
    "SimpleNamespace": "from types import SimpleNamespace",
    "Callable": "from collections.abc import Callable",
    "Mapping": "from collections.abc import Mapping",
    "dataclass": "from dataclasses import dataclass",
    "Any": "from typing import Any",
}
PACKAGES = {
    "keras": "import keras",
    "np": "import numpy as np",
    "tf": "import tensorflow as tf",
    "layers": "from keras import layers",
    "get_keras_mask": "from keras.src.backend.common.masking import get_keras_mask",
    "unscale_loss_for_distribution": "from keras.src.losses.loss import unscale_loss_for_distribution",
}


ONE_MACHINE = "# nor strategy.kind=multi_worker, with which Keras' own fit fails: it trains on the GPUs of one machine"


def to_script(preset: Preset, base: Path | None = None, form: Form | None = None) -> str:
    """The script needs only TensorFlow. Paths within `base` are made relative; `form` is of a user's data."""
    return with_paths(preset, base, form)[0]


def with_paths(preset: Preset, base: Path | None = None, form: Form | None = None) -> tuple[str, list[str]]:
    """Return the source that `to_script` returns, and the paths of this machine, not within `base`, in it."""
    options = preset.options
    if options.strategy.kind == MULTI_WORKER:  # Keras' own fit cannot train on several machines
        options = options.with_values({"strategy.kind": "mirrored", "strategy.communication": "auto"})
    body, environment, closing = Script(base), Script(), Script()
    _environment(environment, options)
    if base is not None:
        body.text("HERE = Path(__file__).resolve().parent")
    _constants(body, options, lambda key: _void(key, form))
    _devices(body, options)
    _strategy(body, options)
    if options.workload.entry is None:
        for write in (_data, _model, compile_and_fit.training):
            write(body, options)
    else:
        assert form is not None, "the script has what the form of the data needs"
        for write_own in own_code.PARTS:
            write_own(body, options, form)
    leftovers(closing, preset, body.named | environment.named, form)
    if options is not preset.options:
        closing.text(ONE_MACHINE)
    code = body.guarded()
    parts = (
        _head(preset),
        _imports(code, STANDARD),
        str(environment),
        _imports(code, PACKAGES),
        f"\n{code}",
        str(closing),
    )
    return "\n".join(filter(str.strip, parts)), body.paths


def _head(preset: Preset) -> str:
    title = _docstring(f"{preset.name}: {preset.description}" if preset.description else preset.name)
    python = preset.options.run.python or interpreter.from_environment()
    where = f"\ngputui trains it in {_docstring(python)}." if python else ""
    return (
        f'"""{title}\n\nPlain TensorFlow, exported by gputui. The comment at the end of a line names the option '
        f'that caused it.{where}\n"""\n'
    )


def _docstring(text: str) -> str:
    return "".join(c if c.isprintable() and c not in '"\\' else "'" for c in " ".join(text.split()))


def _imports(code: str, lines: dict[str, str]) -> str:
    # `os` is always included, because the script sets environment variables.
    names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    return "\n".join(line for name, line in lines.items() if name == "os" or name in names) + "\n"


def _environment(script: Script, options: Options) -> None:
    # before the import of TensorFlow, as CUDA and TensorFlow read these variables only once
    visible = options.device.visible
    script.add('os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"', "device.visible")
    if choice := options.device.choice:
        script.add(f"# {choice}: gputui chooses the GPUs at the start of a run; here CUDA_VISIBLE_DEVICES does.")
    elif visible != "all":
        names = "-1" if visible == "none" else ",".join(str(name) for name in visible)
        script.add(f'os.environ["CUDA_VISIBLE_DEVICES"] = {literal(names)}', "device.visible")
    for name in ("gpu_thread_mode", "gpu_thread_count", "allocator"):
        value, variable = getattr(options.device, name), "TF_GPU_" + name.upper().removeprefix("GPU_")
        if value not in ("global", "auto", "default"):
            script.add(f'os.environ["{variable}"] = {literal(str(value))}', f"device.{name}")
    if options.compile.xla_flags:
        flags = literal(" " + " ".join(options.compile.xla_flags.split()))
        script.add(f'os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + {flags}', "compile.xla_flags")
    # As trainer/setup/environment.py does.
    overruling = [*(["TF_GPU_ALLOCATOR"] if options.device.allocator == "default" else []), *OVERRULED]
    names = ", ".join(map(literal, overruling))
    script.text(f"for name in ({names}):  # the options decide instead")
    script.text("    os.environ.pop(name, None)")


def _constants(script: Script, options: Options, void: Callable[[str], str]) -> None:
    train = options.train
    if options.workload.entry is None:
        data.settings(script, options)
    script.add(f"BATCH_SIZE = {options.input.batch_size}", "input.batch_size")
    script.add(f"EPOCHS = {train.epochs}", "train.epochs")
    if not void("train.learning_rate"):
        script.add(f"LEARNING_RATE = {train.learning_rate}", "train.learning_rate")
    if not void("train.validation_split"):
        script.add(f"VALIDATION_SPLIT = {train.validation_split}", "train.validation_split")
    if train.seed is None:
        script.add("SEED = random.randrange(2**31)", "train.seed", "not given, so drawn at each start")
    else:
        script.add(f"SEED = {train.seed}", "train.seed")


def _devices(script: Script, options: Options) -> None:
    device = options.device
    script.section("devices: before anything touches them")
    for name in ("inter_op", "intra_op"):
        threads = getattr(device, f"{name}_threads")
        if threads != "auto":
            script.add(f"tf.config.threading.set_{name}_parallelism_threads({threads})", f"device.{name}_threads")
    if device.log_placement:
        script.add("tf.debugging.set_log_device_placement(True)", "device.log_placement")
    script.text('gpus = tf.config.list_physical_devices("GPU")')
    if device.divided:
        _partitions(script, options)
    else:
        script.text("for gpu in gpus:")
        script.add(f"    tf.config.experimental.set_memory_growth(gpu, {device.grows})", "device.memory_growth")
    if options.compile.xla == "auto" and options.strategy.kind == "single":
        # `auto` as in Keras, but not on chips on which XLA would end the process, as in trainer/setup/compiling.py
        chip = 'tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))'
        script.add('jit_compile = "auto"', "compile.xla")
        script.text(f"for gpu in gpus:\n    if {chip} >= {BLACKWELL_CAPABILITY}:")
        script.text("        jit_compile = False  # XLA of a TensorFlow built with CUDA below 12.8 crashes on it")
    tf32 = options.precision.tf32
    script.add(f"tf.config.experimental.enable_tensor_float_32_execution({tf32})", "precision.tf32")
    script.add("keras.utils.set_random_seed(SEED)", "train.seed")
    if options.train.deterministic:
        script.add("tf.config.experimental.enable_op_determinism()", "train.deterministic")
    if options.precision.policy != "float32":
        script.add(f'keras.mixed_precision.set_global_policy("{options.precision.policy}")', "precision.policy")


def _partitions(script: Script, options: Options) -> None:
    """Write the lines that limit each GPU's memory and divide it into logical devices, or else the CPU."""
    device = options.device
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


def _strategy(script: Script, options: Options) -> None:
    strategy = options.strategy
    if strategy.kind == "single":
        script.text("replicas, global_batch = 1, BATCH_SIZE")
        return
    script.section("strategy")
    script.text('devices = tf.config.list_logical_devices("GPU" if gpus else "CPU")')
    if strategy.devices == "all":
        script.text("names = [device.name for device in devices]")
    else:
        script.add(f"names = [devices[i].name for i in {list(strategy.devices)}]", "strategy.devices")
    if strategy.kind == "one_device":
        script.add("strategy = tf.distribute.OneDeviceStrategy(names[0])", "strategy.kind")
    else:
        _mirrored(script, options)
    script.text("replicas = strategy.num_replicas_in_sync\nglobal_batch = BATCH_SIZE * replicas")


def _mirrored(script: Script, options: Options) -> None:
    communication = options.strategy.communication
    kinds = {
        "nccl": "NcclAllReduce",
        "hierarchical_copy": "HierarchicalCopyAllReduce",
        "reduction_to_one_device": "ReductionToOneDevice",
    }
    keys = ["strategy.kind"]
    given = ""
    if communication in kinds:
        given, keys = f", cross_device_ops=tf.distribute.{kinds[communication]}()", [*keys, "strategy.communication"]
    script.define("trainer/exported.py", "EqualParts")
    script.add(f"strategy = EqualParts(names{given})", *keys)
    count = options.input.device_batches
    script.add(
        f"strategy.ahead = {count} if gpus else {int(options.input.prefetch != 'off')}", "input.prefetch_to_device"
    )


def _data(script: Script, options: Options) -> None:
    script.section("data")
    data.source(script, options)
    data.batches(script, options)


def _model(script: Script, options: Options) -> None:
    script.section("model")
    workload = options.workload
    name, width, norm = workload.model, workload.width, workload.normalization_of_model
    functions = ("_transformer",) if name == "transformer" else (BUILDERS[name], "_logits")
    constants = {"norm": norm} | ({} if workload.is_separable else {"separable": False})
    script.define("trainer/setup/models.py", *functions, options=options, constants=constants)
    if options.bytes_to_device:
        script.define("trainer/exported.py", "OfBytes")
    script.text("def build():")
    if name == "transformer":
        made = f"transformer(tuple(shape), classes, {width}, {workload.blocks or BLOCKS})"
        keys = ("model", "width", "normalization", "blocks")
        script.add(f"    return {made}", *(f"workload.{key}" for key in keys))
    else:
        script.text("    inputs = keras.Input(tuple(shape))")
        made, shaping = f"{name}(inputs, {width})", ["model", "width", "normalization"]
        if name in STRIDES:
            separable = ", separable=True" if workload.is_separable else ""
            sizes = f"kernel={workload.kernel_size or KERNEL_SIZE}, stride={workload.first_stride}{separable}"
            made, shaping = f"{name}(inputs, {width}, {sizes})", [*shaping, "kernel_size", "stride", "separable"]
        script.add(f"    features = {made}", *(f"workload.{key}" for key in shaping))
        if options.bytes_to_device:
            script.add(f'    model = OfBytes(inputs, logits(features, classes), name="{name}")', "input.cast")
            script.text("    model.scale = scale\n    return model")
        else:
            script.text(f'    return keras.Model(inputs, logits(features, classes), name="{name}")')


# ---- what a script leaves out ---------------------------------------------------------------------


TITLE = "# Not in this script:"
OF_PYDATASET = (
    "# Of a keras.utils.PyDataset also not, for Keras loads its batches with the workers that your code gives it:"
)
# Options of the input with one of these conditions are for tf.data: Keras does not obey them for a PyDataset.
OF_TF_DATA = ("applies", "prefetch", "device", "workers")
ONE_PASS = "# nor train.steps_per_epoch: Keras goes through it once in each epoch"


def leftovers(script: Script, preset: Preset, named: frozenset[str], form: Form | None = None) -> None:
    """Comment on changed options that are not `named`, with the reason, and on input options of a PyDataset `form`."""
    options = preset.options
    lines = [f"# {key}: {_reason(key, options, form)}" for key in preset.changed() if key not in named]
    if lines:
        script.text("\n".join(("", TITLE, *lines)))
    if form is not None and "pydataset" in form.kinds:
        of_tf_data = (info.key for info in OPTIONS if info.group == "input" and info.about.own in OF_TF_DATA)
        keys = textwrap.wrap(", ".join(of_tf_data), 88)
        one_pass = [] if options.train.steps_per_epoch is None else [ONE_PASS]
        script.text("\n".join(("", OF_PYDATASET, *(f"# {line}" for line in keys), *one_pass)))


def _reason(key: str, options: Options, form: Form | None) -> str:
    if key in ("train.nan_check_steps", "run.keep"):
        switch, off = ("train.stop_on_nan", not options.train.stop_on_nan)
        if key == "run.keep":
            switch, off = "run.checkpoint", options.run.checkpoint == "off"
        if off:
            return f"{switch} is off"
    not_exported = BY_KEY[key].about.not_exported
    return _void(key, form) or not_exported or "gputui's own; plain Keras has nothing like it"


def _void(key: str, form: Form | None) -> str:
    """Return why an option does not apply to the data of own code; empty also for PyDatasets (see `leftovers`)."""
    if form is None:
        return ""
    handed = Handed(
        cast(Data, form.train),
        own_optimizer=form.compiled or "optimizer" in form.given,
        images=form.images,
        validation=bool(form.validation) and not form.is_split,
        workers=2,
        hosted=not form.dense,
    )
    return obstacle(BY_KEY[key].about.own, handed)
