"""The limits of a search for the fastest settings as texts and choices, as a dialog edits them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from ...engine.files import located_yaml
from ...engine.options import BY_KEY
from ...engine.presets import Preset
from ...engine.proof.request import ProofError
from ...engine.sweep import swept_values
from ...engine.trials import SAMPLERS, STAGES
from ...engine.trials.change_texts import value as text_of
from ...engine.trials.record import Limits
from ...engine.trials.sweep_record import SweepSettings

RATES = ("keep", "linear", "sqrt")
POLICIES = tuple(BY_KEY["precision.policy"].choices)


class WrongLimit(ValueError):
    """The text of a field is no valid limit. `name` is the field's name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass
class LimitTexts:
    """The texts and choices of the dialog's fields for the limits of a search. An empty text sets no limit. `suitable`
    are the precisions that are fast on the devices of the training."""

    minutes: str = "10"
    only: set[str] = field(default_factory=lambda: set(STAGES))
    precisions: set[str] = field(default_factory=lambda: set(POLICIES))
    suitable: set[str] = field(default_factory=lambda: set(POLICIES))
    largest_batch: str = ""
    memory_gb: str = ""
    leave: str = ""
    learning_rate: str = RATES[0]
    warmup_steps: str = ""
    allow_worse_loss: set[str] = field(default_factory=set)  # `allow`, or empty

    def suit(self, fast: Collection[str]) -> None:
        """Set `suitable` to float32 and the `fast` ones, and choose them unless the user has chosen others."""
        untouched, self.suitable = self.precisions == self.suitable, {POLICIES[0], *fast}
        if untouched:
            self.precisions = set(self.suitable)

    def limits(self) -> Limits:
        """Return the limits. Raises WrongLimit for the first field with an invalid text."""
        if (minutes := _number("minutes", "the time", self.minutes)) is None:
            raise WrongLimit("minutes", "give the minutes that the search may take")
        if not self.only:
            raise WrongLimit("only", "choose at least one option to search")
        if not self.precisions and "precision" in self.only:
            raise WrongLimit("precisions", "choose a precision, or take precision out of what is searched")
        precisions: list[str] | None = [policy for policy in POLICIES if policy in self.precisions]
        is_one = len(self.precisions) == 1
        if self.precisions == self.suitable or not (is_one or not self.precisions <= self.suitable):
            precisions = None  # the search itself chooses among those that are fast on the devices
        memory = _number("memory_gb", "memory", self.memory_gb)
        # Only if the user has chosen several, all of them fast.
        some = len(self.precisions) > 1 and self.precisions < self.suitable
        avoided = self.suitable - self.precisions if some else ()
        return Limits(
            minutes=minutes,
            only=[stage for stage in STAGES if stage in self.only],
            leave=self.leave.replace(",", " ").split(),
            memory_bytes=None if memory is None else round(memory * 1e9),
            largest_batch=_whole("largest_batch", "the largest batch", self.largest_batch, least=1),
            precisions=precisions,
            avoid_precisions=[policy for policy in POLICIES if policy in avoided],
            learning_rate=self.learning_rate,
            warmup_steps=_whole("warmup_steps", "the warm-up", self.warmup_steps, least=0),
            allow_worse_loss=bool(self.allow_worse_loss),
        )


def _number(name: str, what: str, text: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:  # neither nan nor inf
        raise WrongLimit(name, f"{what} must be a number above 0, not {text.strip()!r}")
    return value


def _whole(name: str, what: str, text: str, least: int) -> int | None:
    if not text.strip():
        return None
    if not text.strip().isdecimal() or not text.isascii() or int(text) < least:
        raise WrongLimit(name, f"{what} must be a whole number from {least} on, not {text.strip()!r}")
    return int(text)


ROWS = 3  # for swept options, and one more than there are at first
AROUND = 3.0  # the first proposal: this factor below and above the learning rate
METRIC = "val_loss"


@dataclass
class SweepTexts:
    """The texts of the dialog's fields for a sweep of the preset `of`: `over0` and so on, as --over takes them, then
    the entries of the block `sweep:` by their names. An empty text means the default."""

    of: Preset
    texts: dict[str, str]

    @classmethod
    def first(cls, opened: Preset) -> SweepTexts:
        """Return the texts of a preset's block `sweep:`, or of a sweep of its learning rate. Raises ProofError."""
        given = swept_values.of_block(opened.sweep, f"{opened.name}: sweep.")
        defaults = {each.name: each.default for each in fields(SweepSettings) if each.default is not MISSING}
        values: dict[str, Any] = {"metric": METRIC} | defaults | {"parallel": None} | given
        others = {key: values.get(parameter) for key, (parameter, *_) in swept_values.ENTRIES.items()}
        others["minutes"] = f"{values['minutes']:g}"
        rate = opened.options.train.learning_rate
        around = f"learning_rate={rate / AROUND:.2g},{text_of(rate)},{rate * AROUND:.2g}"
        over = list(given.get(swept_values.OVER) or [around])
        over += [""] * max(1, ROWS - len(over))
        texts = {f"{swept_values.OVER}{place}": text for place, text in enumerate(over)}
        return cls(opened, texts | {key: "" if of is None else text_of(of) for key, of in others.items()})

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `sweep_request.of_preset`. Raises WrongLimit for the first invalid text."""
        made: dict[str, Any] = {"metric": METRIC, "halve_from": None, swept_values.OVER: []}
        given = {key: text.strip() for key, text in self.texts.items() if text.strip()}
        for key, text in sorted(given.items(), key=lambda item: item[0].startswith(swept_values.OVER)):
            try:
                if key.startswith(swept_values.OVER):  # the last, as they depend on the sampler
                    swept_values.axis(text, made.get("sampler", SAMPLERS[0]) == SAMPLERS[0])
                    made[swept_values.OVER].append(text)
                else:
                    made |= swept_values.of_block({key: located_yaml.scalar(text)})
            except ProofError as fault:
                raise WrongLimit(key, str(fault)) from None
        return made
