"""Calculates the steps, batches, samples and replicas of a training, and how long is enough for a measurement. Exported
scripts contain these functions (export/engine_source.py). Imports nothing at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .options import Options, Strategy, Train, Workload
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Samples of the named data before the validation split. The classes of synthetic data are an option.
SAMPLES = {"digits": 1797, "mnist": 60_000, "fashion_mnist": 60_000, "cifar10": 50_000, "synthetic": 4096}
KIND: Final = "strategy.kind"
MULTI_WORKER: Final = "multi_worker"  # the kind of a training on several machines
SEVERAL_REPLICAS = ("mirrored", MULTI_WORKER)
WARMUP_STEPS = 20
LEAST_STEPS = 20  # measured steps that a verdict needs
MOST_TIMES = 12  # times the requested seconds: then a measured run ends, even with fewer steps


# ---- samples and batches ------------------------------------------------------------------------


def trained_samples(samples: int, validation_split: float) -> int:
    """Return the number of samples for training, at least one. The share for validation is from 0 to 1."""
    return max(1, samples - round(samples * validation_split))


def batches_per_pass(samples: int, global_batch: int, replicas: int = 1, drop_remainder: bool = False) -> int:
    """Return the number of batches of `global_batch` samples in one pass over `samples` samples. A last, smaller
    batch counts only if each replica gets at least one of its samples and `drop_remainder` is False.
    """
    whole, rest = divmod(samples, global_batch)
    return whole if drop_remainder or rest < replicas else whole + 1


def samples_seen(steps: int, samples: int, global_batch: int, batches: int) -> int:
    """Return the samples of `steps` steps, in passes of `batches` batches, of which the last may be smaller."""
    passes, rest = divmod(steps, batches)
    of_a_pass = min(samples, batches * global_batch)
    return passes * of_a_pass + min(rest * global_batch, of_a_pass)


def smaller_last_batch(samples: int, global_batch: int, batches: int) -> bool:
    """Return True if the last batch of a pass is smaller than `global_batch`."""
    return batches * global_batch > samples


def training_samples(workload: Workload, train: Train) -> int | None:
    """Return the samples of one pass, without a split's; None if the data would have to be opened to know it."""
    if workload.entry is not None:
        return None
    kind = workload.source[0]
    given = workload.samples if kind in ("synthetic", "tfrecord") else None
    samples = given or SAMPLES.get(kind)
    if samples is None or train.validation == "test":
        return samples
    return trained_samples(samples, train.validation_split)


# ---- replicas -----------------------------------------------------------------------------------


def devices(options: Options, gpus: int) -> int:
    """The logical devices; without a GPU, of the CPU."""
    return max(1, gpus) * options.device.logical_devices


def replicas(strategy: Strategy, devices: int, workers: int = 1) -> int:
    """Return the replicas of all workers. `devices` are the logical devices of each worker."""
    if strategy.kind not in SEVERAL_REPLICAS:
        return 1
    here = devices if strategy.devices == "all" else max(1, len(strategy.devices))
    return here * workers if strategy.kind == MULTI_WORKER else here


def global_batch(options: Options, replicas: int) -> int:
    return options.input.batch_size * replicas


