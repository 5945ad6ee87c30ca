"""The length of the learning-rate schedule in the real run, for a trial that is cut short.

A trial's epoch never ends, so that a schedule that depends on the epoch's length would never decay. So the value of
`train.decay_steps` in the real run is computed here, where the number of samples is known without opening the data.
"""

from __future__ import annotations

from .. import plan
from ..checks import training_gpus
from ..options import Options
from ..telemetry.machine import Machine

# Samples before the validation split; the trainer's sources have these sizes (trainer/data/named.py).
_SAMPLES = {"digits": 1797, "mnist": 60_000, "fashion_mnist": 60_000, "cifar10": 50_000, "synthetic": 4096}


def decay_steps(options: Options, machine: Machine) -> int | None:
    """`train.decay_steps` as it would be in the real run.

    None where there is none (a constant rate) or where it cannot be known: data in files is not counted for it. The
    trial then keeps the initial learning rate of the schedule, on both sides of a comparison.
    """
    train = options.train
    if train.decay_steps is not None or train.schedule == "constant":
        return train.decay_steps
    per_epoch = train.steps_per_epoch or _batches_per_pass(options, machine)
    if per_epoch is None:
        return None
    return plan.decay_steps(train, per_epoch * train.epochs, per_epoch)


def _batches_per_pass(options: Options, machine: Machine) -> int | None:
    samples = _training_samples(options)
    if samples is None:
        return None
    replicas = _replicas(options, machine)
    whole, rest = divmod(samples, options.input.batch_size * replicas)
    return max(1, whole if options.input.drop_remainder or rest < replicas else whole + 1)


def _training_samples(options: Options) -> int | None:
    if options.workload.entry is not None:
        return None  # only the user's code knows
    kind = options.workload.source[0]
    sized_by_option = kind in ("synthetic", "tfrecord")
    samples = (options.workload.samples if sized_by_option else None) or _SAMPLES.get(kind)
    if samples is None:
        return None
    if options.train.validation == "test":
        return samples
    return samples - min(samples - 1, round(samples * options.train.validation_split))


def _replicas(options: Options, machine: Machine) -> int:
    if options.strategy.kind != "mirrored":
        return 1
    devices = options.strategy.devices
    if devices != "all":
        return max(1, len(devices))
    return max(1, len(training_gpus(options, machine))) * options.device.logical_devices
