"""Rules about the copy of batches to the devices, and about gradient accumulation and parts of batches."""

from __future__ import annotations

from collections.abc import Iterator

from .. import plan
from ..job.machine import Machine
from ..options import Options
from ..options.workload import BYTE_ENCODINGS
from .finding import Finding


def _accumulation(options: Options, _machine: Machine) -> Iterator[Finding]:
    together, key = options.train.gradient_accumulation, "train.gradient_accumulation"
    if together > 1 and options.strategy.kind in plan.SEVERAL_REPLICAS:
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


def _micro_batches(options: Options, _machine: Machine) -> Iterator[Finding]:
    parts, key = options.train.micro_batches, "train.micro_batches"
    asked = [key] if parts > 1 else []
    asked += ["run.on_oom"] if options.run.on_oom == "accumulate" else []
    if asked and options.strategy.kind in plan.SEVERAL_REPLICAS and options.compile.xla is True:
        yield Finding(
            "error",
            (*asked, "compile.xla"),
            "XLA cannot compile parts of batches over several replicas",
            "set compile.xla=false",
        )
    if parts > options.input.batch_size and options.workload.entry is None:
        yield Finding(
            "warning",
            (key, "input.batch_size"),
            f"a batch of {options.input.batch_size} cannot have {parts} parts: each sample is one",
            f"set {key} to at most {options.input.batch_size}",
        )
    if options.run.on_oom == "accumulate" and options.run.checkpoint == "off":
        yield Finding(
            "note",
            ("run.on_oom", "run.checkpoint"),
            "without checkpoints a training whose memory runs out begins again",
            "set run.checkpoint=epoch, unless the training is short",
        )


def _cast(options: Options, _machine: Machine) -> Iterator[Finding]:
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
