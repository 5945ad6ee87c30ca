"""What the input costs, found by taking it away: the same training on one batch, prepared once, again and again.

The speed of that is what the device could do if its input cost nothing; how much of a real step's time is gone with the
input is compared with `input_wait`, which the training measures itself. (TensorFlow's GPU guide finds input-bound
trainings in this way; it needs no profiler.)
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..presets import Preset
from ..runs import Run, Tail
from .comparing import Comparing
from .record import Ablation, Comparison, Record, Trial, medians
from .request import ONE_BATCH
from .trial import Bench, with_changes


def measure(bench: Bench, preset: Preset, repeats: int, record: Record, tell: Callable[[str], None]) -> Trial:
    """Fill the record's ablation; the real trial of middle speed."""
    comparison = Comparison(changes=ONE_BATCH)
    ablation = record.ablation = Ablation(trials=comparison.trials)
    Comparing(bench, comparison, preset, with_changes(preset, ONE_BATCH), repeats, tell).measure()
    real = comparison.good("a")
    ablation.why = comparison.why
    ablation.input_cost = input_cost(comparison.gain)
    ablation.input_wait = medians(real)["input_wait"]
    ablation.stages = stages(bench.run_of(middle(real)))
    return middle(real)


def input_cost(gain: float | None) -> float | None:
    """The share of a real step that is gone with its input; a training that got slower has lost nothing: noise."""
    return None if gain is None else max(0.0, 1 - 1 / (1 + gain))


def middle(trials: Sequence[Trial]) -> Trial:
    """The trial of middle speed, which stands for all."""
    speed = statistics.median_low([trial.samples_per_second or 0.0 for trial in trials])
    return next(trial for trial in trials if (trial.samples_per_second or 0.0) == speed)


def stages(run: Run) -> list[Mapping[str, Any]]:
    """The input's stages from source to end, as last told."""
    told = [event for event in Tail(run.file("events.jsonl")).read() if event["type"] == "input_stages"]
    return list(told[-1]["stages"]) if told else []
