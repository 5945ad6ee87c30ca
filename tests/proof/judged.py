"""Figures of trainings as the diagnosis takes them, made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tests.doors.engine import Measurements, defaults

OPTIONS = {
    f"{group}.{name}": value for group, values in asdict(defaults([]).options).items() for name, value in values.items()
}
STAGES = (
    {"name": "read", "op": "Range", "ms_per_batch": 0.1},
    {"name": "load", "op": "Map", "ms_per_batch": 40.0},
    {"name": "batch", "op": "BatchV2", "ms_per_batch": 0.4},
)


def measured(changes: Mapping[str, Any] = {}, **figures: Any) -> Measurements:
    """A training that computes 97 % of the time, with these figures instead."""
    known: dict[str, Any] = {
        "options": OPTIONS | dict(changes),
        "cpus": 4,
        "train_samples": 4096,
        "sample_bytes": 4 * 32 * 32 * 3,
        "global_batch_size": 64,
        "steps_per_epoch": 64,
        "steps": 400,
        "seconds": 20.0,
        "step_ms": 50.0,
        "uneven": 1.2,
        "windows": 400,
        "pauses_counted": 5,
        "input_wait": 0.01,
        "python_share": 0.02,
        "compute_share": 0.97,
        "host_memory_free_bytes": 10**10,
    }
    return Measurements(**known | figures)


def gpu(changes: Mapping[str, Any] = {}, **figures: Any) -> Measurements:
    """The same on a GPU that is busy."""
    known: dict[str, Any] = {"on_gpu": True, "gpus": 1, "compute_capability": (9, 0), "busy_mean": 0.97}
    known |= {"busy_p5": 0.9, "busy_p95": 1.0, "memory_peak": 0.3}
    return measured(changes, **known | figures)


def waits(share: float, **more: Any) -> dict[str, Any]:
    return {"input_wait": share, "compute_share": 1 - share - 0.02} | more
