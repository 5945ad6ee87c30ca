"""Describes a watched fit by the facts that Keras has of it: its preset, its started event, and its devices."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
import yaml

from ...finding import Finding
from ...job import environment_variables, machine_gpus, this_machine
from ...options import OPTIONS
from ...options.own_code import SCRIPT
from ...runs import events
from ...telemetry import resource_limits
from ..common import versions
from ..measure.run_report import RunReport
from ..setup import gpu_identity
from ..setup.devices import Devices, chips_too_old, unseen

LOOK = "gputui doctor --deep looks for the reason"


def preset(name: str, model: keras.Model, params: dict[str, Any], batch_size: int | None) -> str:
    """The options are from the model and from `params`, the arguments of fit."""
    script = Path(sys.argv[0]).name or "python"
    options: dict[str, Any] = {
        "schema_version": 1,
        "description": f"{name}: model.fit in {script}, looked at by Monitor",
        "precision": {"policy": keras.mixed_precision.global_policy().name},
        "compile": {"xla": bool(model.jit_compile), "steps_per_execution": int(model.steps_per_execution)},
        "train": {"epochs": int(params.get("epochs") or 1)},
    }
    if batch_size:
        replicas = int(model.distribute_strategy.num_replicas_in_sync)
        options["input"] = {"batch_size": max(1, batch_size // replicas)}
    return yaml.safe_dump(options, sort_keys=False, default_flow_style=None, allow_unicode=True)


def started(report: RunReport, model: keras.Model, present: Devices, steps_per_epoch: int | None) -> events.Started:
    """Return the started event of the fit on the devices `present`. A value that Keras does not know is None."""
    return events.Started(
        pid=os.getpid(),
        versions=versions.of_packages(),
        devices=list(present.names),
        gpus=[gpu.id for gpu in present.gpus],
        gpu_devices=present.gpus,
        options=yaml.safe_load(report.run.file("preset.yaml").read_text(encoding="utf-8")),
        actual={
            "jit_compile": bool(model.jit_compile),
            "optimizer": type(own).__name__ if (own := getattr(model, "optimizer", None)) is not None else None,
            "tf32": tf.config.experimental.tensor_float_32_execution_enabled()
            and not environment_variables.tf32_overridden(),
            "environment": environment_variables.recorded(os.environ),
        },
        replicas=int(model.distribute_strategy.num_replicas_in_sync),
        global_batch_size=report.speed.plan.global_batch_size or None,
        steps_per_epoch=steps_per_epoch,
        epochs=report.speed.plan.epochs,
        steps=report.speed.plan.steps,
        train_samples=None,
        validation_samples=None,
        cpus=resource_limits.usable_cpus(),
        inapplicable=dict.fromkeys((info.key for info in OPTIONS), SCRIPT),
    )


def devices(model: keras.Model) -> tuple[Devices, Finding | None]:
    """Return the devices that the fit trains on, and the fault because of which no GPU trains though one could."""
    here, seen = this_machine.read(), len(tf.config.list_physical_devices("GPU"))
    opened = tuple(device.name for device in tf.config.list_logical_devices("GPU"))
    if not opened:
        names = tuple(device.name for device in tf.config.list_logical_devices("CPU"))
        return Devices("CPU", names, shown=len(here.shown), seen=seen), _obstacle(here, seen)
    names = _training(model, opened)
    gpus, uncertain = gpu_identity.identify(names, here, {})
    return Devices("GPU", names, gpus=gpus, uncertain=uncertain, shown=len(here.shown), seen=seen), None


def _obstacle(here: machine_gpus.Machine, seen: int) -> Finding | None:
    """Return the reason why no GPU of this machine trains, unless it has none, or the script has hidden them."""
    if here.on_cpu_by_variable or (seen and not tf.config.get_visible_devices("GPU")):
        return None
    if too_old := chips_too_old(here, seen, ()):
        return Finding("warning", "GPU", too_old, "gputui doctor says which chips it supports")
    if here.shown:
        return Finding("warning", "GPU", f"the driver shows {len(here.shown)} GPU(s), and TensorFlow none", LOOK)
    what = unseen(here)
    return here.fault or (Finding("warning", "GPU", what, LOOK) if what else None)


def _training(model: keras.Model, opened: tuple[str, ...]) -> tuple[str, ...]:
    strategy = model.distribute_strategy
    if strategy.num_replicas_in_sync > 1:
        places = strategy.extended.worker_devices
    else:  # TensorFlow's default strategy has no such list
        places = [variable.value.device for variable in model.variables]
    used = {_short(str(place)) for place in places}
    return tuple(name for name in opened if _short(name) in used) or opened[:1]


def _short(name: str) -> str:
    return name.rpartition("device:")[2]


def warn_of_gpus(report: RunReport, present: Devices, obstacle: Finding | None) -> None:
    """Warn if no GPU trains although one could, which may be the script's own choice, or of an uncertain identity."""
    if obstacle is not None:
        report.warn("no_gpu", f"{obstacle.what}: the CPU trains", obstacle.remedy)
    if present.uncertain:
        report.warn("gpus_uncertain", present.uncertain, "GPU readings of this run may be of another GPU")
