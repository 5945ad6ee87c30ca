"""The GPU memory that a run needs, as measured by an earlier run with the same settings."""

from __future__ import annotations

from dataclasses import asdict

from .. import runs
from ..files.values import plain, whole
from ..options import Options
from ..runs.launched_with import options_of
from .lease import NotFree

MARGIN = 1.1  # memory differs from run to run, and cuDNN may choose other algorithms
CONTEXT_BYTES = 768 * 1024**2  # CUDA and cuDNN themselves, which TensorFlow's count leaves out
MOST_RUNS = 500  # runs that are read, the newest first
# Settings that do not change what a step takes of a GPU's memory.
_OTHER = ("device.visible", "train.epochs", "train.steps_per_epoch", "train.seed", "train.learning_rate",
          "strategy.devices")  # fmt: skip


def memory_bytes(options: Options) -> int:
    """Return the bytes that a run with these options needs on each GPU: the peak of an earlier run, plus 10 %, plus 768
    MiB.

    Raises NotFree if none of the newest 500 runs has measured it with the same settings.
    """
    values = _values(options)
    for run in runs.all_runs()[:MOST_RUNS]:
        earlier = options_of(run)
        if earlier and all(earlier.get(key, value) == value for key, value in values.items()):
            peak = whole((run.result or {}).get("peak_memory_bytes"))
            if peak:
                return round(peak * MARGIN) + CONTEXT_BYTES
    raise NotFree(
        "fits: no run with these settings has measured yet how much memory they need; train them once with "
        "device.visible=free:1 (train.steps_per_epoch=50 is enough)"
    )


def _values(options: Options) -> dict[str, object]:
    groups = plain(asdict(options))
    return {
        f"{group}.{name}": value
        for group, settings in groups.items()
        if group != "run"
        for name, value in settings.items()
        if f"{group}.{name}" not in _OTHER
    }
