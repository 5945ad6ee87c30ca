"""Refuses a training whose batches cannot be computed in parts, before it begins (train.micro_batches, run.on_oom)."""

from __future__ import annotations

import keras

from ...options import Options
from ..common.faults import TrainerError
from .micro_batches import reductions as reductions_of

_MEANS = {"sum_over_batch_size", "mean"}


def check(options: Options, model: keras.Model, replicas: int) -> None:
    """Raises TrainerError where the options ask for parts and the training cannot have them."""
    asked = [f"train.micro_batches={options.train.micro_batches}"] if options.train.micro_batches > 1 else []
    if options.run.on_oom == "accumulate":
        asked.append("run.on_oom=accumulate")
    if asked and (reason := obstacle(model, replicas)):
        hint = "set train.micro_batches=1, and run.on_oom to stop or halve"
        raise TrainerError("micro_batches", f"{' and '.join(asked)} cannot be used: {reason}", hint)


def obstacle(model: keras.Model, replicas: int) -> str:
    """Why batches cannot be computed in parts, or nothing."""
    name = type(model).__name__
    if type(model).train_step is not keras.Model.train_step or "train_step" in vars(model):
        return f"{name} has a train_step of its own, which applies its gradients itself"
    if replicas > 1 and model.jit_compile:
        return "XLA compiles it for whole batches only over several replicas (compile.xla)"
    reductions = reductions_of(model)
    if reductions - _MEANS and len(reductions) > 1:
        return f"its losses have several reductions ({', '.join(sorted(map(str, reductions)))})"
    if reductions & {None, "none"}:
        return "its loss has no reduction, so that it is not a single number"
    if reductions and len(model._compile_loss._flat_losses) > 1 and "mean_with_sample_weight" in reductions:
        return "its losses are means by sample weights that differ from output to output"
    return ""
