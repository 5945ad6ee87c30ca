"""A rule about the learning rate of a training whose global batch several replicas make larger."""

from __future__ import annotations

from collections.abc import Iterator

from .. import plan
from ..job.machine import Machine
from ..job.training_gpus import visible_gpus
from ..options import Options
from ..units import amount
from .finding import Finding
from .gpus import on_cpu, replicas

KEY = "train.learning_rate_scaling"


def scaling(options: Options, machine: Machine) -> Iterator[Finding]:
    """Notes only, and only where scaling is asked for: a rate that stays may have been found for this global batch."""
    train, count = options.train, replicas(options, machine)
    factor = plan.rate_factor(train.learning_rate_scaling, count)
    rate = amount(train.learning_rate * factor)
    here = options.strategy.kind in ("single", "one_device", "mirrored")  # replicas of other machines are not known
    known = here and (bool(visible_gpus(options, machine)) or on_cpu(options, machine))
    if train.learning_rate_scaling != "none" and count == 1 and known:
        what = f"no effect with one replica: the learning rate stays {rate}"
        yield Finding("note", (KEY,), what, "it takes effect where strategy.kind trains several replicas")
    elif factor > 1 and not train.warmup_steps:
        yield Finding(
            "note",
            (KEY, "train.warmup_steps"),
            f"{count} replicas begin with {amount(factor)} times the learning rate, {rate}, in their first step",
            "let it rise in train.warmup_steps; Goyal et al. take the steps of 5 epochs",
        )
