"""Which changes affect what is learnt, and the loss of both sides after the same number of samples.

A faster step is no gain when the model learns less from it. A proof measures only speed; for the changes listed here it
says so, and shows the losses with the speeds.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..options import Options
from ..runs import Run
from ..runs.events import EVENTS_FILE, Progress, Started
from ..runs.reading import read_events
from .record import Learning
from .trial import Trial

_GROWS = "the global batch grows with the number of replicas"
_STAYS = f"{_GROWS}, and the learning rate stays (train.learning_rate_scaling)"

# Key, or group ending in a dot -> its effect on learning.
_CHANGES = {
    "input.batch_size": "the batch size changes what is learnt at the same learning rate",
    "input.drop_remainder": "samples that do not fill a batch are left out of each pass",
    "input.shuffle": "the order of the samples changes",
    "input.parallel_reads": "the order of the samples changes",
    "input.augment": "the samples themselves change",
    "input.one_batch": "only one batch is learnt",
    "precision.": "other number formats round differently",
    "strategy.kind": _GROWS,
    "workload.": "another model or other data is learnt",
    "train.optimizer": "another optimizer learns differently",
    "train.momentum": "the momentum changes what is learnt",
    "train.nesterov": "the momentum changes what is learnt",
    "train.weight_decay": "weight decay changes what is learnt",
    "train.learning_rate": "the learning rate changes what is learnt",
    "train.learning_rate_scaling": "the learning rate changes what is learnt",
    "train.schedule": "the learning rate changes what is learnt",
    "train.warmup_steps": "the learning rate changes what is learnt",
    "train.hold_steps": "the learning rate changes what is learnt",
    "train.decay_steps": "the learning rate changes what is learnt",
    "train.decay_rate": "the learning rate changes what is learnt",
    "train.clip_norm": "clipped gradients change what is learnt",
    "train.clip_value": "clipped gradients change what is learnt",
    "train.global_clip_norm": "clipped gradients change what is learnt",
    "train.gradient_accumulation": "the weights change once in several steps",
    "train.micro_batches": "batch normalization and dropout work on parts of each batch",
    "train.validation": "another share of the data is learnt from",
    "train.validation_split": "another share of the data is learnt from",
    "train.seed": "another seed starts from other weights",
}
_UNDER_STRATEGY = {"device.logical_devices", "device.visible", "strategy.devices"}  # they decide the number of replicas
_SAYS_SO = "the change can change what is learnt"


def note(changes: Iterable[str], options: Options, says_so: bool = False) -> str:
    """One line on how the changed options affect what is learnt; empty if they do not.

    `changes` are their keys, and `options` include the changes. `says_so`: the diagnosis that proposed the change says
    that it affects what is learnt.
    """
    several = options.strategy.kind == "mirrored"
    for key in changes:
        if several and (key == "strategy.kind" or key in _UNDER_STRATEGY):
            return _STAYS if options.train.learning_rate_scaling == "none" else _GROWS
        for prefix, words in _CHANGES.items():
            if key == prefix or (prefix.endswith(".") and key.startswith(prefix)):
                return words
    return _SAYS_SO if says_so else ""


def losses(run: Run) -> list[tuple[float, float]]:
    """The loss curve of a run: pairs of (samples seen, running loss); empty if no loss was reported."""
    batch, curve = None, []
    for event in read_events(run.path, [EVENTS_FILE]).events:
        if isinstance(event, Started):
            batch = event.global_batch_size
        elif isinstance(event, Progress) and batch and event.step is not None and event.loss is not None:
            curve.append((float(event.step) * batch, event.loss))
    return curve


def loss_at(curve: Sequence[tuple[float, float]], samples: float) -> float | None:
    """The loss after `samples` samples, interpolated between two points of `curve`; None outside of the curve."""
    for (n0, loss0), (n1, loss1) in itertools.pairwise(curve):
        if n0 <= samples <= n1:
            return loss0 if n1 == n0 else loss0 + (loss1 - loss0) * (samples - n0) / (n1 - n0)
    return None


def compare(words: str, trials: Sequence[Trial], folder: Path) -> Learning:
    """Compare the losses of both sides after the largest number of samples that all trials have seen.

    `words` is the note on the change. The loss of each trial is stored in its row. Only the note is returned if a trial
    has no losses.
    """
    curves = {trial.run: losses(Run(folder / trial.run)) for trial in trials}
    if not curves or not all(curves.values()):
        return Learning(note=words)
    samples = min(curve[-1][0] for curve in curves.values())
    for trial in trials:
        trial.loss_at_samples = loss_at(curves[trial.run], samples)
    return Learning(note=words, samples=round(samples), loss_a=_median(trials, "a"), loss_b=_median(trials, "b"))


def _median(trials: Sequence[Trial], side: str) -> float | None:
    losses_of_side = [t.loss_at_samples for t in trials if t.side == side and t.loss_at_samples is not None]
    return statistics.median(losses_of_side) if losses_of_side else None
