"""Whether a training learns, by the figures of its epochs. The rules rather say nothing than something wrong: of
synthetic data, losses that are not Keras' own, or too few epochs only a divergence is said.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from .finding import Finding, warning
from .options.training import EARLY_STOP, KEEP_BEST
from .runs.run_state import Epoch, RunState
from .units import amount

OVERFITS = "Overfits"  # the first word of that sentence
FAR_ABOVE_START, FAR_ABOVE_GUESSING = 100.0, 10.0  # so many times the loss is that of a training that has diverged
LOST = 0.5  # times the first loss: a training that was below it and is above the first loss again has diverged
LEAST_EPOCHS, LEAST_STEPS = 3, 100  # before it is said that nothing is learnt
BY_CHANCE = 0.01  # the probability with which guessing is called better than chance
BELOW_GUESSING = 0.98  # times the loss of guessing: what is below it is learnt
LEAST_GUESSED = 5.0  # samples that guessing has right: with fewer, chance and a little learning look the same
STRIP = 5  # epochs over which a rise of the validation loss is judged
LOST_BEYOND = 0.05  # of the loss of guessing, or of the first validation: a smaller rise is not called overfitting
NOTHING = Finding("ok", "", "")
RATE, CLIP = "train.learning_rate", "train.global_clip_norm"


def judged(state: RunState) -> Finding:
    """Return that it diverges, learns nothing or overfits, with figures and a remedy; NOTHING if no rule says so."""
    if state.started is None or not state.epochs:
        return NOTHING
    if what := _diverged(state):
        lower = f"lower {_rate(state)}"
        return warning((RATE, CLIP), what, f"{lower}, or set {CLIP}=1" if _applies(state, CLIP) else lower)
    if state.started.option("workload.data") == "synthetic" and state.started.option("workload.entry") is None:
        return NOTHING
    if what := _learns_nothing(state):
        return warning(RATE, what, f"check that the labels belong to the samples, then change {_rate(state)}")
    if state.started.option(EARLY_STOP) in (None, "off") and (what := _overfits(state)):
        return warning((EARLY_STOP, KEEP_BEST), what, _against_overfitting(state))
    return NOTHING


def has_learnt_badly(learning: str, best: Sequence[Mapping[str, Any]]) -> bool:
    """True if the end of a training has the mark of a warning: it has not learnt, or it overfits and `best`, its best
    epochs, has none whose model is kept.
    """
    is_kept = any(entry.get("option") == KEEP_BEST for entry in best)
    return bool(learning) and not (is_kept and learning.startswith(OVERFITS))


def _diverged(state: RunState) -> str:
    """The limits are gputui's. Guessing has ln C, the cross-entropy of equal probabilities for C classes."""
    losses, last = _known(state.epochs, "loss"), state.epochs[-1]
    if "loss" in last.metrics and last.metrics["loss"] is None:
        return f"Diverged: the loss of epoch {last.number} is not a number"
    if not losses or losses[-1][0] != last.number:
        return ""
    first, (now, loss) = losses[0][1], losses[-1]
    highest, lowest = (choose(losses, key=lambda pair: pair[1]) for choose in (max, min))
    guessing, classes = _guessing(state), _classes(state)
    if guessing and highest[1] > FAR_ABOVE_GUESSING * guessing and loss >= guessing:
        before = f", and was {amount(highest[1])} in epoch {highest[0]}" if highest[0] < now else ""
        chance = f"guessing one of {classes} classes has {amount(guessing)}"
        return f"Diverged: the loss is {amount(loss)} in epoch {now}{before}; {chance}"
    if loss > FAR_ABOVE_START * first > 0:
        return f"Diverged: the loss is {amount(loss)} in epoch {now}, and was {amount(first)} in epoch {losses[0][0]}"
    if _loss(state) and 0 < lowest[1] < LOST * first and all(value >= first for _, value in losses[-2:]):
        return f"Diverged: the loss is {amount(loss)} in epoch {now}, and was {amount(lowest[1])} in epoch {lowest[0]}"
    return ""