def gpus_used(replicas: int, logical_devices: int) -> int:
    return -(-replicas // logical_devices)


def rate_factor(scaling: str, growth: float) -> float:
    """Return the factor of the learning rate for a global batch that is `growth` times as large. `linear`: Goyal et
    al. 2017, Accurate, Large Minibatch SGD. `sqrt`: Krizhevsky 2014, One weird trick; for Adam, Malladi et al. 2022, On
    the SDEs and Scaling Rules for Adaptive Gradient Algorithms. For any other `scaling` it is 1.
    """
    if scaling == "linear":
        return growth
    return growth**0.5 if scaling == "sqrt" else 1.0


# ---- steps --------------------------------------------------------------------------------------


def steps_per_epoch(train: Train, batches: int) -> int:
    return train.steps_per_epoch or batches


def training_steps(options: Options, replicas: int = 1) -> int | None:
    """Return the steps on so many replicas; None if the data would have to be opened."""
    train, given = options.train, options.input
    samples = training_samples(options.workload, train)
    if samples is None and train.steps_per_epoch is None:
        return None
    batches = batches_per_pass(samples or 0, given.batch_size * replicas, replicas, given.drop_remainder)
    return train.epochs * steps_per_epoch(train, batches)


def decay_steps(train: Train, steps: int, steps_per_epoch: int) -> int:
    """Return `train.decay_steps`; if it is not given, its value in a run of `steps` steps. By default it is all
    steps after warm-up and hold; a third of them for the schedule `step`; `steps_per_epoch` for `cyclical`.
    """
    if train.decay_steps is not None:
        return train.decay_steps
    if train.schedule == "cyclical":
        return steps_per_epoch
    left = max(1, steps - train.warmup_steps - train.hold_steps)
    return max(1, left // 3) if train.schedule == "step" else left


def whole_executions(steps: int, together: int) -> int:
    """The largest multiple of `together` that is at most `steps`."""
    return steps // together * together


def steps_together(steps_per_epoch: int, together: int) -> int:
    """Return the largest number of steps per execution, at most `together`, that divides `steps_per_epoch`. Keras'
    own fit needs this, as it runs only whole executions.
    """
    return max(count for count in range(1, together + 1) if steps_per_epoch % count == 0)


# ---- measuring ---------------------------------------------------------------------------


def warmup_steps(steps: int) -> int:
    """The steps that are left out of the figures: 20, or a fifth of a short run."""
    return max(1, min(WARMUP_STEPS, steps // 5))


def enough(seconds: float, steps: int, asked: float) -> bool:
    """Return True if run.measure_seconds (`asked`) has passed. Fewer than 20 steps go on up to 12 times as long."""
    return seconds >= asked and (steps >= LEAST_STEPS or seconds >= MOST_TIMES * asked)


def expected_seconds(asked: float, step_seconds: float) -> float:
    return max(asked, min(MOST_TIMES * asked, LEAST_STEPS * step_seconds))


def seconds_to_ask(step_seconds: float) -> int:
    """Return the seconds for 20 steps and a margin: few steps go on up to 12 times as long as requested."""
    return int(1.5 * LEAST_STEPS * step_seconds / MOST_TIMES) + 1


Points = Sequence[tuple[int, int]]  # batch size, bytes
_HUBER = 1.345
_OF_MEDIAN = 1.4826  # times the median of the absolute residuals: the standard deviation of a normal distribution
_ROUNDS = 20


@dataclass(frozen=True)
class Line:
    """Memory in bytes over the batch size; a larger batch does not take less memory."""

    base: float
    bytes_per_sample: float

    def at(self, batch: int) -> float:
        return self.base + self.bytes_per_sample * batch


def through(points: Points) -> Line | None:
    """Return the line by least squares, in which points (batch size, bytes) far from it count less; None for one batch
    size.
    """
    if len({batch for batch, _ in points}) < 2:
        return None
    line = _least_squares(points, [1.0] * len(points))
    for _ in range(_ROUNDS):
        residuals = [abs(taken - line.at(batch)) for batch, taken in points]
        allowed = max(1.0, _HUBER * _OF_MEDIAN * statistics.median(residuals))
        line = _least_squares(points, [min(1.0, allowed / max(residual, 1.0)) for residual in residuals])
    return line


def _least_squares(points: Points, weights: Sequence[float]) -> Line:
    whole = sum(weights)
    batch = sum(weight * point for (point, _), weight in zip(points, weights, strict=True)) / whole
    taken = sum(weight * point for (_, point), weight in zip(points, weights, strict=True)) / whole
    spread = sum(weight * (point - batch) ** 2 for (point, _), weight in zip(points, weights, strict=True))
    both = sum(weight * (b - batch) * (t - taken) for (b, t), weight in zip(points, weights, strict=True))
    slope = max(0.0, both / spread)
    return Line(taken - slope * batch, slope)
