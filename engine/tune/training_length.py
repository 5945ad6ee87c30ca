"""How long the trials train whose losses are compared: the same number of samples for every setting.

Whole passes over the data where the time allows one, as the validation loss comes after each; at most the preset's own
training. A comparison needs some updates of the weights: after a few the loss of any setting is that of the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import checks
from ..presets import Preset
from ..runs.events import Started
from ..telemetry.machine import Machine

LEAST_UPDATES = 40  # of the settings with the larger batch; fewer where that is the whole training
PASS_SECONDS = 0.3  # besides the steps: evaluating and starting a pass of the preset quickstart on two CPU cores


@dataclass(frozen=True)
class Length:
    """`passes` whole ones over the data, or none and a part of the first; `samples` in all."""

    samples: int
    passes: int | None


@dataclass(frozen=True)
class Data:
    """What is known of the preset's data: samples of a pass (None: unknown), of a step, and of the whole training."""

    batch: int
    per_pass: int | None
    passes: int

    @classmethod
    def of(cls, preset: Preset, started: Started) -> Data:
        """By the preset, and by what its first trial has told."""
        batch, steps = started.global_batch_size or 1, preset.options.train.steps_per_epoch
        return cls(batch, steps * batch if steps else started.train_samples, preset.options.train.epochs)

    @property
    def samples(self) -> int | None:
        return None if self.per_pass is None else self.passes * self.per_pass


def affordable(data: Data, largest_batch: int, seconds: float, per_sample: float) -> Length | None:
    """What `seconds` of training of both sides allow, each sample taking `per_sample` of them; None: too little."""
    if data.per_pass:
        passes = min(data.passes, int(seconds / (data.per_pass * per_sample + 2 * PASS_SECONDS)))
        if passes and (passes == data.passes or _is_enough(passes * data.per_pass, largest_batch)):
            return Length(passes * data.per_pass, passes)
    samples = int(seconds / per_sample) // largest_batch * largest_batch
    if data.per_pass is not None and samples >= data.per_pass:
        return None  # whole passes do not make enough updates
    return Length(samples, None) if _is_enough(samples, largest_batch) else None


def _is_enough(samples: int, largest_batch: int) -> bool:
    return samples >= LEAST_UPDATES * largest_batch


def epochs_and_steps(length: Length, preset: Preset, batch: int) -> tuple[int, int | None]:
    """The length for settings with this global batch, as `train.epochs` and `train.steps_per_epoch`."""
    if length.passes is None:
        return 1, max(1, round(length.samples / batch))
    if preset.options.train.steps_per_epoch is None:
        return length.passes, None
    return length.passes, max(1, round(length.samples / length.passes / batch))


def of_earlier(known: tuple[int, int | None], data: Data, preset: Preset) -> Length:
    """The length of trials of an earlier sitting, from the epochs and steps of the preset's own."""
    epochs, steps = known
    if steps is None or steps == preset.options.train.steps_per_epoch:
        return Length(epochs * (data.per_pass or 0), epochs)
    return Length(steps * data.batch, None)


def growth(before: Preset, after: Preset, machine: Machine) -> float:
    """How many times as large the global batch is."""
    old, new = (checks.replicas(one.options, machine) * one.options.input.batch_size for one in (before, after))
    return new / old