def _learns_nothing(state: RunState) -> str:
    """With n samples and C classes, guessing has at most the accuracy a with a probability of 1 - C exp(-n KL(a, 1/C)),
    by the bound of Chernoff (Hoeffding 1963, theorem 1), whichever class is always guessed. A loss below that of
    guessing shows that something is learnt. If the accuracy is not known, the loss must not have fallen at all.
    """
    first, last = state.epochs[0], state.epochs[-1]
    if last.number < LEAST_EPOCHS or state.step < LEAST_STEPS:
        return ""
    classes, started = _classes(state), state.started
    assert started is not None
    trained = started.train_samples or (state.steps_per_epoch or 0) * (started.global_batch_size or 0)
    for prefix, samples in (("val_", started.validation_samples), ("", trained)):
        values = [value for _, value in _known(state.epochs, f"{prefix}accuracy")[-LEAST_EPOCHS:]]
        if classes and samples and samples / classes >= LEAST_GUESSED and len(values) == LEAST_EPOCHS:
            most, loss = _by_chance(classes, samples), last.metrics.get(f"{prefix}loss")
            if max(values) > most or (loss is not None and loss < BELOW_GUESSING * (_guessing(state) or 0.0)):
                return ""
            words = f"{prefix}accuracy".replace("_", " ")
            return (
                f"No better than chance: the {words} of epoch {last.number} is {amount(values[-1])}; guessing one of "
                f"{classes} classes has up to {amount(most)}"
            )
    losses = [value for _, value in _known(state.epochs, "loss")]
    if first.number > 1 or not _loss(state) or len(losses) < 2 or min(losses[1:]) < losses[0]:
        return ""
    return (
        f"Nothing is learnt: the loss is {amount(losses[-1])} in epoch {last.number}, and was {amount(losses[0])} in "
        f"epoch {first.number}"
    )


def _by_chance(classes: int, samples: float) -> float:
    """Return the highest accuracy that guessing has, but for a probability of BY_CHANCE."""
    guessed, low, high = 1 / classes, 1 / classes, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        apart = middle * math.log(middle / guessed)
        apart += (1 - middle) * math.log((1 - middle) / (1 - guessed)) if middle < 1 else 0.0
        low, high = (low, middle) if samples * apart > math.log(classes / BY_CHANCE) else (middle, high)
    return high


def _overfits(state: RunState) -> str:
    """Strips of 5 epochs and a limit of 5 % are those of Prechelt ("Early Stopping - But When?", 1998), whose percents
    of the lowest loss are too strict if it is nearly 0. The noise is that of second differences, whose variance is six
    times as large; the lowest of n values lies up to sqrt(2 ln n) times the noise below their mean.
    """
    both = [each for each in state.epochs if None not in (each.metrics.get("loss"), each.metrics.get("val_loss"))]
    validation = _known(both, "val_loss")
    if not _loss(state) or len(validation) <= STRIP:
        return ""
    best = min(range(len(validation)), key=lambda index: validation[index][1])
    if len(validation) - 1 - best < STRIP:
        return ""
    values, losses = [value for _, value in validation], [value for _, value in _known(both, "loss")]
    bends = [abs(a - 2 * b + c) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    noise = 1.4826 * statistics.median(bends) / math.sqrt(6)
    least = LOST_BEYOND * max(values[best], _guessing(state) or values[0])
    least = max(least, (math.sqrt(2 * math.log(len(values))) + 2) * noise)
    strip = slice(max(0, best - STRIP // 2), best + STRIP // 2 + 1)  # as the best epoch may be a lucky one
    around, loss = statistics.median(values[strip]), statistics.median(losses[strip])
    risen = False
    for end in range(best + STRIP, len(values)):
        rise = statistics.fmean(values[end - STRIP + 1 : end + 1]) - around
        risen = rise > (least / 2 if risen else least)
    if not risen or statistics.median(losses[-STRIP:]) >= loss:
        return ""
    return (
        f"{OVERFITS} since epoch {validation[best][0]}: the val loss has risen from {amount(values[best])} to "
        f"{amount(values[-1])}, while the loss fell from {amount(losses[best])} to {amount(losses[-1])}"
    )


def _against_overfitting(state: RunState) -> str:
    if not _applies(state, EARLY_STOP):
        return "keras.callbacks.EarlyStopping ends it in time and restores the best weights"
    if state.started and state.started.option(KEEP_BEST) not in (None, "off"):
        return f"{EARLY_STOP}=val_loss ends it in time; the best model is kept"
    return f"{EARLY_STOP}=val_loss ends it in time, {KEEP_BEST}=val_loss keeps the best model"


# ---- what is known of the training ---------------------------------------------------------------


def _known(epochs: Sequence[Epoch], name: str) -> list[tuple[int, float]]:
    return [(each.number, value) for each in epochs if (value := each.metrics.get(name)) is not None]


def _loss(state: RunState) -> str:
    """Return the name of Keras' loss that is all of the training's loss; empty for others, and if it is not known."""
    return (state.started and state.started.actual.get("loss")) or ""


def _classes(state: RunState) -> int | None:
    return state.started.actual.get("classes") if state.started else None


def _guessing(state: RunState) -> float | None:
    """Return the loss of guessing, if all of the loss is a crossentropy."""
    classes = _classes(state)
    return math.log(classes) if classes and _loss(state).endswith("crossentropy") else None


def _applies(state: RunState, key: str) -> bool:
    return state.started is not None and key not in state.started.inapplicable


def _rate(state: RunState) -> str:
    rate = state.started.actual.get("learning_rate") if state.started else None
    now = f" (now {amount(rate)})" if rate is not None else ""
    return f"{RATE if _applies(state, RATE) else 'the learning rate'}{now}"
