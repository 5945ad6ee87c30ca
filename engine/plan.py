"""How long a training is and how samples are shared out: batches, steps, replicas, what is left out, what is enough.

Plain numbers, worked out before anything is built; the trainer, proofs, checks and views all take them from here, and
exported scripts hold the same functions (export/engine_source.py). Imports nothing at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .options import Options, Strategy, Train, Workload

# Samples of the named data before the validation split.
SAMPLES = {"digits": 1797, "mnist": 60_000, "fashion_mnist": 60_000, "cifar10": 50_000, "synthetic": 4096}
MULTI_WORKER: Final = "multi_worker"  # the strategy.kind of a training on several machines
SEVERAL_REPLICAS = ("mirrored", MULTI_WORKER)
WARMUP_STEPS = 20
LEAST_STEPS = 20  # measured steps that a verdict needs
MOST_TIMES = 12  # times the requested seconds: then a measured run ends, even with fewer steps


# ---- samples and batches ------------------------------------------------------------------------


def split_counts(samples: int, validation_split: float) -> tuple[int, int]:
    """The numbers of samples for training, at least one, and for validation."""
    validation = min(samples - 1, round(samples * validation_split))
    return samples - validation, validation


def batches_per_pass(samples: int, global_batch: int, replicas: int = 1, drop_remainder: bool = False) -> int:
    """Batches of so many samples; each replica needs at least one sample of a last, smaller batch."""
    whole, rest = divmod(samples, global_batch)
    return whole if drop_remainder or rest < replicas else whole + 1


def samples_seen(steps: int, samples: int, global_batch: int, batches: int) -> int:
    """Samples that so many steps train on, in passes of so many batches, the last of which may be smaller."""
    passes, rest = divmod(steps, batches)
    of_a_pass = min(samples, batches * global_batch)
    return passes * of_a_pass + min(rest * global_batch, of_a_pass)


def smaller_last_batch(samples: int, global_batch: int, batches: int) -> bool:
    """Whether a pass of so many batches ends with one of another size."""
    return batches * global_batch > samples


def training_samples(workload: Workload, train: Train) -> int | None:
    """Samples of a pass; None if the data would have to be opened, as a user's own data and files."""
    if workload.entry is not None:
        return None
    kind = workload.source[0]
    given = workload.samples if kind in ("synthetic", "tfrecord") else None
    samples = given or SAMPLES.get(kind)
    if samples is None or train.validation == "test":
        return samples
    return split_counts(samples, train.validation_split)[0]


# ---- replicas -----------------------------------------------------------------------------------


def devices(options: Options, gpus: int) -> int:
    """Logical devices for so many GPUs; without a GPU, those of the CPU."""
    return max(1, gpus) * options.device.logical_devices


def replicas(strategy: Strategy, devices: int, workers: int = 1) -> int:
    """How many replicas of the model train in parallel, if each of the workers has so many devices."""
    if strategy.kind not in SEVERAL_REPLICAS:
        return 1
    here = devices if strategy.devices == "all" else max(1, len(strategy.devices))
    return here * workers if strategy.kind == MULTI_WORKER else here


def global_batch(options: Options, replicas: int) -> int:
    """Samples in one step, over all replicas."""
    return options.input.batch_size * replicas


def gpus_used(replicas: int, logical_devices: int) -> int:
    """GPUs that so many replicas are on, each of them divided into so many logical devices."""
    return -(-replicas // logical_devices)


def rate_factor(scaling: str, growth: float) -> float:
    """The factor of the learning rate for a global batch that is `growth` times as large.

    `linear`: Goyal et al. 2017, Accurate, Large Minibatch SGD. `sqrt`: Krizhevsky 2014, One weird trick; for Adam,
    Malladi et al. 2022, On the SDEs and Scaling Rules for Adaptive Gradient Algorithms. Anything else keeps it.
    """
    if scaling == "linear":
        return growth
    return growth**0.5 if scaling == "sqrt" else 1.0


# ---- steps --------------------------------------------------------------------------------------


def steps_per_epoch(train: Train, batches: int) -> int:
    """`train.steps_per_epoch`, or one pass of so many batches."""
    return train.steps_per_epoch or batches


def training_steps(options: Options) -> int | None:
    """The steps of a training without replicas, None if the data would have to be opened."""
    train, given = options.train, options.input
    samples = training_samples(options.workload, train)
    if samples is None and train.steps_per_epoch is None:
        return None
    batches = batches_per_pass(samples or 0, given.batch_size, drop_remainder=given.drop_remainder)
    return train.epochs * steps_per_epoch(train, batches)


def decay_steps(train: Train, steps: int, steps_per_epoch: int) -> int:
    """`train.decay_steps`, or if it is not given, its value in a run of `steps` steps.

    All steps after warm-up and hold; a third of them between two drops of `step`; an epoch for a cycle of `cyclical`.
    """
    if train.decay_steps is not None:
        return train.decay_steps
    if train.schedule == "cyclical":
        return steps_per_epoch
    left = max(1, steps - train.warmup_steps - train.hold_steps)
    return max(1, left // 3) if train.schedule == "step" else left


def whole_executions(steps: int, together: int) -> int:
    """The most steps up to `steps` that are executions of `together` steps."""
    return steps // together * together


def steps_together(steps_per_epoch: int, together: int) -> int:
    """Steps in one execution of Keras' own fit, which runs whole executions only: they have to divide the epoch."""
    return max(count for count in range(1, together + 1) if steps_per_epoch % count == 0)


# ---- measuring ---------------------------------------------------------------------------


def warmup_steps(steps: int) -> int:
    """Steps left out of the figures: 20, or a fifth of a short run, and always the first."""
    return max(1, min(WARMUP_STEPS, steps // 5))


def enough(seconds: float, steps: int, asked: float) -> bool:
    """Whether a run with `run.measure_seconds` has measured enough.

    If too few steps fall into the requested seconds, it continues: a few steps allow no judgement.
    """
    return seconds >= asked and (steps >= LEAST_STEPS or seconds >= MOST_TIMES * asked)


def expected_seconds(asked: float, step_seconds: float) -> float:
    """The seconds that will be measured with steps of that length."""
    return max(asked, min(MOST_TIMES * asked, LEAST_STEPS * step_seconds))


def seconds_to_ask(step_seconds: float) -> int:
    """Whole seconds to request so that enough steps of that length are measured, with some room."""
    return int(1.5 * LEAST_STEPS * step_seconds / MOST_TIMES) + 1
