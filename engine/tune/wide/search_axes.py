"""The axes of a wide search: options, or a few that change together, with the values to try. A study keeps those of its
first member, as Optuna's categories cannot change later and machines differ (in free memory, for instance).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...presets import Preset, PresetError
from ...trials import STAGES, proof_sentences
from ...trials.trial_preset import with_changes
from ..search_space import BATCH, STEPS_TOGETHER, TOGETHER, Settings, Space
from ..stages import rounded

AS_IT_IS = "as in the preset"
MOST_DRAWN = 1000  # their settings take about 0.2 s
NEAR = 1.25  # factor; nearer numbers are the same for the sampler, but are measured as they are
Params = Mapping[str, Any]  # a value for each axis


@dataclass(frozen=True)
class Axis:
    """An axis of an Optuna study: an option with rising `numbers`, or `choices`, settings by their label."""

    name: str
    numbers: Sequence[int] = ()
    choices: Mapping[str, Settings] = field(default_factory=dict)

    def settings(self, value: Any) -> Settings:
        """Return the settings for a value of the study: the index of a number (from 0), or the label of a choice."""
        return self.choices[value] if self.choices else {self.name: self.numbers[value]}

    def value(self, effective: Mapping[str, Any]) -> Any:
        """Return the study's value for these settings, of the nearest number. None if none is near or fits."""
        if self.choices:
            fitting = (label for label, of in self.choices.items() if all(effective[key] == of[key] for key in of))
            return next(fitting, None)
        requested = effective[self.name]
        nearest = min(range(len(self.numbers)), key=lambda place: abs(math.log(self.numbers[place] / requested)))
        return (
            nearest if max(self.numbers[nearest], requested) / min(self.numbers[nearest], requested) <= NEAR else None
        )

    def __len__(self) -> int:
        return len(self.choices or self.numbers)

    @property
    def keys(self) -> list[str]:
        return list(next(iter(self.choices.values()))) if self.choices else [self.name]


def axes_of(space: Space, preset: Preset) -> list[Axis]:
    """Return the axes of an Optuna study: the options that the search may change, with the values to try."""
    axes: list[Axis] = []
    for stage in STAGES:
        if stage not in space.limits.only:
            continue
        if stage == "batch_size":
            axes += _numbers(space, preset, BATCH, halves(space.most_batch(preset)))
        elif stage == "steps_per_execution":
            axes += _numbers(space, preset, TOGETHER, doubles(STEPS_TOGETHER[-1]))
        else:
            axes += _choices(stage, space.of(stage, preset), preset)
    return axes


def doubles(most: int) -> list[int]:
    return sorted({1 << power for power in range(most.bit_length())} | {most})


def halves(most: int) -> list[int]:
    """Return the batch sizes 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 ... below `most`, and `most`, rounded as they are."""
    between = {3 << power for power in range(most.bit_length())}
    return sorted({number for number in between | set(doubles(most)) if number < most} | {rounded(most)})


def _numbers(space: Space, preset: Preset, key: str, numbers: Sequence[int]) -> list[Axis]:
    values = sorted({*numbers, int(preset.options.value(key))})
    return [Axis(key, values)] if len(values) > 1 and space.allows({key: 1}) else []


def _choices(stage: str, tried: Sequence[Settings], preset: Preset) -> list[Axis]:
    # the sampler combines single options of the input itself
    together = [settings for settings in tried if len(settings) > 1]
    choices = [_axis(stage, together, preset)] if together and stage != "input" else []
    keys = dict.fromkeys(key for settings in tried for key in settings if len(settings) == 1)
    return choices + [_axis(key, [settings for settings in tried if list(settings) == [key]], preset) for key in keys]


def _axis(name: str, tried: Sequence[Settings], preset: Preset) -> Axis:
    as_it_is = {key: preset.options.value(key) for settings in tried for key in settings}
    choices = {AS_IT_IS: as_it_is} | {
        proof_sentences.changes(settings): as_it_is | dict(settings) for settings in tried
    }
    return Axis(name, choices=choices)


class Combinations:
    """Translates the parameters of a study (a value for each of the `axes`) into settings of `preset`, and back."""

    def __init__(self, axes: Sequence[Axis], space: Space, preset: Preset) -> None:
        self.axes, self._space, self._preset = axes, space, preset

    def __len__(self) -> int:
        return math.prod(map(len, self.axes))

    def in_random_order(self, seed: int) -> list[dict[str, Any]]:
        """Return all combinations as parameters of a study in a random order, at most MOST_DRAWN."""
        chance, names = random.Random(seed), [axis.name for axis in self.axes]
        values = [list(axis.choices or range(len(axis))) for axis in self.axes]
        if len(self) > MOST_DRAWN:
            return [dict(zip(names, map(chance.choice, values), strict=True)) for _ in range(MOST_DRAWN)]
        every = [dict(zip(names, combination, strict=True)) for combination in itertools.product(*values)]
        chance.shuffle(every)
        return every

    def settings(self, params: Params) -> dict[str, Any]:
        """Return the changes of the preset, with batch size and steps together at most what the others allow."""
        given: dict[str, Any] = {}
        for axis in self.axes:
            given |= axis.settings(params[axis.name])
        preset, samples = self._preset, self._space.started.train_samples
        # the strategy decides the number of replicas; the attempt leaves out a combination that is refused
        with contextlib.suppress(PresetError):
            preset = with_changes(preset, {key: of for key, of in given.items() if key not in (BATCH, TOGETHER)})
        if BATCH in given and given[BATCH] > (most := self._space.most_batch(preset)):
            given[BATCH] = rounded(most)
        if TOGETHER in given and samples:  # at most the steps of one pass
            batch = given.get(BATCH, self._preset.options.value(BATCH))
            given[TOGETHER] = min(given[TOGETHER], max(1, samples // batch))
        return {key: value for key, value in given.items() if self._preset.options.value(key) != value}

    def params(self, settings: Settings) -> dict[str, Any] | None:
        """Return the parameters of the study for these settings. None if an option, or its value, is on no axis."""
        keys = [key for axis in self.axes for key in axis.keys]
        if any(key not in keys for key in settings):
            return None
        effective = {key: settings.get(key, self._preset.options.value(key)) for key in keys}
        values = {axis.name: axis.value(effective) for axis in self.axes}
        return None if None in values.values() else values
