"""The length of the learning-rate schedule in the real run, for a trial that is cut short.

A trial's epoch never ends, so that a schedule that depends on the epoch's length would never decay. So the value of
`train.decay_steps` in the real run is computed here, where the number of samples is known without opening the data.
"""

from __future__ import annotations

from .. import checks, plan
from ..options import Options
from ..telemetry.machine import Machine


def decay_steps(options: Options, machine: Machine) -> int | None:
    """`train.decay_steps` as it would be in the real run.

    None where there is none (a constant rate) or where it cannot be known: data in files is not counted for it. The
    trial then keeps the initial learning rate of the schedule, on both sides of a comparison.
    """
    train = options.train
    if train.decay_steps is not None or train.schedule == "constant":
        return train.decay_steps
    batches = _batches_per_pass(options, machine)
    if batches is None and train.steps_per_epoch is None:
        return None
    per_epoch = plan.steps_per_epoch(train, batches or 0)
    return plan.decay_steps(train, per_epoch * train.epochs, per_epoch)


def _batches_per_pass(options: Options, machine: Machine) -> int | None:
    samples = plan.training_samples(options.workload, options.train)
    if samples is None:
        return None
    replicas = checks.replicas(options, machine)
    batches = plan.batches_per_pass(
        samples, options.input.batch_size * replicas, replicas, options.input.drop_remainder
    )
    return max(1, batches)
