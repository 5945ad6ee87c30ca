"""What the mappings within events hold: the entries that readers may rely on; there are more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from ..files.shapes import Fields

Stage = Annotated[
    Mapping[str, Any],
    Fields(
        {"name": str, "op": str | None, "ms_per_batch": float | None, "parallelism": float | None},
        needed=("name", "ms_per_batch"),
    ),
]
Gpu = Annotated[
    Mapping[str, Any],
    Fields(
        {
            "index": int | None, "uuid": str | None, "name": str | None, "missing": str | None,
            "busy": float | None, "memory_used_bytes": float | None, "memory_total_bytes": float | None,
            "power_w": float | None,
            "throttle": Sequence[str] | None,
        }
    ),
]
Worker = Annotated[
    Mapping[str, Any],
    Fields(
        {
            "index": int, "address": str, "host": str, "run": str, "folder": str, "replicas": int | None,
            "gpus": Sequence[str] | None,
        },
        needed=("index", "address"),
    ),
]
WorkerFigures = Annotated[
    Mapping[str, Any],
    Fields(
        {
            "index": int, "address": str, "samples_per_second": float | None, "step_ms_p50": float | None,
            "input_wait": float | None, "gpus_busy": Sequence[float | None] | None, "missing": str | None,
        },
        needed=("index", "address"),
    ),
]
Evidence = Annotated[
    Mapping[str, Any],
    Fields(
        {"signal": str, "value": float | None, "unit": str, "threshold": float | None, "text": str, "source": str},
        needed=("signal", "value", "unit", "threshold", "text", "source"),
    ),
]
Remedy = Annotated[
    Mapping[str, Any],
    Fields(
        {"step": str, "changes": Mapping[str, Any], "reason": str, "expected_gain": float | None},
        needed=("changes", "reason"),
    ),
]
