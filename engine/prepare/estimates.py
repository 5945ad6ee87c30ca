"""What a sample of the data says: how long preparing takes, how much room it needs, and after how many
passes it pays.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..telemetry import resource_limits
from . import layout
from .request import Request

SECONDS_FOR_A_WORKER = 20.0  # of work for each process: TensorFlow's start takes about 5 s of a CPU
LEAST_SAVED = 0.2  # of the time to read and decode: repeated measurements differ by a tenth
ROOM = 1.02  # times the expected size, for the manifest and the file system's own blocks


@dataclass(frozen=True)
class Estimate:
    """The estimate for `left` samples, from `sample` measured ones. `load_seconds` is the time to read and decode one
    for the first time; CPU times for one in memory are `prepare_seconds`, and in tf.data `again_seconds` (decoding) and
    `read_seconds` (prepared). With `workers` processes all take `seconds`.
    """

    sample: int
    broken: int
    load_seconds: float
    prepare_seconds: float | None
    again_seconds: float | None
    read_seconds: float | None
    workers: int
    seconds: float
    left: int
    bytes: float
    free_bytes: int

    @property
    def passes(self) -> int | None:
        """The number of passes after which the saved CPU time is that of preparing, None if unknown or below
        LEAST_SAVED. A training gets it back only while it waits for its input.
        """
        if self.again_seconds is None or self.read_seconds is None or self.prepare_seconds is None:
            return None
        saved = self.again_seconds - self.read_seconds
        return math.ceil(self.prepare_seconds / saved) if saved > LEAST_SAVED * self.again_seconds else None


def of(measured: Mapping[str, Any], left: int, request: Request, one_process: bool, folder: Path) -> Estimate:
    """Return the estimate from what a worker has measured (trainer/prepare/work.py). `one_process`: the data cannot be
    read by several.
    """
    seconds = left * measured["load_seconds"]  # of one process
    cpus = resource_limits.usable_cpus()
    workers = request.workers or min(cpus, max(1, int(seconds / SECONDS_FOR_A_WORKER)))
    workers = 1 if one_process else workers
    return Estimate(
        measured["samples"],
        measured["broken"],
        measured["load_seconds"],
        measured.get("prepare_seconds"),
        measured.get("again_seconds"),
        measured.get("read_seconds"),
        workers,
        seconds / min(workers, cpus),
        left,
        ROOM * left * measured["bytes"] * (2 if request.format == layout.ARRAYS else 1),
        shutil.disk_usage(folder).free,
    )
