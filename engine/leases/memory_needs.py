"""The GPU memory that a run needs: as an earlier run or trial with the same settings has measured it, or predicted from
those with other batch sizes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from .. import plan, runs
from ..files.places import TRIALS, proofs_folder
from ..files.values import plain
from ..job.machine_gpus import CONTEXT_BYTES
from ..options import Options, options_json
from ..runs import Run
from ..runs.launched_with import option_groups
from ..units import size
from .lease import NotFree

MARGIN = 1.1  # memory differs from run to run, and cuDNN may choose other algorithms
MOST_RUNS = 500  # runs that are read, the newest first; and as many trials
BATCH = "input.batch_size"  # of one replica
# Settings that do not change what a step takes of a GPU's memory. A trial has its own values of those of `train`.
_OTHER = ("device.visible", "train.epochs", "train.steps_per_epoch", "train.decay_steps", "train.seed",
          "train.learning_rate", "strategy.devices")  # fmt: skip
_WITH_PEAK = ("ok", "stopped", "timeout")  # outcomes: a run that has ended early may have needed more later
NOT_MEASURED = (
    "fits: no run with these settings has measured yet how much GPU memory they need\n"
    "gputui fit-batch --dry-run --set device.visible=free:1, with the same --preset and --set, measures it by two "
    "short trials"
)


class NotMeasuredError(NotFree):
    """The memory that a run needs is not known, as neither earlier runs nor trials have measured enough of it."""


@dataclass(frozen=True)
class MemoryNeed:
    """The bytes that a run needs on each GPU. `prediction` says in words from what they are predicted; it is empty if
    they were measured.
    """

    bytes: int
    prediction: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (f"{size(self.bytes)} on each GPU", self.prediction)))


def of_options(options: Options) -> MemoryNeed:
    """The peak of an earlier run or trial with the same settings, or the prediction from two other batch sizes, plus 10
    % and 768 MiB. The newest 500 runs and 500 trials are read. NotMeasuredError if they have measured too little.
    """
    values, peaks = step_settings(asdict(options)), dict[int, int]()
    batch = options.input.batch_size
    for run in _earlier():
        earlier = step_settings(option_groups(run))
        of_run = earlier.get(BATCH)
        if not isinstance(of_run, int) or of_run in peaks:
            continue
        if all(earlier.get(key, value) == value for key, value in values.items() if key != BATCH):
            result = run.result or {}
            peak = result.get("peak_memory_bytes") if result.get("outcome") in _WITH_PEAK else None
            if peak and of_run == batch:
                return MemoryNeed(_with_margin(peak))
            if peak:
                peaks[of_run] = peak
    line = plan.through(list(peaks.items()))
    if line is None:
        raise NotMeasuredError(NOT_MEASURED)
    *most, last = map(str, sorted(peaks))
    return MemoryNeed(_with_margin(line.at(batch)), f"predicted from batch sizes {', '.join(most)} and {last}")


def of_run(run: Run) -> MemoryNeed:
    """Return the memory that a run needs on each GPU. The errors are those of `of_options`."""
    return of_options(options_json.from_json(run.file(options_json.FILE).read_text(encoding="utf-8")))


def _with_margin(peak_bytes: float) -> int:
    return round(max(0.0, peak_bytes) * MARGIN) + CONTEXT_BYTES


def _earlier() -> Iterator[Run]:
    yield from runs.all_runs()[:MOST_RUNS]
    yield from islice(_trials(), MOST_RUNS)


def _trials() -> Iterator[Run]:
    for proof in _newest(proofs_folder()):
        yield from map(Run, _newest(proof / TRIALS))


def _newest(folder: Path) -> list[Path]:
    # The paths with the greatest names (a date or a number) first.
    try:
        return [folder / name for name in sorted(os.listdir(folder), reverse=True) if not name.startswith(".")]
    except OSError:
        return []


def step_settings(groups: Mapping[str, Any]) -> dict[str, object]:
    """Return the values, by `group.name`, of the options in `groups` that change what a step takes of a GPU."""
    return {
        f"{group}.{name}": value
        for group, settings in plain(groups).items()
        if group != "run" and isinstance(settings, Mapping)
        for name, value in settings.items()
        if f"{group}.{name}" not in _OTHER
    }
