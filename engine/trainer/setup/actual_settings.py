"""Reads back from TensorFlow and Keras how the training was really built, and compares it with the options. Both
accept settings that they do not follow: soft placement trains on the CPU, Keras turns XLA off, memory growth is
dropped.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections import Counter
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf

from ...files import places
from ...job.environment_variables import tf32_overridden
from ...options import Options
from ...runs.events import ActualSettings
from ..common.model_facts import loss_of
from ..common.versions import autograph_config, autograph_loader
from ..data.finishing import batches_ahead
from ..data.pipeline import Pipeline
from .compiling import highest_rate
from .devices import Devices

Difference = tuple[str, str]  # option key, the actual state


def read(options: Options, model: keras.Model, pipeline: Pipeline, devices: Devices) -> ActualSettings:
    """Return the settings that are really in effect, as plain values for `actual` of the `started` event."""
    stream = pipeline.stream()
    settings = stream.options()
    threading, outputs = tf.config.threading, getattr(model, "outputs", None)
    return {
        "variables_on": dict(Counter(_place(variable) for variable in model.variables)),
        # Counters are integers, which TensorFlow keeps on the CPU even if a GPU trains.
        "weights_on_cpu": sum(
            "CPU" in _place(variable) for variable in model.variables if keras.backend.is_float_dtype(variable.dtype)
        ),
        "devices": list(devices.names),
        "jit_compile": bool(model.jit_compile),
        "steps_per_execution": int(model.steps_per_execution),
        "compute_dtypes": dict(Counter(str(layer.compute_dtype) for layer in model.layers)),
        # A subclassed model's outputs are unknown before it has run.
        "output_dtype": str(keras.backend.standardize_dtype(outputs[0].dtype)) if outputs else None,
        "optimizer": type(model.optimizer).__name__,
        **loss_of(model),
        "learning_rate": highest_rate(model.optimizer),
        "strategy": type(model.distribute_strategy).__name__ if options.strategy.kind != "single" else "none",
        "replicas": int(model.distribute_strategy.num_replicas_in_sync),
        "inject_prefetch": settings.experimental_optimization.inject_prefetch is not False,
        "device_batches": 0 if pipeline.on_demand else batches_ahead(options.input, devices.kind, stream.element_spec),
        "deterministic_order": settings.deterministic,
        "private_threads": settings.threading.private_threadpool_size,
        "inter_op_threads": threading.get_inter_op_parallelism_threads(),
        "intra_op_threads": threading.get_intra_op_parallelism_threads(),
        "tf32": tf.config.experimental.tensor_float_32_execution_enabled() and not tf32_overridden(),
        "memory_growth": _growth(),
        "parameters": sum(math.prod(variable.shape) for variable in model.weights),
    }


def differences(options: Options, actual: ActualSettings, devices: Devices) -> list[Difference]:
    """Return the key of each option whose setting is not in effect, and a sentence about the value in `actual`."""
    differing: list[Difference] = []
    if options.compile.xla not in ("auto", actual["jit_compile"]):
        differing.append(("compile.xla", f"Keras set jit_compile to {actual['jit_compile']} for this model"))
    if options.device.visible != "none" and devices.kind == "CPU" and devices.unknown:
        what = f"TensorFlow sees no GPU and uses the CPU; whether there are GPUs is not known: {devices.unknown}"
        differing.append(("device.visible", what))
    elif options.device.visible != "none" and devices.kind == "GPU" and devices.seen < devices.shown:
        lost = f"the driver has lost {', '.join(devices.lost)}, and TensorFlow sees {devices.seen} GPU(s)"
        what = f"the driver shows {devices.shown} GPU(s), but TensorFlow sees only {devices.seen}"
        differing.append(("device.visible", lost if devices.lost else what))
    if devices.kind == "GPU" and actual["weights_on_cpu"]:
        differing.append(("device.visible", "variables of the model are on the CPU"))
    dtype = options.precision.policy.removeprefix("mixed_")
    if options.workload.entry is not None and dtype == "float32":
        dtype = keras.config.floatx()
    if dtype not in actual["compute_dtypes"]:
        differing.append(("precision.policy", f"no layer computes in {dtype}"))
    if devices.kind == "GPU" and options.precision.tf32 and tf32_overridden():
        differing.append(("precision.tf32", "NVIDIA_TF32_OVERRIDE=0 turns it off in NVIDIA's libraries"))
    if options.input.prefetch == "off" and actual["inject_prefetch"]:
        differing.append(("input.prefetch", "TensorFlow may add a prefetch"))
    if devices.kind == "GPU" and options.device.grows and not actual["memory_growth"]:
        differing.append(("device.memory_growth", "TensorFlow takes all of the GPU's memory at the start"))
    return differing


def _place(variable: Any) -> str:
    value = getattr(variable.value, "values", [variable.value])
    return "+".join(re.sub(r".*/task:\d+|/device", "", str(part.device)) for part in value)


def _growth() -> bool | None:
    gpus = tf.config.get_visible_devices("GPU")
    try:
        return all(tf.config.experimental.get_memory_growth(gpu) for gpu in gpus) if gpus else None
    except ValueError:
        return None


# ---- AutoGraph ------------------------------------------------------------------------------------


def write_into_run_folder() -> None:
    """Make AutoGraph write its temporary files into GPUTUI_SCRATCH, while it is set and exists, in place of TMPDIR."""
    folder = os.environ.get(places.SCRATCH_VARIABLE)
    if folder is not None:

        def temporary_file(**how: Any) -> Any:
            return tempfile.NamedTemporaryFile(**{"dir": folder if os.path.isdir(folder) else None} | how)

        autograph_loader.tempfile = SimpleNamespace(**vars(tempfile) | {"NamedTemporaryFile": temporary_file})


def exclude_ours() -> None:
    ours = autograph_config.DoNotConvert(__name__.partition(".")[0])
    autograph_config.CONVERSION_RULES = (ours, *autograph_config.CONVERSION_RULES)
