"""Whether a training learns, by the losses and the accuracy of its epochs: a sentence if it does not. The rules are
few, and rather say nothing than something wrong: a loss that is far above its start or above that of guessing, and,
after some epochs, a loss that has not fallen or an accuracy that guessing has, too. Of synthetic data only the first is
said, as there is nothing to learn in them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .plan import CLASSES
from .units import amount

FAR_ABOVE_START, FAR_ABOVE_GUESSING = 100.0, 10.0  # so many times the loss is that of a training that has diverged
LEAST_EPOCHS, LEAST_STEPS = 3, 100  # before it is said that nothing is learnt
NEAR_CHANCE = 1.05


@dataclass
class EpochsSeen:
    """The metrics of the first and of the newest epoch, with their numbers from 1."""

    first: tuple[int, Mapping[str, float | None]] | None = None
    last: tuple[int, Mapping[str, float | None]] | None = None
    step: int = 0

    def take(self, epoch: int | None, step: int | None, metrics: Mapping[str, float | None]) -> None:
        """An event whose fields cannot be read is left out."""
        if epoch is None or step is None:
            return
        self.last, self.step = (epoch, metrics), step
        if self.first is None or epoch <= self.first[0]:
            self.first = self.last


def judged(epochs: EpochsSeen, options: Mapping[str, Any]) -> str:
    """Return the sentence that it has diverged or learns nothing; else empty. `options` have at least workload.*."""
    if epochs.first is None or epochs.last is None:
        return ""
    (first, before), (last, now) = epochs.first, epochs.last
    loss, begun, accuracy = now.get("loss"), before.get("loss"), now.get("accuracy")
    classes = _classes(options)
    guessing = math.log(classes) if classes else None
    if loss is not None and guessing and loss > FAR_ABOVE_GUESSING * guessing:
        return (
            f"Diverged: the loss of epoch {last} is {amount(loss)}; guessing one of {classes} classes has "
            f"{amount(guessing)}"
        )
    if loss is not None and begun is not None and last > first and loss > FAR_ABOVE_START * begun > 0:
        return f"Diverged: the loss is {amount(loss)} in epoch {last}, and was {amount(begun)} in epoch {first}"
    if last < LEAST_EPOCHS or epochs.step < LEAST_STEPS or options.get("workload.data") == "synthetic":
        return ""
    if classes and accuracy is not None and accuracy <= NEAR_CHANCE / classes:
        return (
            f"Nothing is learnt: the accuracy of epoch {last} is {amount(accuracy)}; guessing one of {classes} classes "
            f"has {amount(1 / classes)}"
        )
    if loss is not None and begun is not None and last - first >= LEAST_EPOCHS - 1 and loss >= begun:
        return (
            f"Nothing is learnt: the loss is {amount(loss)} in epoch {last}, and was {amount(begun)} in epoch {first}"
        )
    return ""


def _classes(options: Mapping[str, Any]) -> int | None:
    """Return the number of classes of gputui's own data; own code may have any loss."""
    if options.get("workload.entry") is not None:
        return None
    data = str(options.get("workload.data"))
    if data == "synthetic" or data.startswith("tfrecord:"):
        classes = options.get("workload.classes")  # of a file that is not checked
        return classes if isinstance(classes, int) and classes > 0 else None
    return CLASSES.get(data)
