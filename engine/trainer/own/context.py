"""The context: settings that the user's code may want to follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from ...options import Options


@dataclass(frozen=True)
class Context:
    """The one argument of `build`. Code that batches its data itself batches it by `global_batch_size`."""

    batch_size: int  # samples in one step on each replica
    global_batch_size: int  # samples in one step
    replicas: int
    steps_per_epoch: int | None  # train.steps_per_epoch; None: one pass over the data
    epochs: int
    seed: int
    precision: str  # the policy, which is already set, such as mixed_bfloat16
    map_parallel_calls: int | None  # for Dataset.map(num_parallel_calls=), as input.parallel_calls says
    args: Mapping[str, Any] = field(default_factory=dict)  # workload.args


def of(options: Options, replicas: int) -> Context:
    """The context of a training with these options."""
    assert options.train.seed is not None, "the launcher draws a seed"
    calls = options.input.parallel_calls
    parallel = {"off": None, "auto": tf.data.AUTOTUNE}
    return Context(
        batch_size=options.input.batch_size,
        global_batch_size=options.input.batch_size * replicas,
        replicas=replicas,
        steps_per_epoch=options.train.steps_per_epoch,
        epochs=options.train.epochs,
        seed=options.train.seed,
        precision=options.precision.policy,
        map_parallel_calls=parallel[calls] if isinstance(calls, str) else calls,
        args=dict(options.workload.args),
    )
