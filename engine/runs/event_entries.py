"""What the mappings within events hold: the entries that readers may rely on; there are more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from ..files.shapes import Fields

Stage = Annotated[
    Mapping[str, Any],
    Fields(
        {
            "name": str,  # read, shuffle, load, batch, prepare, augment and others
            "op": str | None,  # TensorFlow's name of the operation
            "ms_per_batch": float | None,  # its own work, without that of its inputs, over all of its calls
            "parallelism": float | None,  # calls that run at once, which share the work; None: one after the other
        },
        needed=("name", "ms_per_batch"),
    ),
]
Gpu = Annotated[
    Mapping[str, Any],
    Fields(
        {
            "index": int | None,  # NVML's
            "uuid": str | None,
            "name": str | None,
            "missing": str | None,  # why there is no reading
            "busy": float | None,  # the part of the time in which a kernel ran
            "memory_used_bytes": float | None,  # by any program
            "memory_total_bytes": float | None,
            "power_w": float | None,
            "throttle": Sequence[str] | None,  # what slows the chip down
        }
    ),
]
Worker = Annotated[
    Mapping[str, Any],
    Fields(
        {
            "index": int,  # 0: the chief
            "address": str,  # of the cluster
            "host": str,
            "run": str,  # the id of its run
            "folder": str,  # of its run, on its machine
            "replicas": int | None,
            "gpus": Sequence[str] | None,  # its own, by UUID
        },
        needed=("index", "address"),
    ),
]
WorkerFigures = Annotated[
    Mapping[str, Any],
    Fields(
        {
            "index": int,  # 0: the chief
            "address": str,  # of the cluster
            "samples_per_second": float | None,  # its part
            "step_ms_p50": float | None,
            "input_wait": float | None,  # the part of its step time
            "gpus_busy": Sequence[float | None] | None,  # of each of its GPUs
            "missing": str | None,  # why there are no figures
        },
        needed=("index", "address"),
    ),
]
Evidence = Annotated[
    Mapping[str, Any],
    Fields(
        {
            "signal": str,  # the figure
            "value": float | None,
            "unit": str,
            "threshold": float | None,  # from which on it decides
            "text": str,  # the same in words
            "source": str,  # of the threshold
        },
        needed=("signal", "value", "unit", "threshold", "text", "source"),
    ),
]
Remedy = Annotated[
    Mapping[str, Any],
    Fields(
        {
            "step": str,  # of TensorFlow's guide: input, device, precision, xla, gpus
            "changes": Mapping[str, Any],  # key and new value; empty: advice
            "reason": str,
            "expected_gain": float | None,  # the greatest speed-up as a factor
            "changes_learning": bool,  # whether it changes what is learnt
        },
        needed=("changes", "reason"),
    ),
]
