"""Settings to take if the fastest learn clearly worse: from the nearest to those that change nothing learnt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ..presets import Preset
from ..trials import learning
from ..trials.bench import with_changes
from .candidates.space import BATCH, value_of
from .stages.batch_size import rounded

Settings = Mapping[str, Any]
STEPS_BACK = 2  # batch sizes between the preset's and the fastest
LEAST_STEP = 1.25  # a batch that is larger than the preset's by less is hardly faster


def learns_alike(baseline: Preset, settings: Settings) -> dict[str, Any]:
    """Those of the settings that change nothing that is learnt."""
    options = with_changes(baseline, settings).options
    return {key: value for key, value in settings.items() if not learning.note([key], options)}


def nearer(baseline: Preset, settings: Settings) -> Iterator[dict[str, Any]]:
    """The batch half way back to the preset's by its logarithm, again half way, and without a changed batch."""
    before, batch = value_of(baseline, BATCH), settings.get(BATCH)
    if batch is None:
        return
    for _ in range(STEPS_BACK):
        batch = rounded(round(math.sqrt(before * batch)))
        if max(batch / before, before / batch) < LEAST_STEP:
            break
        yield {**settings, BATCH: batch}
    yield {key: value for key, value in settings.items() if key != BATCH}
