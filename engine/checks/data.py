"""Rules about the copy of batches to the devices, and about gradient accumulation."""

from __future__ import annotations

from collections.abc import Iterator

from .. import plan
from ..options import Options
from ..options.data import BYTE_ENCODINGS
from ..telemetry.machine import Machine
from .finding import Finding


def _accumulation(options: Options, machine: Machine) -> Iterator[Finding]:
    together, key = options.train.gradient_accumulation, "train.gradient_accumulation"
    if together > 1 and options.strategy.kind == "mirrored":
        yield Finding(
            "error",
            (key, "strategy.kind"),
            "Keras cannot accumulate gradients over several replicas",
            f"set {key}=1; each replica adds its own batch to the global batch anyway",
        )
    steps = plan.training_steps(options)
    if together > 1 and steps is not None and steps % together:
        yield Finding(
            "warning" if steps < together else "note",
            (key,),
            f"the gradients of the last {steps % together} of {steps} steps are never applied",
            f"choose a divisor of {steps}, or another train.epochs or train.steps_per_epoch",
        )


def _cast(options: Options, machine: Machine) -> Iterator[Finding]:
    workload, why = options.workload, ""
    if options.input.cast != "device" or workload.entry is not None:
        return
    kind = workload.source[0]
    if kind == "synthetic" or (kind == "tfrecord" and workload.tfrecord_encoding not in BYTE_ENCODINGS):
        why, key = f"the {kind} data are not bytes (uint8)", "workload.data"
    elif workload.model == "transformer":
        why, key = "the transformer's tokens are created on the host", "workload.model"
    elif options.input.augment == "heavy":
        why, key = "heavy augmentation needs floats on the host", "input.augment"
    if why:
        yield Finding("warning", ("input.cast", key), f"device does nothing here: {why}", "set input.cast=host")
