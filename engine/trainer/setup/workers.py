"""Connects the workers of several machines through TensorFlow: MultiWorkerMirroredStrategy."""

from __future__ import annotations

import keras
import tensorflow as tf

from ...options import Options
from ..cluster.joining import SUSPENSION, Joined
from ..common.faults import TrainerError

APART = 1_000_003  # between the seeds of two workers
_WAYS = {"auto": "AUTO", "ring": "RING", "nccl": "NCCL"}


def connect(options: Options, joined: Joined) -> tf.distribute.Strategy:
    """The strategy over all workers; before it no device may have been opened. Raises TrainerError.

    Its constructor waits for the others, which have all met before, and lets no other thread run meanwhile; another
    process watches for a worker that ends.
    """
    way = _WAYS.get(options.strategy.communication)
    if way is None:
        message = f"strategy.communication={options.strategy.communication} exchanges within one machine"
        raise TrainerError("strategy", message, "set it to auto, ring or nccl")
    implementation = getattr(tf.distribute.experimental.CommunicationImplementation, way)
    wanted = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    try:
        with joined.lines.watched(joined.cluster):
            strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=wanted)
    except (RuntimeError, ValueError, tf.errors.OpError) as fault:
        reason = " ".join(str(fault).split())[:200]
        raise TrainerError("peer", f"TensorFlow could not connect the workers: {reason}", _hint(joined)) from None
    SUSPENSION.start()  # not before: that no thread ran while the others were waited for was no suspension
    return strategy


def require_alike(joined: Joined, kind: str, count: int) -> None:
    """Raises TrainerError where workers have other devices: the exchange of gradients would wait without end."""
    rows = joined.exchange.rows([float(count), float(kind == "GPU")])
    mine = rows[joined.cluster.index]
    for index, row in enumerate(rows):
        if (row != mine).any():
            theirs = f"{joined.cluster.named(index)} trains on {_devices(*row)}, and this one on {_devices(*mine)}"
            change = "give every worker as many GPUs in device.visible, or set it to none on all"
            raise TrainerError("peer", theirs, change)


def _devices(count: float, are_gpus: float) -> str:
    return f"{count:g} GPU{'s' if count > 1 else ''}" if are_gpus else "its CPU"


def draw_apart(model: keras.Model, joined: Joined) -> None:
    """Let layers such as dropout draw other numbers on each worker: with one seed all would treat their rows alike."""
    for variable in model.non_trainable_variables:
        if "seed_generator" in variable.path:
            for part in getattr(variable.value, "values", [variable.value]):
                seed, drawn = part.numpy()
                part.assign([(int(seed) + APART * joined.cluster.index) % 2**32, int(drawn)])


def _hint(joined: Joined) -> str:
    return f"see that every worker can reach the ports of the others; this is {joined.cluster}"
