"""How long a training is: the arithmetic of steps, before anything is built. Imports no TensorFlow."""

from __future__ import annotations

from .options import Train


def decay_steps(train: Train, steps: int, steps_per_epoch: int) -> int:
    """`train.decay_steps`, or what it comes to in a run of `steps` steps where it is not given.

    All steps after warm-up and hold; a third of them between two drops of `step`; an epoch for a cycle of `cyclical`.
    """
    if train.decay_steps is not None:
        return train.decay_steps
    left = max(1, steps - train.warmup_steps - train.hold_steps)
    return {"step": max(1, left // 3), "cyclical": steps_per_epoch}.get(train.schedule, left)
